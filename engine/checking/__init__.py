"""What can be known about a run before it spends anything, one subject a module."""
