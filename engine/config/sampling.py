"""The keys of ``[sampling]``, documented once as in ``sections``."""

from __future__ import annotations

from pydantic import Field, field_validator

from engine.config.sections import Section


class SamplingSettings(Section):
    temperature: float = Field(
        1.0,
        gt=0,
        le=5,
        description="Sampling temperature. The trainer always scores at 1.0, so another value biases the loss.",
    )
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Nucleus sampling; below 1.0 the trained ratio is biased by the cut mass.",
    )
    top_k: int = Field(
        -1,
        ge=-1,
        description="Sample among the k likeliest tokens; -1 turns it off. Biases the ratio as top_p does.",
    )
    max_tokens: int = Field(
        1024,
        ge=1,
        description="Tokens of one reply, at most; clamped to what max_seq_len leaves. Truncated replies say so.",
    )
    stop: list[str] = Field(
        default_factory=list,
        description="Strings that end a reply, instead of the model's own stop tokens. Empty by default: the model's own.",
    )

    share_first_call: bool = Field(
        False,
        description="Whether the first replies of a group's attempts are asked for in one call, where their prompts are "
        "the same tokens: the prompt is read once, but all replies come when the longest is done. For long prompts, and "
        "for episodes of one reply.",
    )

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, value: list[str]) -> list[str]:
        if any(not text for text in value):
            raise ValueError("must not hold an empty string, which would end every reply at once")
        return value
