"""What every arm's training shares: budget, learning-rate schedule, validation, optimiser, logs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import torch
from transformers import (
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from agent_rl.config import TrainConfig
from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import Episode, RolloutEngine
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.training.ledger import Ledger

FLOOR = 0.1
"""The learning rate ends at this share of its peak."""

CURVE_COLUMNS = (
    "update",
    "env_steps",
    "tokens",
    "success_rate",
    "reward_mean",
    "reward_std",
    "dead_group_share",
    "entropy",
    "mean_turns",
    "val_success_rate",
    "ratio_max_deviation",
)


class TrainingCollapse(RuntimeError):
    """Training cannot go on (NaN loss, sampler and trainer apart): the run counts as failed."""


@dataclass(slots=True)
class Validation:
    """Greedy success on validation instances, from a stream of its own.

    Playing it more or less often draws nothing from the training streams.
    """

    engine: RolloutEngine
    episodes: Sequence[Episode]
    chat: Chat
    max_action_tokens: int
    max_tokens: int

    def success_rate(self, model: PreTrainedModel) -> float:
        policy = ModelPolicy(
            "validation",
            model,
            self.chat,
            temperature=0.0,
            max_action_tokens=self.max_action_tokens,
            max_tokens=self.max_tokens,
        )
        played = self.engine.play(policy, self.episodes)
        return sum(t.success for t in played) / len(played)


@dataclass(slots=True)
class RunLog:
    """Curve rows of one run, and the calls that make them."""

    config: TrainConfig
    ledger: Ledger
    validation: Validation
    tick: Callable[[float], Any]
    """Told the share of the budget that was spent since the last call."""
    start: int = 0
    """Tokens on the ledger when the phase began."""
    stop: int = 0
    """Tokens on the ledger at which the phase ends."""
    step_tokens: int = 0
    """Tokens that the last optimiser step cost, its data included."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    _points: int = 0
    _ticked: float = 0.0

    @property
    def spent(self) -> float:
        """Share of the whole budget that was spent."""
        return min(1.0, self.ledger.total_tokens / self.config.budget_tokens)

    @property
    def phase(self) -> float:
        """Share of the present phase that is done."""
        return min(1.0, (self.ledger.total_tokens - self.start) / max(1, self.stop - self.start))

    @property
    def done(self) -> bool:
        """Whether one more step would leave the phase further from its budget than it is now."""
        return self.ledger.total_tokens + self.step_tokens / 2 >= self.stop

    def row(self, update: int, **values: Any) -> None:
        """Append a curve row; columns that a method does not have stay empty."""
        known = {"update": update, "env_steps": self.ledger.env_steps}
        known["tokens"] = self.ledger.total_tokens
        self.rows.append({**dict.fromkeys(CURVE_COLUMNS), **known, **values})

    def validate(self, model: PreTrainedModel, update: int) -> None:
        """Play the validation instances when the next point on the budget is reached.

        The points divide the budget evenly, the first before training and the last at its end.
        """
        intervals = self.config.validation_points - 1
        over = self.done and self.stop >= self.config.budget_tokens
        if not over and self.spent < self._points / intervals:
            return
        rate = self.validation.success_rate(model)
        self._points = intervals + 1 if over else int(self.spent * intervals) + 1
        if self.rows and self.rows[-1]["update"] == update:
            self.rows[-1]["val_success_rate"] = rate
        else:
            self.row(update, val_success_rate=rate)

    def state(self) -> dict[str, Any]:
        """What a checkpoint remembers of the log, as plain values."""
        return {
            "rows": self.rows,
            "ledger": asdict(self.ledger),
            "start": self.start,
            "stop": self.stop,
            "step_tokens": self.step_tokens,
            "points": self._points,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take :meth:`state` back."""
        self.rows = list(state["rows"])
        for name, value in state["ledger"].items():
            setattr(self.ledger, name, value)
        self.start, self.stop = state["start"], state["stop"]
        self.step_tokens, self._points = state["step_tokens"], state["points"]

    def progress(self) -> None:
        """Report what was spent since the last report."""
        self.tick(self.spent - self._ticked)
        self._ticked = self.spent


class BudgetCallback(TrainerCallback):
    """Ends a phase when its tokens are spent; validates on the way; refuses NaN."""

    def __init__(self, log: RunLog) -> None:
        self.log = log
        self._before = 0

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        # Not earlier: a run that is resumed has its ledger back only now.
        self._before = self.log.ledger.total_tokens

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        log = self.log
        log.ledger.optimizer_steps += 1
        log.step_tokens = log.ledger.total_tokens - self._before
        self._before = log.ledger.total_tokens
        model = kwargs["model"]
        if not all(torch.isfinite(p).all() for p in model.parameters() if p.requires_grad):
            raise TrainingCollapse(f"weights are not finite after step {state.global_step}")
        log.validate(model, log.ledger.optimizer_steps)
        log.progress()
        if log.done:
            control.should_training_stop = True


def optimizer_and_schedule(
    model: torch.nn.Module, learning_rate: float, config: TrainConfig, log: RunLog
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    """AdamW, warmed up and then decayed linearly in the tokens spent (not in steps, whose number
    is not known beforehand for an on-policy method). The same for every arm."""
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=learning_rate,
        weight_decay=config.weight_decay,
    )

    def factor(step: int) -> float:
        share = log.phase
        if share < config.warmup_share:
            return max(0.1, share / config.warmup_share)
        return max(FLOOR, 1 - (1 - FLOOR) * share)

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def loss_in_pieces(
    loss: Callable[[dict[str, torch.Tensor]], torch.Tensor],
    batch: dict[str, torch.Tensor],
    count: int,
) -> torch.Tensor:
    """Sum of the losses of a batch's pieces of like length: less padding, the same gradient.

    Args:
        loss: a piece's part of the batch's loss.
        batch: right-padded. A tensor of several times ``count`` rows is that many blocks, whose
            rows belong together (the chosen answers, then the rejected ones): they stay together.
        count: rows of a block; the lengths of the first block decide.
    """
    total: Any = 0.0
    for rows in _like_length(batch["attention_mask"].sum(dim=1)[:count]):
        piece = {
            name: value.unflatten(0, (-1, count))[:, rows].flatten(0, 1)
            for name, value in batch.items()
        }
        total = total + loss(_trimmed(piece))
    return cast("torch.Tensor", total)


def _like_length(lengths: torch.Tensor, pieces: int = 2) -> list[torch.Tensor]:
    """Row numbers of a batch in pieces of like length, none of them empty.

    Batches are drawn at random, so their rows differ in length and half of a padded batch is
    padding. Computing the pieces apart and adding up changes speed only. (Whole batches of like
    length would change more: each would hold episodes of one difficulty.)
    """
    order = torch.argsort(lengths, stable=True)
    return [rows for rows in torch.tensor_split(order, min(pieces, len(order))) if len(rows)]


def _trimmed(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Cut the padding that no row of a right-padded batch needs."""
    width = int(batch["attention_mask"].sum(dim=1).max())
    return {k: v[:, :width] if v.dim() == 2 else v for k, v in batch.items()}


def forget_reference(model: Any) -> None:
    """Remove the frozen copy of the adapters that TRL adds as a reference: a policy that was saved
    with it could not be loaded."""
    if "ref" in getattr(model, "peft_config", {}):
        model.delete_adapter("ref")


def common_arguments(config: TrainConfig, seed: int) -> dict[str, Any]:
    """Arguments that every TRL config gets; each default that would change the method is set."""
    accelerator = torch.cuda.is_available()
    return {
        "output_dir": tempfile.gettempdir(),
        "use_cpu": not accelerator,
        "bf16": False,
        "fp16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": accelerator,
        "dataloader_drop_last": True,
        "report_to": [],
        "logging_strategy": "no",
        "save_strategy": "no",
        "eval_strategy": "no",
        "disable_tqdm": True,
        "max_grad_norm": config.max_grad_norm,
        "seed": seed,
        "data_seed": seed,
        # The budget ends training; this only has to be out of reach.
        "max_steps": 10**7,
    }
