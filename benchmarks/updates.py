"""Whole updates of GRPO with our engine: rollouts, scoring, loss, gradients and optimiser step."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agent_rl.config import GRPOArmConfig, StudyConfig
from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.rollouts.models import weights_fingerprint
from agent_rl.training.grpo import train_grpo
from agent_rl.training.ledger import Ledger
from agent_rl.training.loop import RunLog, Validation
from agent_rl.trajectory import Trajectory
from benchmarks.base import MAX_TOKENS, sampler
from benchmarks.cases import Measure, Sizes
from benchmarks.processes import peak_memory, settle
from benchmarks.room import GROUP, TASK, episodes, groups, make_room, rooms, study

ARM = "grpo_shaped"
"""Its credit differs between turns, so no group of the room is dead and all episodes are trained
on, as in TRL's loop."""
LEARNING_RATE = 1e-4
"""Small: two updates must not change how the model plays."""
UPDATES = 2
"""The first is a rehearsal."""


def update_arm(config: StudyConfig, batch: int) -> GRPOArmConfig:
    """The study's arm at the size of the benchmark."""
    arm = config.arm_on(ARM, TASK)
    assert isinstance(arm, GRPOArmConfig)
    return dataclasses.replace(
        arm, group_size=min(GROUP, batch), episodes_per_update=batch, learning_rate=LEARNING_RATE
    )


def our_update(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str, sizes: Sizes
) -> list[Measure]:
    """Seconds of the second update, from the reset of its environments to its optimiser step."""
    from benchmarks.engines import MAX_ACTION_TOKENS, measure

    config = study()
    task = config.task(TASK)
    arm = update_arm(config, sizes.batch)
    instances = rooms(task, 4 * sizes.batch // arm.group_size)
    engine = RolloutEngine(TASK, lambda: make_room(task, sizes.horizon), batch_size=sizes.batch)
    starts: list[float] = []
    ends: list[float] = []
    log = RunLog(
        dataclasses.replace(config.train, budget_tokens=10**12, validation_points=2),
        Ledger(),
        Validation(
            engine, groups(task, arm.group_size, 1), Chat(tokenizer), MAX_ACTION_TOKENS, MAX_TOKENS
        ),
        tick=lambda share: ends.append(time.perf_counter()),
        stop=10**12,
    )

    def rollout(model: PreTrainedModel, indices: Sequence[int], update: int) -> list[Trajectory]:
        starts.append(time.perf_counter())
        policy = sampler(model, tokenizer, MAX_ACTION_TOKENS, weights_fingerprint(model))
        chosen = [instances[index] for index in indices[:: arm.group_size]]
        played = engine.play(policy, episodes(chosen, arm.group_size, stream=10 + update))
        log.ledger.sampled_tokens += policy.sampled_tokens
        log.ledger.context_tokens += policy.context_tokens
        if update == UPDATES:
            log.stop = 0  # the budget is spent: this step is the last
        return played

    settle()
    train_grpo(
        model,
        tokenizer,
        range(len(instances)),
        rollout,
        arm=arm,
        learning_rate=arm.learning_rate,
        config=log.config,
        max_tokens=MAX_TOKENS,
        log=log,
        seed=0,
    )
    assert len(starts) == len(ends) == UPDATES
    dead = [row["dead_group_share"] for row in log.rows if row["dead_group_share"] is not None]
    if max(dead) > 0:
        raise RuntimeError(f"groups of the benchmark were dead ({dead}): less would be trained on")
    values = {
        "updates/s": 1 / (ends[-1] - starts[-1]),
        "peak memory of updates, MiB": peak_memory(),
    }
    return [measure("agent_rl", name, sizes.batch, key, value) for key, value in values.items()]
