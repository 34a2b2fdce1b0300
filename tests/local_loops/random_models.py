"""Small random models of every supported architecture, and a plain forward pass to compare with.

The plain pass follows the published definition step by step in float64 and shares no code with the back end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RandomModel:
    """Sizes and seed of a random model; ``extra`` is merged into config.json."""

    architecture: str = "LlamaForCausalLM"
    hidden: int = 24
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 6
    feed_forward: int = 20
    vocab: int = 50
    tied: bool = True
    attention_bias: bool = False
    seed: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        return {
            "architectures": [self.architecture],
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.feed_forward,
            "vocab_size": self.vocab,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 512,
            "tie_word_embeddings": self.tied,
            "attention_bias": self.attention_bias,
            "rope_theta": 500.0,
            "hidden_act": "silu",
            "eos_token_id": 2,
            **self.extra,
        }

    def tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        generator = np.random.default_rng(self.seed)
        d, q, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        result: dict[str, npt.NDArray[np.float32]] = {}

        def put(name: str, *shape: int, scale: float, around: float = 0.0) -> None:
            result[name] = (around + scale * generator.standard_normal(shape)).astype(np.float32)

        put("model.embed_tokens.weight", self.vocab, d, scale=0.5)
        put("model.norm.weight", d, scale=0.2, around=1.0)
        if not self.tied:
            put("lm_head.weight", self.vocab, d, scale=d**-0.5)
        for index in range(self.layers):
            root = f"model.layers.{index}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                put(f"{root}.{norm}.weight", d, scale=0.2, around=1.0)
            for name, rows, columns in (
                ("self_attn.q_proj", q, d),
                ("self_attn.k_proj", kv, d),
                ("self_attn.v_proj", kv, d),
                ("self_attn.o_proj", d, q),
                ("mlp.gate_proj", self.feed_forward, d),
                ("mlp.up_proj", self.feed_forward, d),
                ("mlp.down_proj", d, self.feed_forward),
            ):
                put(f"{root}.{name}.weight", rows, columns, scale=columns**-0.5)
                if self._biased(name):
                    put(f"{root}.{name}.bias", rows, scale=0.3)
            if self.architecture == "Qwen3ForCausalLM":
                put(f"{root}.self_attn.q_norm.weight", self.head_dim, scale=0.2, around=1.0)
                put(f"{root}.self_attn.k_norm.weight", self.head_dim, scale=0.2, around=1.0)
        return result

    def _biased(self, name: str) -> bool:
        if self.architecture == "Qwen2ForCausalLM":
            return name.endswith(("q_proj", "k_proj", "v_proj"))
        return self.attention_bias and name.startswith("self_attn")

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config()), encoding="utf-8")
        save_file(self.tensors(), directory / "model.safetensors")
        return directory


#: One of every architecture and of what differs within one.
MODELS: dict[str, RandomModel] = {
    "llama": RandomModel(),
    "llama, untied, no grouping": RandomModel(kv_heads=4, tied=False, seed=1),
    "llama, biases": RandomModel(attention_bias=True, seed=2),
    "qwen2": RandomModel("Qwen2ForCausalLM", seed=3),
    "qwen3, wide heads": RandomModel("Qwen3ForCausalLM", head_dim=8, seed=4),
}


def plain_logprobs(
    model: RandomModel,
    tokens: npt.NDArray[np.int64],
    *,
    angles: Doubles | None = None,
    lora: Mapping[str, npt.NDArray[Any]] | None = None,
    lora_scale: float = 0.0,
) -> Doubles:
    """(L, V) log-probabilities of a model, optionally with an adapter in PEFT's names.

    ``angles`` are the rotary frequencies (head_dim / 2,), by default those of rope_theta.
    """
    weights = {name: tensor.astype(np.float64) for name, tensor in model.tensors().items()}
    for name in list(weights):
        key = f"base_model.model.{name.removesuffix('.weight')}"
        if lora is not None and f"{key}.lora_A.weight" in lora:
            weights[name] = (
                weights[name] + lora_scale * lora[f"{key}.lora_B.weight"] @ lora[f"{key}.lora_A.weight"]
            )
    length, half = tokens.shape[0], model.head_dim // 2
    if angles is None:
        angles = 500.0 ** (-np.arange(half) / half)
    turn = np.arange(length)[:, None] * np.concatenate([angles, angles])

    def norm(x: Doubles, weight: Doubles) -> Doubles:
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * weight

    def rotate(x: Doubles) -> Doubles:
        turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return x * np.cos(turn)[:, None] + turned * np.sin(turn)[:, None]

    x = weights["model.embed_tokens.weight"][tokens]
    for index in range(model.layers):
        root = f"model.layers.{index}"

        def linear(name: str, value: Doubles, root: str = root) -> Doubles:
            result = value @ weights[f"{root}.{name}.weight"].T
            return result + weights.get(f"{root}.{name}.bias", 0.0)

        y = norm(x, weights[f"{root}.input_layernorm.weight"])
        q = linear("self_attn.q_proj", y).reshape(length, model.heads, -1)
        k = linear("self_attn.k_proj", y).reshape(length, model.kv_heads, -1)
        v = linear("self_attn.v_proj", y).reshape(length, model.kv_heads, -1)
        if model.architecture == "Qwen3ForCausalLM":
            q = norm(q, weights[f"{root}.self_attn.q_norm.weight"])
            k = norm(k, weights[f"{root}.self_attn.k_norm.weight"])
        q, k = rotate(q), rotate(k)
        out = np.zeros_like(q)
        for head in range(model.heads):
            shared = head // (model.heads // model.kv_heads)
            scores = q[:, head] @ k[:, shared].T / np.sqrt(model.head_dim)
            scores[np.triu_indices(length, 1)] = -np.inf
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = p / p.sum(axis=1, keepdims=True) @ v[:, shared]
        x = x + linear("self_attn.o_proj", out.reshape(length, -1))
        y = norm(x, weights[f"{root}.post_attention_layernorm.weight"])
        gate = linear("mlp.gate_proj", y)
        x = x + linear("mlp.down_proj", gate / (1 + np.exp(-gate)) * linear("mlp.up_proj", y))
    x = norm(x, weights["model.norm.weight"])
    logits = x @ weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).T
    peak = logits.max(axis=1, keepdims=True)
    return logits - peak - np.log(np.exp(logits - peak).sum(axis=1, keepdims=True))
