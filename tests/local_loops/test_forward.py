"""The back end's numbers against a plain implementation of the same models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.local_loops.compute.interface import DecodeRequest, RowScores, ScoreRow
from engine.local_loops.compute.numpy_backend import NumpyBackend, load_backend
from tests.local_loops.random_models import MODELS, RandomModel, plain_logprobs


def tokens_of(model: RandomModel, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, model.vocab, length)


def score_next(backend: NumpyBackend, tokens: np.ndarray, top_k: int = 0) -> RowScores:
    targets = np.append(tokens[1:], -1)
    return backend.score(backend.weights(None), [ScoreRow(tokens, targets)], top_k=top_k)[0]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("length", [1, 64, 150])
def test_scores_are_those_of_the_plain_model(name: str, length: int, tmp_path: Path) -> None:
    model = MODELS[name]
    backend = load_backend(model.write(tmp_path), dtype=np.float64)
    tokens = tokens_of(model, length)
    expected = plain_logprobs(model, tokens)
    everything = np.tile(np.arange(model.vocab), (length, 1))
    scores = backend.score(backend.weights(None), [ScoreRow(tokens, everything)])[0]
    np.testing.assert_allclose(scores.logprobs, expected, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_an_adapter_acts_as_peft_defines_it(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    backend = load_backend(model.write(tmp_path), dtype=np.float64)
    adapter = backend.new_adapter(3, seed=5)
    assert adapter.alpha == 6
    tokens = tokens_of(model, 40)
    everything = ScoreRow(tokens, np.tile(np.arange(model.vocab), (40, 1)))
    fresh = backend.score(backend.weights(adapter), [everything])[0].logprobs
    np.testing.assert_allclose(fresh, plain_logprobs(model, tokens), atol=1e-9)
    generator = np.random.default_rng(1)
    for tensor_name, tensor in adapter.tensors.items():
        if tensor_name.endswith("lora_B.weight"):
            tensor[:] = generator.standard_normal(tensor.shape) * 0.3
    weights = backend.weights(adapter)
    expected = plain_logprobs(model, tokens, lora=adapter.tensors, lora_scale=2.0)
    np.testing.assert_allclose(backend.score(weights, [everything])[0].logprobs, expected, atol=1e-9)
    for tensor in adapter.tensors.values():
        tensor[:] = 0  # weights are merged copies: this must not reach them
    np.testing.assert_allclose(backend.score(weights, [everything])[0].logprobs, expected, atol=1e-9)


def test_float32_is_close_to_float64(tmp_path: Path) -> None:
    model = MODELS["llama"]
    backend = load_backend(model.write(tmp_path))
    tokens = tokens_of(model, 200)
    expected = plain_logprobs(model, tokens)[np.arange(199), tokens[1:]]
    scores = score_next(backend, tokens)
    assert scores.logprobs.dtype == np.float32
    assert scores.logprobs[-1] == 0.0
    np.testing.assert_allclose(scores.logprobs[:-1], expected, atol=2e-5)


def test_the_likeliest_tokens_come_sorted(tmp_path: Path) -> None:
    model = MODELS["llama"]
    backend = load_backend(model.write(tmp_path), dtype=np.float64)
    tokens = tokens_of(model, 20)
    scores = score_next(backend, tokens, top_k=4)
    expected = plain_logprobs(model, tokens)
    assert scores.top_ids is not None
    assert scores.top_logprobs is not None
    np.testing.assert_array_equal(scores.top_ids[:-1], np.argsort(-expected, axis=1)[:-1, :4])
    np.testing.assert_allclose(scores.top_logprobs[:-1], -np.sort(-expected, axis=1)[:-1, :4], atol=1e-9)
    assert (scores.top_ids[-1] == -1).all()
    assert (scores.top_logprobs[-1] == 0).all()


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_llama3_rope_scaling(place: str, tmp_path: Path) -> None:
    original = 64
    settings = {**LLAMA3, "original_max_position_embeddings": original}
    extra = {place: {**settings, "rope_theta": 500.0} if place == "rope_parameters" else settings}
    model = RandomModel(
        head_dim=8, extra={**extra, "rope_theta": None if place == "rope_parameters" else 500.0}
    )
    angles = 500.0 ** (-np.arange(4) / 4)
    wavelengths = 2 * np.pi / angles
    for index, wavelength in enumerate(wavelengths):
        if wavelength > original / 1.0:
            angles[index] /= 8.0
        elif wavelength > original / 4.0:
            smooth = (original / wavelength - 1.0) / (4.0 - 1.0)
            angles[index] = (1 - smooth) * angles[index] / 8.0 + smooth * angles[index]
    backend = load_backend(model.write(tmp_path), dtype=np.float64)
    tokens = tokens_of(model, 90)
    expected = plain_logprobs(model, tokens, angles=angles)[np.arange(89), tokens[1:]]
    np.testing.assert_allclose(score_next(backend, tokens).logprobs[:-1], expected, atol=1e-9)


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_half_precision_and_sharded_files(kind: str, tmp_path: Path) -> None:
    model = MODELS["llama"]
    tensors = model.tensors()
    if kind == "F16":
        stored = {name: tensor.astype(np.float16) for name, tensor in tensors.items()}
        rounded = {name: tensor.astype(np.float32) for name, tensor in stored.items()}
    else:
        stored = {name: (tensor.view(np.uint32) >> 16).astype(np.uint16) for name, tensor in tensors.items()}
        rounded = {name: (t.astype(np.uint32) << 16).view(np.float32) for name, t in stored.items()}
    whole = model.write(tmp_path / "whole")
    save_file(rounded, whole / "model.safetensors")
    sharded = model.write(tmp_path / "sharded")
    (sharded / "model.safetensors").unlink()
    names = sorted(stored)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-{number + 1:05}-of-00002.safetensors"
        save_file({name: stored[name] for name in part}, sharded / file)
        if kind == "BF16":
            _relabel(sharded / file, "U16", "BF16")
        weight_map |= dict.fromkeys(part, file)
    (sharded / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": weight_map}), encoding="utf-8"
    )
    tokens = tokens_of(model, 30)
    first, second = (score_next(load_backend(path), tokens) for path in (whole, sharded))
    np.testing.assert_array_equal(first.logprobs, second.logprobs)


def _relabel(path: Path, old: str, new: str) -> None:
    """numpy cannot write bfloat16: rename the type in the header, which keeps its length by trailing spaces."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size].decode().replace(f'"{old}"', f'"{new}"').encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])


@pytest.mark.parametrize("name", MODELS)
def test_cached_decoding_is_the_full_forward_pass(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    backend = load_backend(model.write(tmp_path))
    adapter = backend.new_adapter(2, seed=1)
    generator = np.random.default_rng(2)
    for tensor in adapter.tensors.values():
        tensor[:] = generator.standard_normal(tensor.shape) * 0.1
    weights = backend.weights(adapter)
    decoder = backend.decoder(weights)
    prompts = {"short": [7], "long": tokens_of(model, 70).tolist()}
    decoder.admit([DecodeRequest(name, prompt, n=2, seed=3) for name, prompt in prompts.items()])
    sampled: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for _ in range(75):
        for token in decoder.step():
            sampled.setdefault((token.key.request_id, token.key.index), []).append(
                (token.token, token.logprob)
            )
    assert len(sampled) == 4
    for (request, _), drawn in sampled.items():
        prompt = prompts[request]
        tokens = np.array(prompt + [token for token, _ in drawn])
        row = ScoreRow(tokens[:-1], tokens[1:])
        scored = backend.score(weights, [row])[0].logprobs[len(prompt) - 1 :]
        gap = scored - np.array([logprob for _, logprob in drawn])
        assert np.abs(gap).max() < 1e-5
        assert (np.expm1(gap) - gap).mean() < 1e-6
