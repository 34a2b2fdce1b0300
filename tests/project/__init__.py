"""The library's face: modules beside a config, episodes, check."""
