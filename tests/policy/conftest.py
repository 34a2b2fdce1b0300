"""A scripted sampler over the shipped model's real tokenizer and renderer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import engine.local_loops
from engine.policy.conversation import ConversationTrace, Model, ReplyLimits
from engine.policy.rendering import PolicyRenderer, load_renderer
from engine.policy.tokens import Completion

MODEL = Path(engine.local_loops.__file__).parent / "models" / "loops-demo-1m"


@pytest.fixture(scope="session")
def renderer() -> PolicyRenderer:
    return load_renderer(
        model_name="loops-demo-1m", tokenizer_source=str(MODEL), template_kwargs={"enable_thinking": False}
    )


@dataclass
class Scripted:
    """Answers with prepared texts, tokenized once; logprobs count down so that every token's is its own."""

    renderer: PolicyRenderer
    replies: list[str]
    prompts: list[list[int]] = field(default_factory=list)
    asked: list[tuple[int, int | None]] = field(default_factory=list)
    returned: list[Completion] = field(default_factory=list)

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        self.prompts.append(list(prompt))
        self.asked.append((max_tokens, seed))
        text = self.replies[len(self.returned)]
        tokens = self.renderer.tokenizer.encode(text, add_special_tokens=False)
        reason = "stop"
        if len(tokens) > max_tokens:
            tokens, reason = tokens[:max_tokens], "length"
        first = 1 + sum(len(completion.tokens) for completion in self.returned)
        completion = Completion(
            tokens, [-(first + i) / 100 for i in range(len(tokens))], reason, len(self.returned)
        )
        self.returned.append(completion)
        return completion


@pytest.fixture
def scripted(renderer: PolicyRenderer):
    def make(
        *replies: str, max_seq_len: int = 2000, max_tokens: int | None = 200
    ) -> tuple[Model, ConversationTrace, Scripted]:
        sampler = Scripted(renderer, list(replies))
        trace = ConversationTrace()
        model = Model(
            sampler=sampler,
            renderer=renderer,
            limits=ReplyLimits(max_seq_len, max_tokens),
            trace=trace,
            seed=lambda call: 100 + call,
        )
        return model, trace, sampler

    return make
