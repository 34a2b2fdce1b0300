"""``engine.episodes`` under the name that the cookbook's episodes import."""

from engine.episodes import *  # noqa: F403 - each name of its __all__
