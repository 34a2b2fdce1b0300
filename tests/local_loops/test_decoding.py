"""Continuous batching: what a sequence gets does not depend on its company; sampling settings; prompt scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from engine.local_loops.compute.attention import BLOCK
from engine.local_loops.compute.gemm import RowRule, find_rule
from engine.local_loops.compute.interface import Decoder, DecodeRequest, SampledToken, ScoreRow, SequenceKey
from engine.local_loops.compute.kv_cache import PrefixBlocks
from engine.local_loops.compute.numpy_backend import NumpyBackend, load_backend
from engine.local_loops.compute.sampling import truncate
from tests.local_loops.random_models import RandomModel

SMALL = RandomModel(hidden=32, heads=4, kv_heads=2, head_dim=8, feed_forward=48, vocab=96)
Drawn = dict[SequenceKey, list[tuple[int, float]]]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> NumpyBackend:
    return load_backend(SMALL.write(tmp_path_factory.mktemp("small")))


def record(drawn: Drawn, tokens: Sequence[SampledToken]) -> None:
    for token in tokens:
        drawn.setdefault(token.key, []).append((token.token, token.logprob))


def run(backend: NumpyBackend, arrivals: dict[int, list[DecodeRequest]], lengths: dict[str, int]) -> Drawn:
    """Decode requests that arrive before certain steps; each sequence leaves when it has its length."""
    decoder = backend.decoder(backend.weights(None))
    drawn: Drawn = {}
    step = 0
    while decoder.live or step <= max(arrivals):
        decoder.admit(arrivals.get(step, []))
        record(drawn, decoder.step())
        decoder.finish([key for key, got in drawn.items() if len(got) == lengths[key.request_id]])
        step += 1
    return drawn


def steps(decoder: Decoder, count: int) -> Drawn:
    drawn: Drawn = {}
    for _ in range(count):
        record(drawn, decoder.step())
    return drawn


def many_requests() -> tuple[list[DecodeRequest], dict[str, int]]:
    generator = np.random.default_rng(0)
    system = generator.integers(0, SMALL.vocab, BLOCK + 20).tolist()
    requests = []
    for i in range(12):
        prompt = generator.integers(0, SMALL.vocab, int(generator.integers(1, 150))).tolist()
        requests.append(
            DecodeRequest(
                f"r{i}",
                system + prompt if i % 3 == 0 else prompt,
                n=int(generator.integers(1, 4)),
                temperature=(1.0, 0.7, 1.3, 0.0)[i % 4],
                top_p=(1.0, 0.9)[i % 2],
                top_k=(0, 20)[i // 2 % 2],
                seed=i,
            )
        )
    requests.append(replace(requests[0], request_id="r12", seed=12))  # the same prompt again
    return requests, {r.request_id: 5 + 5 * i for i, r in enumerate(requests)}


def test_tokens_and_logprobs_do_not_depend_on_the_company(backend: NumpyBackend) -> None:
    requests, lengths = many_requests()
    alone: Drawn = {}
    for request in requests:
        alone |= run(backend, {0: [request]}, lengths)
    assert len({tuple(drawn) for drawn in alone.values()}) > len(requests)
    for composition in range(12):
        generator = np.random.default_rng(composition)
        chosen = generator.permutation(len(requests))[: int(generator.integers(2, len(requests) + 1))]
        arrivals: dict[int, list[DecodeRequest]] = {}
        for index in chosen:
            arrivals.setdefault(int(generator.integers(0, 30)) if composition % 3 else 0, []).append(
                requests[index]
            )
        together = run(backend, arrivals, lengths)
        assert len(together) == sum(requests[i].n for i in chosen)
        for key, drawn in together.items():
            assert drawn == alone[key], f"{key} differs in composition {composition}"


def test_leaving_in_any_order_does_not_disturb_the_others(backend: NumpyBackend) -> None:
    first, second = DecodeRequest("a", [1, 2, 3], n=5), DecodeRequest("b", list(range(90)), n=5, seed=9)
    calm = steps_of_two(backend, first, second, [])
    # 'b' joins and loses sequences before it has been stepped; then old and new ones leave together.
    disturbed = steps_of_two(backend, first, second, [("a", 0), ("b", 4), ("a", 4), ("b", 1), ("x", 0)])
    assert len(disturbed) == 10
    for key, drawn in disturbed.items():
        assert calm[key][: len(drawn)] == drawn


def steps_of_two(
    backend: NumpyBackend, first: DecodeRequest, second: DecodeRequest, leaving: list[tuple[str, int]]
) -> Drawn:
    decoder = backend.decoder(backend.weights(None))
    decoder.admit([first])
    drawn = steps(decoder, 4)
    decoder.admit([second])
    decoder.finish([SequenceKey(*key) for key in leaving[:3]])
    assert decoder.live == 10 - len(leaving[:3])
    for key, more in steps(decoder, 4).items():
        drawn.setdefault(key, []).extend(more)
    decoder.finish([SequenceKey(*key) for key in leaving[3:]])
    for key, more in steps(decoder, 70).items():
        drawn.setdefault(key, []).extend(more)
    if leaving:
        drawn.setdefault(SequenceKey("b", 4), [])  # left before its first token
    return drawn


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_a_remembered_prefix_gives_what_computing_it_gives(backend: NumpyBackend, length: int) -> None:
    tokens = np.random.default_rng(6).integers(0, SMALL.vocab, 3 * BLOCK).tolist()
    request = DecodeRequest("a", tokens[:length], n=2, seed=1)
    fresh = backend.decoder(backend.weights(None))
    fresh.admit([request])
    warm = backend.decoder(backend.weights(None))
    warm.admit([DecodeRequest("long", tokens), DecodeRequest("twin", tokens[:-1])])
    warm.admit([request])
    drawn = steps(warm, BLOCK + 5)
    for key, alone in steps(fresh, BLOCK + 5).items():
        assert drawn[key] == alone


def test_a_completion_depends_on_seed_and_index_alone(backend: NumpyBackend) -> None:
    def tokens(seed: int, n: int) -> list[list[int]]:
        decoder = backend.decoder(backend.weights(None))
        decoder.admit([DecodeRequest("a", [5, 6], n=n, seed=seed)])
        drawn = steps(decoder, 12)
        return [[token for token, _ in drawn[SequenceKey("a", j)]] for j in range(n)]

    four = tokens(1, 4)
    assert tokens(1, 2) == four[:2]
    assert len({tuple(t) for t in four}) == 4
    assert tokens(2, 1) != four[:1]
    assert tokens(-1, 1) == tokens(2**64 - 1, 1)  # any integer is a seed


def test_greedy_takes_the_likeliest_and_reports_the_policys_own_logprob(backend: NumpyBackend) -> None:
    weights = backend.weights(None)
    decoder = backend.decoder(weights)
    decoder.admit([DecodeRequest("a", [3, 1, 4], n=2, temperature=0.0, top_k=3, top_p=0.1)])
    drawn = steps(decoder, 10)
    assert drawn[SequenceKey("a", 0)] == drawn[SequenceKey("a", 1)]
    tokens = np.array([3, 1, 4] + [token for token, _ in drawn[SequenceKey("a", 0)]])
    scores = backend.score(weights, [ScoreRow(tokens[:-1], tokens[1:])], top_k=1)[0]
    assert scores.top_ids is not None
    np.testing.assert_array_equal(scores.top_ids[2:, 0], tokens[3:])
    np.testing.assert_allclose(scores.logprobs[2:], [lp for _, lp in drawn[SequenceKey("a", 0)]], atol=1e-5)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 5, 1.0), (1.0, 0, 0.5), (1.5, 8, 0.7)],
)
def test_draws_follow_the_distribution_they_report(
    backend: NumpyBackend, temperature: float, top_k: int, top_p: float
) -> None:
    weights = backend.weights(None)
    prompt = [9, 8, 7]
    everything = ScoreRow(np.array(prompt), np.tile(np.arange(SMALL.vocab), (3, 1)))
    logits = backend.score(weights, [everything])[0].logprobs[-1].astype(np.float64) / temperature
    p = np.exp(logits - logits.max())
    order = np.argsort(-p)
    if top_k:
        p[order[top_k:]] = 0
    p /= p.sum()
    if top_p < 1:
        count = int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1
        p[order[count:]] = 0
        p /= p.sum()
    decoder = backend.decoder(weights)
    n = 4000
    decoder.admit(
        [DecodeRequest("a", prompt, n=n, temperature=temperature, top_k=top_k, top_p=top_p, seed=7)]
    )
    drawn = decoder.step()
    counts = np.bincount([t.token for t in drawn], minlength=SMALL.vocab)
    assert counts[p == 0].sum() == 0
    np.testing.assert_allclose([t.logprob for t in drawn], np.log(p[[t.token for t in drawn]]), atol=1e-5)
    # Pearson's statistic has mean k - 1 and variance 2 (k - 1).
    likely = p > 0
    statistic = ((counts - n * p)[likely] ** 2 / (n * p[likely])).sum()
    degrees = likely.sum() - 1
    assert statistic < degrees + 6 * np.sqrt(2 * degrees) + 1


def test_truncation_keeps_the_smallest_nucleus_and_the_lower_ids_of_equals() -> None:
    weights = np.array([[4.0, 1.0, 2.0, 1.0, 2.0]], dtype=np.float32)

    def kept(top_k: int, top_p: float) -> list[int]:
        return np.flatnonzero(truncate(weights, np.array([top_k]), np.array([top_p]))[0]).tolist()

    assert kept(5, 0.4) == [0]
    assert kept(5, 0.41) == [0, 2]
    assert kept(5, 0.95) == [0, 1, 2, 3, 4]
    assert kept(2, 1.0) == [0, 2]
    assert kept(4, 1.0) == [0, 1, 2, 4]
    assert kept(3, 0.75) == [0, 2]  # 6 of the 8 that top_k leaves
    assert kept(5, 0.0) == [0]
    assert kept(9, 1.0) == [0, 1, 2, 3, 4]


def test_prompt_scores(backend: NumpyBackend) -> None:
    weights = backend.weights(None)
    prompt = np.random.default_rng(5).integers(0, SMALL.vocab, 80)
    decoder = backend.decoder(weights)
    decoder.admit([DecodeRequest("warm", prompt.tolist())])  # its blocks are remembered, yet all is scored
    scores = decoder.admit(
        [
            DecodeRequest("none", [1]),
            DecodeRequest("zero", prompt.tolist(), prompt_logprobs=0),
            DecodeRequest("two", prompt.tolist(), prompt_logprobs=2),
            DecodeRequest("single", [4], prompt_logprobs=1),
        ]
    )
    assert set(scores) == {"zero", "two", "single"}
    expected = backend.score(weights, [ScoreRow(prompt[:-1], prompt[1:])], top_k=2)[0]
    for name in ("zero", "two"):
        assert np.isnan(scores[name].logprobs[0])
        np.testing.assert_allclose(scores[name].logprobs[1:], expected.logprobs, atol=1e-5)
    assert scores["zero"].top_ids is None
    top_ids = scores["two"].top_ids
    assert top_ids is not None
    assert (top_ids[0] == -1).all()
    assert expected.top_ids is not None
    np.testing.assert_array_equal(top_ids[1:], expected.top_ids)
    assert scores["single"].logprobs.shape == (1,)
    assert decoder.live == 5


@pytest.mark.parametrize(
    ("prompt", "says"),
    [([], "empty"), ([1, SMALL.vocab], "outside the vocabulary"), ([-1], "outside the vocabulary")],
)
def test_prompts_that_cannot_be_decoded_are_refused(
    backend: NumpyBackend, prompt: list[int], says: str
) -> None:
    decoder = backend.decoder(backend.weights(None))
    with pytest.raises(ValueError, match=says):
        decoder.admit([DecodeRequest("good", [1]), DecodeRequest("bad", prompt)])
    assert decoder.live == 0
    assert decoder.step() == []


def test_a_request_is_decoded_once(backend: NumpyBackend) -> None:
    decoder = backend.decoder(backend.weights(None))
    with pytest.raises(ValueError, match="the same id"):
        decoder.admit([DecodeRequest("a", [1]), DecodeRequest("a", [2])])
    decoder.admit([DecodeRequest("a", [1])])
    with pytest.raises(ValueError, match="a is already being decoded"):
        decoder.admit([DecodeRequest("a", [1])])
    decoder.finish([SequenceKey("a", 0)])
    decoder.admit([DecodeRequest("a", [1])])
    assert decoder.live == 1


def test_a_prompts_blocks_are_remembered_up_to_the_last_token() -> None:
    prompt = list(range(2 * BLOCK))
    keys = PrefixBlocks.keys(prompt)
    # The second block holds the last token, which is always computed.
    assert [len(key) for key in keys] == [BLOCK]
    block = np.zeros((2, 2, 1, BLOCK, 4), dtype=np.float32)
    blocks = PrefixBlocks(limit=2 * block.nbytes)
    assert blocks.find(keys) == []
    for first in range(3):
        blocks.remember((first,), block + first)
    assert blocks.find([(0,)]) == []  # the least recently used one is forgotten
    assert [found[0, 0, 0, 0, 0] for found in blocks.find([(1,), (2,), (3,)])] == [1, 2]


@pytest.mark.parametrize("tile", [0, 4])
def test_padded_products_are_products(tile: int) -> None:
    rule = RowRule(4, 8, tile)
    assert [rule.padded(rows) for rows in (1, 8, 9, 12)] == [8, 8, 12, 12]
    generator = np.random.default_rng(0)
    x = generator.standard_normal((12, 5)).astype(np.float32)
    w = generator.standard_normal((5, 7)).astype(np.float32)
    out = np.empty((12, 7), dtype=np.float32)
    assert rule.product(x, w, out) is out
    np.testing.assert_allclose(out, x @ w, rtol=1e-5, atol=1e-6)


def test_the_rule_found_for_this_machine_holds_for_other_rows() -> None:
    shapes = [(32, 64), (48, 32), (128, 768)]
    rule = find_rule(shapes)
    generator = np.random.default_rng(8)
    for k, n in shapes:
        w = generator.standard_normal((k, n)).astype(np.float32)
        x = generator.standard_normal((256, k)).astype(np.float32)
        rows = rule.padded(250) if rule.padded(250) <= 256 else rule.padded(200)
        whole = rule.product(x[:rows], w)
        for count in (1, 3, 17, 40):
            size = rule.padded(count)
            np.testing.assert_array_equal(rule.product(x[3 : 3 + size].copy(), w), whole[3 : 3 + size])
