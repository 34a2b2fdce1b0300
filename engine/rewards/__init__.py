"""Rewards that a program can compute, for an Episode's ``grade`` and in the shape of TRL's GRPO trainer.

from engine.rewards import schema_valid, step_budget, tool_call_format, weighted

async def grade(self, grading):
    return weighted(
        {
            "tests": (await run_suite(...)).reward(),
            "format": tool_call_format().one(self.messages),
            "budget": step_budget(max_steps=8).one(self.messages),
        },
        {"tests": 2.0, "format": 0.5},
    )
"""

from engine.rewards.answers import exact_answer, normalise, normalised_answer, numeric_answer, partial_credit
from engine.rewards.attempt import Call, calls_of, files_written, text_of
from engine.rewards.functions import RewardFunction, weighted, weighted_sum
from engine.rewards.scored import Reward
from engine.rewards.tool_calls import call_problem, leaked_call, schema_valid, step_budget, tool_call_format

__all__ = [
    "Call",
    "Reward",
    "RewardFunction",
    "call_problem",
    "calls_of",
    "exact_answer",
    "files_written",
    "leaked_call",
    "normalise",
    "normalised_answer",
    "numeric_answer",
    "partial_credit",
    "schema_valid",
    "step_budget",
    "text_of",
    "tool_call_format",
    "weighted",
    "weighted_sum",
]
