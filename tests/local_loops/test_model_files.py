"""Model directories that cannot be loaded, and what the sentence says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.local_loops.compute.model_files import ModelError, read_config
from engine.local_loops.compute.numpy_backend import load_backend
from tests.local_loops.random_models import RandomModel

MODEL = RandomModel()


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "architecture 'GPT2LMHeadModel' is not supported; it must be one of Llama",
        ),
        ({"architectures": []}, "architecture 'missing'"),
        ({"hidden_size": "24"}, "hidden_size must be a whole number of at least 1, not '24'"),
        ({"hidden_size": None}, "hidden_size must be a whole number"),
        ({"num_key_value_heads": 3}, "no multiple of num_key_value_heads 3"),
        ({"head_dim": 5}, "head_dim 5 is odd"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported; it must be 'silu'"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"quantization_config": {"bits": 4}}, "quantised weights are not supported"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be a number above 0"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2.0}},
            "rope scaling 'yarn' is not supported; it must be absent",
        ),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "differ between layers"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"eos_token_id": "x"}, "eos_token_id must be a token id"),
    ],
)
def test_configs_that_are_refused(extra: dict[str, Any], says: str, tmp_path: Path) -> None:
    RandomModel(extra=extra).write(tmp_path)
    with pytest.raises(ModelError, match=says) as caught:
        load_backend(tmp_path)
    assert str(tmp_path) in str(caught.value)


def remove_config(directory: Path) -> None:
    (directory / "config.json").unlink()


def break_config(directory: Path) -> None:
    (directory / "config.json").write_text("{", encoding="utf-8")


def list_config(directory: Path) -> None:
    (directory / "config.json").write_text("[]", encoding="utf-8")


def remove_weights(directory: Path) -> None:
    (directory / "model.safetensors").unlink()


def cut_weights(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def scramble_weights(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"\xff" * 64)


def no_json_header(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes((20).to_bytes(8, "little") + b"x" * 64)


def dangling_index(directory: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def empty_index(directory: Path) -> None:
    (directory / "model.safetensors.index.json").write_text("{}", encoding="utf-8")


def edit(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        tensors = load_file(directory / "model.safetensors")
        change(tensors)
        save_file(tensors, directory / "model.safetensors")

    return apply


Q_BIAS = "model.layers.0.self_attn.q_proj.bias"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (remove_config, "config.json is missing; a model directory holds"),
        (break_config, "cannot be read as JSON"),
        (list_config, "must hold a JSON object"),
        (remove_weights, r"holds no \*.safetensors file"),
        (cut_weights, "is cut short: .* is not all there"),
        (scramble_weights, "is no safetensors file"),
        (no_json_header, "is no readable safetensors file"),
        (dangling_index, "named by the index but is not there"),
        (empty_index, "holds no weight_map"),
        (edit(lambda t: t.pop("model.norm.weight")), "the tensor model.norm.weight is missing"),
        (
            edit(lambda t: t.update({"model.norm.weight": np.ones(3, np.float32)})),
            r"has shape \[3\], but .* makes it \[24\]",
        ),
        (
            edit(lambda t: t.update({"model.norm.weight": np.ones(24, np.int8)})),
            "is of type I8; weights must be",
        ),
        (edit(lambda t: t.update({Q_BIAS: np.ones(24, np.float32)})), "says there are no such biases"),
    ],
)
def test_directories_that_are_refused(damage: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    MODEL.write(tmp_path)
    damage(tmp_path)
    with pytest.raises(ModelError, match=says):
        load_backend(tmp_path)


def test_what_a_card_says(tmp_path: Path) -> None:
    card = load_backend(MODEL.write(tmp_path)).card
    assert (card.architecture, card.vocab_size, card.max_context) == ("LlamaForCausalLM", 50, 512)
    assert card.eos_token_ids == (2,)
    assert card.parameters == sum(tensor.size for tensor in MODEL.tensors().values())
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [3, 4]}', encoding="utf-8")
    assert load_backend(tmp_path).card.eos_token_ids == (3, 4)


def test_defaults_of_a_sparse_config(tmp_path: Path) -> None:
    extra = {
        "num_key_value_heads": None,
        "head_dim": None,
        "rope_theta": None,
        "max_position_embeddings": None,
    }
    RandomModel(extra={**extra, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}).write(
        tmp_path
    )
    config = read_config(tmp_path)
    assert (config.kv_heads, config.head_dim, config.rope.theta, config.max_context) == (4, 6, 7.0, 2048)
