"""GRPO over whole trajectories: the agent acts, the episode is scored, every sampled token learns.

For each update, B = ``episodes_per_update`` episodes are played: B / G training instances, G
episodes each from the same start. With A the advantage of a token's trajectory (or turn, see
``rewards/credit.py``) and rho = pi(token) / pi_sampler(token), the loss is

    L = - (1 / N) sum over sampled tokens of min(rho A, clip(rho, 1 - clip, 1 + clip) A) [+ beta KL]

with N the number of sampled tokens in the batch (``loss: dapo``; Yu et al. 2025, eq. 8). Tokens
that the environment wrote are read (attention) and carry no loss.

Departures from GRPO (Shao et al. 2024) and from TRL's defaults:
* a prompt is an environment instance, a completion is a whole multi-turn episode;
* advantages may differ per turn (``credit: turn``);
* groups without variance are dropped before the forward pass and do not count in N;
* crashed episodes enter neither baseline nor loss (TRL would score them 0);
* rho is taken against the sampler's own log-probabilities, stored with the trajectory; their
  distance to the trainer's is logged at every update and a run stops beyond ``RATIO_LIMIT``;
* std is the population one; beta 0, no dropout, no bf16, no gradient checkpointing;
* episodes cut by the horizon are failures, not masked out: the horizon is part of the task.

Run one arm:  python -m agent_rl run task=babyai method=grpo reward=shaped credit=turn seed=0
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import use_adapter

from agent_rl.config import GRPOArmConfig, TrainConfig
from agent_rl.rewards import advantages, dead_groups
from agent_rl.rewards.scoring import score
from agent_rl.rollouts.models import weights_fingerprint
from agent_rl.training.checkpoints import Checkpoints, Resumable, resumed
from agent_rl.training.fast_forward import IGNORE, add_fast_forward
from agent_rl.training.loop import (
    BudgetCallback,
    RunLog,
    TrainingCollapse,
    common_arguments,
    forget_reference,
    optimizer_and_schedule,
)
from agent_rl.trajectory import Trajectory, group_trajectories

RATIO_LIMIT = 0.02
"""Largest |log pi_trainer - log pi_sampler| of a sampled token before the first step on a batch."""

Rollout = Callable[[PreTrainedModel, Sequence[int], int], list[Trajectory]]
"""(model, instance index per episode, update) -> trajectories in that order."""


def token_advantages(
    trajectory: Trajectory, turn_advantages: NDArray[np.float64]
) -> NDArray[np.float32]:
    """(L,) advantage of every token: that of its turn where sampled, 0 elsewhere."""
    result = np.zeros(len(trajectory.token_ids), dtype=np.float32)
    lengths = [len(turn.token_ids) for turn in trajectory.turns]
    result[trajectory.mask == 1] = np.repeat(turn_advantages[: len(lengths)], lengths)
    return result


def training_batch(
    trajectories: Sequence[Trajectory], values: NDArray[np.float64], pad_id: int
) -> dict[str, torch.Tensor]:
    """Tensors of TRL's GRPO loss for trajectories with tokens.

    The prompt is everything before the first sampled token, padded on the left; the completion is
    the rest of the episode, padded on the right, with ``tool_mask`` 0 on the environment's tokens.

    Args:
        trajectories: B episodes.
        values: (B, T) advantages per turn.
        pad_id: fills padding; masks come from lengths, never from this value.
    """
    prompts, completions, masks, logprobs, weights = [], [], [], [], []
    for trajectory, row in zip(trajectories, values, strict=True):
        start = int(np.flatnonzero(trajectory.mask)[0])
        ids = torch.from_numpy(trajectory.token_ids.astype(np.int64))
        prompts.append(ids[:start].flip(0))
        completions.append(ids[start:])
        masks.append(torch.from_numpy(trajectory.mask[start:].astype(np.int64)))
        logprobs.append(torch.from_numpy(trajectory.logprobs[start:]))
        weights.append(torch.from_numpy(token_advantages(trajectory, row)[start:]))

    def pad(rows: list[torch.Tensor], value: float = 0) -> torch.Tensor:
        return pad_sequence(rows, batch_first=True, padding_value=value)

    def ones(rows: list[torch.Tensor]) -> torch.Tensor:
        return pad([torch.ones_like(row) for row in rows])

    return {
        "prompt_ids": pad(prompts, pad_id).flip(1),
        "prompt_mask": ones(prompts).flip(1),
        "completion_ids": pad(completions, pad_id),
        "completion_mask": ones(completions),
        "tool_mask": pad(masks),
        "old_per_token_logps": pad(logprobs),
        "advantages": pad(weights),
    }


class TrajectoryGRPOTrainer(Resumable, GRPOTrainer):
    """TRL's GRPO loss and optimiser around our rollouts, rewards and credit.

    Only where a batch comes from is replaced (``_prepare_inputs``): task -> rollout ->
    trajectory -> reward -> advantages (B, T) -> TRL's loss.
    """

    args: GRPOConfig

    def __init__(
        self, *args: Any, rollout: Rollout, arm: GRPOArmConfig, log: RunLog, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._rollout = rollout
        self._arm = arm
        self._log = log
        self._update = 0
        self._fresh = True
        self._batches: list[dict[str, torch.Tensor]] = []
        self._batch: dict[str, torch.Tensor] = {}
        self._pieces = arm.minibatches * arm.micro_batches
        self._last_logprobs = torch.zeros(0)
        self._last_entropies = torch.zeros(0)
        self._entropy: list[tuple[float, int]] = []
        self._deviation = 0.0
        for scoring in filter(None, (self.model, self.ref_model)):
            add_fast_forward(scoring, arm.temperature)

    def at_boundary(self) -> bool:
        """A batch of rollouts is used up: none has to be stored."""
        at_boundary = self._step % (self._pieces * self._arm.iterations) == 0
        if at_boundary:
            self._finish_row()
        return at_boundary

    def extra_state(self) -> dict[str, Any]:
        return {"update": self._update, "step": self._step}

    def restore_extra(self, state: dict[str, Any]) -> None:
        self._update, self._step = state["update"], state["step"]

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        position = self._step % (self._pieces * self._arm.iterations)
        if position == 0 or not self._batches:
            self._finish_row()
            self._batches = self._collect([int(row["instance"]) for row in generation_batch])
        # Until the first optimiser step on a batch, trainer and sampler are the same policy.
        self._fresh = position < self._arm.micro_batches
        return self._batches[position % self._pieces]

    def _collect(self, instances: list[int]) -> list[dict[str, torch.Tensor]]:
        """Play one batch of groups and turn it into micro-batches."""
        arm = self._arm
        self._update += 1
        trajectories = self._rollout(
            self.accelerator.unwrap_model(self.model), instances, self._update
        )
        for group in group_trajectories(trajectories):  # raises when members differ in their start
            assert len(group) == arm.group_size, f"group of {len(group)}, expected {arm.group_size}"
        self._refuse_stale(trajectories)
        # Seen here and not only in the loss: a broken policy fails everywhere alike, its groups are
        # dead, and no loss would ever be computed.
        if not all(np.isfinite(t.logprobs).all() for t in trajectories):
            raise TrainingCollapse(
                f"sampled log-probabilities are not finite at update {self._update}"
            )
        scored = score(
            arm.reward, trajectories, np.random.SeedSequence([self.args.seed, self._update])
        )
        facts, earned = scored.facts, scored.rewards
        values = advantages(
            facts,
            earned,
            credit=arm.credit.name,
            gamma=arm.reward.gamma,
            gae_lambda=arm.credit.gae_lambda,
            normalisation=arm.credit.normalisation,
            epsilon=arm.credit.epsilon,
        )
        dead = dead_groups(facts, values)
        keep = np.flatnonzero(~dead & ~facts.crashed & (facts.lengths > 0))
        totals = earned.sum(axis=1)[~facts.crashed]
        self._log.row(
            self._log.ledger.optimizer_steps + 1,
            success_rate=float(facts.success.mean()),
            reward_mean=float(totals.mean()) if len(totals) else float("nan"),
            reward_std=float(totals.std()) if len(totals) else float("nan"),
            dead_group_share=float(dead.mean()),
            mean_turns=float(facts.lengths.mean()),
            **scored.parts,
        )
        return self._micro_batches(trajectories, values, keep)

    def _refuse_stale(self, trajectories: list[Trajectory]) -> None:
        """Training is on-policy: every turn must come from the weights that are trained now."""
        sampled_by = {turn.weights for t in trajectories for turn in t.turns} - {""}
        if not sampled_by:
            return
        present = weights_fingerprint(self.accelerator.unwrap_model(self.model))
        if stale := sorted(sampled_by - {present}):
            raise TrainingCollapse(
                f"turns of update {self._update} were sampled by weights {stale[0]}, and "
                f"{present} are trained: the rollouts are stale"
            )

    def _micro_batches(
        self, trajectories: list[Trajectory], values: NDArray[np.float64], keep: NDArray[np.int64]
    ) -> list[dict[str, torch.Tensor]]:
        """Split living trajectories into minibatches (optimiser steps) and these, by length, into
        micro-batches. The normaliser spans the whole batch, so the split changes speed only."""
        arm = self._arm
        order = np.random.default_rng([self.args.seed, self._update]).permutation(keep)
        device = self.accelerator.device
        sampled = sum(int(trajectories[i].mask.sum()) for i in keep)
        batches = []
        for minibatch in np.array_split(order, arm.minibatches):
            lengths = np.array([len(trajectories[i].token_ids) for i in minibatch], dtype=np.int64)
            by_length = minibatch[np.argsort(lengths, kind="stable")]
            for rows in np.array_split(by_length, arm.micro_batches):
                if len(rows):
                    batch = training_batch(
                        [trajectories[i] for i in rows], values[rows], self._tokenizer.pad_token_id
                    )
                else:
                    batch = self._empty_batch(trajectories)
                batch["num_items_in_batch"] = torch.tensor(max(sampled, 1))
                # Losses that average rows divide by the number of micro-batches, as if all were
                # equally large; this makes up for those that are not.
                batch["row_share"] = torch.tensor(
                    len(rows) * arm.micro_batches / max(len(minibatch), 1)
                )
                if self.beta != 0.0:
                    batch["ref_per_token_logps"] = self._reference_logprobs(batch)
                batches.append({name: tensor.to(device) for name, tensor in batch.items()})
        return batches

    def _empty_batch(self, trajectories: list[Trajectory]) -> dict[str, torch.Tensor]:
        """One masked row: a forward pass whose gradient is exactly 0."""
        ids = torch.full((1, 2), int(trajectories[0].token_ids[0]) if trajectories else 0)
        nothing = torch.zeros(1, 2, dtype=torch.long)
        return {
            "prompt_ids": ids[:, :1],
            "prompt_mask": torch.ones(1, 1, dtype=torch.long),
            "completion_ids": ids,
            "completion_mask": torch.ones(1, 2, dtype=torch.long),
            "tool_mask": nothing,
            "old_per_token_logps": nothing.float(),
            "advantages": nothing.float(),
        }

    def _reference_logprobs(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        self._log.ledger.context_tokens += int(attention.sum())
        model = self.accelerator.unwrap_model(self.model)
        with torch.no_grad():
            if self.ref_model is not None:
                return self._scored(self.ref_model, ids, attention, batch, "log_probs")[0]
            with use_adapter(model, "ref"):  # TRL's frozen copy of the adapters at the start
                return self._scored(self.model, ids, attention, batch, "log_probs")[0]

    def _scored(
        self,
        model: Any,
        ids: torch.Tensor,
        attention: torch.Tensor,
        batch: dict[str, torch.Tensor],
        *fields: str,
    ) -> list[torch.Tensor]:
        """Fields of TRL's scoring call, each (B, completion length), 0 but at sampled tokens."""
        sampled = batch["completion_mask"] * batch["tool_mask"]
        keep = sampled.size(1)
        labels = torch.full_like(ids, IGNORE)
        labels[:, -keep:] = batch["completion_ids"].masked_fill(sampled == 0, IGNORE)
        outputs = model(input_ids=ids, attention_mask=attention, labels=labels, fused_lm_head=True)
        return [outputs[field][:, -keep:] for field in fields]

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, *_: Any, **__: Any
    ) -> Any:
        """In place of TRL's, which scores the environment's tokens too, only to mask them out."""
        logprobs, entropies = self._scored(
            model, input_ids, attention_mask, self._batch, "log_probs", "entropy"
        )
        self._last_logprobs, self._last_entropies = logprobs.detach(), entropies.detach()
        return logprobs, entropies, None

    def _compute_loss(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        self._batch = inputs
        loss = super()._compute_loss(model, inputs)
        if self.loss_type != "dapo":
            loss = loss * inputs["row_share"]
        mask = inputs["tool_mask"].bool()
        self._log.ledger.trained_tokens += int(inputs["prompt_mask"].sum()) * bool(mask.any())
        self._log.ledger.trained_tokens += int(inputs["completion_mask"].sum()) * bool(mask.any())
        if not torch.isfinite(loss):
            raise TrainingCollapse(f"loss is {loss.item()} at update {self._update}")
        if mask.any():
            entropy = float(self._last_entropies[mask].mean())
            self._entropy.append((entropy, int(mask.sum())))
            if self._fresh:
                apart = (self._last_logprobs - inputs["old_per_token_logps"])[mask].abs().max()
                self._deviation = max(self._deviation, float(apart))
                if self._deviation > RATIO_LIMIT:
                    raise TrainingCollapse(
                        f"sampler and trainer disagree by {self._deviation:.4f} on a "
                        f"log-probability at update {self._update} (limit {RATIO_LIMIT}): their "
                        "weights, temperature or tokens differ"
                    )
        return loss

    def _finish_row(self) -> None:
        """Add to the last curve row what is known only after its optimiser step."""
        if self._entropy and self._log.rows:
            weights = sum(count for _, count in self._entropy)
            row = next(r for r in reversed(self._log.rows) if r["success_rate"] is not None)
            row["entropy"] = sum(value * count for value, count in self._entropy) / weights
            row["ratio_max_deviation"] = self._deviation
        self._entropy.clear()
        self._deviation = 0.0


def grpo_arguments(
    arm: GRPOArmConfig, config: TrainConfig, max_tokens: int, seed: int
) -> GRPOConfig:
    """Every setting that defines the method, none left to a default of the library."""
    pieces = arm.minibatches * arm.micro_batches
    return GRPOConfig(
        **common_arguments(config, seed),
        per_device_train_batch_size=arm.episodes_per_update // pieces,
        gradient_accumulation_steps=arm.micro_batches,
        steps_per_generation=pieces,
        num_generations=arm.group_size,
        num_iterations=arm.iterations,
        max_completion_length=max_tokens,
        temperature=arm.temperature,
        top_p=arm.top_p,
        top_k=0,
        epsilon=arm.clip,
        epsilon_high=arm.clip,
        delta=None,
        entropy_coef=0.0,
        use_adaptive_entropy=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        sync_ref_model=False,
        beta=arm.beta,
        use_bias_correction_kl=False,
        importance_sampling_level=arm.importance,
        loss_type=arm.loss,
        scale_rewards="none",
        mask_truncated_completions=False,
        disable_dropout=True,
        shuffle_dataset=True,
        remove_unused_columns=False,
        log_completions=False,
        use_vllm=False,
    )


def _reward_is_ours(**_: Any) -> list[float]:
    """TRL wants a reward function; ours acts on trajectories, before TRL sees them."""
    raise AssertionError("rewards are computed in TrajectoryGRPOTrainer._collect")


def train_grpo(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    instances: Sequence[int],
    rollout: Rollout,
    *,
    arm: GRPOArmConfig,
    learning_rate: float,
    config: TrainConfig,
    max_tokens: int,
    log: RunLog,
    seed: int,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Train ``model`` in place, on-policy, until ``log.stop`` tokens are on the ledger.

    Args:
        instances: indices of the training instances to draw groups from.
        rollout: plays episodes with the present weights; it puts its costs on the ledger.

    Raises: TrainingCollapse when there are fewer instances than an update has groups.
    """
    groups = arm.episodes_per_update // arm.group_size
    if len(instances) < groups:
        # TRL's sampler drops incomplete batches: training would end at once, without a step.
        raise TrainingCollapse(
            f"an update needs {groups} training instances and only {len(instances)} can be used; "
            "lower episodes_per_update or collect more instances that are not dead"
        )
    if not resumed(checkpoints):
        log.validate(model, log.ledger.optimizer_steps)
    trainer = TrajectoryGRPOTrainer(
        model=model,
        reward_funcs=[_reward_is_ours],
        args=grpo_arguments(arm, config, max_tokens, seed),
        train_dataset=Dataset.from_dict(
            {"prompt": [str(i) for i in instances], "instance": list(instances)}
        ),
        processing_class=tokenizer,
        callbacks=[BudgetCallback(log)],
        optimizers=optimizer_and_schedule(model, learning_rate, config, log),
        rollout=rollout,
        arm=arm,
        log=log,
    )
    if trainer.ref_model is not None:
        # TRL reloads the reference from the model's folder; the start of this phase may be later.
        trainer.ref_model.load_state_dict(copy.deepcopy(model.state_dict()))
    trainer.remove_callback(PrinterCallback)
    trainer.train_from(checkpoints)
    trainer._finish_row()
    forget_reference(model)
