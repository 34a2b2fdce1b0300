"""Reading a model directory: config.json, safetensors, and what of the Llama family is understood."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class ModelError(Exception):
    """A model that cannot be loaded; the message names the file and what would be right."""


@dataclass(frozen=True, slots=True)
class RopeSettings:
    """Rotary position embedding: base frequency and, for Llama 3.1 and later, its frequency scaling."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    def inverse_frequencies(self, head_dim: int) -> npt.NDArray[np.float64]:
        """(head_dim / 2,) angles per position, in radians."""
        inverse = self.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        if self.kind == "linear":
            return inverse / self.factor
        if self.kind == "llama3":
            turns = self.original_context * inverse / (2 * math.pi)
            smooth = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
            smooth = np.clip(smooth, 0.0, 1.0)
            return smooth * inverse + (1 - smooth) * inverse / self.factor
        return inverse


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The parts of config.json (and generation_config.json) that the computation depends on."""

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab_size: int
    norm_eps: float
    max_context: int
    tied: bool
    qk_norm: bool
    attention_bias: bool
    rope: RopeSettings
    eos_token_ids: tuple[int, ...]


def read_config(directory: Path) -> ModelConfig:
    """Read and check ``config.json``; whatever is not understood is refused, never ignored."""
    path = directory / "config.json"
    raw = _read_json(path)
    names = raw.get("architectures") or []
    architecture = str(names[0]) if names else ""
    if architecture not in ARCHITECTURES:
        raise ModelError(
            f"{path}: architecture {architecture or 'missing'!r} is not supported; "
            f"it must be one of {', '.join(ARCHITECTURES)}."
        )
    fields = _Fields(path, raw)
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    kv_heads = fields.whole("num_key_value_heads", heads)
    head_dim = fields.whole("head_dim", hidden // heads)
    if heads % kv_heads:
        raise ModelError(
            f"{path}: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}."
        )
    if head_dim % 2:
        raise ModelError(f"{path}: head_dim {head_dim} is odd; rotary embeddings need an even one.")
    fields.only("hidden_act", "silu", default="silu")
    fields.only("use_sliding_window", False, default=False)
    fields.only("mlp_bias", False, default=False)
    if any(kind != "full_attention" for kind in raw.get("layer_types") or []):
        raise ModelError(
            f"{path}: layer_types names something other than full_attention, which is not supported."
        )
    if raw.get("quantization_config"):
        raise ModelError(
            f"{path}: quantised weights are not supported; use float32, float16 or bfloat16 weights."
        )
    return ModelConfig(
        architecture=architecture,
        hidden=hidden,
        layers=fields.whole("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward=fields.whole("intermediate_size"),
        vocab_size=fields.whole("vocab_size"),
        norm_eps=fields.real("rms_norm_eps", 1e-6),
        max_context=fields.whole("max_position_embeddings", 2048),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qk_norm=architecture == "Qwen3ForCausalLM",
        attention_bias=architecture == "Qwen2ForCausalLM" or bool(raw.get("attention_bias", False)),
        rope=_rope(path, raw),
        eos_token_ids=_eos(directory, raw),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"{path} is missing; a model directory holds config.json, tokenizer.json and *.safetensors."
        ) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object.")
    return content


@dataclass(frozen=True, slots=True)
class _Fields:
    path: Path
    raw: Mapping[str, Any]

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.raw.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{self.path}: {key} must be a whole number of at least 1, not {value!r}.")
        return value

    def real(self, key: str, default: float) -> float:
        value = self.raw.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ModelError(f"{self.path}: {key} must be a number above 0, not {value!r}.")
        return float(value)

    def only(self, key: str, allowed: object, *, default: object) -> None:
        value = self.raw.get(key, default)
        if value != allowed:
            raise ModelError(f"{self.path}: {key} = {value!r} is not supported; it must be {allowed!r}.")


def _rope(path: Path, raw: Mapping[str, Any]) -> RopeSettings:
    # transformers 4 writes rope_theta and rope_scaling, transformers 5 rope_parameters with both inside.
    parameters = raw.get("rope_parameters") or {}
    scaling = raw.get("rope_scaling") or parameters
    if not isinstance(scaling, Mapping) or not isinstance(parameters, Mapping):
        raise ModelError(f"{path}: rope_parameters and rope_scaling must be objects.")
    both = _Fields(path, {"rope_theta": raw.get("rope_theta"), **parameters, **scaling})
    if any(isinstance(value, Mapping) for value in both.raw.values()):
        raise ModelError(f"{path}: rope_parameters that differ between layers are not supported.")
    if both.real("partial_rotary_factor", float(raw.get("partial_rotary_factor") or 1.0)) != 1.0:
        raise ModelError(f"{path}: partial_rotary_factor is not supported; it must be 1.0 or absent.")
    theta = both.real("rope_theta", 10_000.0)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    if kind == "default":
        return RopeSettings(theta)
    if kind == "linear":
        return RopeSettings(theta, kind, factor=both.real("factor", 1.0))
    if kind == "llama3":
        return RopeSettings(
            theta,
            kind,
            factor=both.real("factor", 8.0),
            low_freq_factor=both.real("low_freq_factor", 1.0),
            high_freq_factor=both.real("high_freq_factor", 4.0),
            original_context=both.whole("original_max_position_embeddings", 8192),
        )
    raise ModelError(
        f"{path}: rope scaling {kind!r} is not supported; it must be absent, default, linear or llama3."
    )


def _eos(directory: Path, raw: Mapping[str, Any]) -> tuple[int, ...]:
    path = directory / "generation_config.json"
    generation = _read_json(path) if path.exists() else {}
    value = generation.get("eos_token_id")
    value = raw.get("eos_token_id") if value is None else value
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(item, int) for item in ids):
        raise ModelError(f"{path}: eos_token_id must be a token id or a list of them, not {value!r}.")
    return tuple(int(item) for item in ids)


class TensorFiles:
    """The tensors of a directory's safetensors files, read one at a time and converted to float."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._where: dict[str, _Entry] = {}
        for path in self._files():
            for name, entry in _read_header(path):
                self._where[name] = entry

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def names(self) -> list[str]:
        return list(self._where)

    def read(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32
    ) -> npt.NDArray[np.floating[Any]]:
        """The tensor as an array of its own; :class:`ModelError` where it is missing or of another shape."""
        entry = self._where.get(name)
        if entry is None:
            raise ModelError(f"{self.directory}: the tensor {name} is missing from the safetensors files.")
        if entry.shape != shape:
            raise ModelError(
                f"{entry.path}: the tensor {name} has shape {list(entry.shape)}, "
                f"but config.json makes it {list(shape)}."
            )
        stored = np.fromfile(entry.path, dtype=_DTYPES[entry.dtype], count=entry.count, offset=entry.offset)
        if stored.size != entry.count:
            raise ModelError(f"{entry.path} is cut short: {name} is not all there; copy the file again.")
        if entry.dtype == "BF16":
            # bfloat16 is the upper half of a float32.
            stored = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return stored.reshape(shape).astype(dtype)

    def _files(self) -> list[Path]:
        index = self.directory / "model.safetensors.index.json"
        if index.exists():
            weight_map = _read_json(index).get("weight_map")
            if not isinstance(weight_map, dict) or not weight_map:
                raise ModelError(f"{index} holds no weight_map.")
            return [self.directory / name for name in sorted(set(map(str, weight_map.values())))]
        files = sorted(self.directory.glob("*.safetensors"))
        if not files:
            raise ModelError(
                f"{self.directory} holds no *.safetensors file; weights in other formats are not read."
            )
        return files


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def count(self) -> int:
        return math.prod(self.shape)


def _read_header(path: Path) -> Iterator[tuple[str, _Entry]]:
    """Names and places of a file's tensors: 8 bytes of length, a JSON header, then the data."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= 100_000_000:
                raise ModelError(f"{path} is no safetensors file (its header length is {size}).")
            header = json.loads(file.read(size))
    except FileNotFoundError as error:
        raise ModelError(f"{path} is named by the index but is not there.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} is no readable safetensors file: {error}.") from error
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype = str(entry["dtype"])
        if dtype not in _DTYPES:
            raise ModelError(
                f"{path}: {name} is of type {dtype}; weights must be float32, float16 or bfloat16."
            )
        yield name, _Entry(path, dtype, tuple(entry["shape"]), 8 + size + int(entry["data_offsets"][0]))
