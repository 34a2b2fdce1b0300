"""What the Run screen can plot: pure functions from rows to series and stacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from engine.store.rows import EvalRow, StepRow
from loops_tui.theme import Tone
from loops_tui.widgets.line_plot import Series, smoothed

EVAL_MARK = "◆"
SMOOTHING = (1, 5, 20)  # steps; 1: none


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a figure: a metric by name (or by the end of it), what it is called, its tone."""

    metric: str
    label: str
    tone: Tone = Tone.GOOD


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot to choose: curves on one scale, or a stack ("time": shares, "groups": counts)."""

    key: str
    title: str
    curves: tuple[Curve, ...] = ()
    stack: str = ""
    lower_is_better: bool = False
    log: bool = False  # whether it is drawn so unless asked otherwise
    held_out: bool = False  # evaluations are marked in it


FIGURES = (
    Figure(
        "reward",
        "Reward",
        (Curve("reward/mean", "mean"), Curve("reward/group_std_mean", "spread", Tone.INFO)),
        held_out=True,
    ),
    Figure("groups", "Groups, trained or rejected", stack="groups"),
    Figure(
        "kl",
        "KL sampler/trainer",
        (
            Curve("kl_sample_train_k3", "k3", Tone.WARN),
            Curve("kl_sample_train_v2_loops", "v2", Tone.INFO),
            Curve("kl_sample_train_v1_loops", "|v1|", Tone.TITLE),
        ),
        lower_is_better=True,
        log=True,
    ),
    Figure("time", "Where the time goes", stack="time"),
    Figure(
        "speed",
        "Tokens per second",
        (
            Curve("tokens/sampled_per_second", "sampled/s", Tone.INFO),
            Curve("tokens/trained_per_second", "trained/s"),
        ),
    ),
    Figure("turns", "Turns an attempt", (Curve("rollout/turns", "turns", Tone.INFO),)),
    Figure(
        "length", "Tokens an attempt", (Curve("tokens/sampled_per_attempt", "sampled tokens", Tone.INFO),)
    ),
    Figure(
        "seconds",
        "Seconds a step",
        (
            Curve("time/step", "step", Tone.INFO),
            Curve("time/rollout", "rollout", Tone.GOOD),
            Curve("time/train", "training", Tone.ACCENT),
        ),
        lower_is_better=True,
    ),
    Figure(
        "loss",
        "Loss",
        (Curve("loss", "training", Tone.INFO), Curve("loss/validation", "validation", Tone.ACCENT)),
        lower_is_better=True,
    ),
    Figure("rate", "Learning rate", (Curve("learning_rate", "learning rate", Tone.INFO),)),
)

TIME_PARTS = ("sampling", "environment", "grading", "setup", "training", "publishing", "idle")
_PHASES = {
    "sampling": "sampling",
    "acting": "environment",
    "grading": "grading",
    "setup": "setup",
    "provisioning": "setup",
}
GROUP_PARTS = ("trained", "all alike", "many lost")


def metric_figure(name: str) -> Figure:
    """A figure of any one metric."""
    return Figure(f"metric:{name}", "One metric", (Curve(name, name, Tone.INFO),))


def resolve(names: Collection[str], metric: str) -> str | None:
    """The metric of that name, or the one whose name ends so."""
    if metric in names:
        return metric
    return next((name for name in sorted(names) if name.endswith("/" + metric)), None)


def figures_of(names: Collection[str]) -> list[Figure]:
    """The figures that a run with metrics of these ``names`` has points for, what it is about first."""
    found = [figure for figure in FIGURES if _has(figure, names)]
    if "reward/mean" not in names:
        found.sort(key=lambda figure: figure.key != "loss")
    return found


def _has(figure: Figure, names: Collection[str]) -> bool:
    if figure.stack == "time":
        return "time/share/rollout" in names
    if figure.stack == "groups":
        return "groups/trained" in names
    return any(resolve(names, curve.metric) is not None for curve in figure.curves)


def points_of(
    steps: Sequence[StepRow], names: Collection[str], curve: Curve
) -> Sequence[tuple[float, float]]:
    """A curve's points over the steps that have it."""
    name = resolve(names, curve.metric)
    if name is None:
        return []
    found = [(float(step.step), step.metrics[name]) for step in steps if name in step.metrics]
    return [(x, abs(y)) for x, y in found] if curve.label.startswith("|") else found


def held_out_points(evals: Sequence[EvalRow]) -> Sequence[tuple[float, float]]:
    """(step, mean) of the run's finished evaluations; that of the base model stands at 0."""
    return [
        (float(row.step or 0), row.mean)
        for row in evals
        if row.state == "done" and row.mean is not None and row.target != "checkpoint"
    ]


def series_of(
    figure: Figure,
    steps: Sequence[StepRow],
    names: Collection[str],
    evals: Sequence[EvalRow],
    window: int,
) -> list[Series]:
    """What to draw: with smoothing the raw curves faintly below the smoothed ones, evaluations on top."""
    raw = [(curve, points_of(steps, names, curve)) for curve in figure.curves]
    drawn: list[Series] = []
    if window > 1:
        drawn.extend(Series(points, Tone.FAINT) for _, points in raw if points)
    # The first curve matters most and lies over the others.
    for curve, points in reversed(raw):
        if points:
            drawn.append(Series(smoothed(points, window) if window > 1 else points, curve.tone))
    if figure.held_out and any(points for _, points in raw):
        held = held_out_points(evals)
        if held:
            drawn.append(Series(held, Tone.ACCENT, EVAL_MARK))
    return drawn


def stack_of(
    figure: Figure, steps: Sequence[StepRow], resumed: Sequence[float] = ()
) -> list[tuple[float, dict[str, float]]]:
    """The columns of a stack: (step, amounts by name). ``resumed`` as in :func:`time_parts`."""
    columns: list[tuple[float, dict[str, float]]] = []
    before: StepRow | None = None
    for step in steps:
        parts = time_parts(step, before, resumed) if figure.stack == "time" else group_parts(step.metrics)
        if parts:
            columns.append((float(step.step), parts))
        before = step
    return columns


def stack_names(figure: Figure) -> tuple[str, ...]:
    return TIME_PARTS if figure.stack == "time" else GROUP_PARTS


def time_parts(
    step: StepRow, before: StepRow | None = None, resumed: Sequence[float] = ()
) -> dict[str, float]:
    """Shares of a step's wall time. Sampling, environment, grading and setup divide the rollout as the attempts' own
    times do; ``idle`` is what lies between the step before and this one, or between a resume of the run and this one
    (``resumed``, in Unix seconds): while a run is at rest, nothing of it is idle."""
    metrics = step.metrics
    rollout = metrics.get("time/share/rollout")
    if rollout is None:
        return {}
    shares = {
        name.rsplit("/", 1)[1]: value
        for name, value in metrics.items()
        if name.startswith("time/attempt_share/")
    }
    parts: dict[str, float] = dict.fromkeys(TIME_PARTS, 0.0)
    whole = sum(shares.values())
    for phase, share in shares.items():
        parts[_PHASES.get(phase, "environment")] += rollout * share / whole if whole else 0.0
    if not whole:
        parts["sampling"] = rollout
    parts["training"] = metrics.get("time/share/train", 0.0)
    parts["publishing"] = metrics.get("time/share/publish", 0.0)
    seconds = metrics.get("time/step", 0.0)
    start = before.ended_at if before is not None and before.ended_at is not None else step.started_at
    start = max([start, *(at for at in resumed if at <= step.started_at)])
    wall = step.ended_at - start if step.ended_at is not None else 0.0
    if wall > seconds > 0:
        busy = seconds / wall
        parts = {name: value * busy for name, value in parts.items()}
        parts["idle"] = 1 - busy
    return parts


def group_parts(metrics: Mapping[str, float]) -> dict[str, float]:
    """The groups that ended in a step, by what became of them."""
    if "groups/trained" not in metrics:
        return {}
    return {
        "trained": metrics["groups/trained"],
        "all alike": metrics.get("discard/groups/no_variance", 0.0),
        "many lost": metrics.get("discard/groups/too_many_losses", 0.0),
    }
