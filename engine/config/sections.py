"""Every key of a config, documented once: meaning, unit, default and effect stand in its description.

A key is here only when something reads it. Keys of later versions are listed in ``later.py``, so that using one
gets an error that says so instead of being ignored.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from engine.config.addresses import web_address
from engine.config.durations import parse_duration

Scope = Literal["local", "serverless", "dedicated"]
Loss = Literal["importance_sampling", "ppo", "cispo", "dro", "dppo"]

MOST_ENV_KIB = 96  # a sandbox's variables go to it in one message

DEFAULT_FACTORY = "engine.episodes:create_runtime"
COOKBOOK_FACTORY = "loops_cookbook.episodes:create_runtime"
_EPISODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Section(BaseModel):
    """A table of the config: unknown keys and values of the wrong type are errors, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SandboxTable(Section):
    """``[runtime.config.sandbox]``: what every attempt's own sandbox is like."""

    provider: Literal["local", "blaxel"] = Field(
        "local",
        description="Who runs the sandboxes. 'local': this machine, at no cost. 'blaxel': Blaxel's cloud, billed; needs "
        "BL_WORKSPACE and BL_API_KEY in the environment or in a .env beside the config.",
    )
    isolation: Literal["auto", "bubblewrap", "landlock", "none"] = Field(
        "auto",
        description="Local sandboxes: what keeps them away from the machine. 'auto' takes bubblewrap, or Landlock "
        "where that cannot run, and never less; 'none' means plain processes, for trusted code only.",
    )
    memory_mb: int = Field(
        2048,
        ge=32,
        le=1 << 20,
        description="MiB of memory: of each process locally, of the sandbox elsewhere.",
    )
    image: str | None = Field(
        None,
        min_length=1,
        description="Image of a sandbox on Blaxel, such as 'blaxel/base-image:latest' or your own. Local sandboxes "
        "show this machine's own programs instead. Default: Blaxel's base image.",
    )
    region: str | None = Field(
        None,
        min_length=1,
        description="Region of a sandbox on Blaxel, such as 'us-pdx-1'. Default: Blaxel's choice.",
    )
    disk_mb: int = Field(512, ge=1, le=1 << 20, description="MiB that the files of a local sandbox may take.")
    max_processes: int = Field(256, ge=8, le=1 << 16, description="Processes of a local sandbox, at most.")
    cpu_seconds: int = Field(
        3600, ge=1, le=31_622_400, description="Seconds of processor time of one process of a local sandbox."
    )
    ttl: str | None = Field(
        None,
        description="How long a sandbox may live, such as '1h': a backstop for one that was left behind. Must outlast "
        "one attempt. Default: derived from the attempt's deadlines.",
    )
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Variables that every command sees. Nothing else of yours is visible.",
    )

    @field_validator("env")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        wrong = next((name for name in value if not name or re.search(r"[=\s]", name)), None)
        if wrong is not None:
            raise ValueError(f"cannot hold {wrong!r}, which is no name of a variable")
        kib = -(-sum(len(f"{name}{text}".encode()) for name, text in value.items()) // 1024)  # rounded up
        if kib > MOST_ENV_KIB:
            raise ValueError(
                f"holds {kib} KiB, and {MOST_ENV_KIB} KiB are the most: give large values as files"
            )
        return value

    @field_validator("ttl")
    @classmethod
    def _a_duration(cls, value: str | None) -> str | None:
        if value is not None:
            parse_duration(value)
        return value


class RuntimeConfig(Section):
    tasks: Annotated[Path, Field(strict=False)] = Field(
        description="JSONL file with one task a line, relative to the config. Every line is validated against the "
        "episode's task type before anything starts. Required."
    )
    episode: str = Field(
        description="The episode class as 'module:Class'; the module lies beside the config. Required."
    )
    agent_timeout_seconds: float = Field(
        600.0,
        gt=0,
        le=86_400,
        description="Seconds that an attempt's run() may take before it is cut; what it left is still graded, with "
        "grading.timed_out set.",
    )
    setup_timeout_seconds: float = Field(
        120.0,
        gt=0,
        le=86_400,
        description="Seconds that an attempt's setup() may take; after that the attempt is retried as an "
        "infrastructure failure.",
    )
    grading_timeout_seconds: float = Field(
        120.0,
        gt=0,
        le=86_400,
        description="Seconds that one call of grade() may take before it counts as failed.",
    )
    provision_timeout_seconds: float = Field(
        300.0,
        gt=0,
        le=86_400,
        description="Seconds that creating an attempt's sandbox may take; after that the attempt is retried as an "
        "infrastructure failure.",
    )
    sandbox: SandboxTable | None = Field(
        None, description="Gives every attempt a sandbox of its own. Without this table there are none."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="The episode's own settings, validated as its options type. Empty by default.",
    )

    @field_validator("episode")
    @classmethod
    def _episode_names_a_class(cls, value: str) -> str:
        if not _EPISODE.fullmatch(value):
            raise ValueError(f"must be 'module:Class', such as 'direct_episode:AnswerEpisode', not {value!r}")
        return value


class RuntimeSettings(Section):
    factory: str = Field(
        DEFAULT_FACTORY,
        description=f"What runs the episodes. Only {DEFAULT_FACTORY!r} exists; the cookbook's spelling "
        f"{COOKBOOK_FACTORY!r} means the same.",
    )
    config: RuntimeConfig = Field(description="The runtime's own settings.")

    @field_validator("factory")
    @classmethod
    def _one_factory(cls, value: str) -> str:
        if value == COOKBOOK_FACTORY:
            return DEFAULT_FACTORY
        if value != DEFAULT_FACTORY:
            raise ValueError(
                f"{value!r} is not available in this version; the only runtime is {DEFAULT_FACTORY!r}"
            )
        return value


class ModelSettings(Section):
    base_model: str = Field(
        min_length=1,
        description="The model that is trained. With scope 'local': the shipped model's name or a directory with a "
        "Llama, SmolLM2, Qwen2 or Qwen3 model in safetensors (relative to the config). On Baseten: a name that Loops "
        "offers, such as 'Qwen/Qwen3.5-4B'. Required.",
    )
    tokenizer: str | None = Field(
        None,
        min_length=1,
        description="Tokenizer to use instead of the model's own: a directory (relative to the config) or a Hugging "
        "Face name.",
    )
    renderer: str | None = Field(
        None,
        min_length=1,
        description="Name of the chat renderer, such as 'qwen3'. By default it is detected from the tokenizer.",
    )
    lora_rank: int = Field(
        8, ge=1, le=512, description="Rank of the LoRA adapter; higher learns more and costs more memory."
    )
    max_seq_len: int = Field(
        ge=16,
        le=4_194_304,
        description="Tokens of a whole conversation: prompt, replies and tool results together. Required.",
    )
    renderer_chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments of the chat template, such as { enable_thinking = false }. Empty by default.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the LoRA adapter's first weights.")
    from_checkpoint: str | None = Field(
        None,
        min_length=1,
        description="Start from weights saved before instead of a fresh adapter: 'RUN' or 'RUN@step-000010' of this "
        "project, or a Loops address 'bt://loops:…'. The optimizer starts anew.",
    )


class TrainingSettings(Section):
    mode: Literal["sync", "async"] = Field(
        "sync",
        description="'sync': each update trains on groups that the newest policy sampled, and the next groups wait "
        "for it. 'async': later groups are sampled while a step trains; max_steps_off_policy bounds how old they get.",
    )
    group_size: int = Field(
        16,
        ge=2,
        le=4096,
        description="Attempts at one task per group; each attempt's advantage is its reward minus the group's mean.",
    )
    groups_per_step: int = Field(1, ge=1, le=4096, description="Groups that one optimizer step trains on.")
    max_steps: int = Field(ge=1, description="Optimizer steps after which the run is done. Required.")
    max_group_losses: int = Field(
        0,
        ge=0,
        description="Attempts that a group may lose to infrastructure failures and still train on the rest.",
    )
    max_consecutive_unusable_groups: int = Field(
        20,
        ge=1,
        description="Groups in a row that may teach nothing (all rewards alike, or lost) before the run stops as "
        "failed.",
    )
    max_rollout_retries: int = Field(
        2, ge=0, le=100, description="Times an attempt is run again after an infrastructure failure."
    )
    max_concurrent_rollouts: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Attempts that may sample at the same time: a slot is held while run() runs, not for set-up and "
        "grading. Default: group_size x groups_per_step.",
    )
    max_concurrent_grading: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Attempts that may be graded at the same time; fewer sample while more than max_concurrent_rollouts "
        "wait for it. Default: max_concurrent_rollouts.",
    )
    setups_ahead: int | None = Field(
        None,
        ge=0,
        le=100_000,
        description="Attempts that may be set up before a slot is free, or before the policy is published that they "
        "sample from; at most max_live - 2 with Blaxel. Default: those that sample at once, 64 at most; fewer where "
        "max_live or ttl is low.",
    )
    learning_rate: float = Field(1e-4, gt=0, le=1, description="Adam's step size; constant through the run.")
    loss: Loss = Field("cispo", description="Policy loss computed by Loops on the sampled tokens.")
    loss_config: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of the loss, handed to Loops as loss_fn_config: clip_low_threshold and "
        "clip_high_threshold (ppo, cispo), beta (dro), dppo_mask_high, dppo_mask_low, adv_tau and kl_tau (dppo). "
        "Empty: Loops' defaults.",
    )
    loss_aggregation: Literal["sum", "token_mean"] = Field(
        "sum",
        description="'sum': the loss is the sum over the step's trained tokens; 'token_mean': that sum divided by "
        "their number.",
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the gradient's mean.")
    beta2: float = Field(0.95, ge=0, lt=1, description="Adam's decay of the gradient's square.")
    eps: float = Field(1e-12, gt=0, le=1e-2, description="Adam's guard against division by zero.")
    weight_decay: float = Field(0.0, ge=0, le=1, description="Decoupled weight decay of the adapter.")
    grad_clip_norm: float = Field(
        1.0, ge=0, description="Gradients with a larger norm are scaled down to it; 0 turns clipping off."
    )
    seed: int = Field(
        0,
        ge=0,
        le=2**31 - 1,
        description="Seed of the task order and of every sampling request; in sync mode the same seed gives the same "
        "run locally.",
    )
    max_steps_off_policy: int | None = Field(
        None,
        ge=0,
        le=1000,
        description="Updates by which a group's policy may be older than the one that is trained on it: more hides "
        "more waiting. Default: 0 in sync mode, where nothing else is possible, 1 in async mode.",
    )
    max_policy_delta_in_trajectory: int | None = Field(
        None,
        ge=0,
        le=1000,
        description="Updates that may be published while one attempt runs; a publish waits for attempts that would "
        "see more. Default: max_steps_off_policy.",
    )
    shuffle_tasks: bool = Field(
        True,
        description="Whether each pass over the tasks has its own seeded order; false keeps the file's order.",
    )


class ComputeSettings(Section):
    scope: Scope | None = Field(
        None,
        description="Where the trainer and the sampler run: 'local' (a Loops-compatible server on this machine), "
        "'serverless' or 'dedicated' (Baseten, billed). Default: BASETEN_LOOPS_SCOPE where it is set, otherwise what "
        "Loops chooses for the model.",
    )
    base_url: str | None = Field(
        None,
        description="Address of the Loops service, for scopes other than 'local'. Default: LOOPS_BASE_URL, otherwise "
        "Baseten.",
    )
    keep_run: bool = Field(
        True,
        description="Whether the Loops run stays up when training ends; a dedicated one bills until it is "
        "deactivated. false deactivates it on exit.",
    )
    replicas: int | None = Field(
        None, ge=1, le=64, description="Trainer replicas; scope 'dedicated' only. Default: 1."
    )
    spot: bool | None = Field(
        None,
        description="Whether to run on cheaper capacity that can be taken away; scope 'dedicated' only. Default: "
        "false.",
    )
    request_timeout_seconds: float = Field(
        600.0,
        gt=0,
        le=86_400,
        description="Seconds that one request to Loops may take before the run treats it as failed.",
    )

    @field_validator("base_url")
    @classmethod
    def _a_web_address(cls, value: str | None) -> str | None:
        return web_address(value)


class OutputSettings(Section):
    output_dir: Annotated[Path, Field(strict=False)] = Field(
        Path("runs"), description="Directory of all runs, relative to the working directory. Default: 'runs'."
    )
    name: str | None = Field(
        None,
        description="Name of this config's runs and of their directory in output_dir. Default: the name of the "
        "config's directory.",
    )
    trace: Literal["full", "samples", "off"] = Field(
        "full",
        description="Transcripts kept: all ('full'), one attempt of each group ('samples') or none ('off').",
    )
    checkpoint_every: int | None = Field(
        None,
        ge=1,
        description="Optimizer steps between checkpoints (trainer state with optimizer, and sampler weights). Whatever "
        "it says, one is saved when the run ends, is stopped or is interrupted. Default: none in between.",
    )
    progress_every_seconds: float = Field(
        30.0,
        ge=1,
        le=3600,
        description="Seconds between lines in the run's log that say how far a long step is.",
    )

    @field_validator("name")
    @classmethod
    def _one_directory_name(cls, value: str | None) -> str | None:
        if value is not None and not _NAME.fullmatch(value):
            raise ValueError(
                f"must be one directory name of letters, digits, '.', '_' and '-', beginning with a letter or "
                f"digit, not {value!r}"
            )
        return value
