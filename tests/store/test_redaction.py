"""Secrets never reach the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.store import Redactor, Store
from engine.store.redact import REMOVED, secret_values
from engine.store.rows import StepRow, TranscriptRow
from tests.store.conftest import SECRET, make_attempt, make_group, make_run

RUN = "20261129-143501-k3f9"


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdef123",
        "authorization: Api-Key abcdef123",
        "{'Authorization': 'Bearer abcdef123'}",
        '{"authorization": "abcdef123"}',
        '"{\\"Authorization\\": \\"Bearer abcdef123\\"}"',
        "[(b'authorization', b'Api-Key abcdef123')]",
        "AUTHORIZATION=abcdef123",
    ],
)
def test_authorization_values_go(text: str) -> None:
    clean = Redactor().text(text)
    assert "abcdef123" not in clean
    assert REMOVED in clean
    assert Redactor().text(clean) == clean


def test_words_about_authorization_stay() -> None:
    text = "The authorization model of this service is simple."
    assert Redactor().text(text) == text


def test_known_values_go_in_every_spelling() -> None:
    secret = 'pa"ss\\word/1'
    redactor = Redactor([secret, "short", "paw", "longer-secret", "longer-secret-still"])
    for spelled in (secret, 'pa\\"ss\\\\word/1', "pa%22ss%5Cword%2F1"):
        assert redactor.text(f"<{spelled}>") == f"<{REMOVED}>"
    assert redactor.text("longer-secret-still") == REMOVED
    assert redactor.text("short paws") == "short paws"


def test_structures_are_cleaned_and_numbers_left() -> None:
    redactor = Redactor(["12345678"])
    value = {
        "a": [12345678, 0.12345678, "x12345678"],
        "headers": {"Authorization": "whatever"},
        "12345678": True,
    }
    assert redactor.value(value) == {
        "a": [12345678, 0.12345678, f"x{REMOVED}"],
        "headers": {"Authorization": REMOVED},
        REMOVED: True,
    }


def test_environment_names_that_say_secret() -> None:
    environment = {
        "BASETEN_API_KEY": "k1", "HF_TOKEN": "k2", "DB_PASSWORD": "k3", "WANDB_API_KEY_ID": "k4",
        "TOKENIZERS_PARALLELISM": "no", "KEYBOARD": "no", "HOME": "no", "EMPTY_KEY": "",
    }  # fmt: skip
    assert sorted(secret_values(environment)) == ["k1", "k2", "k3", "k4"]


def test_a_secret_spread_over_sampled_tokens() -> None:
    redactor = Redactor(["open-sesame"])
    sampled = {"tokens": [1, 2, 3, 4], "texts": ["say ", "open-", "sesame", " now"], "logprobs": [-1.0] * 4}
    clean = redactor.sampled(sampled)
    assert clean["texts"] == ["say ", REMOVED, REMOVED, " now"]
    assert clean["tokens"] == [1, -1, -1, 4]
    assert sampled["tokens"] == [1, 2, 3, 4]


def test_nothing_that_is_recorded_keeps_a_secret(store: Store, tmp_path: Path) -> None:
    run = make_run(tmp_path, config_toml=f'key = "{SECRET}"', info={"env": {"KEY": SECRET}})
    store.create_run(run)
    recorder = store.recorder(RUN)
    recorder.run(error=f"failed with {SECRET}", phase=SECRET)
    recorder.log("error", "loops", f"Authorization: Bearer {SECRET}")
    recorder.group(make_group(RUN, 0, reason=SECRET))
    recorder.attempt(make_attempt(RUN, 0, 0, error=SECRET, metadata={SECRET: [SECRET]}))
    recorder.step(StepRow(RUN, 1, "done", 1.0, metrics={f"rollout/{SECRET}": 1.0}))
    turn = {
        "role": "assistant",
        "content": SECRET,
        "sampled": {"texts": [SECRET[:5], SECRET[5:]], "tokens": [1, 2]},
    }
    recorder.transcript(TranscriptRow(RUN, 0, 0, "t", 1.0, None, [turn], metadata={"x": SECRET}))
    command = store.request(RUN, "save", {"note": SECRET})
    store.take_commands(RUN)
    store.add_check("c", ok=False, findings=[{"text": SECRET}], lines=[SECRET])
    from engine.store.rows import CommandState

    store.answer(command.command_id, CommandState.FAILED, SECRET)
    store.end_run(RUN, "nobody", run.state, SECRET)
    store.rebuild_directory(RUN, tmp_path / "exported")
    reader = store.reader()
    assert SECRET not in repr([reader.run(RUN), reader.transcript(RUN, 0, 0)])
    store.close()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
