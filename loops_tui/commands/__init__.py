"""The commands behind ``loops-tui <command>``, one subject a module. They import the engine when they need it."""
