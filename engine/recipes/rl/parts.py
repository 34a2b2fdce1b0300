"""What a config's attempts need, whoever runs them: deadlines, the renderer, sandboxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.episodes.contract import grades_apart
from engine.episodes.runtime import Deadlines
from engine.policy.rendering import PolicyRenderer, load_renderer
from engine.sandboxes.for_run import RunSandboxes
from engine.sandboxes.settings import SandboxSettings
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.project import Project


def deadlines_of(project: Project) -> Deadlines:
    """Seconds that each part of an attempt may take."""
    runtime = project.rl.runtime.config
    return Deadlines(
        runtime.setup_timeout_seconds,
        runtime.agent_timeout_seconds,
        runtime.grading_timeout_seconds,
        runtime.provision_timeout_seconds,
    )


def renderer_of(project: Project) -> PolicyRenderer:
    """The renderer of a config's model. Imports the tokenizer: call it in a thread. Raises RenderingError."""
    model = project.config.model
    return load_renderer(
        model_name=model.base_model,
        tokenizer_source=project.tokenizer_source,
        renderer=model.renderer,
        template_kwargs=model.renderer_chat_template_kwargs,
    )


async def sandboxes_of(
    project: Project,
    store: Store,
    *,
    run_id: str | None,
    host_id: str | None,
    tell: Callable[[str], None] | None = None,
) -> RunSandboxes | None:
    """The sandboxes that a config asks for, ready to lease; None where its episode has none.

    ``tell`` gets sentences about waiting for room and trying again.
    Raises SandboxError: none can be created here.
    """
    config = project.rl
    table = config.runtime.config.sandbox
    if table is None:
        return None
    return await RunSandboxes.open(
        store,
        project.working_dir,
        SandboxSettings.from_table(table.model_dump()),
        attempt_seconds=config.sandbox_seconds,
        run_id=run_id,
        host_id=host_id,
        blaxel=config.providers.blaxel,
        leave_room=grades_apart(project.episode().cls),
        price=config.prices.sandbox_gb_hour,
        environ=project.environ,
        tell=tell,
    )
