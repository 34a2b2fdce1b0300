"""Train the tokenizer: byte-level BPE with 1280 entries and Qwen3's special tokens.

Copying is what a small model does worst, so the splitting rule sees to it that a name is the same tokens wherever
it stands:

- digits are single, and punctuation is never glued to a word;
- a blank belongs to what is never copied (punctuation, command names and their options, the fixed words of prompts),
  on either side of it, and else is a token of its own. So a name directly follows the word that announces it
  (`of `, `cat `), which is what tells the policy where to copy from;
- `\\n` and `\\"` inside JSON strings are one token each, so that `\\nport` is not a word of its own.

    python -m tools.demo_model.tokenizer --out DIR
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from . import chat, short_answers
from .demonstrations import demonstrate
from .families import FAMILIES, make_task

VOCABULARY = 1280
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKUP = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
# Words of the system prompts, the tool block and the instructions that no answer ever copies.
_WORTH_A_TOKEN, _PUSH = 100, 5000
_FIXED_WORDS = (Path(__file__).parent / "fixed_words.txt").read_text().split()


_FIXED = "|".join(sorted(_FIXED_WORDS, key=lambda word: (-len(word), word)))


def _pattern() -> str:
    mark = r"[^\s\p{L}\p{N}\\]+"
    parts = [
        r'\\[nt"\\]',
        r"\\",
        r" -[A-Za-z]+ ?",
        rf" ?(?:{_FIXED})(?: (?=[\p{{L}}\p{{N}}])|(?![\p{{L}}\p{{N}}_.=]))",
        r"\p{L}+",
        r"\p{N}",
        rf" ?{mark}(?: (?!-[A-Za-z]){mark})*(?: (?=[\p{{L}}\p{{N}}]))?",
        r"\s*[\r\n]+",
        r"\s",
    ]
    return "|".join(parts)


def _corpus(rng: random.Random, count: int) -> Iterator[str]:
    """Texts in the proportions of training; the fixed block of tools stands for far less, as it is never written."""
    whole = "\n".join(json.dumps(t) for t in chat.tools())
    template = (Path(__file__).parent / "chat_template.jinja").read_text()
    header = template.split('{{- "')[1].split('" }}')[0].encode().decode("unicode_escape")
    footer = template.split('{{- "')[3].split("<|im_end|>")[0].encode().decode("unicode_escape")
    for i in range(count):
        task = make_task(rng.choice(list(FAMILIES)), f"tokenizer{rng.random()}")
        for message in demonstrate(task, rng):
            yield message["role"] + "\n" + message["content"]
            for call in message.get("tool_calls", []):
                yield "\n" + json.dumps(call["function"]) + "\n"
        if i % 4 == 0:
            for message in short_answers.game(rng) + short_answers.question(rng):
                yield message["role"] + "\n" + message["content"]
        if i % 10 == 0:
            messages, schemas = chat.opening(rng)
            yield from (f"system\n{m['content']}" for m in messages)
            yield header
            yield footer
            yield from ("\n" + json.dumps(s) for s in schemas)
            yield whole


def _with_whole_fixed_words(texts: list[str]) -> Iterator[str]:
    """The corpus, and every form in which a fixed word occurs in it often enough to become one token."""
    form = re.compile(rf"(?<![A-Za-z_])( ?(?:{_FIXED})(?: (?=[A-Za-z0-9])|(?![A-Za-z0-9_.=])))")
    found = Counter(match for text in texts for match in form.findall(text))
    yield from texts
    for match, count in sorted(found.items()):
        if count >= _WORTH_A_TOKEN:
            yield from [match] * _PUSH


def train(out: Path, seed: int = 3, count: int = 8000) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_pattern()), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(MARKUP),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    texts = list(_corpus(random.Random(seed), count))
    tokenizer.train_from_iterator(_with_whole_fixed_words(texts), trainer)
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    tokenizer.add_tokens([AddedToken(s, special=False, normalized=False) for s in MARKUP])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
    wrapped.chat_template = (Path(__file__).parent / "chat_template.jinja").read_text().rstrip("\n")
    wrapped.save_pretrained(str(out))
    return wrapped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    wrapped = train(arguments.out, arguments.seed)
    print(f"{len(wrapped)} entries in {arguments.out}")


if __name__ == "__main__":
    main()
