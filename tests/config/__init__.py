"""Configs: keys, files, overrides, .env files, tasks."""
