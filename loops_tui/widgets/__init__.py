"""What two screens share: spans of safe text, the virtual table, sparks and plots, dialogs."""
