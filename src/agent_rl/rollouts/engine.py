"""The rollout engine: task -> rollout -> trajectory.

Plays many episodes in lock-step: all living episodes take turn t together, so that a model answers
them in one batch. The engine knows neither rewards nor training; it records what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_rl.errors import UserError
from agent_rl.rollouts.policies import Action, Policy
from agent_rl.tasks.horizon import Horizon
from agent_rl.trajectory import EndReason, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode to be played."""

    instance_id: int
    instance_hash: str
    group_id: int
    member: int
    seed: np.random.SeedSequence
    """Stream of everything that is drawn in this episode."""


@dataclass(slots=True)
class _Slot:
    """An episode under way."""

    episode: Episode
    env: Horizon
    observation: str = ""
    distance: float = np.inf
    turns: list[Turn] = field(default_factory=list)
    end: EndReason | None = None
    error: str = ""


class RolloutEngine:
    """Plays episodes of one task; environments are made once and used again.

    Args:
        task: name of the task family, for the records.
        make_env: makes one environment with its horizon.
        batch_size: episodes in lock-step.
        seed: seed that the records carry.
    """

    def __init__(
        self, task: str, make_env: Callable[[], Horizon], *, batch_size: int = 128, seed: int = 0
    ) -> None:
        self.task = task
        self.batch_size = batch_size
        self.seed = seed
        self._make_env = make_env
        self._pool: list[Horizon] = []

    def play(
        self,
        policy: Policy,
        episodes: Sequence[Episode],
        progress: Callable[[int], Any] | None = None,
    ) -> list[Trajectory]:
        """Play every episode to its end, in the order given.

        A task that raises ends its episode with ``EndReason.ERROR``; the model never reads a
        traceback. ``progress`` is told the number of episodes that a batch finished.
        """
        trajectories: list[Trajectory] = []
        for batch in _batches(episodes, self.batch_size):
            trajectories.extend(self._play_batch(policy, batch))
            if progress is not None:
                progress(len(batch))
        return trajectories

    def _play_batch(self, policy: Policy, episodes: Sequence[Episode]) -> list[Trajectory]:
        while len(self._pool) < len(episodes):
            self._pool.append(self._make_env())
        slots = [_Slot(e, env) for e, env in zip(episodes, self._pool, strict=False)]
        for slot in slots:
            self._reset(slot)
        policy.start([np.random.default_rng(e.seed) for e in episodes], self._pool[0].horizon)
        while alive := [index for index, slot in enumerate(slots) if slot.end is None]:
            actions = policy.act(
                alive,
                [slots[index].observation for index in alive],
                [slots[index].env.task for index in alive],
            )
            for index, action in zip(alive, actions, strict=True):
                if action is None:
                    slots[index].end = EndReason.TOKEN_LIMIT
                else:
                    self._step(slots[index], action)
        return [self._finish(slot, policy, index) for index, slot in enumerate(slots)]

    def _reset(self, slot: _Slot) -> None:
        episode = slot.episode
        try:
            slot.observation, info = slot.env.reset(seed=episode.instance_id)
            found = slot.env.task.instance_hash()
        except (
            Exception
        ) as error:  # a fault of the task is data about the run, not about the policy
            slot.end, slot.error = EndReason.ERROR, f"{type(error).__name__}: {error}"
            return
        slot.distance = float(info["distance"])
        if found != episode.instance_hash:
            raise UserError(
                f"instance {episode.instance_id} of task {self.task} hashes to {found[:12]}, the "
                f"instance list says {episode.instance_hash[:12]}: the list belongs to other task "
                "settings; make it again with `dvc repro instances`"
            )

    def _step(self, slot: _Slot, action: Action) -> None:
        command = action.text if action.command is None else action.command
        try:
            text, success, terminated, truncated, info = slot.env.step(command)
        except Exception as error:
            slot.end, slot.error = EndReason.ERROR, f"{type(error).__name__}: {error}"
            valid, distance, text = False, slot.distance, ""
        else:
            valid, distance = bool(info["valid"]), float(info["distance"])
            if success:
                slot.end = EndReason.SUCCESS
            elif terminated:
                slot.end = EndReason.FAILURE
            elif truncated:
                slot.end = EndReason.TURN_LIMIT
        slot.turns.append(
            Turn(
                slot.observation,
                action.text,
                action.token_ids,
                action.logprobs,
                valid,
                slot.distance,
                distance,
                action.weights,
            )
        )
        slot.observation, slot.distance = text, distance

    def _finish(self, slot: _Slot, policy: Policy, index: int) -> Trajectory:
        assert slot.end is not None
        tokens = policy.record(index)
        return Trajectory(
            task=self.task,
            instance_id=slot.episode.instance_id,
            instance_hash=slot.episode.instance_hash,
            group_id=slot.episode.group_id,
            member=slot.episode.member,
            policy=policy.name,
            weights=policy.weights,
            seed=self.seed,
            temperature=policy.temperature,
            horizon=slot.env.horizon,
            turns=tuple(slot.turns),
            final_observation=slot.observation,
            end=slot.end,
            error=slot.error,
            token_ids=tokens.token_ids,
            mask=tokens.mask,
            logprobs=tokens.logprobs,
        )


def _batches(episodes: Sequence[Episode], size: int) -> Iterator[Sequence[Episode]]:
    for start in range(0, len(episodes), size):
        yield episodes[start : start + size]
