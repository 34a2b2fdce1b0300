"""Episodes of file tasks with a policy, many side by side, commands run for real in the sandbox."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
import numpy as np

from . import network, sandbox
from .batches import PREFIX
from .chat import opening, prefix_ids, tool_names
from .demonstrations import place_files, result_text
from .task import Call, FileTask

TURNS, REPLY_TOKENS, EPISODE_TOKENS = 4, 72, 480
_LENGTHS, _ROWS = (64, 176, 304, 480), (8, 32, 128)


def _at_least(sizes: tuple[int, ...], needed: int) -> int:
    """Few shapes, because each one is compiled."""
    return next(size for size in sizes if size >= needed)


@dataclass
class Episode:
    task: FileTask
    folder: Path
    ids: list[int]
    as_json: bool
    state: str = "running"
    calls: int = 0
    valid_calls: int = 0
    reward: float = 0.0
    trace: list[str] = field(default_factory=list)


class Policy:
    def __init__(self, shape: network.Shape, params: Any, tokenizer: Any, renderer: Any) -> None:
        self.shape, self.tokenizer, self.renderer = shape, tokenizer, renderer
        self.params = jax.tree.map(jnp.asarray, params)
        self._stops = jnp.array(renderer.get_stop_token_ids())
        self._cache = jax.jit(network.prefix_cache, static_argnums=0)

    def reply(
        self, prompts: list[list[int]], prefix: list[int], seed: int, count: int = REPLY_TOKENS
    ) -> list[list[int]]:
        """One sampled reply to each prompt, its stop id included. Every prompt starts with `prefix`."""
        cache, pad = None, 0
        if prefix:
            pad = PREFIX - len(prefix)
            cache = self._cache(self.shape, self.params, jnp.array([0] * pad + prefix), pad)
        out: list[list[int]] = []
        for at in range(0, len(prompts), _ROWS[-1]):
            part = [ids[len(prefix) :] for ids in prompts[at : at + _ROWS[-1]]]
            rows, length = _at_least(_ROWS, len(part)), _at_least(_LENGTHS, max(map(len, part)))
            tokens = np.zeros((rows, length), np.int32)
            for i in range(rows):
                ids = part[min(i, len(part) - 1)]
                tokens[i, length - len(ids) :] = ids
            lengths = np.array([len(part[min(i, len(part) - 1)]) for i in range(rows)])
            key = jax.random.key(seed * 1000 + at)
            found = np.asarray(
                network.sample(self.shape, self.params, cache, tokens, lengths, count, key, self._stops, pad)
            )
            stops = set(np.asarray(self._stops).tolist())
            for row in found[: len(part)].tolist():
                end = next((i for i, t in enumerate(row) if t in stops), count - 1)
                out.append(row[: end + 1])
        return out


def _call(renderer: Any, schemas: Any, prompt: list[int], reply: list[int], stops: set[int]) -> Call | str:
    """The reply's one tool call, or the state in which the episode ends."""
    parsed = renderer.parse_response(reply, tools=schemas, prompt_ids=prompt)
    closed = reply[-1] in stops
    if not parsed.tool_calls:
        return "final" if closed else "truncated"
    call = parsed.tool_calls[0]
    names = tool_names()
    well_formed = (
        closed
        and len(parsed.tool_calls) == 1
        and call.status.name == "OK"
        and call.name in names
        and isinstance(call.arguments, dict)
        and set(call.arguments) == names[call.name]
        and all(isinstance(v, str) for v in call.arguments.values())
    )
    return Call(call.name, call.arguments) if well_formed else "malformed"


def _perform(episode: Episode, call: Call) -> str:
    episode.trace.append(call.arguments.get("command") or json.dumps(dict(call.arguments)))
    if call.name == "write_file":
        if not sandbox.write(episode.folder, call.arguments["path"], call.arguments["content"]):
            return json.dumps({"error": "bad path"}) if episode.as_json else "bad path"
        return result_text(call, 0, "", episode.as_json)
    return result_text(call, *sandbox.run(episode.folder, call.arguments["command"]), episode.as_json)


def play(policy: Policy, tasks: list[FileTask], seed: int) -> list[Episode]:
    """One episode per task. The opening and the form of tool results are drawn per call and per episode."""
    rng = random.Random(seed)
    system, schemas = opening(rng)
    prefix = prefix_ids(policy.renderer, system, schemas)
    stops = set(policy.renderer.get_stop_token_ids())
    root = Path(tempfile.mkdtemp(prefix="demo-model-"))
    episodes = []
    for i, task in enumerate(tasks):
        folder = root / str(i)
        folder.mkdir()
        place_files(task, folder)
        user = {"role": "user", "content": task.instruction}
        ids = policy.renderer.render_ids([*system, user], tools=schemas, add_generation_prompt=True)
        episodes.append(Episode(task, folder, list(ids), rng.random() < 0.7))

    def advance(episode: Episode, reply: list[int]) -> None:
        found = _call(policy.renderer, schemas, episode.ids, reply, stops)
        if isinstance(found, str):
            episode.state = found
            episode.calls += found == "malformed"
            episode.trace.append(policy.tokenizer.decode(reply))
            return
        episode.calls += 1
        episode.valid_calls += 1
        message = {"role": "tool", "content": _perform(episode, found)}
        bridged = policy.renderer.bridge_to_next_turn(episode.ids, reply, [message], tools=schemas)
        if bridged is None or len(bridged.token_ids) - len(prefix) > EPISODE_TOKENS:
            episode.state = "overlong"
            return
        episode.ids = list(bridged.token_ids)

    def grade(episode: Episode) -> None:
        if episode.state == "running":
            episode.state = "turn limit"
        episode.reward = float(sandbox.run(episode.folder, episode.task.check)[0] == 0)

    with ThreadPoolExecutor(2) as pool:
        for turn in range(TURNS):
            running = [e for e in episodes if e.state == "running"]
            if not running:
                break
            replies = policy.reply([e.ids for e in running], prefix, seed * 10 + turn)
            list(pool.map(advance, running, replies))
        list(pool.map(grade, episodes))
    shutil.rmtree(root)
    return episodes
