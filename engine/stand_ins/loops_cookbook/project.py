"""``engine.project`` under the name that programs written for the cookbook import."""

from engine.project import *  # noqa: F403 - each name of its __all__
