"""Write a checkpoint as a Hugging Face model directory (fp16 safetensors, tokenizer, configuration).

python -m tools.demo_model.export --checkpoint run/step-3950.npz --tokenizer DIR --out MODEL_DIR
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from .network import Shape
from .pretrain import load

POSITIONS = 2048


def tensors(params: Any, shape: Shape) -> dict[str, np.ndarray]:
    """Standard names; the head is the embedding, so it is not stored twice."""
    out = {"model.embed_tokens.weight": params["embed"], "model.norm.weight": params["norm"]}
    for name, stacked in params["layers"].items():
        if name in ("gate_proj", "up_proj", "down_proj"):
            place = f"mlp.{name}"
        else:
            place = name if name.endswith("layernorm") else f"self_attn.{name}"
        for i in range(shape.layers):
            out[f"model.layers.{i}.{place}.weight"] = stacked[i]
    return {name: np.ascontiguousarray(np.asarray(x, np.float16)) for name, x in out.items()}


def config(shape: Shape, tokenizer: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "max_position_embeddings": POSITIONS,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "bos_token_id": None,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "pad_token_id": tokenizer.convert_tokens_to_ids("<|endoftext|>"),
        "torch_dtype": "float16",
        "use_cache": True,
    }


def write(checkpoint: Path, tokenizer_dir: Path, out: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_dir))
    shape = Shape(vocabulary=len(tokenizer))
    params = load(checkpoint, shape)[0]
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(tokenizer_dir / name, out / name)
    part = out / "model.safetensors.part"
    save_file(tensors(params, shape), part, metadata={"format": "pt"})
    part.replace(out / "model.safetensors")  # a reader never sees half a file
    stops = [tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|endoftext|>")]
    generation = {"do_sample": True, "temperature": 1.0, "eos_token_id": stops, "pad_token_id": stops[1]}
    (out / "config.json").write_text(json.dumps(config(shape, tokenizer), indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    write(arguments.checkpoint, arguments.tokenizer, arguments.out)


if __name__ == "__main__":
    main()
