"""The shipped demonstration policy: it loads offline, renders as its renderer does, and computes what JAX computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import engine

MODEL = Path(engine.__file__).parent / "local_loops" / "models" / "loops-demo-1m"
REFERENCE = Path(__file__).parent / "demo_model_reference.json"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Do it.",
            "parameters": {
                "type": "object",
                "properties": {p: {"type": "string"} for p in ps},
                "required": ps,
            },
        },
    }
    for name, ps in (("shell", ["command"]), ("write_file", ["path", "content"]))
]
CALL = {
    "type": "function",
    "function": {"name": "shell", "arguments": {"command": "grep -cw paid orders.csv > paid.txt"}},
}
EPISODE = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": 'Write to paid.txt how many orders in "orders.csv" are paid.\nNöthing élse.'},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": '{"exit_code": 0, "output": "id,name\\n1,ana\\n"}'},
    {"role": "assistant", "content": "Wrote the count to paid.txt."},
]

LIKELIEST = '<tool_call>\n{"name": "shell", "arguments": {"command": "cat app.conf"}}\n</tool_call><|im_end|>'


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer  # slow to import: not for every worker that collects the tests

    return AutoTokenizer.from_pretrained(str(MODEL), local_files_only=True)


@pytest.fixture(scope="module")
def renderer(tokenizer: Any) -> Any:
    from renderers import Qwen3RendererConfig, create_renderer

    return create_renderer(tokenizer, Qwen3RendererConfig(enable_thinking=False))


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return json.loads((MODEL / "config.json").read_text())


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return load_file(MODEL / "model.safetensors")


def _rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def _rotate(x: np.ndarray, theta: float) -> np.ndarray:
    """Hugging Face's `x * cos + rotate_half(x) * sin`, x [heads, length, width]."""
    width = x.shape[-1]
    angles = np.outer(np.arange(x.shape[1]), theta ** (-np.arange(0, width, 2) / width))
    angles = np.concatenate([angles, angles], -1)
    half = np.concatenate([-x[..., width // 2 :], x[..., : width // 2]], -1)
    return x * np.cos(angles) + half * np.sin(angles)


def forward(config: dict[str, Any], weights: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """Logits of one sequence, written from the Llama definition and sharing no code with the trainer."""
    heads, kv_heads, width = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    eps, length = config["rms_norm_eps"], len(ids)
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x = w["model.embed_tokens.weight"][ids]
    unseen = np.triu(np.ones((length, length), bool), 1)
    for i in range(config["num_hidden_layers"]):
        layer = {
            n.removeprefix(f"model.layers.{i}."): v
            for n, v in w.items()
            if n.startswith(f"model.layers.{i}.")
        }
        h = _rms(x, layer["input_layernorm.weight"], eps)
        q, k, v = (
            (h @ layer[f"self_attn.{name}_proj.weight"].T).reshape(length, count, width).transpose(1, 0, 2)
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k = _rotate(q, config["rope_theta"]), _rotate(k, config["rope_theta"])
        k, v = (np.repeat(a, heads // kv_heads, axis=0) for a in (k, v))
        scores = np.where(unseen, -np.inf, q @ k.transpose(0, 2, 1) / np.sqrt(width))
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(length, -1)
        x = x + mixed @ layer["self_attn.o_proj.weight"].T
        h = _rms(x, layer["post_attention_layernorm.weight"], eps)
        gate = h @ layer["mlp.gate_proj.weight"].T
        x = (
            x
            + (gate / (1 + np.exp(-gate)) * (h @ layer["mlp.up_proj.weight"].T))
            @ layer["mlp.down_proj.weight"].T
        )
    return _rms(x, w["model.norm.weight"], eps) @ w["model.embed_tokens.weight"].T


def test_configuration_describes_the_weights(config: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["model_type"] == "llama"
    assert config["tie_word_embeddings"] is True
    assert config["max_position_embeddings"] == 2048
    assert config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]
    assert weights["model.embed_tokens.weight"].shape == (config["vocab_size"], config["hidden_size"])
    assert "lm_head.weight" not in weights
    assert len(weights) == 2 + 9 * config["num_hidden_layers"]
    assert all(w.dtype == np.float16 and np.isfinite(w).all() for w in weights.values())
    assert (MODEL / "model.safetensors").stat().st_size < 4_000_000


def test_special_tokens(tokenizer: Any, renderer: Any, config: dict[str, Any]) -> None:
    assert len(tokenizer) == config["vocab_size"]
    for text in (
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
    ):
        assert tokenizer.encode(text, add_special_tokens=False) == [tokenizer.convert_tokens_to_ids(text)]
    assert tokenizer.eos_token == "<|im_end|>"
    assert config["eos_token_id"] == tokenizer.eos_token_id
    assert config["pad_token_id"] == tokenizer.pad_token_id
    assert config["eos_token_id"] in renderer.get_stop_token_ids()


def test_any_text_survives_the_tokenizer(tokenizer: Any) -> None:
    text = "Größe = \"7\"\\n\tsed -i 's/^port=.*/port=9090/' app.conf  \n\n日本 🙂"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_a_name_is_the_same_tokens_wherever_it_stands(tokenizer: Any) -> None:
    """Copying is learnt only if what is copied looks the same on both sides."""

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    name = ids("zubarik")
    for before in ("In ", "echo ", "s/^", "\\n", '{"path": "', "a, ", "\n"):
        assert ids(f"{before}zubarik.txt")[-len(name) - 2 : -2] == name


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["without tools", "with tools"])
@pytest.mark.parametrize("first", [0, 1], ids=["system prompt", "no system prompt"])
def test_chat_template_gives_the_renderers_ids(tokenizer: Any, renderer: Any, tools: Any, first: int) -> None:
    for end in (2, 4, 5):
        messages = EPISODE[first:end]
        prompt = end != 5
        expected = tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=prompt, enable_thinking=False, return_dict=False
        )
        assert list(renderer.render_ids(messages, tools=tools, add_generation_prompt=prompt)) == list(
            expected
        )


def test_an_independent_forward_agrees_with_the_trainer(
    config: dict[str, Any], weights: dict[str, np.ndarray]
) -> None:
    reference = json.loads(REFERENCE.read_text())
    found = forward(config, weights, reference["ids"])[reference["positions"]][:, reference["entries"]]
    np.testing.assert_allclose(found, np.array(reference["logits"]), atol=1e-3)


def test_the_likeliest_reply_is_a_well_formed_call(
    tokenizer: Any, renderer: Any, config: dict[str, Any], weights: dict[str, np.ndarray]
) -> None:
    user = {
        "role": "user",
        "content": "In app.conf, change the port to 90. Leave the other settings exactly as they are.",
    }
    prompt = list(renderer.render_ids([EPISODE[0], user], tools=TOOLS, add_generation_prompt=True))
    # Each token is the likeliest one after those before it, which one pass over all of them shows.
    said = tokenizer.encode(LIKELIEST, add_special_tokens=False)
    likeliest = forward(config, weights, prompt + said)[len(prompt) - 1 : -1].argmax(-1).tolist()
    assert tokenizer.decode(likeliest) == LIKELIEST
    assert likeliest == said
    assert likeliest[-1] == tokenizer.eos_token_id
    reply = renderer.parse_response(likeliest, tools=TOOLS, prompt_ids=prompt)
    assert [(c.status.name, c.name in ("shell", "write_file")) for c in reply.tool_calls] == [("OK", True)]
    assert "app.conf" in json.dumps(reply.tool_calls[0].arguments)
