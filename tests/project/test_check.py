"""Check: one report, all findings, nothing started."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from engine.checking import rendering
from engine.checking.check import CHECKED
from engine.checking.since import since
from engine.config import CheckReport, Severity, examples_dir
from engine.config.local_models import shipped_models
from engine.project import Project, load
from engine.store.rows import CheckRow

Make = Callable[..., Project]
needs_model = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")


def errors(report: CheckReport) -> list[str]:
    return [str(finding) for finding in report.findings if finding.severity is Severity.ERROR]


@needs_model
async def test_a_sound_config(make: Make, tmp_path: Path) -> None:
    project = make()
    report = await project.check()
    assert errors(report) == []
    assert report.ok
    lines = report.describe()
    assert lines[0].startswith("Loops model: loops-demo-1m; max_seq_len 128 (its context is ")
    assert "Runtime: engine.episodes:create_runtime; tasks: 2" in lines
    assert "Renderer: Qwen3Renderer" in "\n".join(lines)
    assert lines[lines.index("Mode: sync; batch: 1 × 4") - 2].startswith("Images: not supported")
    assert lines[lines.index("Producers: main (trainable); every model call uses it") - 1].startswith(
        "Concurrency"
    )
    assert "Mode: sync; batch: 1 × 4" in lines
    assert not any(line.startswith("Context:") for line in lines)  # 2 turns of 16 tokens fit
    assert "Loss: cispo" in lines
    assert lines[-1] == CHECKED
    assert json.loads(json.dumps(report.to_json()))["ok"] is True
    assert not (tmp_path / "runs").exists()


@needs_model
@pytest.mark.parametrize(
    "config",
    [
        "in_process_direct/train.toml",
        "tool_agent/train_local.toml",
        "tool_agent/train_async.toml",
        "sft_tool_use/sft.toml",
    ],
)
async def test_bundled_local_examples_check(config: str) -> None:
    root = examples_dir()
    assert root is not None
    report = await load(root / config).check()
    assert errors(report) == []
    # A machine without bubblewrap is told so; nothing else may be found.
    assert [f.text for f in report.findings if f.key != "runtime.config.sandbox.isolation"] == []
    page = (root.parent / "docs" / "check.md").read_text()
    heads = {match[0] for line in report.lines[:-1] if (match := re.match(r"[A-Z][A-Za-z -]*[a-z]", line))}
    assert {head for head in heads if f"`{head}`" not in page} == set()


async def test_all_subjects_are_reported_at_once(make: Make, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    project = make(
        overrides=("model.base_model=loops-demo-2m", "output.output_dir=taken/runs", "sampling.top_p=0.9"),
    )
    (tmp_path / "tasks.jsonl").write_text('{"question": 1}\n')
    report = await project.check()
    told = errors(report)
    assert any("there is no model 'loops-demo-2m'" in text for text in told)
    assert any("tasks.jsonl:1: the task's 'question' is not valid" in text for text in told)
    assert any("taken is a file" in text for text in told)
    warnings = [finding for finding in report.findings if finding.severity is Severity.WARNING]
    assert [finding.key for finding in warnings] == ["sampling.top_p"]
    assert not report.ok
    assert report.lines[-1] == "Not ready: 3 errors; no sandbox or Loops trainer launched."


async def test_a_model_directory_must_hold_a_model(make: Make, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    override = ("model.base_model=./model",)
    assert "has no config.json" in errors(await make(overrides=override).check())[0]
    (model / "config.json").write_text('{"architectures": ["MambaForCausalLM"]}')
    assert "holds a MambaForCausalLM" in errors(await make(overrides=override).check())[0]
    (model / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    assert "no weights in safetensors" in errors(await make(overrides=override).check())[0]
    override = ("model.base_model=/not/there",)
    assert "/not/there does not exist" in errors(await make(overrides=override).check())[0]


@needs_model
async def test_too_long_for_the_model(make: Make) -> None:
    told = errors(await make(overrides=("model.max_seq_len=1000000",)).check())
    assert "takes at most" in told[0]


@needs_model
async def test_an_unknown_renderer(make: Make) -> None:
    told = errors(await make(overrides=("model.renderer=qwen33",)).check())
    assert "Did you mean 'qwen3'?" in told[0]


async def test_an_unwritable_output(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make()

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("engine.checking.output.tempfile.TemporaryFile", refuse)
    assert any("Permission denied" in text for text in errors(await project.check()))


class FakeLoops(BaseHTTPRequestHandler):
    """Answers the two questions that a check asks."""

    def _answer(self) -> None:
        ok = self.headers.get("Authorization") == "Api-Key right-key"
        body: dict[str, object] = {"error": "Invalid API key"}
        if ok and self.path.endswith("/sessions"):
            body = {"session": {"id": "s1"}}
        elif ok:
            body = {"supported_models": [{"model_name": "Qwen/Qwen3.5-4B", "max_context_length": 32768}]}
        data = json.dumps(body).encode()
        self.send_response(200 if ok else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def loops_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeLoops)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(120)


async def on_baseten(make: Make, url: str, *more: str) -> CheckReport:
    base = ("compute.scope=dedicated", f"compute.base_url={url}", "model.base_model=Qwen/Qwen3.5-4B")
    return await make(overrides=(*base, *more)).check()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr("engine.checking.check.check_rendering", nothing)


@pytest.mark.usefixtures("no_hub")
async def test_a_model_that_loops_offers(make: Make, loops_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASETEN_API_KEY", "right-key")
    report = await on_baseten(make, loops_url)
    assert errors(report) == []
    assert report.lines[0] == "Loops model: Qwen/Qwen3.5-4B; max_seq_len 128 (enabled up to 32768)"
    told = errors(await on_baseten(make, loops_url, "model.max_seq_len=40000"))
    assert "takes at most 32768 tokens" in told[0]


@pytest.mark.usefixtures("no_hub")
async def test_a_model_that_loops_does_not_offer(
    make: Make, loops_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASETEN_API_KEY", "right-key")
    told = errors(await on_baseten(make, loops_url, "model.base_model=Qwen/Qwen3.5-4"))
    assert "does not offer the model 'Qwen/Qwen3.5-4'. Did you mean 'Qwen/Qwen3.5-4B'?" in told[0]


@pytest.mark.usefixtures("no_hub")
async def test_a_wrong_key_and_no_key(make: Make, loops_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("baseten_key", "right-key")
    told = errors(await on_baseten(make, loops_url))
    assert "BASETEN_API_KEY is not set, and a run on Baseten needs it; baseten_key is." in told[0]
    for placeholder in ("<your key>", "'quoted'", "kéy", "two words"):
        monkeypatch.setenv("BASETEN_API_KEY", placeholder)
        told = errors(await on_baseten(make, loops_url))
        assert "holds a character that no key has" in told[0]
        assert placeholder not in told[0]
    monkeypatch.setenv("BASETEN_API_KEY", "wrong-key")
    told = errors(await on_baseten(make, loops_url))
    assert "refused the API key" in told[0]
    assert "wrong-key" not in told[0]


@pytest.mark.usefixtures("no_hub")
async def test_loops_is_not_there(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASETEN_API_KEY", "key-of-nobody")
    told = errors(await on_baseten(make, "http://127.0.0.1:9"))
    assert told[0].startswith("error: override compute.base_url: nothing answers at http://127.0.0.1:9")
    report = await make(overrides=("compute.scope=dedicated", "model.base_model=a/b")).check(loops=False)
    assert report.ok
    assert "Loops was not asked" in report.lines[-1]


@pytest.mark.usefixtures("no_hub")
async def test_an_address_that_never_answers_and_one_that_is_not_loops(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASETEN_API_KEY", "key-of-nobody")
    monkeypatch.setattr("engine.checking.models.LOOPS_SECONDS", 0.5)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(1)
        told = errors(await on_baseten(make, f"http://127.0.0.1:{deaf.getsockname()[1]}"))
    assert "Check BASETEN_API_KEY, the address and the network" in told[0]

    async def other_service(*_: object, **__: object) -> httpx.Response:
        return httpx.Response(200, text="<html>", request=httpx.Request("GET", "http://other.test"))

    monkeypatch.setattr(httpx.AsyncClient, "get", other_service)
    assert "does not speak Loops" in errors(await on_baseten(make, "http://other.test"))[0]


@needs_model
async def test_the_shipped_model_is_not_on_baseten(make: Make) -> None:
    told = errors(await make(overrides=("compute.scope=serverless",)).check())
    assert "runs on this machine only. Set [compute] scope = 'local'" in told[0]


async def test_a_hub_that_is_not_there_costs_no_minutes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    project = make(overrides=("compute.scope=dedicated", "model.base_model=nobody/has-this"))
    report = CheckReport()
    await rendering.check_rendering(project, report)
    assert "must be downloaded, and http://127.0.0.1:9 cannot be reached" in errors(report)[0]


async def test_the_lines_of_a_project(make: Make, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    make()
    link.symlink_to(tmp_path / "train.toml")
    lines = load("link.toml", ["training.max_steps=9"], working_dir=tmp_path).describe()
    assert lines == [
        f"Config: {link} -> {tmp_path / 'train.toml'}",
        f"  paths, modules: beside {tmp_path}",
        "  .env: none",
        f"  runs: {tmp_path / 'runs' / tmp_path.name}",
        "  overrides: training.max_steps = 9",
    ]


def test_what_differs_between_two_reports_leaves_the_texts_of_samples_out() -> None:
    lines = [
        "Data, train: 4 rows",
        "Sample 1 (train.jsonl:1):",
        "  blue",
        "Estimate: 9 tokens",
        "  cost: 3",
        "Ready.",
    ]
    before = CheckRow(1, "sft.toml", 0.0, True, [], lines)
    assert since(before, [], [line.replace("blue", "red").replace("3", "4") for line in lines]) == [
        "- cost: 3",
        "+ cost: 4",
    ]


@needs_model
async def test_whether_a_second_turn_extends_the_first_is_said(make: Make) -> None:
    lines = (await make().check()).describe()
    assert "Second turn: a tool result extends the first turn; a user message starts a new segment" in lines
    plain = make(overrides=("model.renderer=default",))
    assert (
        "Second turn: a tool result or a user message starts a new segment"
        in (await plain.check()).describe()
    )


@needs_model
async def test_replies_that_a_conversation_cannot_hold_are_told(make: Make) -> None:
    report = await make(more="[runtime.config.options]\nturns = 12\n").check()
    told = (
        "Context: 128 tokens hold at most 8 of the 12 replies that the options allow, at max_tokens = 16 each"
    )
    assert told in report.lines
    assert report.findings == []


@needs_model
async def test_tasks_that_differ_in_their_names_alone_are_doubted(make: Make, tmp_path: Path) -> None:
    """Also of a type that cannot be written as JSON again; how often each is come to is told."""
    number = "question: Annotated[InstanceOf[slice], BeforeValidator(slice)]"
    project = make(
        (
            "from pydantic import BaseModel",
            "from typing import Annotated\nfrom pydantic import BeforeValidator, BaseModel, InstanceOf",
        ),
        ("question: str", number),
        more='[eval]\ntasks = "held.jsonl"\n',
        overrides=("training.max_steps=6",),
    )
    lines = [
        {"id": name, "question": ask} for name, ask in (("a", "1j"), ("b", "2j"), ("c", "1j"), ("d", "3j"))
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "held.jsonl").write_text('{"question": "2j"}\n{"question": "4j"}\n')
    report = await project.check()
    assert "Passes over the tasks: 1.5 (6 groups)" in report.lines
    again, shared = report.findings
    assert (again.severity, again.file, again.line) == ("warning", str(tmp_path / "tasks.jsonl"), 3)
    assert "1 task is there already but for the name (line 3 as 1)" in again.text
    assert "1 held-out task is trained on as well (1)" in shared.text
