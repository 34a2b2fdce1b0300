"""The SDK's import changes nothing in this process; credentials and addresses are what the project says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.sandboxes import CredentialsError, PermanentError, SandboxSpec
from engine.sandboxes.blaxel import sdk
from engine.sandboxes.blaxel.provider import BlaxelProvider
from engine.sandboxes.naming import new_name
from tests.blaxel_emulator.serving import Emulator

on_the_modules_loop = pytest.mark.asyncio(loop_scope="module")

IMPORT = """
import logging, os, signal, sys, threading, warnings
root = logging.getLogger()
logging.getLogger("httpx").setLevel(logging.INFO)
before = (list(root.handlers), root.level, signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM),
          sys.excepthook, threading.excepthook, threading.active_count())
from engine.sandboxes.blaxel import sdk
assert "blaxel" not in sys.modules
sdk.load()
assert "blaxel" in sys.modules
after = (list(root.handlers), root.level, signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM),
         sys.excepthook, threading.excepthook, threading.active_count())
assert before == after, (before, after)
assert logging.getLogger("httpx").level == logging.INFO
assert logging.getLogger("urllib3").level == logging.NOTSET
from blaxel.core import settings
assert settings.tracking is False
assert settings.enable_opentelemetry is False
assert "loops-tui/" in settings.user_agent
assert "sentry_sdk" not in sys.modules
print(os.environ.get("LOG_LEVEL"))
"""


@pytest.mark.parametrize("level", ["INFO", "chatty", ""])
def test_the_import_is_silent_and_leaves_the_process_alone(tmp_path: Path, level: str) -> None:
    environ = {
        **os.environ,
        "HOME": str(tmp_path),
        "LOG_LEVEL": level,
        "DO_NOT_TRACK": "",  # which turns the SDK's error reports on
        "BL_ENABLE_OPENTELEMETRY": "true",
    }
    words = [sys.executable, "-c", IMPORT]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{level}\n"


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    sdk.load()


@pytest.mark.parametrize("environ", [{}, {"BL_WORKSPACE": "main"}, {"BL_API_KEY": "some-key"}])
def test_missing_credentials_are_told_in_one_sentence(environ: dict[str, str]) -> None:
    with pytest.raises(CredentialsError) as raised:
        sdk.find_account(environ)
    assert str(raised.value) == (
        "Blaxel needs BL_WORKSPACE and BL_API_KEY in the environment or in a .env beside the training config"
    )


def test_credentials_of_the_projects_variables_and_of_the_sdks_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = sdk.find_account({"BL_WORKSPACE": "main", "BL_API_KEY": "secret-of-env"})
    assert account.workspace == "main"
    assert account.auth.get_headers()["X-Blaxel-Authorization"] == "Bearer secret-of-env"
    assert "secret-of-env" not in repr(account)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".blaxel").mkdir()
    (tmp_path / ".blaxel" / "config.yaml").write_text(
        "context: {workspace: filed}\nworkspaces:\n- {name: filed, credentials: {apiKey: secret-of-file}}\n"
    )
    filed = sdk.find_account({})
    assert filed.workspace == "filed"
    assert filed.auth.get_headers()["X-Blaxel-Authorization"] == "Bearer secret-of-file"
    mixed = sdk.find_account({"BL_API_KEY": "secret-of-env"})
    assert mixed.auth.get_headers()["X-Blaxel-Workspace"] == "filed"
    assert mixed.auth.get_headers()["X-Blaxel-Authorization"] == "Bearer secret-of-env"


def test_where_the_service_is() -> None:
    assert sdk.service_url({}, None) is None
    assert sdk.service_url({}, "http://127.0.0.1:1/v0/") == "http://127.0.0.1:1/v0"
    assert sdk.service_url({sdk.URL_VARIABLE: "https://b/v0"}, "http://a/v0") == "https://b/v0"
    with pytest.raises(PermanentError, match="LOOPS_TUI_BLAXEL_URL must begin with"):
        sdk.service_url({sdk.URL_VARIABLE: "b:80"}, None)


@pytest.mark.parametrize(
    ("url", "base", "fine"),
    [
        ("http://127.0.0.1:5/x", "http://127.0.0.1:1/v0", True),
        ("http://[::1]:5/x", "http://localhost:1/v0", True),
        ("https://run.blaxel.ai/x", "http://127.0.0.1:1/v0", False),
        ("http://10.0.0.1/x", "http://localhost:1/v0", False),
        ("http://127.0.0.1.evil.example/x", "http://127.0.0.1:1/v0", False),
        ("https://run.blaxel.ai/x", None, True),
        ("http://run.blaxel.ai/x", None, False),
        ("http://inside/x", "http://inside/v0", True),
        ("http://inside/x", "https://inside/v0", False),
    ],
)
def test_where_our_key_may_go(url: str, base: str | None, fine: bool) -> None:
    if fine:
        sdk.check_sandbox_url(url, base)
    else:
        with pytest.raises(PermanentError, match="nothing is sent there"):
            sdk.check_sandbox_url(url, base)


@on_the_modules_loop
async def test_a_service_that_points_away_from_this_machine_is_refused(
    service: Emulator, provider: BlaxelProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name("test")
    monkeypatch.setattr(
        service.world, "url_of", lambda box: f"https://run.blaxel.ai/main/sandboxes/{box.name}"
    )
    with pytest.raises(PermanentError, match="not on this machine"):
        await provider.create(SandboxSpec(name))
    await provider.release(name)
    assert service.world.live() == []


@on_the_modules_loop
async def test_one_process_talks_to_one_service_at_a_time(
    service: Emulator, provider: BlaxelProvider, tmp_path: Path
) -> None:
    name = new_name("test")
    await provider.create(SandboxSpec(name))
    other = BlaxelProvider(tmp_path, environ={**service.environment(), "BL_WORKSPACE": "another"})
    with pytest.raises(PermanentError, match="this process already uses Blaxel"):
        await other.list()
    await other.aclose()
    same = BlaxelProvider(tmp_path, environ=service.environment())
    assert await same.list() == []
    await same.aclose()
    await provider.release(name)
