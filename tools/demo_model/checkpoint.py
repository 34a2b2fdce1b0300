"""Read a Hugging Face model directory back into the JAX network, so that what is measured is what ships."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from .network import Shape


def read(model_dir: Path) -> tuple[Shape, dict[str, Any]]:
    config = json.loads((model_dir / "config.json").read_text())
    shape = Shape(
        vocabulary=config["vocab_size"],
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        hidden=config["intermediate_size"],
        theta=config["rope_theta"],
        eps=config["rms_norm_eps"],
    )
    stored = {name: x.astype(np.float32) for name, x in load_file(model_dir / "model.safetensors").items()}
    layers: dict[str, Any] = {}
    for name in stored:
        parts = name.split(".")
        if parts[:3] == ["model", "layers", "0"]:
            layers[parts[-2]] = np.stack(
                [stored[".".join(["model", "layers", str(i), *parts[3:]])] for i in range(shape.layers)]
            )
    return shape, {
        "embed": stored["model.embed_tokens.weight"],
        "norm": stored["model.norm.weight"],
        "layers": layers,
    }
