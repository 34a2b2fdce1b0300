"""What settings are called in other tools: the commonest words, and the key that is meant here."""

from __future__ import annotations

_MEANT: dict[str, tuple[str, ...]] = {
    "training.group_size": ("num_generations", "rollouts_per_example", "rollouts_per_prompt", "n_samples"),
    "training.groups_per_step": ("batch_size", "prompts_per_step", "per_device_train_batch_size"),
    "training.epochs": ("num_train_epochs", "num_epochs", "n_epochs"),
    "training.max_steps": ("num_steps", "total_steps", "steps", "n_steps", "num_train_epochs", "num_epochs", "epochs"),
    "training.learning_rate": ("lr",),
    "training.grad_clip_norm": ("max_grad_norm", "grad_clip", "max_norm"),
    "training.max_steps_off_policy": ("max_async_level", "async_level", "max_staleness", "max_off_policy_steps"),
    "training.loss": ("loss_fn", "loss_type"),
    "sampling.max_tokens": ("max_new_tokens", "max_completion_length", "max_completion_tokens", "max_response_length"),
    "model.base_model": ("model_name", "model_name_or_path", "model_path", "model_id", "name_or_path"),
    "model.max_seq_len": ("max_seq_length", "max_length", "max_model_len", "seq_len", "max_context_length"),
    "model.lora_rank": ("lora_r", "r", "rank"),
    "runtime.config.tasks": ("dataset", "dataset_path", "train_file", "data_path", "train_data"),
    "data.train": ("dataset", "dataset_path", "train_file", "data_path", "train_data"),
    "runtime.config.agent_timeout_seconds": ("rollout_timeout", "agent_timeout", "episode_timeout"),
    "output.checkpoint_every": ("save_steps", "save_every", "save_interval", "checkpoint_interval"),
    "budget.max_cost": ("max_usd", "max_dollars", "max_spend", "max_price"),
    "eval.every_steps": ("eval_steps", "eval_every", "eval_interval"),
}  # fmt: skip


#: What other tools have and this one has not.
_NOT_HERE: tuple[tuple[tuple[str, ...], str], ...] = (
    (("kl_coef", "kl_beta", "kl_penalty", "kl_penalty_coef", "kl_loss_coef", "init_kl_coef", "use_kl_loss", "beta"),
     "Remove it: there is no KL penalty, the losses bound the ratio"),
    (("lora_alpha", "lora_dropout", "lora_target_modules", "target_modules"),
     "Remove it: of an adapter only its rank is set, [model] lora_rank"),
    (("api_key", "baseten_api_key", "bl_api_key", "hf_token", "token"),
     "Remove it: keys belong in the environment or in a .env file, as BASETEN_API_KEY, BL_API_KEY or HF_TOKEN"),
)  # fmt: skip


def not_here(word: str) -> str | None:
    """What helps where a setting of other tools has no counterpart; None for any other word."""
    return next((remedy for words, remedy in _NOT_HERE if word.lower() in words), None)


def meant_elsewhere(word: str, known: dict[str, str | None]) -> str | None:
    """The dotted key of ``known`` that other tools call ``word``, or None."""
    return next((key for key, words in _MEANT.items() if word.lower() in words and key in known), None)
