"""Single-turn DPO on branch-point pairs (Rafailov et al. 2023, eq. 7).

Optimises  L = - log sigmoid( beta [ log pi(a+|h)/pi_ref(a+|h) - log pi(a-|h)/pi_ref(a-|h) ] )
where h is a history, a+ and a- two actions taken after it. A pair comes from a *branch point*: two
rollouts of one group share the history token by token up to turn t, act differently there, and only
one of them succeeds in the end. Each decision is then an isolated prompt with a good and a bad
answer; nothing is learnt from the rest of the interaction. That is what "single-turn" means here.

Departures: tokens are the sampled ones (no re-tokenisation); at most ``pairs_per_group`` pairs from
a group, drawn at random, so that one instance cannot dominate; equal (history, action pair) count
once, and where both directions were seen the majority stands. The reference's log-probabilities are
computed once per pair, before training, and billed once.

Run one arm:  python -m agent_rl run task=babyai method=dpo seed=0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from agent_rl.config import PreferenceConfig, TrainConfig
from agent_rl.training.checkpoints import Checkpoints, Resumable, resumed
from agent_rl.training.fast_forward import add_fast_forward
from agent_rl.training.loop import (
    BudgetCallback,
    RunLog,
    common_arguments,
    forget_reference,
    loss_in_pieces,
    optimizer_and_schedule,
)
from agent_rl.trajectory import Trajectory, TrajectoryGroup


class Pair(NamedTuple):
    """One decision: what was read so far, the better and the worse answer, as token ids."""

    history: tuple[int, ...]
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]


def branch_point(left: Trajectory, right: Trajectory) -> int | None:
    """First turn at which two trajectories of a group act differently after the same history."""
    for turn, (a, b) in enumerate(zip(left.turns, right.turns, strict=False)):
        if a.observation != b.observation:
            return None  # the task itself branched: the histories are not equal
        if a.token_ids != b.token_ids:
            return turn
    return None


def branch_pairs(
    groups: Sequence[TrajectoryGroup], pairs_per_group: int, rng: np.random.Generator
) -> list[Pair]:
    """Preference pairs at the branch points of each group.

    Args:
        groups: rollouts of the base policy.
        pairs_per_group: most pairs kept per group, drawn without replacement.
        rng: draws them.
    """
    pairs: list[Pair] = []
    for group in groups:
        winners = [t for t in group.trajectories if t.success]
        losers = [t for t in group.trajectories if not t.success and not t.error]
        seen: Counter[Pair] = Counter()
        for winner in winners:
            for loser in losers:
                turn = branch_point(winner, loser)
                if turn is None:
                    continue
                start = int(winner.turn_spans[turn][0])
                pair = Pair(
                    tuple(winner.token_ids[:start].tolist()),
                    winner.turns[turn].token_ids,
                    loser.turns[turn].token_ids,
                )
                seen[pair] += 1
        # Where both directions of a decision were seen, the majority stands; a tie says nothing.
        candidates = [p for p in seen if seen[p] > seen[Pair(p.history, p.rejected, p.chosen)]]
        if len(candidates) > pairs_per_group:
            kept = np.sort(rng.choice(len(candidates), pairs_per_group, replace=False))
            candidates = [candidates[int(i)] for i in kept]
        pairs.extend(candidates)
    return pairs


class TokenDPOTrainer(Resumable, DPOTrainer):
    """TRL's trainer on ready token ids, with the tokens of every batch on the ledger."""

    def __init__(self, *args: Any, log: RunLog, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._log = log
        add_fast_forward(self.model)

    def _prepare_dataset(self, dataset: Dataset, *args: Any, **kwargs: Any) -> Dataset:
        return dataset

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Loss of a random batch: mean over the pairs of all its pieces."""
        self._log.ledger.trained_tokens += int(inputs["attention_mask"].sum())
        count = len(inputs["ref_chosen_logps"])
        mean = super().compute_loss
        return loss_in_pieces(
            lambda piece: mean(model, piece) * (len(piece["ref_chosen_logps"]) / count),
            inputs,
            count,
        )


def train_preference(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[Pair],
    *,
    arm: PreferenceConfig,
    learning_rate: float,
    config: TrainConfig,
    log: RunLog,
    seed: int,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Train ``model`` in place on pairs until ``log.stop`` tokens are on the ledger."""
    log.ledger.context_tokens += sum(
        2 * len(p.history) + len(p.chosen) + len(p.rejected) for p in pairs
    )
    if not resumed(checkpoints):
        log.validate(model, log.ledger.optimizer_steps)
    dataset = Dataset.from_dict(
        {
            "prompt_ids": [list(p.history) for p in pairs],
            "chosen_ids": [list(p.chosen) for p in pairs],
            "rejected_ids": [list(p.rejected) for p in pairs],
        }
    )
    trainer = TokenDPOTrainer(
        model=model,
        # No second model: the reference is read before the first step.
        ref_model=None,
        args=DPOConfig(
            **common_arguments(config, seed),
            per_device_train_batch_size=min(arm.batch_size, len(pairs)),
            beta=arm.beta,
            loss_type=["sigmoid"],
            max_length=None,
            disable_dropout=True,
            precompute_ref_log_probs=True,
        ),
        train_dataset=dataset,
        processing_class=tokenizer,
        callbacks=[BudgetCallback(log)],
        optimizers=optimizer_and_schedule(model, learning_rate, config, log),
        log=log,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train_from(checkpoints)
    forget_reference(model)
