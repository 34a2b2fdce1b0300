"""Recipes: the training loops. A recipe knows nothing of who hosts it or who watches it."""
