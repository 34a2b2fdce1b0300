"""Sampling through the SDK."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from baseten.loops import ModelInput, SamplingClient, SamplingParams, ServiceClient, TrainingClient
from tokenizers import Tokenizer

from tests.local_loops.conftest import new_trainer
from tests.local_loops.server_process import ServerProcess
from tests.local_loops.tiny_model import CONTEXT, EOS

PROMPT = [40, 41, 42, 43]


@pytest.fixture(scope="module")
def run(service: ServiceClient) -> Iterator[TrainingClient]:
    client = new_trainer(service, with_sampler=True)
    yield client
    client.close()


@pytest.fixture(scope="module")
def sampler(run: TrainingClient) -> Iterator[SamplingClient]:
    client = run.save_weights_and_get_sampling_client()
    yield client
    client.close()


@pytest.fixture(scope="module")
def eos(tiny_model: Path) -> int:
    found = Tokenizer.from_file(str(tiny_model / "tokenizer.json")).token_to_id(EOS)
    assert found is not None
    return found


def _sample(sampler: SamplingClient, prompt: list[int] | None = None, n: int = 1, **params: Any):
    return sampler.sample(
        ModelInput.from_ints(PROMPT if prompt is None else prompt),
        n,
        SamplingParams(**params),
    )


def _reason(error: pytest.ExceptionInfo[httpx.HTTPStatusError]) -> str:
    assert error.value.response.status_code == 422
    return str(error.value)


def test_completions_have_tokens_logprobs_text_and_a_reason(sampler: SamplingClient, eos: int) -> None:
    answer = _sample(sampler, n=6, max_tokens=12, seed=1)
    assert answer.policy_version == 1
    assert len({tuple(sequence.tokens) for sequence in answer.sequences}) == 6
    for sequence in answer.sequences:
        assert sequence.logprobs is not None
        assert len(sequence.logprobs) == len(sequence.tokens) <= 12
        assert all(value < 0 for value in sequence.logprobs)
        assert sequence.stop_reason == ("stop" if sequence.tokens[-1] == eos else "length")
        assert sequence.text is not None


def test_a_seed_makes_it_repeatable_and_its_absence_does_not(sampler: SamplingClient) -> None:
    first, second = (_sample(sampler, n=2, max_tokens=16, seed=5) for _ in range(2))
    assert first.sequences == second.sequences
    third, fourth = (_sample(sampler, max_tokens=32) for _ in range(2))
    assert third.sequences != fourth.sequences


def test_without_max_tokens_a_completion_may_fill_the_context(sampler: SamplingClient, eos: int) -> None:
    for sequence in _sample(sampler, n=4, seed=2).sequences:
        if sequence.stop_reason == "length":
            assert len(PROMPT) + len(sequence.tokens) == CONTEXT
        else:
            assert sequence.tokens[-1] == eos


def test_greedy_sampling_is_the_argmax(sampler: SamplingClient) -> None:
    first, second = (_sample(sampler, max_tokens=10, temperature=0.0).sequences[0] for _ in range(2))
    assert first == second
    assert _sample(sampler, max_tokens=10, top_k=1).sequences[0].tokens == first.tokens


def test_a_stop_token_ends_and_is_included(sampler: SamplingClient) -> None:
    free = _sample(sampler, max_tokens=20, seed=8).sequences[0]
    stop = free.tokens[4]
    cut = _sample(sampler, max_tokens=20, seed=8, stop=[stop]).sequences[0]
    assert cut.stop_reason == "stop"
    assert cut.tokens == free.tokens[: free.tokens.index(stop) + 1]


def test_a_stop_string_ends_with_the_token_that_completes_it(
    sampler: SamplingClient, tiny_model: Path
) -> None:
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    readable = _sample(sampler, n=16, max_tokens=20, seed=3).sequences
    index, at, string = next(
        (index, at, text)
        for index, sequence in enumerate(readable)
        for at in range(len(sequence.tokens) - 1)
        if (text := tokenizer.decode(sequence.tokens[at : at + 2])).isascii() and len(text) == 2
    )
    cut = _sample(sampler, n=16, max_tokens=20, seed=3, stop=string).sequences[index]
    assert cut.stop_reason == "stop"
    assert cut.tokens == readable[index].tokens[: at + 2]
    assert cut.text is not None
    assert string not in cut.text


def test_a_completion_that_starts_with_the_prompt_stays_whole(sampler: SamplingClient) -> None:
    """The SDK takes it for an echo and strips a prefix equal to the prompt; a one-token prompt makes that likely."""
    prompt = [PROMPT[0]]
    answer = sampler.sample(ModelInput.from_ints(prompt), 512, SamplingParams(max_tokens=2, seed=9))
    assert all(len(sequence.tokens) in {1, 2} for sequence in answer.sequences)
    echoes = [sequence for sequence in answer.sequences if sequence.tokens[0] == prompt[0]]
    assert echoes, "no completion of 512 starts with the prompt"
    for sequence in echoes:
        assert sequence.logprobs is not None
        assert len(sequence.logprobs) == len(sequence.tokens)
        assert all(value < 0 for value in sequence.logprobs)


def test_prompt_logprobs_and_their_alternatives(sampler: SamplingClient) -> None:
    answer = sampler.sample(
        ModelInput.from_ints(PROMPT),
        3,
        SamplingParams(max_tokens=1),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=3,
    )
    assert answer.prompt_logprobs is not None
    assert answer.topk_prompt_logprobs is not None
    assert answer.prompt_logprobs[0] is None
    assert answer.topk_prompt_logprobs[0] is None
    for own, best, token in zip(
        answer.prompt_logprobs[1:], answer.topk_prompt_logprobs[1:], PROMPT[1:], strict=True
    ):
        assert best is not None
        assert own is not None
        assert own == dict(best)[token]
        assert max(dict(best).values()) >= own
        assert len(best) in {3, 4}
    assert sampler.compute_logprobs(ModelInput.from_ints(PROMPT)) == pytest.approx(answer.prompt_logprobs)


def test_a_prompt_that_fills_the_context_can_still_be_scored(sampler: SamplingClient) -> None:
    scores = sampler.compute_logprobs(ModelInput.from_ints([50] * CONTEXT))
    assert len(scores) == CONTEXT
    assert None not in scores[1:]


@pytest.mark.parametrize(
    ("prompt", "params", "sentence"),
    [
        (
            [1] * (CONTEXT + 1),
            {},
            f"the prompt has {CONTEXT + 1} tokens; this sampler's context is {CONTEXT} tokens",
        ),
        ([1] * CONTEXT, {}, "nothing can be sampled after it"),
        ([], {}, "the prompt is empty"),
        ([999_999], {}, "outside the model's vocabulary"),
        ([1], {"temperature": -1.0}, "temperature"),
        ([1], {"top_p": 0.0}, "top_p"),
        ([1], {"structured_outputs": {"json": {}}}, "does not support structured_outputs"),
    ],
)
def test_what_cannot_be_sampled_is_refused_at_once(
    sampler: SamplingClient, prompt: list[int], params: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(httpx.HTTPStatusError) as refused:
        _sample(sampler, prompt, **params)
    assert sentence in _reason(refused)


def test_a_burst_is_decoded_together(server: ServerProcess, sampler: SamplingClient) -> None:
    before = server.stats()

    async def burst() -> list[int]:
        answers = await asyncio.gather(
            *(
                sampler.sample_async(
                    ModelInput.from_ints([60 + i % 20]), 1, SamplingParams(max_tokens=40, stop=[])
                )
                for i in range(32)
            )
        )
        return [len(answer.sequences[0].tokens) for answer in answers]

    lengths = asyncio.run(burst())
    after = server.stats()
    steps = after["decode_steps"] - before["decode_steps"]
    assert after["tokens"] - before["tokens"] == sum(lengths)
    # One by one it would have taken as many steps as there are tokens.
    assert steps < sum(lengths) / 2
    assert after["peak_live"] > 1


def test_a_caller_that_leaves_ends_its_generation(server: ServerProcess, sampler: SamplingClient) -> None:
    before = server.stats()["aborted"]

    async def leave() -> None:
        # Each fills the decoder alone, so most of them are still waiting when their callers go.
        asking = [
            asyncio.create_task(sampler.sample_async(ModelInput.from_ints([1]), 64, SamplingParams(stop=[])))
            for _ in range(16)
        ]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    asyncio.run(leave())
    deadline = time.monotonic() + 60.0
    while (stats := server.stats())["live"] + stats["waiting"] > 0 or stats["aborted"] == before:
        assert time.monotonic() < deadline, stats
    assert stats["aborted"] > before


def test_the_adapter_is_discoverable(sampler: SamplingClient, run: TrainingClient) -> None:
    assert sampler.discover_base_model_name() == "tiny"
    assert sampler.discover_adapter_name() == run.run_id


def test_a_base_model_sampler_stands_alone(service: ServiceClient, sampler: SamplingClient) -> None:
    base = service.create_sampling_client(base_model="tiny", ready_timeout=60.0)
    answer = _sample(base, max_tokens=6, seed=4)
    # A fresh adapter changes nothing, so both are the same policy.
    assert answer.sequences[0].tokens == _sample(sampler, max_tokens=6, seed=4).sequences[0].tokens
    assert answer.policy_version == 0
    base.close()
