"""A model's tokenizer as the renderers need it, without what a turn would pay for and nobody reads.

``renderers`` takes any object with ``encode``, ``decode`` and ``convert_tokens_to_ids``. Given a Hugging Face tokenizer
it also asks for character offsets, and encodes the same few words of a template ("\\n", "assistant\\n") many times each
turn, each through some Python and a thread pool. Token ids are the same either way.
"""

from __future__ import annotations

from typing import Any

#: Texts up to this length, in characters, are encoded once.
SHORT = 32
#: At most so many of them: those of templates and role names come first, and are few.
KEPT = 4096
#: From here on, in characters, other threads go on while a text is encoded; for shorter ones that costs more than it saves.
LONG = 2000

_PROBES = ("a", " a\n\nb", "<|im_start|>user\nNaïve café: 1,234 €\t{}</s>", "日本語 🙂")


class SlimTokenizer:
    """Encodes and decodes as the tokenizer it is made of; anything else is that one's, but for offsets."""

    def __init__(self, tokenizer: Any) -> None:
        self._whole = tokenizer
        self._ids: dict[str, list[int]] = {}
        self._texts: dict[int, str] = {}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._fast = backend if backend is not None and _same(tokenizer, backend) else None

    def __getattr__(self, name: str) -> Any:
        if name == "__call__":  # what renderers take for the offer of offsets
            raise AttributeError(name)
        return getattr(self._whole, name)

    def encode(self, text: str, add_special_tokens: bool = True, **options: Any) -> list[int]:
        """The text's token ids."""
        if add_special_tokens or options:
            return self._whole.encode(text, add_special_tokens=add_special_tokens, **options)
        if len(text) > SHORT:
            return self._encoded(text)
        ids = self._ids.get(text)
        if ids is None:
            ids = self._encoded(text)
            if len(self._ids) < KEPT:
                self._ids[text] = ids
        return list(ids)

    def decode(self, token_ids: Any, **options: Any) -> str:
        """The text of token ids."""
        if options == {"skip_special_tokens": False} and isinstance(token_ids, list) and len(token_ids) == 1:
            return self.text_of(token_ids[0])
        return self._whole.decode(token_ids, **options)

    def text_of(self, token: int) -> str:
        """One token's own text."""
        text = self._texts.get(token)
        if text is None:
            text = self._texts[token] = str(self._whole.decode([token], skip_special_tokens=False))
        return text

    def _encoded(self, text: str) -> list[int]:
        if self._fast is not None:
            if len(text) >= LONG:  # in a batch of one, which lets go of the interpreter meanwhile
                return self._fast.encode_batch_fast([text], add_special_tokens=False)[0].ids
            return self._fast.encode(text, add_special_tokens=False).ids
        return list(self._whole.encode(text, add_special_tokens=False))


def _same(tokenizer: Any, backend: Any) -> bool:
    """Whether a tokenizer encodes as the Rust one below it does alone."""
    return all(
        list(tokenizer.encode(text, add_special_tokens=False))
        == list(backend.encode(text, add_special_tokens=False).ids)
        for text in _PROBES
    )
