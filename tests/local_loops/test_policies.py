"""Waiting for a policy version."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from engine.local_loops.compute.interface import Backend
from engine.local_loops.faults import ApiFault
from engine.local_loops.policies import Policy, RunPolicies


def _policy(version: int) -> Policy:
    return Policy(f"v{version}", cast(Backend, None), version=version)


def _policies(kept: int = 3, stored: dict[int, Policy] | None = None) -> RunPolicies:
    return RunPolicies("run", kept, (stored or {}).get)


async def test_a_request_is_held_until_its_floor_is_live() -> None:
    policies = _policies()
    waiting = [asyncio.create_task(policies.wait_for(2, 30.0)) for _ in range(3)]
    policies.publish(_policy(1), live=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    second = _policy(2)
    policies.publish(second, live=True)
    assert await asyncio.gather(*waiting) == [second] * 3


async def test_the_exact_version_is_served_while_it_is_kept() -> None:
    stored = _policy(2)
    policies = _policies(3, {2: stored})
    published = [_policy(version) for version in range(1, 8)]
    for policy in published:
        policies.publish(policy, live=True)
    assert await policies.wait_for(7, 1.0) is published[6]
    assert await policies.wait_for(5, 1.0) is published[4]
    assert await policies.wait_for(2, 1.0) is stored  # from the disk
    assert await policies.wait_for(1, 1.0) is published[4]  # gone: the nearest newer one


async def test_a_version_that_was_only_saved_does_not_raise_the_floor() -> None:
    policies = _policies()
    policies.publish(_policy(1), live=True)
    policies.publish(_policy(2), live=False)
    assert policies.live is not None
    assert policies.live.version == 1
    with pytest.raises(ApiFault, match=r"version 3 .* \(live: 1\)"):
        await policies.wait_for(3, 0.0)


async def test_deactivation_releases_who_waits() -> None:
    policies = _policies()
    waiting = asyncio.create_task(policies.wait_for(1, 30.0))
    await asyncio.sleep(0)
    policies.close()
    with pytest.raises(ApiFault, match="deactivated") as refused:
        await waiting
    assert refused.value.status == 422
