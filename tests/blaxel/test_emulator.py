"""The emulator answers the unmodified SDK as Blaxel does, and fails as it is told to."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.blaxel_emulator.faults import CREATE, DELETE, PLANE, Fault, every_kind
from tests.blaxel_emulator.records import Settings
from tests.blaxel_emulator.serving import Emulator, EmulatorProcess, emulator
from tests.sandboxes.conftest import needs_bubblewrap
from tests.sandboxes.traces import until

pytestmark = [
    needs_bubblewrap,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),
]


@asynccontextmanager
async def serving(
    place: Path,
    settings: Settings | None = None,
    faults: list[Fault] | None = None,
    *,
    key: str | None = None,
) -> AsyncIterator[tuple[Emulator, Any]]:
    """The emulator, and the SDK's class pointed at it."""
    os.environ["DO_NOT_TRACK"] = "1"
    from blaxel.core import SandboxInstance, client
    from blaxel.core import settings as sdk
    from blaxel.core.authentication import CredentialsType
    from blaxel.core.authentication.apikey import ApiKey

    async with emulator(place, settings, faults or []) as served:
        account = served.world.settings
        credentials = CredentialsType(api_key=key or account.key, workspace=account.workspace)
        sdk.auth = ApiKey(credentials, account.workspace, served.url)
        client.with_base_url(served.url)
        client.with_auth(sdk.auth)
        yield served, SandboxInstance
        await client.get_async_httpx_client().aclose()
        client.set_async_httpx_client(None)  # type: ignore[arg-type]


async def refused(call: Awaitable[Any]) -> BaseException:
    (answer,) = await asyncio.gather(call, return_exceptions=True)
    assert isinstance(answer, Exception)
    return answer


async def gone(served: Emulator, name: str) -> None:
    await until(lambda: served.world.boxes[name].status == "TERMINATED")


async def test_the_story_of_a_sandbox(tmp_path: Path) -> None:
    async with serving(tmp_path) as (served, boxes):
        wanted = {"name": "a-1", "labels": {"run": "7"}, "memory": 512, "ttl": "1h", "image": "blaxel/py:1"}
        box = await boxes.create({**wanted, "envs": [{"name": "WORD", "value": "secret"}]})
        assert (box.status, box.metadata.labels.to_dict()) == ("DEPLOYED", {"run": "7"})
        assert httpx.URL(box.metadata.url).host == "127.0.0.1"
        assert box.spec.runtime.envs[0].value == "****"
        assert 3590 <= box.expires_in <= 3600
        listing = await box.fs.write_tree([{"path": "a/b.txt", "content": "hé"}], "/work")
        assert [each.name for each in listing.subdirectories] == ["a"]
        command = {"command": "cat a/b.txt; echo $WORD $ONE >&2", "working_dir": "/work", "env": {"ONE": "1"}}
        done = await box.process.exec({**command, "wait_for_completion": True})
        assert (done.status, done.exit_code, done.stdout, done.stderr) == ("completed", 0, "hé", "secret 1\n")
        assert done.logs == "hésecret 1\n"
        assert (await box.delete()).status == "DELETING"
        assert (await boxes.get("a-1")).status in ("DELETING", "TERMINATED")
        await gone(served, "a-1")
        assert (await boxes.get("a-1")).status == "TERMINATED"
        assert list(await boxes.list()) == []
        late = await refused(box.process.exec({"command": "true"}))
        assert (getattr(late, "status", 0), getattr(late, "code", "")) == (404, "WORKLOAD_NOT_FOUND")
        assert getattr(await refused(boxes.delete("a-1")), "status_code", 0) == 404
        served.world.advance(301)
        assert getattr(await refused(boxes.get("a-1")), "status_code", 0) == 404


async def test_commands(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, boxes):
        run = (await boxes.create({"name": "a"})).process

        async def ended(command: str, **more: Any) -> tuple[str, int, int]:
            done = await run.exec({"command": command, "wait_for_completion": True, **more})
            return str(done.status), done.exit_code, len(done.stdout)

        assert await ended("exit 3") == ("failed", 3, 0)
        assert await ended("kill -9 $$") == ("failed", -1, 0)
        big = "head -c 102400 /dev/zero | tr '\\0' x"
        assert await ended(big, name="big") == ("completed", 0, 102400)
        assert len((await run.get("big")).stdout) == 65536
        assert len(await run.logs("big", "stdout")) == 102400
        missing = await refused(run.exec({"command": "true", "working_dir": "/work"}))
        assert getattr(missing, "status", 0) == 422
        # Its time is over for the waiting alone; the command goes on.
        request = {"name": "slow", "command": "sleep 60", "wait_for_completion": True, "timeout": 1}
        late = await refused(run.exec(request))
        assert (getattr(late, "status", 0), "timed out after 1" in str(late)) == (422, True)
        slow = await run.get("slow")
        assert (slow.status, slow.exit_code, slow.completed_at) == ("running", 0, "")
        again = await refused(run.exec({"name": "slow", "command": "true"}))
        assert (getattr(again, "status", 0), "already" in str(again)) == (400, True)
        await run.kill("slow")
        killed = await run.wait("slow", max_wait=20000)
        assert (killed.status, killed.exit_code) == ("killed", -1)
        assert getattr(await refused(run.kill("slow")), "status", 0) == 404
        # With keep_alive the server ends the group itself; what left it lives on.
        jobs = "setsid sleep 61 & sleep 62 & sleep 63"
        await run.exec({"name": "kept", "command": jobs, "keep_alive": True, "timeout": 1})
        assert (await run.wait("kept", max_wait=20000)).status == "killed"
        left = await run.exec({"command": "ps -eo args | grep '^sleep'", "wait_for_completion": True})
        assert left.stdout == "sleep 61\n"
        assert len(await run.list()) == 6


async def test_a_streamed_command(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, boxes):
        box = await boxes.create({"name": "a"})
        heard: list[str] = []
        more = {
            "wait_for_completion": True,
            "on_stdout": heard.append,
            "on_stderr": lambda t: heard.append("!" + t),
        }
        command = "echo one; read go < /tmp/go; echo two >&2; exit 2"
        await box.process.exec({"command": "mkfifo /tmp/go", "wait_for_completion": True})
        streamed = asyncio.create_task(box.process.exec({"command": command, **more}))
        await until(lambda: heard == ["one\n"])
        await box.process.exec({"command": "echo > /tmp/go"})
        done = await streamed
        assert (heard, done.status, done.exit_code) == (["one\n", "!two\n"], "failed", 2)
        assert (done.stdout, done.stderr) == ("one\n", "two\n")


async def test_files(tmp_path: Path) -> None:
    async with serving(tmp_path) as (served, boxes):
        box = await boxes.create({"name": "a"})
        files = box.fs
        assert getattr(await refused(files.ls("/work")), "status", 0) == 404  # a real image has none
        await files.mkdir("/work/d", "0700")
        await files.write("/work/d/é x.txt", "tëxt")
        assert await files.read("/work/d/é x.txt") == "tëxt"
        content = os.urandom(11 * 1024 * 1024)
        await files.write_binary("/work/big", content)
        assert await files.read_binary("/work/big") == content
        assert served.world.boxes["a"].uploads == {}
        await files.write_binary("/work/small", b"\0\xff")
        listed = await files.ls("/work")
        assert [(f.name, f.size, stat.S_IMODE(int(f.permissions, 8))) for f in listed.files] == [
            ("big", len(content), 0o644),
            ("small", 2, 0o644),
        ]
        mode = await box.process.exec({"command": "stat -c %a /work/d", "wait_for_completion": True})
        assert mode.stdout == "700\n"
        tree = await files.read_tree("/work", patterns=["*.txt"])
        assert [(f.path, f.content) for f in tree.files] == [("/work/d/é x.txt", "tëxt")]
        assert getattr(await refused(files.rm("/work/d")), "status", 0) == 422
        await files.rm("/work/d", recursive=True)
        assert getattr(await refused(files.read("/work/d/é x.txt")), "status", 0) == 404
        assert getattr(await refused(files.rm("/work/d")), "status", 0) == 404
        large = await refused(files.write_tree([{"path": "x", "content": "x" * 5_000_000}], "/work"))
        assert getattr(large, "status", 0) == 413


async def test_names_and_lifetimes(tmp_path: Path) -> None:
    async with serving(tmp_path, Settings(delete_seconds=30)) as (served, boxes):
        await boxes.create({"name": "a", "ttl": "5m"})
        twice = await refused(boxes.create({"name": "a"}))
        assert (getattr(twice, "status_code", 0), getattr(twice, "code", "")) == (
            409,
            "SANDBOX_ALREADY_EXISTS",
        )
        assert (await boxes.create_if_not_exists({"name": "a"})).metadata.name == "a"
        for wrong in ({"name": "A_b"}, {"name": "b", "ttl": "1m"}, {"name": "b", "image": "missing/x"}):
            assert getattr(await refused(boxes.create(wrong)), "status_code", 0) == 400
        await boxes.update_ttl("a", "2h")
        served.world.advance(301)
        assert (await boxes.get("a")).status == "DEPLOYED"
        served.world.advance(7200)
        assert (await boxes.get("a")).status == "DELETING"
        assert [box.metadata.name for box in await boxes.list()] == ["a"]
        during = await refused(boxes.create({"name": "a"}))
        assert getattr(during, "code", "") == "SANDBOX_DELETION_IN_PROGRESS"
        assert getattr(await refused(boxes.delete("a")), "status_code", 0) == 409


async def test_pages(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, boxes):
        names = [f"n-{number}" for number in range(7)]
        await asyncio.gather(*(boxes.create({"name": name, "labels": {"of": name}}) for name in names))
        page, found = await boxes.list(limit=3), list[str]()
        sizes = [len(page)]
        found += [box.metadata.labels.to_dict()["of"] for box in page]
        while page.has_more:
            page = await page.next_page()
            sizes.append(len(page))
            found += [box.metadata.labels.to_dict()["of"] for box in page]
        assert (sizes, sorted(found)) == ([3, 3, 1], names)


async def test_keys(tmp_path: Path) -> None:
    async with serving(tmp_path, key="wrong") as (served, boxes):
        created = await refused(boxes.create({"name": "a"}))
        assert (getattr(created, "status_code", 0), getattr(created, "code", "")) == (403, "UNAUTHORIZED")
        assert getattr(await refused(boxes.list()), "status_code", 0) == 401
        plane = f"{served.world.base_url}/main/sandboxes/a/process"
        async with httpx.AsyncClient(trust_env=False) as bare:
            assert (await bare.get(plane)).status_code == 401
            assert (await bare.get(f"{served.url}/sandboxes")).status_code == 401
        assert served.world.boxes == {}


# -- faults ------------------------------------------------------------------------------------------------------

_BY_KIND: dict[str, tuple[Fault, type[Exception] | None, bool]] = {
    # kind: the fault, what create raises, whether the sandbox is there afterwards
    "latency": (Fault("latency", CREATE, seconds=0.05), None, True),
    "rate limit": (Fault("status", CREATE, status=429, retry_after=7), Exception, False),
    "500": (Fault("status", CREATE, status=500), Exception, False),
    "html": (Fault("html", CREATE, status=502), Exception, False),
    "drop": (Fault("drop", CREATE), httpx.TransportError, False),
    "slow_reply": (Fault("slow_reply", CREATE, seconds=0.05), None, True),
    "lost_reply": (Fault("lost_reply", CREATE), httpx.TransportError, True),
    "late_failure": (Fault("late_failure", CREATE, status=502), Exception, True),
    "hang": (Fault("hang", CREATE), Exception, False),
}


@pytest.mark.parametrize("kind", _BY_KIND)
async def test_a_fault_of_a_creation(tmp_path: Path, kind: str) -> None:
    fault, error, there = _BY_KIND[kind]
    fault = Fault(**{**fault.to_json(), "count": 1})
    async with serving(tmp_path, Settings(edge_seconds=2), [fault]) as (served, boxes):
        if error is None:
            await boxes.create({"name": "a"})
        else:
            raised = await refused(boxes.create({"name": "a"}))
            assert isinstance(raised, error)
            assert getattr(raised, "retry_after_seconds", fault.retry_after) == fault.retry_after
        assert ("a" in served.world.boxes) is there
        assert served.world.requests[0]["faults"] == [fault.kind]
        await boxes.create({"name": "b"})  # once is once


async def test_a_creation_goes_on_when_its_client_has_left(tmp_path: Path) -> None:
    faults = [Fault("latency", CREATE, seconds=0.5)]
    async with serving(tmp_path, faults=faults) as (served, boxes):
        creating = asyncio.create_task(boxes.create({"name": "a"}))
        await until(lambda: len(served.world.requests) == 1)
        creating.cancel()
        await asyncio.wait({creating})
        assert served.world.boxes == {}
        await until(lambda: "a" in served.world.boxes)


async def test_the_edge_gives_up_but_the_work_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, Settings(edge_seconds=0.5)) as (_, boxes):
        run = (await boxes.create({"name": "a"})).process
        request = {"name": "long", "command": "sleep 1; echo end", "wait_for_completion": True}
        cut = await refused(run.exec(request))
        assert (getattr(cut, "status", 0), getattr(cut, "code", "")) == (504, "UPSTREAM_TIMEOUT")
        assert (await run.wait("long", max_wait=20000, interval=50)).stdout == "end\n"


async def test_the_quota(tmp_path: Path) -> None:
    async with serving(tmp_path, Settings(max_live=2)) as (served, boxes):
        outcomes = await asyncio.gather(
            *(boxes.create({"name": f"a-{n}"}) for n in range(5)), return_exceptions=True
        )
        codes = [getattr(each, "code", "") for each in outcomes if isinstance(each, Exception)]
        assert codes == ["QUOTA_EXCEEDED"] * 3
        await boxes.delete(next(iter(served.world.boxes)))
        await until(lambda: len(served.world.live()) == 1)
        await boxes.create({"name": "b"})


@pytest.mark.parametrize(("how", "status", "live"), [("terminated", 404, 0), ("failed", 503, 1)])
async def test_a_sandbox_that_ends_by_itself(tmp_path: Path, how: Any, status: int, live: int) -> None:
    async with serving(tmp_path) as (served, boxes):
        box = await boxes.create({"name": "a"})
        waiting = asyncio.create_task(box.process.exec({"command": "sleep 60", "wait_for_completion": True}))
        await until(lambda: any(p.pid != "0" for p in served.world.boxes["a"].processes.all))
        await served.world.die(served.world.boxes["a"], how)
        assert getattr(await refused(waiting), "status", 0) == 502
        assert getattr(await refused(box.process.exec({"command": "true"})), "status", 0) == status
        assert len(served.world.live()) == live


async def test_slow_and_hung_commands_and_deletions(tmp_path: Path) -> None:
    faults = [Fault("slow_command", PLANE, count=1, seconds=0.2), Fault("slow_delete", DELETE, seconds=60)]
    async with serving(tmp_path, faults=faults) as (served, boxes):
        run = (await boxes.create({"name": "a"})).process
        slow = await run.exec({"command": "date +%s%N", "wait_for_completion": True})
        assert slow.status == "completed"
        served.world.faults.rules.append(Fault("hung_command", PLANE))
        late = await refused(run.exec({"command": "true", "wait_for_completion": True, "timeout": 1}))
        assert getattr(late, "status", 0) == 422
        await boxes.delete("a")
        assert [box.status for box in served.world.live()] == ["DELETING"]


async def test_faults_are_the_same_with_the_same_seed() -> None:
    from tests.blaxel_emulator.faults import KINDS, Faults

    drawn = []
    for seed in (1, 1, 2):
        dice = Faults(every_kind(0.3), seed)
        hits = [[rule.kind for rule in dice.draw("POST /v0/sandboxes", KINDS)] for _ in range(50)]
        drawn.append(hits)
    assert drawn[0] == drawn[1] != drawn[2]
    assert {rule.kind for rule in every_kind(0.3)} == set(KINDS)
    with pytest.raises(ValueError, match="no kind of fault"):
        Fault("sloth")  # type: ignore[arg-type]


def test_as_a_process(tmp_path: Path) -> None:
    with EmulatorProcess(tmp_path / "emulator.log", Settings(max_live=3)) as served:
        headers = {"X-Blaxel-Authorization": f"Bearer {served.settings.key}", "X-Blaxel-Workspace": "main"}
        ask: Callable[..., httpx.Response] = httpx.Client(headers=headers, trust_env=False).request
        made = ask("POST", f"{served.url}/sandboxes", json={"metadata": {"name": "a"}, "spec": {}})
        assert made.json()["status"] == "DEPLOYED"
        assert [(box["name"], box["status"]) for box in served.live()] == [("a", "DEPLOYED")]
        served.set_faults([Fault("html", status=503)])
        assert ask("GET", f"{served.url}/sandboxes").text.startswith("<html>")
        served.set_faults([])
        served.admin("sandboxes/a/die", "POST", how="terminated")
        assert served.live() == []
        assert served.admin("counts")["TERMINATED"] == 1
        assert [entry["status"] for entry in served.admin("requests")] == [200, 503]
