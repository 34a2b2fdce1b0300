"""A random Llama-architecture model of a few thousand parameters, with a byte-level tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 16, 2, 2, 1, 32
CONTEXT = 256
EOS, PAD = "<eos>", "<pad>"


def write_tiny_model(directory: Path, *, seed: int = 0, context: int = CONTEXT, spread: float = 0.4) -> Path:
    """Write a loadable model directory; ``spread`` is the scale of its random weights."""
    directory.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    vocabulary |= {EOS: len(vocabulary), PAD: len(vocabulary) + 1}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS, PAD])
    tokenizer.save(str(directory / "tokenizer.json"))
    _write(
        directory / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS, "pad_token": PAD},
    )
    size = len(vocabulary)
    _write(
        directory / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "intermediate_size": FEED_FORWARD,
            "vocab_size": size,
            "max_position_embeddings": context,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": True,
            "hidden_act": "silu",
            "eos_token_id": vocabulary[EOS],
        },
    )
    save_file(_tensors(size, seed, spread), directory / "model.safetensors")
    return directory


def _tensors(vocabulary: int, seed: int, spread: float) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (generator.standard_normal((rows, columns)) * spread).astype(np.float32)

    head = HIDDEN // HEADS
    tensors = {
        "model.embed_tokens.weight": matrix(vocabulary, HIDDEN),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
    }
    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        tensors |= {
            f"{base}.input_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{base}.post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{base}.self_attn.q_proj.weight": matrix(HEADS * head, HIDDEN),
            f"{base}.self_attn.k_proj.weight": matrix(KV_HEADS * head, HIDDEN),
            f"{base}.self_attn.v_proj.weight": matrix(KV_HEADS * head, HIDDEN),
            f"{base}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * head),
            f"{base}.mlp.gate_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            f"{base}.mlp.up_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            f"{base}.mlp.down_proj.weight": matrix(HIDDEN, FEED_FORWARD),
        }
    return tensors


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
