"""A tokenizer that its directory describes wholly, without ``transformers``, whose import takes two seconds.

``renderers`` takes any object with ``encode``, ``decode`` and ``convert_tokens_to_ids``. Where ``tokenizer.json`` says
everything, the class of ``transformers`` only wraps it; where a config asks for more (a class of its own, code,
settings that are not known here), there is no plain tokenizer, and the caller takes theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
#: Settings that do not change how text becomes tokens, and the values under which that is so.
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "tokenizer_class": ("TokenizersBackend",),
    "backend": ("tokenizers",),
    "clean_up_tokenization_spaces": (False, None),
}
_FREE = frozenset({"model_max_length", "padding_side", "chat_template", *_SPECIAL})
#: Files that say more about a tokenizer than the two that are read here.
_MORE_FILES = ("added_tokens.json", "special_tokens_map.json", "additional_chat_templates")


class PlainTokenizer:
    """``tokenizer.json`` with the names of its special tokens and its chat template.

    Attributes:
        name_or_path: the directory.
        chat_template: as the directory has it; None: it has none.
    """

    def __init__(
        self, directory: Path, backend: Any, special: Mapping[str, str], template: str | None
    ) -> None:
        self.name_or_path = str(directory)
        self.chat_template = template
        self._backend = backend
        self._special = dict(special)
        self.eos_token_id: int | None = self._id("eos_token")
        self.unk_token_id: int | None = self._id("unk_token")

    @property
    def backend_tokenizer(self) -> Any:
        """The ``tokenizers.Tokenizer`` below."""
        return self._backend

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The text's token ids."""
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Sequence[int] | int, skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return self._backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The id of a token, or those of several; the unknown token's, or None, for one that is not there."""
        if isinstance(tokens, str):
            found = self._backend.token_to_id(tokens)
            return self.unk_token_id if found is None else found
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **settings: Any,
    ) -> list[int]:
        """The token ids of a conversation by the directory's own template, as ``transformers`` renders it.

        ``settings`` go to the template. Raises whatever the template does; ValueError where there is none.
        """
        if self.chat_template is None:
            raise ValueError(f"the tokenizer at {self.name_or_path} has no chat template")
        text = _compiled(self.chat_template).render(
            messages=messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            **self._special,
            **settings,
        )  # fmt: skip
        return self.encode(text, add_special_tokens=False)

    def _id(self, role: str) -> int | None:
        name = self._special.get(role)
        return None if name is None else self._backend.token_to_id(name)


def plain_tokenizer(directory: Path) -> PlainTokenizer | None:
    """The tokenizer of a model's directory; None where ``transformers`` may make something else of it."""
    from tokenizers import Tokenizer

    try:
        config = json.loads((directory / "tokenizer_config.json").read_bytes())
        described = json.loads((directory / "tokenizer.json").read_bytes())
        marked = {token["content"] for token in described["added_tokens"] if token["special"]}
        if not _wholly_described(directory, config, marked):
            return None
        template = config.get("chat_template")
        if (file := directory / "chat_template.jinja").is_file():
            template = file.read_text(encoding="utf-8")
        backend = Tokenizer.from_file(str(directory / "tokenizer.json"))
    except Exception:  # noqa: BLE001 - tokenizers raises plain Exception; theirs will say what is wrong
        return None
    backend.no_truncation()
    backend.no_padding()
    special = {role: config[role] for role in _SPECIAL if config.get(role) is not None}
    return PlainTokenizer(directory, backend, special, template)


def _wholly_described(directory: Path, config: Mapping[str, Any], marked: set[str]) -> bool:
    """Whether ``tokenizer.json`` alone decides; ``marked`` are the tokens that it knows as special."""
    if any((directory / name).exists() for name in _MORE_FILES) or "tokenizer_class" not in config:
        return False
    for key, value in config.items():
        if key not in _FREE and value not in _HARMLESS.get(key, ()):
            return False
    if not isinstance(config.get("chat_template"), str | None):
        return False
    return all(config[role] in marked for role in _SPECIAL if config.get(role) is not None)


@lru_cache(maxsize=4)
def _compiled(template: str) -> Any:
    """A chat template, ready to be rendered: compiling one takes a tenth of a second, and each load renders it four times."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)
