"""Supervised fine-tuning on actions: ``sft`` on expert demonstrations, ``rft`` on own successes.

Optimises  L = - mean over action tokens of log pi(token | everything before it)
with the mask of the trajectory: tokens that the environment wrote get label -100.

* ``sft``: one expert demonstration per training instance.
* ``rft``: the base policy's successful rollouts (rejection sampling; Zelikman et al. 2022, STaR;
  Yuan et al. 2023, RFT), one round. All distinct successes of an instance are kept; identical token
  sequences count once.

Departures: no packing, no truncation; passes over the data go on until the arm's token budget is
spent, so that arms can be compared at equal tokens.

Run one arm:  python -m agent_rl run task=babyai method=sft seed=0
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from agent_rl.config import TrainConfig
from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.policies import TokenRecord
from agent_rl.training.checkpoints import Checkpoints, Resumable, resumed
from agent_rl.training.fast_forward import IGNORE, add_fast_forward
from agent_rl.training.loop import (
    BudgetCallback,
    RunLog,
    common_arguments,
    loss_in_pieces,
    optimizer_and_schedule,
)
from agent_rl.trajectory import Trajectory


def written_tokens(trajectory: Trajectory, chat: Chat) -> TokenRecord:
    """Tokens of a trajectory whose actions were written (by an expert), not sampled.

    The same layout as the rollout engine gives; mask 1 on the action and its closing token.
    """
    ids: list[int] = []
    mask: list[int] = []
    for index, turn in enumerate(trajectory.turns):
        context = chat.observe(turn.observation) if index else chat.opening(turn.observation)
        answer = chat.answer(turn.action)
        ids += [*context, *answer]
        mask += [0] * len(context) + [1] * len(answer)
    return TokenRecord(
        np.array(ids, dtype=np.int32),
        np.array(mask, dtype=np.int8),
        np.zeros(len(ids), dtype=np.float32),
    )


def supervised_dataset(records: Sequence[TokenRecord]) -> Dataset:
    """Rows ``input_ids`` and ``labels``; identical sequences count once, in order of appearance."""
    rows: dict[tuple[int, ...], list[int]] = {}
    for record in records:
        ids = record.token_ids.tolist()
        rows.setdefault(
            tuple(ids), [i if m else IGNORE for i, m in zip(ids, record.mask, strict=True)]
        )
    return Dataset.from_dict(
        {"input_ids": [list(ids) for ids in rows], "labels": list(rows.values())}
    )


class CountingSFTTrainer(Resumable, SFTTrainer):
    """TRL's trainer, with the tokens of every batch on the ledger."""

    def __init__(self, *args: Any, log: RunLog, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._log = log
        add_fast_forward(self.model)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Loss of a random batch: mean over the action tokens of all its pieces."""
        self._log.ledger.trained_tokens += int(inputs["attention_mask"].sum())
        loss = partial(
            super().compute_loss, model, num_items_in_batch=(inputs["labels"] != IGNORE).sum()
        )
        return loss_in_pieces(loss, inputs, len(inputs["labels"]))


def train_supervised(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    learning_rate: float,
    batch_size: int,
    config: TrainConfig,
    log: RunLog,
    seed: int,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Train ``model`` in place until ``log.stop`` tokens are on the ledger."""
    if not resumed(checkpoints):
        log.validate(model, log.ledger.optimizer_steps)
    trainer = CountingSFTTrainer(
        model=model,
        args=SFTConfig(
            **common_arguments(config, seed),
            per_device_train_batch_size=min(batch_size, len(dataset)),
            max_length=None,
            packing=False,
            dataset_kwargs={"skip_prepare_dataset": True},
            average_tokens_across_devices=False,
            loss_type="nll",
        ),
        train_dataset=dataset,
        processing_class=tokenizer,
        callbacks=[BudgetCallback(log)],
        optimizers=optimizer_and_schedule(model, learning_rate, config, log),
        log=log,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train_from(checkpoints)
