"""The base policy: a small model trained to convergence on demonstrations of mixed purpose.

It stands for "the pretrained model" of a study that fits a laptop: it reads the task's text and
has seen many behaviours (the right goal, other goals, wandering, giving up), and its success is low
for lack of purpose, not of perception. Every arm starts from the same checkpoint; its cost is
charged to none.

Optimises the same loss as ``supervised``, AdamW with a linear decay, for a fixed number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
)
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from agent_rl.config import TrainConfig, WarmstartConfig
from agent_rl.rollouts.policies import TokenRecord
from agent_rl.training.fast_forward import add_fast_forward
from agent_rl.training.loop import common_arguments
from agent_rl.training.supervised import supervised_dataset


class _Progress(TrainerCallback):
    def __init__(self, report: Callable[[int], Any]) -> None:
        self.report = report

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.report(1)


def train_base(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    records: Sequence[TokenRecord],
    *,
    warmstart: WarmstartConfig,
    config: TrainConfig,
    seed: int,
    report: Callable[[int], Any],
) -> float:
    """Train ``model`` in place; returns the mean loss of the run (nats per action token)."""
    arguments = common_arguments(config, seed) | {"max_steps": warmstart.steps}
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            **arguments,
            per_device_train_batch_size=warmstart.batch_size,
            learning_rate=warmstart.learning_rate,
            weight_decay=warmstart.weight_decay,
            lr_scheduler_type="linear",
            warmup_steps=max(1, warmstart.steps // 30),
            # Rows of like length share a batch, long ones first: padding would double the time, and
            # a base that is trained to convergence on them all does not mind the order.
            train_sampling_strategy="group_by_length",
            max_length=None,
            packing=False,
            dataset_kwargs={"skip_prepare_dataset": True},
            average_tokens_across_devices=False,
            loss_type="nll",
        ),
        train_dataset=supervised_dataset(records),
        processing_class=tokenizer,
        callbacks=[_Progress(report)],
    )
    add_fast_forward(trainer.model)
    trainer.remove_callback(PrinterCallback)
    return float(trainer.train().training_loss)
