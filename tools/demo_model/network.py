"""A Llama-style decoder in JAX, with the conventions of Hugging Face's (half-split rotary embedding, tied head).

A batch may have a *prefix*: one block of ids that every row starts with. Its keys and values are computed once and
shared by the rows, gradients included. The prefix is padded on the left to a fixed length, so that openings of
different lengths need no new compilation.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]

Params = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    vocabulary: int = 1280
    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 384
    theta: float = 10_000.0
    eps: float = 1e-5

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Each projection's (out, in), under the name it has in a Hugging Face checkpoint."""
        kv = self.kv_heads * self.head_width
        return {
            "q_proj": (self.width, self.width),
            "k_proj": (kv, self.width),
            "v_proj": (kv, self.width),
            "o_proj": (self.width, self.width),
            "gate_proj": (self.hidden, self.width),
            "up_proj": (self.hidden, self.width),
            "down_proj": (self.width, self.hidden),
        }


def init(shape: Shape, seed: int) -> Params:
    keys = iter(jax.random.split(jax.random.key(seed), 16))
    layers = {
        name: jax.random.normal(next(keys), (shape.layers, *size)) / math.sqrt(size[1])
        for name, size in shape.matrices().items()
    }
    for norm in ("input_layernorm", "post_attention_layernorm"):
        layers[norm] = jnp.ones((shape.layers, shape.width))
    embed = jax.random.normal(next(keys), (shape.vocabulary, shape.width)) * 0.05
    return {"embed": embed, "norm": jnp.ones(shape.width), "layers": layers}


def merge_lora(params: Params, lora: dict[str, Any], scale: float) -> Params:
    layers = dict(params["layers"])
    for name, (a, b) in lora.items():
        layers[name] = layers[name] + scale * (b @ a)
    return {**params, "layers": layers}


def _norm(x: Any, weight: Any, eps: float) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * weight


def _rotate(x: Any, positions: Any, theta: float) -> Any:
    """x [batch, heads, length, width], positions [batch or 1, length]."""
    width = x.shape[-1]
    frequencies = theta ** (-jnp.arange(0, width, 2) / width)
    angle = positions[:, None, :, None] * frequencies
    low, high = x[..., : width // 2], x[..., width // 2 :]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([low * cos - high * sin, low * sin + high * cos], -1)


def _layer(  # noqa: PLR0917
    shape: Shape, x: Any, w: Params, positions: Any, mask: Any, extend: Any
) -> tuple[Any, Any]:
    """One layer. `extend(k, v)` gives the keys and values to attend to and whatever is to be kept of them."""
    batch, length, _ = x.shape

    def split(y: Any, heads: int) -> Any:
        return y.reshape(batch, length, heads, shape.head_width).transpose(0, 2, 1, 3)

    h = _norm(x, w["input_layernorm"], shape.eps)
    q = _rotate(split(h @ w["q_proj"].T, shape.heads), positions, shape.theta)
    k = _rotate(split(h @ w["k_proj"].T, shape.kv_heads), positions, shape.theta)
    v = split(h @ w["v_proj"].T, shape.kv_heads)
    keys, values, kept = extend(k, v)
    group = shape.heads // shape.kv_heads
    q = q.reshape(batch, shape.kv_heads, group * length, shape.head_width)
    scores = (q @ keys.swapaxes(-1, -2)).reshape(batch, shape.kv_heads, group, length, -1)
    scores = jnp.where(mask[:, None, None], scores / math.sqrt(shape.head_width), -1e30)
    weights = jax.nn.softmax(scores, -1).reshape(batch, shape.kv_heads, group * length, -1)
    out = (weights @ values).reshape(batch, shape.heads, length, shape.head_width)
    x = x + out.transpose(0, 2, 1, 3).reshape(batch, length, -1) @ w["o_proj"].T
    h = _norm(x, w["post_attention_layernorm"], shape.eps)
    x = x + (jax.nn.silu(h @ w["gate_proj"].T) * (h @ w["up_proj"].T)) @ w["down_proj"].T
    return x, kept


def prefix_cache(shape: Shape, params: Params, prefix: Any, pad: Any) -> Any:
    """Keys and values of a left-padded prefix [P], each [layers, 1, kv_heads, P, head_width]."""
    columns = jnp.arange(prefix.shape[0])
    mask = ((columns[None] <= columns[:, None]) & (columns[None] >= pad))[None]

    def run(x: Any, w: Params) -> tuple[Any, Any]:
        return _layer(shape, x, w, (columns - pad)[None], mask, lambda k, v: (k, v, (k, v)))

    return jax.lax.scan(run, params["embed"][prefix][None], params["layers"])[1]


def logits(shape: Shape, params: Params, tokens: Any, prefix: Any = None, pad: Any = 0) -> Any:
    """Right-padded rows [batch, length] after the shared prefix, if there is one."""
    batch, length = tokens.shape
    ahead = 0 if prefix is None else prefix.shape[0]
    before = jnp.broadcast_to(jnp.arange(ahead)[None] >= pad, (length, ahead))
    mask = jnp.concatenate([before, jnp.tril(jnp.ones((length, length), bool))], 1)[None]
    positions = (ahead - pad + jnp.arange(length))[None]
    cache = None if prefix is None else prefix_cache(shape, params, prefix, pad)

    def run(x: Any, layer: Any) -> tuple[Any, None]:
        w, kept = layer

        def extend(k: Any, v: Any) -> tuple[Any, Any, None]:
            if kept is None:
                return k, v, None
            wide = [jnp.broadcast_to(a, (batch, *a.shape[1:])) for a in kept]
            return jnp.concatenate([wide[0], k], 2), jnp.concatenate([wide[1], v], 2), None

        return _layer(shape, x, w, positions, mask, extend)

    # Recomputing a layer in the backward pass is faster than keeping its parts: memory is the bottleneck here.
    x, _ = jax.lax.scan(jax.checkpoint(run), params["embed"][tokens], (params["layers"], cache))
    return _norm(x, params["norm"], shape.eps) @ params["embed"].T


def log_probs(shape: Shape, params: Params, tokens: Any, prefix: Any = None, pad: Any = 0) -> Any:
    """Log-probability of each token after the first, given those before it."""
    scores = logits(shape, params, tokens[:, :-1], prefix, pad)
    chosen = jnp.take_along_axis(scores, tokens[:, 1:, None], -1)[..., 0]
    return chosen - jax.nn.logsumexp(scores, -1)


@functools.partial(jax.jit, static_argnums=(0, 5))
def sample(  # noqa: PLR0917
    shape: Shape,
    params: Params,
    cache: Any,
    tokens: Any,
    lengths: Any,
    count: int,
    key: Any,
    stops: Any,
    pad: Any = 0,
) -> Any:
    """Up to `count` ids per row at temperature 1, after left-padded rows [batch, length] and a prefix cache or None."""
    batch, length = tokens.shape
    ahead = 0 if cache is None else cache[0].shape[3]
    total = ahead + length + count
    gap = length - lengths
    columns = jnp.arange(total)
    usable = ((columns[None] < ahead) & (columns[None] >= pad)) | (columns[None] >= ahead + gap[:, None])
    stored = (jnp.zeros((shape.layers, batch, shape.kv_heads, total, shape.head_width)),) * 2
    if cache is not None:
        stored = tuple(a.at[:, :, :, :ahead].set(b) for a, b in zip(stored, cache, strict=True))

    def forward(x: Any, stored: Any, positions: Any, mask: Any, at: Any) -> tuple[Any, Any]:
        def run(x: Any, layer: Any) -> tuple[Any, Any]:
            w, (old_k, old_v) = layer

            def extend(k: Any, v: Any) -> tuple[Any, Any, Any]:
                k = jax.lax.dynamic_update_slice(old_k, k, (0, 0, at, 0))
                v = jax.lax.dynamic_update_slice(old_v, v, (0, 0, at, 0))
                return k, v, (k, v)

            return _layer(shape, x, w, positions, mask, extend)

        x, stored = jax.lax.scan(run, x, (params["layers"], stored))
        return _norm(x, params["norm"], shape.eps)[:, -1], stored

    start = ahead - pad
    row_positions = start + jnp.arange(length)[None] - gap[:, None]
    mask = usable[:, None, :] & (columns[None, None] <= ahead + jnp.arange(length)[None, :, None])
    h, stored = forward(params["embed"][tokens], stored, row_positions, mask, ahead)

    def unfinished(state: Any) -> Any:
        return (state[0] < count) & ~jnp.all(state[3])

    def advance(state: Any) -> Any:
        step, h, stored, done, out, key = state
        key, draw = jax.random.split(key)
        token = jnp.where(done, stops[0], jax.random.categorical(draw, h @ params["embed"].T))
        out = out.at[:, step].set(token)
        done = done | jnp.any(token[:, None] == stops[None], 1)
        position = (start + length + step - gap)[:, None]
        mask = usable[:, None, :] & (columns <= ahead + length + step)[None, None]
        h, stored = forward(params["embed"][token[:, None]], stored, position, mask, ahead + length + step)
        return step + 1, h, stored, done, out, key

    begin = (0, h, stored, jnp.zeros(batch, bool), jnp.full((batch, count), stops[0]), key)
    return jax.lax.while_loop(unfinished, advance, begin)[4]
