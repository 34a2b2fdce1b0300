"""Configs: what they may say, how they are read, and what is wrong with one, in words."""

from engine.config.bundled import bundled_configs, bundled_path, examples_dir
from engine.config.explain import known_keys
from engine.config.loading import LoadedConfig, load_config
from engine.config.problems import ConfigError, Problem
from engine.config.report import CheckReport, Finding, Severity
from engine.config.secrets import redact, secret_values
from engine.config.settings import EffectiveScope, Settings
from engine.config.tasks import LoadedTask, load_tasks

__all__ = [
    "CheckReport",
    "ConfigError",
    "EffectiveScope",
    "Finding",
    "LoadedConfig",
    "LoadedTask",
    "Problem",
    "Settings",
    "Severity",
    "bundled_configs",
    "bundled_path",
    "examples_dir",
    "known_keys",
    "load_config",
    "load_tasks",
    "redact",
    "secret_values",
]
