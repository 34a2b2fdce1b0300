"""Messages to tokens and back: a thin adapter over the ``renderers`` library.

The library owns chat templates and the proof that a next turn extends the last one; this module chooses the
renderer, checks the proof once more, and turns its records into the engine's own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.policy.libraries import import_renderers, import_transformers
from engine.policy.plain_tokenizer import plain_tokenizer
from engine.policy.tokenizing import SlimTokenizer

if TYPE_CHECKING:
    from renderers import Renderer

Message = dict[str, Any]
ToolSpec = dict[str, Any]

#: Renderers tried on a local directory whose name says nothing, in this order: the first whose tokens equal the
#: directory's own chat template on every probe is taken.
_PROBED = ("qwen3", "qwen3.5", "llama-3", "glm-4.5", "minimax-m2")


#: [model] max_seq_len bounds a sequence; transformers would say on stderr that one is longer than the model's own.
_ANY_LENGTH = int(1e30)
#: Files of which a directory with a tokenizer has one.
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
_TEMPLATE_KWARGS = "model.renderer_chat_template_kwargs"


class RenderingError(Exception):
    """No tokenizer or renderer for a model, or messages that it cannot render. One clear sentence.

    ``key`` is the setting at fault, where it is known.
    """

    def __init__(self, text: str, key: str | None = None) -> None:
        super().__init__(text)
        self.key = key


@dataclass(slots=True)
class ParsedToolCall:
    """A tool call as the policy wrote it. ``problem`` says what is wrong with it, in words for the policy."""

    id: str | None
    name: str | None
    arguments: str
    problem: str | None = None


@dataclass(slots=True)
class ParsedReply:
    """A reply's tokens read back into text, reasoning and tool calls."""

    content: str
    reasoning: str | None = None
    tool_calls: list[ParsedToolCall] = field(default_factory=list)


class PolicyRenderer:
    """One model's chat format.

    Attributes:
        name: the renderer's class name, e.g. ``Qwen3Renderer``.
        how: how it was chosen, e.g. "named by [model] renderer" or "auto-detected by Prime".
        stop_token_ids: token ids that end a reply.
    """

    def __init__(self, renderer: Renderer, tokenizer: Any, slim: SlimTokenizer, how: str) -> None:
        self._renderer = renderer
        self._tokenizer, self._slim = tokenizer, slim
        self.name = type(renderer).__name__
        self.how = how
        self.stop_token_ids: list[int] = [int(token) for token in renderer.get_stop_token_ids()]

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer below."""
        return self._tokenizer

    @cached_property
    def last_token_id(self) -> int:
        """The largest id that the tokenizer has; a model knows no token beyond (its table may be padded)."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None) or self._tokenizer
        return max(backend.get_vocab().values())

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None) -> list[int]:
        """The tokens of a whole conversation up to where the next reply begins.

        Raises:
            RenderingError: the chat template does not take these messages.
        """
        return self._render(messages, tools, add_generation_prompt=True)

    def whole(self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None) -> list[int]:
        """The tokens of a conversation as it stands, its last message closed as the template closes it.

        Raises:
            RenderingError: the chat template does not take these messages.
        """
        return self._render(messages, tools, add_generation_prompt=False)

    def _render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None, *, add_generation_prompt: bool
    ) -> list[int]:
        try:
            ids = self._renderer.render_ids(
                list(messages),  # type: ignore[arg-type] - plain dicts are what its TypedDicts are
                tools=_bare(tools),
                add_generation_prompt=add_generation_prompt,
            )
        except Exception as error:  # templates raise anything; the sentence keeps the reason
            raise RenderingError(f"{self.name} cannot render these messages: {_sentence(error)}") from error
        return [int(token) for token in ids]

    def extend(
        self,
        prompt: Sequence[int],
        completion: Sequence[int],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None,
    ) -> list[int] | None:
        """The next turn's prompt, if it is proven to begin with exactly ``prompt + completion``; else None."""
        if not new_messages:
            return None
        before = [*prompt, *completion]
        bridged = self._renderer.bridge_to_next_turn(
            before[: len(prompt)],
            before[len(prompt) :],
            list(new_messages),  # type: ignore[arg-type]
            tools=_bare(tools),
        )
        if bridged is None:
            return None
        ids = bridged.token_ids
        if len(ids) <= len(before) or ids[: len(before)] != before:
            return None
        return [*before, *map(int, ids[len(before) :])]

    def parse(
        self, completion: Sequence[int], prompt: Sequence[int], tools: Sequence[ToolSpec] | None
    ) -> ParsedReply:
        """Read a reply. Malformed tool calls come back with a ``problem``; nothing is repaired."""
        parsed = self._renderer.parse_response(list(completion), tools=_bare(tools), prompt_ids=list(prompt))
        known = {tool.get("function", tool).get("name") for tool in tools or ()}
        calls: list[ParsedToolCall] = []
        for call in parsed.tool_calls:
            arguments = call.arguments
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            problem: str | None = None
            if str(call.status) != "ok":
                text = call.raw
                problem = f"the tool call could not be read ({str(call.status).replace('_', ' ')})"
            elif known and call.name not in known:
                problem = f"there is no tool named {call.name!r}; the tools are {', '.join(sorted(map(str, known)))}"
            elif not isinstance(arguments, dict):
                problem = "the arguments must be a JSON object"
            calls.append(ParsedToolCall(call.id, call.name, text, problem))
        return ParsedReply(parsed.content or "", parsed.reasoning_content, calls)

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Each token's own text, for showing; not for reading back."""
        return list(map(self._slim.text_of, tokens))


def _bare(tools: Sequence[ToolSpec] | None) -> Any:
    """``renderers`` renders a tool list as given; an empty one means no tools."""
    return list(tools) if tools else None


def _sentence(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def load_renderer(
    *,
    model_name: str,
    tokenizer_source: str,
    renderer: str | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> PolicyRenderer:
    """Load a tokenizer and choose its renderer.

    Args:
        model_name: the name the model is known by (``Qwen/Qwen3-8B``), or a directory.
        tokenizer_source: a local directory, or a hub name. Blocking: seconds on a first import.
        renderer: a name of ``renderers``, or None to find out.
        template_kwargs: ``[model] renderer_chat_template_kwargs``.

    Raises:
        RenderingError: with a sentence that says what is missing or wrong.
    """
    import_renderers()
    from renderers import config_from_name, create_renderer
    from renderers.base import MODEL_RENDERER_MAP, merge_chat_template_kwargs

    kwargs = dict(template_kwargs or {})
    directory = Path(tokenizer_source)
    if directory.is_absolute() and not os.path.isdir(directory):
        raise RenderingError(f"there is no tokenizer at {tokenizer_source}: no such directory")
    if directory.is_absolute() and not any((directory / name).exists() for name in _TOKENIZERS):
        raise RenderingError(f"there is no tokenizer at {tokenizer_source}: no tokenizer.json")
    # A template may ask for anything that transformers offers; the other renderers only encode and decode.
    plain = plain_tokenizer(directory) if directory.is_absolute() and renderer != "default" else None
    tokenizer = plain or _of_transformers(tokenizer_source)
    slim = SlimTokenizer(tokenizer)

    def build(name: str, how: str) -> PolicyRenderer:
        try:
            config = cast(Any, config_from_name(name))
        except ValueError as error:
            raise RenderingError(f"there is no renderer {name!r}", "model.renderer") from error
        try:
            config = merge_chat_template_kwargs(config, kwargs)
        except ValueError as error:
            said = str(error).partition(" Pass renderer-internal")[0]  # through what no config can name
            raise RenderingError(said[:300], _TEMPLATE_KWARGS) from error
        try:
            return PolicyRenderer(create_renderer(slim, config), tokenizer, slim, how)
        except Exception as error:  # validation, missing special tokens
            raise RenderingError(
                f"the renderer {name!r} does not fit the model {model_name!r}: {_sentence(error)}"
            ) from error

    if renderer is not None:
        return build(renderer, "named by [model] renderer")
    mapped = MODEL_RENDERER_MAP.get(model_name) or MODEL_RENDERER_MAP.get(tokenizer_source)
    if mapped is not None:
        return build(mapped, "auto-detected by Prime")
    for name in _PROBED:
        try:
            candidate = build(name, "auto-detected: same tokens as the model's chat template")
        except RenderingError:
            continue  # its special tokens or its template settings are not this model's
        if _same_as_template(candidate, tokenizer, kwargs):
            return candidate
    if not getattr(tokenizer, "chat_template", None):
        raise RenderingError(
            f"the tokenizer of {tokenizer_source!r} has no chat template and no renderer knows the model; "
            "name one with [model] renderer"
        )
    for key in kwargs:  # the template itself would swallow a misspelt one in silence
        if not re.search(rf"\b{re.escape(key)}\b", str(tokenizer.chat_template)):
            raise RenderingError(
                f"the chat template of {model_name!r} has no setting {key!r}", _TEMPLATE_KWARGS
            )
    if plain is not None:
        tokenizer = _of_transformers(tokenizer_source)
        slim = SlimTokenizer(tokenizer)
    return build("default", "the model's own chat template; each turn is a segment of its own")


def _of_transformers(source: str) -> Any:
    """The tokenizer of a directory or of a name on the hub. Blocks. Raises RenderingError."""
    from renderers.base import load_tokenizer

    import_transformers()
    try:
        tokenizer = load_tokenizer(source)
    except Exception as error:  # transformers raises anything here
        raise RenderingError(
            f"the tokenizer of {source!r} could not be loaded: {_sentence(error)}"
        ) from error
    tokenizer.model_max_length = _ANY_LENGTH
    return tokenizer


_PROBES: tuple[list[Message], ...] = (
    [{"role": "user", "content": "Name a colour."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "One?\nTwo."}],
)
_PROBE_TOOL: ToolSpec = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def _same_as_template(candidate: PolicyRenderer, tokenizer: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether the renderer and the tokenizer's own template agree where a conversation is opened."""
    if not getattr(tokenizer, "chat_template", None):
        return False
    for messages in _PROBES:
        for tools in (None, [_PROBE_TOOL]):
            try:
                theirs = tokenizer.apply_chat_template(
                    messages,
                    tools=tools,
                    add_generation_prompt=True,
                    tokenize=True,
                    return_dict=False,
                    **kwargs,
                )
                ours = candidate.open(messages, tools)
            except Exception:  # noqa: BLE001 - a template that refuses a probe is no match, whatever it raises
                return False
            if list(theirs) != ours:
                return False
    return True
