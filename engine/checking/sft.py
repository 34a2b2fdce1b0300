"""The check of supervised fine-tuning: every row is rendered, and what trains, what is split and what is refused told."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from engine.checking.rendering import load_bounded
from engine.config.data_files import data_file_problems, expand, foreign_file_problems
from engine.config.problems import Problem
from engine.config.report import CheckReport, Severity
from engine.config.spending import amount_words
from engine.recipes.sft.data import cache_directory, refusal, sft_renderer
from engine.recipes.sft.prepared import PreparedData, prepare
from engine.recipes.sft.schedule import steps_of_run

if TYPE_CHECKING:
    from engine.policy.rendering import PolicyRenderer
    from engine.project import Project

SHOWN_REFUSED = 10
SHOWN_SAMPLES = 2
SAMPLE_CHARACTERS = 600
OPEN, CLOSE = "⟦", "⟧"
"""Around what is trained, where a sample is shown."""


async def check_data(project: Project, report: CheckReport, told: Callable[[str], None]) -> None:
    """Render every row, as a run would, and report on it. ``told`` hears how far it is."""
    problems = data_file_problems(project.sft.data)
    problems += await asyncio.to_thread(foreign_file_problems, project.sft.data) if not problems else []
    for problem in problems:
        report.add(
            Severity.ERROR, project.loaded.problem(problem.key or "data", problem.text, problem.remedy)
        )
    if problems:
        return
    if any(finding.key == "model.base_model" for finding in report.findings):
        return  # the tokenizer of a model that is not there says nothing
    renderer = await load_bounded(project, report, functools.partial(sft_renderer, project))
    if renderer is None:
        return
    stopped = threading.Event()
    try:
        report.lines.append(f"Renderer: {renderer.name} ({renderer.how})")
        train = await asyncio.to_thread(_prepared, project, "train", renderer, told, stopped)
        _tell(project, "train", train, report)
        if project.sft.data.validation:
            held_out = await asyncio.to_thread(_prepared, project, "validation", renderer, told, stopped)
            _tell(project, "validation", held_out, report)
            await asyncio.to_thread(_check_held_out, project, train, held_out, report)
    except OSError as error:
        text, remedy = f"the data cannot be prepared: {error}", "See to it that .loops can be written"
        report.add(Severity.ERROR, project.loaded.problem("data.train", text, remedy))
        return
    finally:
        stopped.set()  # a check that is cancelled leaves no thread at work
    if len(train):
        steps, tokens = _amounts(project, train)
        cost, currency = _cost(project, tokens), project.sft.prices.currency
        report.estimate = {
            "measured": False, "steps": steps, "tokens": tokens, "cost": cost, "currency": currency
        }  # fmt: skip
        report.lines += list(_training_lines(project, steps, tokens))
        _check_warmup(project, steps, report)
        if cost is not None:
            report.lines.append(f"  cost at the given prices: {amount_words(cost)} {currency}")
            _check_budget(project, steps, cost, report)
        report.lines += list(_sample_lines(train, renderer))


def _prepared(
    project: Project,
    name: str,
    renderer: PolicyRenderer,
    told: Callable[[str], None],
    stopped: threading.Event,
) -> PreparedData:
    model = project.sft.model
    return prepare(
        expand(getattr(project.sft.data, name)),
        renderer,
        model.max_seq_len,
        cache_directory(project),
        template_kwargs=model.renderer_chat_template_kwargs,
        progress=lambda rows: told(f"{name}: {rows:,} rows rendered"),
        stopped=stopped.is_set,
    )


def _tell(project: Project, name: str, data: PreparedData, report: CheckReport) -> None:
    summary = data.summary
    report.lines.append(
        f"Data, {name}: {summary.rows:,} rows in {_count(len(summary.files), 'file')}, {summary.samples:,} samples; "
        f"{summary.trained_tokens:,} trained of {summary.tokens:,} tokens, the longest sample has {summary.longest:,}"
    )
    if summary.split:
        report.lines.append(
            f"  split per turn: {summary.split:,} rows, whose earlier turns the chat template rewrites later"
        )
    problem = refusal(data, project.sft.data.max_refused, f"[data] {name}")
    if problem is not None:
        remedy = (
            "Mend or remove the rows that are listed"
            if summary.refused_rows
            else "Write one JSON object a line"
        )
        report.add(Severity.ERROR, project.loaded.problem(f"data.{name}", problem, remedy))
    if not summary.refused_rows:
        return
    counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(summary.refused.items()))
    report.lines.append(
        f"  refused: {summary.refused_rows:,} rows ({counts}); all of them: {data.directory / 'refused.jsonl'}"
    )
    for row in summary.shown[:SHOWN_REFUSED]:
        report.add(
            Severity.WARNING, Problem(f"refused as {row.reason}: {row.detail}", Path(row.file), row.line)
        )


def _check_held_out(
    project: Project, train: PreparedData, held_out: PreparedData, report: CheckReport
) -> None:
    """What is validated on and trained on as well: learned by heart, it would count as skill."""
    wanted = {held_out.digest(number): number for number in range(len(held_out))}
    both: dict[int, int] = {}
    for number in range(len(train)):
        if (same := wanted.get(train.digest(number))) is not None:
            both.setdefault(same, number)
    if not both:
        return
    (held, held_line), (trained, line) = held_out.origin(min(both)), train.origin(both[min(both)])
    text = (
        f"{_count(len(both), 'validation sample')} stand in the training data as well, the first one at "
        f"{Path(held).name}:{held_line} and {Path(trained).name}:{line}: its loss would say nothing"
    )
    remedy = "Take them out of one of the two"
    report.add(Severity.WARNING, project.loaded.problem("data.validation", text, remedy))


def _amounts(project: Project, data: PreparedData) -> tuple[int, int]:
    """Steps of a run over the data, and tokens that go through the trainer in them."""
    training = project.sft.training
    steps = steps_of_run(data.lengths, training)
    all_epochs = steps_of_run(data.lengths, training.model_copy(update={"max_steps": None}))
    share = min(1.0, steps / max(1, all_epochs))
    return steps, round(training.epochs * data.summary.tokens * share)


def _check_warmup(project: Project, steps: int, report: CheckReport) -> None:
    """How many steps a run has is known only with its data."""
    warmup = project.sft.training.warmup_steps
    if warmup >= max(1, steps):
        text = f"[training] warmup_steps is {warmup}, and the run has {_count(steps, 'step')}: it never gets to learning_rate"
        remedy = "Set it below the number of steps"
        report.add(Severity.WARNING, project.loaded.problem("training.warmup_steps", text, remedy))


def _cost(project: Project, tokens: int) -> float | None:
    """What the trained tokens cost; None where a deployment's time is billed instead, or no price is given."""
    price = project.sft.prices.trained_million
    return None if price is None or project.scope in ("local", "dedicated") else price * tokens / 1e6


def _check_budget(project: Project, steps: int, cost: float, report: CheckReport) -> None:
    bound = project.sft.budget.max_cost
    if bound is None or cost <= bound:
        return
    text = (
        f"the estimate passes [budget] max_cost: {amount_words(cost)} of {amount_words(bound)}; the run would end "
        f"before its last step, after about step {int(steps * bound / cost)} of {steps}"
    )
    remedy = "Raise it, or lower [training] max_steps or epochs"
    report.add(Severity.WARNING, project.loaded.problem("budget.max_cost", text, remedy))


def _training_lines(project: Project, steps: int, tokens: int) -> Iterator[str]:
    training = project.sft.training
    batch = f"{training.batch_size} samples"
    if training.batch_tokens is not None:
        batch = f"up to {training.batch_tokens:,} tokens"
    yield f"Training: {_count(steps, 'step')} of {batch}, {_count(training.epochs, 'epoch')}; loss {training.loss_aggregation}"
    warmup = f" after {_count(training.warmup_steps, 'step')} of warm-up" if training.warmup_steps else ""
    yield f"Learning rate: {training.learning_rate:g}, {training.schedule}{warmup}"
    yield f"Estimate: {tokens:,} tokens through the trainer"


def _sample_lines(data: PreparedData, renderer: PolicyRenderer) -> Iterator[str]:
    """The first samples as the trainer sees them, what is trained between marks."""
    for number in range(min(SHOWN_SAMPLES, len(data))):
        sample, (file, line) = data.sample(number), data.origin(number)
        parts: list[str] = []
        start = 0
        while start < len(sample.tokens):
            trained, end = sample.weights[start] > 0, start
            while end < len(sample.tokens) and (sample.weights[end] > 0) == trained:
                end += 1
            text = renderer.tokenizer.decode(sample.tokens[start:end], skip_special_tokens=False)
            parts.append(f"{OPEN}{text}{CLOSE}" if trained else text)
            start = end
        text = "".join(parts)
        cut = text if len(text) <= SAMPLE_CHARACTERS else f"… {text[-SAMPLE_CHARACTERS:]}"
        yield f"Sample {number + 1} ({Path(file).name}:{line}); {OPEN}trained{CLOSE}:"
        yield from (f"  {line}" for line in cut.splitlines())


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
