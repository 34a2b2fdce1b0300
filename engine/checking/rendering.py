"""Is there a tokenizer, and a renderer that speaks the model's chat format?"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from engine.checking.bounded import run_bounded
from engine.config.problems import Problem, did_you_mean
from engine.config.report import CheckReport, Severity

if TYPE_CHECKING:
    from engine.policy.rendering import PolicyRenderer, RenderingError
    from engine.project import Project

LOAD_SECONDS = 120.0  # a first load may download the tokenizer
HUB_SECONDS = 8.0  # whether the hub answers at all; its own client would retry for minutes
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_LOCAL_TOKENIZER = "Check the network, or name a local directory with [model] tokenizer"


def load_ahead() -> None:
    """Begin to import what most tokenizers need, beside something that waits."""
    from engine.policy.libraries import import_renderers, import_transformers

    def load() -> None:
        with contextlib.suppress(ImportError):  # whoever loads the tokenizer meets it again, and tells it
            import_renderers()
            import_transformers()

    threading.Thread(target=load, name="loops-tui-check", daemon=True).start()


async def check_rendering(project: Project, report: CheckReport) -> None:
    """Load the renderer as a run would and open a conversation with it."""
    from engine.policy.rendering import load_renderer

    model = project.config.model
    source = project.tokenizer_source

    def probe() -> tuple[PolicyRenderer, int, str]:
        renderer = load_renderer(
            model_name=model.base_model,
            tokenizer_source=source,
            renderer=model.renderer,
            template_kwargs=model.renderer_chat_template_kwargs,
        )
        opened = renderer.open([{"role": "user", "content": "Hello."}], None)
        return renderer, len(opened), _second_turn(renderer, opened)

    found = await load_bounded(project, report, probe)
    if found is None:
        return
    renderer, prompt_tokens, second_turn = found
    if prompt_tokens >= model.max_seq_len:
        report.add(
            Severity.ERROR,
            project.loaded.problem(
                "model.max_seq_len",
                f"[model] max_seq_len is {model.max_seq_len}, but the shortest prompt takes {prompt_tokens} tokens",
            ),
        )
    report.lines.append(f"Renderer: {renderer.name} ({renderer.how})")
    report.lines.append("Images: not supported; a message that holds one fails its attempt")
    report.lines.append(f"Second turn: {second_turn}")


async def load_bounded[T](project: Project, report: CheckReport, load: Callable[[], T]) -> T | None:
    """What ``load`` makes with the tokenizer, in a thread; None, and the reason in the report, where it cannot be had."""
    from engine.policy.rendering import RenderingError

    source, key = project.tokenizer_source, _key_at_fault(project)
    if (unreachable := await _hub_problem(project, source)) is not None:
        report.add(Severity.ERROR, project.loaded.problem(key, unreachable, _LOCAL_TOKENIZER))
        return None
    try:
        return await run_bounded(load, LOAD_SECONDS)
    except RenderingError as error:
        report.add(Severity.ERROR, _rendering_problem(project, error))
    except TimeoutError:
        late = f"the tokenizer of {source!r} was not there after {LOAD_SECONDS:.0f} s"
        report.add(Severity.ERROR, project.loaded.problem(key, late, _LOCAL_TOKENIZER))
    return None


#: What may come after a reply, and its name in the report.
_NEXT_TURNS: tuple[tuple[str, dict[str, str]], ...] = (
    ("a tool result", {"role": "tool", "tool_call_id": "call_1", "content": "done"}),
    ("a user message", {"role": "user", "content": "And now?"}),
)


def _second_turn(renderer: PolicyRenderer, opened: list[int]) -> str:
    """After which messages the chat format goes on from exactly what was sampled, so that one segment stays one."""
    if not renderer.stop_token_ids:
        return "starts a new segment (the model has no stop token)"
    reply = [*renderer.tokenizer.encode("Hello.", add_special_tokens=False), renderer.stop_token_ids[0]]
    told: dict[bool, list[str]] = {True: [], False: []}
    for name, message in _NEXT_TURNS:
        told[renderer.extend(opened, reply, [message], None) is not None].append(name)
    extend = "extend" if len(told[True]) > 1 else "extends"
    parts = [f"{' and '.join(told[True])} {extend} the first turn"] if told[True] else []
    return "; ".join([*parts, *([f"{' or '.join(told[False])} starts a new segment"] if told[False] else [])])


async def _hub_problem(project: Project, source: str) -> str | None:
    """What keeps a tokenizer from being downloaded, where it must be."""
    if Path(source).is_absolute():  # a directory, there or not
        return None
    if project.environ.get("HF_HUB_OFFLINE", "") not in {"", "0"}:  # the hub's client says so itself, at once
        return None
    import httpx

    def cached() -> bool:
        from huggingface_hub import try_to_load_from_cache

        try:
            return any(isinstance(try_to_load_from_cache(source, name), str) for name in _TOKENIZER_FILES)
        except ValueError:  # no name that the hub could have
            return False

    if await run_bounded(cached, LOAD_SECONDS):
        return None
    hub = project.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    try:
        async with httpx.AsyncClient(timeout=HUB_SECONDS) as client:
            await client.head(f"{hub}/{source}/resolve/main/tokenizer_config.json")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        return f"the tokenizer of {source!r} must be downloaded, and {hub} cannot be reached: {reason}"
    return None


def _rendering_problem(project: Project, error: RenderingError) -> Problem:
    """Why there is no tokenizer or renderer for the model, at the key that is to be changed."""
    key = error.key or _key_at_fault(project)
    return project.loaded.problem(key, str(error), _remedy(project, key))


def _key_at_fault(project: Project) -> str:
    """The key that chose what could not be loaded."""
    model = project.config.model
    if model.renderer is not None:
        return "model.renderer"
    return "model.tokenizer" if model.tokenizer is not None else "model.base_model"


def _remedy(project: Project, key: str) -> str:
    model = project.config.model
    if key == "model.renderer_chat_template_kwargs":
        return "Write what the template has, or leave it out"
    if model.renderer is not None:
        known = _renderer_names()
        if model.renderer in known:
            return "Leave [model] renderer out to have it detected"
        meant = did_you_mean(model.renderer, known)
        return f"Did you mean {meant!r}?" if meant else f"Known: {', '.join(known)}"
    if model.tokenizer is not None or project.scope == "local":
        return "A tokenizer's directory holds tokenizer.json and tokenizer_config.json"
    return "Gated or private models need HF_TOKEN; [model] tokenizer can name a local directory"


def _renderer_names() -> list[str]:
    from renderers.configs import RendererConfig

    names = (str(config.model_fields["name"].default) for config in get_args(get_args(RendererConfig)[0]))
    return [name for name in names if name not in {"auto", "custom"}]
