"""Files: content, modes, names, traps that a hostile process laid, and paths that are refused."""

from __future__ import annotations

import pytest

from engine.sandboxes import InvalidRequest, Sandbox, SandboxFileError

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_binary_content_comes_back(sandbox: Sandbox) -> None:
    blob = bytes(range(256)) * 5000
    await sandbox.write_tree({"deep/er/blob": blob, "text": "grüße\n", "empty": b""})
    assert await sandbox.read("deep/er/blob") == blob
    assert await sandbox.read("/work/text") == "grüße\n".encode()
    assert await sandbox.read("empty") == b""
    assert (await sandbox.exec("wc -c < deep/er/blob", timeout=60)).stdout.strip() == str(len(blob))


async def test_more_than_fits_into_one_message(sandbox: Sandbox) -> None:
    files = {f"part{number}": bytes([number]) * 3_000_000 for number in range(4)}
    await sandbox.write_tree(files)
    for path, content in files.items():
        assert await sandbox.read(path) == content


async def test_modes(sandbox: Sandbox) -> None:
    await sandbox.write_tree(
        [
            {"path": "run.sh", "content": "#!/bin/sh\necho ran\n", "mode": 0o755},
            {"path": "secret", "content": "x", "mode": 0o600},
            {"path": "plain", "content": "x"},
        ]
    )
    done = await sandbox.exec("./run.sh; stat -c %a run.sh secret plain", timeout=60)
    assert done.stdout == "ran\n755\n600\n644\n"


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "new\nline",
        "-rf",
        "ünï",
        "$(touch x)",
        "a'b\"c",
        "*",
        "#frag?q=1",
        "%41",
        ".hidden",
        "\udcff\udc80",
    ],
)
async def test_odd_names(sandbox: Sandbox, name: str) -> None:
    await sandbox.write_tree({f"{name}/{name}": "content"})
    assert await sandbox.read(f"{name}/{name}") == b"content"
    assert (await sandbox.exec("find . -mindepth 1 -printf x", timeout=60)).stdout == "xx"


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/passwd", "/work/x", "", ".", "a/", "..", "a\0b", "x" * 300]
)
async def test_paths_that_leave_the_root_are_refused(sandbox: Sandbox, path: str) -> None:
    with pytest.raises(InvalidRequest):
        await sandbox.write_tree({"fine": "x", path: "x"})
    assert (await sandbox.exec("ls -A", timeout=60)).stdout == ""


async def test_another_root(sandbox: Sandbox) -> None:
    await sandbox.write_tree({"a": "1"}, root="/tmp/deep/place")
    assert await sandbox.read("/tmp/deep/place/a") == b"1"
    with pytest.raises(InvalidRequest):
        await sandbox.write_tree({"a": "1"}, root="/work/../etc")
    with pytest.raises(SandboxFileError) as caught:
        await sandbox.write_tree({"a": "1"}, root="/usr/mine")
    assert caught.value.reason == "denied"


async def test_traps_in_the_way_are_replaced(sandbox: Sandbox) -> None:
    """A grader's files land where it says, whatever the agent left there."""
    await sandbox.exec(
        """
        ln -s /tmp/elsewhere link; ln -s /usr/bin dirlink; mkdir -p full/of/things; touch full/of/things/x
        mkfifo pipe; echo old > readonly; chmod 400 readonly; mkdir locked; chmod 000 locked; chmod 500 full/of/things
        ln -s /tmp loop; echo file > wasfile
        """,
        timeout=60,
    )
    targets = ["link", "dirlink/ls", "full", "pipe", "readonly", "locked/inside", "loop/x", "wasfile/below"]
    await sandbox.write_tree(dict.fromkeys(targets, "ours"))
    for target in targets:
        assert await sandbox.read(target) == b"ours"
    left = await sandbox.exec("ls -A /tmp; find . -type l -o -type p; find . -name '.ltui*'", timeout=60)
    assert left.stdout == ""


async def test_what_cannot_be_read(sandbox: Sandbox) -> None:
    await sandbox.exec(
        "mkdir dir; mkfifo pipe; echo x > hidden; chmod 000 hidden; ln -s a b; ln -s b a", timeout=60
    )
    await sandbox.write_tree({"large": b"x" * 1000})
    for path, reason in {
        "nothing": "missing",
        "large/below": "missing",
        "a": "missing",
        "dir": "directory",
        "pipe": "not_a_file",
        "/dev/zero": "not_a_file",
        "hidden": "denied",
    }.items():
        with pytest.raises(SandboxFileError) as caught:
            await sandbox.read(path)
        assert (path, caught.value.reason) == (path, reason)
    with pytest.raises(SandboxFileError, match="more than 999 bytes"):
        await sandbox.read("large", max_bytes=999)
    assert len(await sandbox.read("large", max_bytes=1000)) == 1000
    with pytest.raises(InvalidRequest):
        await sandbox.read("../work/large")


async def test_a_full_disk_is_told(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFileError) as caught:
        await sandbox.write_tree({"large": b"x" * 20_000_000})
    assert caught.value.reason == "no_space"
    assert (await sandbox.exec("ls -A", timeout=60)).stdout == ""
