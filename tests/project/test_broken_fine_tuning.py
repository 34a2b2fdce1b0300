"""Broken configs and data of supervised fine-tuning: one error each, with file or line, cause and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.config.problems import ConfigError
from engine.config.report import Finding, Severity
from engine.project import load

pytestmark = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")

CONFIG = """\
recipe = "sft"
[data]
train = "train.jsonl"
[model]
base_model = "loops-demo-1m"
max_seq_len = 256
[training]
batch_size = 2
[compute]
scope = "local"
"""
ROW = json.dumps({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]})

DATA: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "holds no rows"),
    "a JSON array": (f"[{ROW},\n{ROW}]", "JSON array"),
    "a JSON array on one line": (f"[{ROW}, {ROW}]", "JSON array"),
    "an object over several lines": (json.dumps(json.loads(ROW), indent=1), "all 12 rows"),
    "Parquet": (b"PAR1\x15\x04\n\x00", "Parquet"),
    "gzip": (b"\x1f\x8b\x08\x00abc", "gzip"),
    "a Git LFS pointer": ("version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "a web page": ("<!DOCTYPE html>", "web page"),
    "UTF-16": (f"{ROW}\n".encode("utf-16"), "UTF-16"),
    "Latin 1": (ROW.replace("hi", "é").encode("latin-1"), "UTF-8"),
    "another role": (ROW.replace('"user"', '"human"'), "messages[0].role"),
    "a misspelt weight": (ROW.replace('"yo"', '"yo", "wieght": 0'), "wieght"),
    "a picture": (
        ROW.replace(
            '"hi"', '[{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "x"}}]'
        ),
        "messages[0].content[1].type: only parts of type 'text'",
    ),
    "a message that is none": ('{"messages": ["hi"]}', "messages[0]: input should be an object"),
    "a row that begins with a reply": (
        '{"messages": [{"role": "assistant", "content": "yo"}]}',
        "nothing asks for it",
    ),
    "a key twice": ('{"messages": [], ' + ROW[1:], "the key 'messages' stands twice"),
    "both formats": ('{"input_ids": [1, 2], ' + ROW[1:], "both 'messages' and 'input_ids'"),
    "tools of an older format": (ROW[:-1] + ', "functions": [{"name": "f"}]}', "write 'tools'"),
    "another tool's format": ('{"conversations": [{"from": "human", "value": "hi"}]}', "but 'conversations'"),
    "a call of an older format": (
        ROW.replace('"yo"', '"yo", "function_call": {"name": "f", "arguments": "{}"}'),
        "'tool_calls' now",
    ),
    "tools without names": (ROW[:-1] + ', "tools": [{"type": "function"}]}', "tools[0] names no function"),
    "a call of no tool": (
        ROW.replace('"yo"', '"", "tool_calls": [{"function": {"name": "g", "arguments": "{}"}}]')[:-1]
        + ', "tools": [{"type": "function", "function": {"name": "f"}}]}',
        "calls 'g', which is none",
    ),
    "an older format": ('{"prompt": "a", "completion": "b"}', "older format"),
    "no reply": (ROW.replace("assistant", "user"), "no assistant turn"),
    "a reply that says nothing": (ROW.replace('"yo"', "null"), "says nothing"),
    "half a character": (ROW.replace("yo", "\\ud800"), "surrogate pair"),
    "a hostile field": (ROW.replace('"yo"', '"yo", "\\u001b[2J": 0'), "is no field"),
    "a long row": (ROW.replace("yo", "word " * 1000), "max_seq_len is 256"),
    "tokens of another tokenizer": ('{"input_ids": [1, 999999], "weights": [0, 1]}', "another tokenizer"),
    "a negative token": ('{"input_ids": [1, -1], "weights": [0, 1]}', "input_ids[1]"),
    "tokens as text": ('{"input_ids": "abc", "weights": [1]}', "a valid list"),
    "fewer weights than tokens": ('{"input_ids": [1, 2], "weights": [1]}', "one for each"),
    "a weight that is none": ('{"input_ids": [1, 2], "weights": [0, NaN]}', "weights[1]"),
    "nesting without end": ("[" * 4 + '{"a": ' + "[" * 100_000, "JSON"),
}
CONFIGS: dict[str, tuple[str, str, str]] = {
    "no data": ('train = "train.jsonl"', "train = []", "must not be empty"),
    "data elsewhere": ("train.jsonl", "https://x.test/train.jsonl", "Download it"),
    "a directory": ("train.jsonl", ".", "*.jsonl"),
    "a misspelt file": ("train.jsonl", "trian.jsonl", "Did you mean 'train.jsonl'?"),
    "a name too long": ("train.jsonl", "a" * 300, "no data file"),
    "a pattern that nothing matches": ("train.jsonl", "*.json", "no file matches"),
    "the same data twice": ('"train.jsonl"', '"train.jsonl"\nvalidation = "train.jsonl"', "validated on"),
    "a key of the other recipe": ("batch_size", "group_size", 'recipe = "rl"'),
    "a table of the other recipe": ("[compute]", "[sampling]\nmax_tokens = 3\n[compute]", 'recipe = "rl"'),
    "no epochs": ("batch_size = 2", "epochs = 0", "at least 1"),
    "a misspelt schedule": ("batch_size = 2", 'schedule = "cosin"', "cosine"),
    "validation without data": ("batch_size = 2", "validate_every = 2", "no [data] validation"),
    "a table below another": (
        '[data]\ntrain = "train.jsonl"\n',
        'data = "train.jsonl"\n[output]\n',
        "must be a table",
    ),
    "a renderer of another model": (
        "max_seq_len = 256",
        'max_seq_len = 256\nrenderer = "llama-3"',
        "Leave [model] renderer out",
    ),
    "a bound that counts nothing": ("[compute]", "[budget]\nmax_tokens = 3\n[compute]", "makes none"),
    "a bound on sandboxes": ("[compute]", "[budget]\nmax_sandbox_hours = 3\n[compute]", "has no sandboxes"),
}


async def errors_of(where: Path) -> list[Finding]:
    try:
        project = load(where / "sft.toml", working_dir=where)
    except ConfigError as error:
        return [Finding.of(Severity.ERROR, problem) for problem in error.problems]
    report = await project.check()
    project.close()
    assert all(line.isprintable() for line in report.describe())
    return [finding for finding in report.findings if finding.severity is Severity.ERROR]


@pytest.mark.parametrize(("data", "said"), DATA.values(), ids=DATA.keys())
async def test_data_is_refused_with_one_message(tmp_path: Path, data: str | bytes, said: str) -> None:
    (tmp_path / "sft.toml").write_text(CONFIG)
    (tmp_path / "train.jsonl").write_bytes(data if isinstance(data, bytes) else data.encode())
    [finding] = await errors_of(tmp_path)
    assert said in str(finding)
    assert (finding.key, finding.line) == ("data.train", 3)
    assert finding.remedy


@pytest.mark.parametrize(("was", "written", "said"), CONFIGS.values(), ids=CONFIGS.keys())
async def test_a_config_is_refused_with_one_message(
    tmp_path: Path, was: str, written: str, said: str
) -> None:
    assert was in CONFIG
    (tmp_path / "sft.toml").write_text(CONFIG.replace(was, written, 1))
    (tmp_path / "train.jsonl").write_text(f"{ROW}\n{ROW}\n")
    [finding] = await errors_of(tmp_path)
    assert said in str(finding)
    assert finding.line is not None
    assert str(finding).isprintable()


async def test_a_warm_up_longer_than_the_run_is_doubted(tmp_path: Path) -> None:
    (tmp_path / "sft.toml").write_text(CONFIG.replace("batch_size = 2", "batch_size = 2\nwarmup_steps = 6"))
    (tmp_path / "train.jsonl").write_text(f"{ROW}\n" * 12)
    project = load(tmp_path / "sft.toml", working_dir=tmp_path)
    [finding] = (await project.check()).findings
    project.close()
    assert (finding.severity, finding.line) == ("warning", 9)
    assert "the run has 6 steps" in finding.text


async def test_samples_that_are_in_both_sets_are_doubted(tmp_path: Path) -> None:
    (tmp_path / "sft.toml").write_text(CONFIG.replace("[model]", 'validation = "held.jsonl"\n[model]'))
    (tmp_path / "train.jsonl").write_text(f"{ROW.replace('yo', 'no')}\n{ROW}\n{ROW}\n")
    (tmp_path / "held.jsonl").write_text(f"{ROW.replace('yo', 'so')}\n{ROW}\n")
    project = load(tmp_path / "sft.toml", working_dir=tmp_path)
    [finding] = (await project.check()).findings
    project.close()
    assert (finding.severity, finding.key, finding.line) == ("warning", "data.validation", 4)
    assert "1 validation sample" in finding.text
    assert "held.jsonl:2 and train.jsonl:2" in finding.text


async def test_a_link_that_leads_nowhere_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "sft.toml").write_text(CONFIG)
    (tmp_path / "train.jsonl").symlink_to("gone.jsonl")
    [finding] = await errors_of(tmp_path)
    assert finding.remedy == "It is a link to gone.jsonl, which leads nowhere"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("nobody/has-this", "must be downloaded, and http://127.0.0.1:9 cannot be reached"),
        ("loops-demo-1m", "runs on this machine only"),
    ],
)
async def test_a_model_that_cannot_be_had_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, told: str
) -> None:
    """And at once: the hub's own client would try for minutes."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    text = CONFIG.replace('"local"', '"serverless"').replace("loops-demo-1m", model)
    (tmp_path / "sft.toml").write_text(text)
    (tmp_path / "train.jsonl").write_text(f"{ROW}\n{ROW}\n")
    project = load(tmp_path / "sft.toml", working_dir=tmp_path)
    report = await project.check(loops=model == "loops-demo-1m")
    project.close()
    [finding] = report.findings
    assert told in finding.text
    assert (finding.key, finding.line) == ("model.base_model", 5)


async def test_its_cost_is_told_and_held_against_the_budget(tmp_path: Path) -> None:
    spending = "[prices]\ntrained_million = 1000.0\n[budget]\nmax_cost = 0.05\n"
    (tmp_path / "sft.toml").write_text(CONFIG.replace('"local"', '"serverless"') + spending)
    (tmp_path / "train.jsonl").write_text(f"{ROW}\n" * 12)
    tokenizer = {"model.tokenizer": str(shipped_models()["loops-demo-1m"])}
    project = load(tmp_path / "sft.toml", tokenizer, working_dir=tmp_path)
    report = await project.check(loops=False)
    project.close()
    assert report.estimate is not None
    tokens, cost = report.estimate["tokens"], report.estimate["cost"]
    assert cost == pytest.approx(tokens / 1000)
    assert cost > 0.05
    assert "Renderer: DefaultRenderer (the model's own chat template)" in report.lines
    assert f"  cost at the given prices: {cost:.3g} USD" in report.lines
    [finding] = [finding for finding in report.findings if finding.key == "budget.max_cost"]
    assert (finding.severity, finding.line) == ("warning", 14)
    assert f"about step {int(6 * 0.05 / cost)} of 6" in finding.text
