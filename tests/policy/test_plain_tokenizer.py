"""A tokenizer read without transformers is the one that transformers makes of the same directory, or there is none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.policy.plain_tokenizer import PlainTokenizer, plain_tokenizer
from engine.policy.rendering import load_renderer
from tests.policy.conftest import MODEL

TEXTS = (
    "",
    "Name a colour.",
    " a\n\n\tb  c",
    "Naïve café: 1,234 €\t{}</s>",
    "<|im_start|>user\nHello.<|im_end|>\n<think>\n\n</think>\n\n",
    '<tool_call>\n{"name": "shell", "arguments": {"command": "ls -la \\n"}}\n</tool_call>',
    "日本語 🙂 \u202e \x00 \r\n",
)
CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "look", "arguments": {"path": "ä & <b>"}},
}
CONVERSATIONS: tuple[list[dict[str, Any]], ...] = (
    [{"role": "user", "content": "Hello."}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "nothing"},
        {"role": "assistant", "content": "Nothing.", "reasoning_content": "So be it."},
        {"role": "user", "content": "Thanks."},
    ],
)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def plain() -> PlainTokenizer:
    found = plain_tokenizer(MODEL)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def whole() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(MODEL), local_files_only=True)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("special", [False, True])
def test_text_becomes_the_same_tokens(plain: PlainTokenizer, whole: Any, text: str, special: bool) -> None:
    ids = plain.encode(text, add_special_tokens=special)
    assert ids == whole.encode(text, add_special_tokens=special)
    for skip in (False, True):
        assert plain.decode(ids, skip_special_tokens=skip) == whole.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("tools", [None, [TOOL]])
@pytest.mark.parametrize("settings", [{}, {"enable_thinking": False}])
def test_a_conversation_becomes_the_same_tokens(
    plain: PlainTokenizer, whole: Any, messages: Any, tools: Any, settings: dict[str, Any]
) -> None:
    for opened in (True, False):
        asked = {"tools": tools, "add_generation_prompt": opened, **settings}
        theirs = whole.apply_chat_template(messages, tokenize=True, return_dict=False, **asked)
        assert plain.apply_chat_template(messages, **asked) == list(theirs)


def test_the_names_of_tokens(plain: PlainTokenizer, whole: Any) -> None:
    names = ["<|im_end|>", "<think>", "nobody knows this"]
    assert plain.convert_tokens_to_ids(names) == whole.convert_tokens_to_ids(names)
    assert plain.convert_tokens_to_ids("<|im_end|>") == plain.eos_token_id == whole.eos_token_id
    assert plain.unk_token_id == whole.unk_token_id
    assert plain.name_or_path == whole.name_or_path
    assert plain.chat_template == whole.chat_template


def _config(**changes: Any) -> Callable[[Path], None]:
    def change(where: Path) -> None:
        path = where / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def _truncating(where: Path) -> None:
    path = where / "tokenizer.json"
    described = json.loads(path.read_text())
    described["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(described))


@pytest.mark.parametrize(
    "change",
    [
        _config(tokenizer_class="Qwen2Tokenizer"),
        _config(auto_map={"AutoTokenizer": ["code.Tokenizer", None]}),
        _config(clean_up_tokenization_spaces=True),
        _config(add_bos_token=True),
        _config(eos_token="<|not_there|>"),
        _config(eos_token="<think>"),  # there, and not special
        _config(eos_token={"content": "<|im_end|>"}),
        _config(chat_template=[{"name": "default", "template": "x"}]),
        _config(something_new=1),
        lambda where: (where / "added_tokens.json").write_text("{}"),
        lambda where: (where / "tokenizer.json").write_text("{}"),
        lambda where: (where / "tokenizer_config.json").write_text("[]"),
        lambda where: (where / "tokenizer_config.json").unlink(),
    ],
)
def test_what_asks_for_more_is_left_to_transformers(tmp_path: Path, change: Callable[[Path], None]) -> None:
    where = tmp_path / "model"
    shutil.copytree(MODEL, where)
    assert plain_tokenizer(where) is not None
    change(where)
    assert plain_tokenizer(where) is None


def test_a_length_that_the_file_names_cuts_nothing(tmp_path: Path) -> None:
    where = tmp_path / "model"
    shutil.copytree(MODEL, where)
    _truncating(where)
    found = plain_tokenizer(where)
    assert found is not None
    assert len(found.encode("one two three four five six seven")) > 3


def test_a_template_that_no_renderer_matches_is_rendered_by_transformers(tmp_path: Path) -> None:
    where = tmp_path / "model"
    shutil.copytree(MODEL, where)
    (where / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}"
    )
    renderer = load_renderer(model_name=str(where), tokenizer_source=str(where))
    assert renderer.name == "DefaultRenderer"
    assert not isinstance(renderer.tokenizer, PlainTokenizer)
    assert renderer.open([{"role": "user", "content": "Hi"}], None)[-1] == renderer.tokenizer.eos_token_id


def test_a_long_text_says_nothing_on_standard_error(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from engine.policy.rendering import load_renderer\n"
        f"renderer = load_renderer(model_name='m', tokenizer_source={str(MODEL)!r}, renderer='default')\n"
        "tokens = renderer.whole([{'role': 'user', 'content': 'word ' * 3000}], None)\n"
        "assert len(tokens) > 2048, len(tokens)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stderr == ""


def test_neither_transformers_nor_openai_is_loaded_and_the_client_can_be() -> None:
    code = (
        "import sys\n"
        "from engine.policy.rendering import load_renderer\n"
        f"load_renderer(model_name='loops-demo-1m', tokenizer_source={str(MODEL)!r})\n"
        "assert not {'transformers', 'openai', 'torch'} & set(sys.modules), set(sys.modules)\n"
        "import renderers.client\n"
        "assert callable(renderers.client.generate)\n"
        "from renderers import OverlongPromptError\n"
        "from renderers.client import OverlongPromptError as same\n"
        "assert same is OverlongPromptError and 'openai' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
