"""The shipped model's real renderer, shared with the tests of conversations."""

from tests.policy.conftest import renderer

__all__ = ["renderer"]
