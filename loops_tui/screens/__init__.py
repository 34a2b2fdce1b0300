"""The screens of the application, one module and one style sheet each."""
