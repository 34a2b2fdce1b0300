"""The policy as an agent sees it: token-exact conversations over a sampler, rendered by ``renderers``."""
