"""The central record: what happened in one episode, turn by turn and token by token.

A trajectory holds facts only. What they are worth is decided in :mod:`agent_rl.rewards`; there is
no reward, no clock and no path in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class EndReason(StrEnum):
    """Why an episode ended. Exactly one holds; only ``SUCCESS`` counts as success."""

    SUCCESS = "success"
    """The task said that its goal was reached."""
    FAILURE = "failure"
    """The task ended the episode without success (an irreversible mistake, a wrong answer)."""
    TURN_LIMIT = "turn_limit"
    """The horizon was reached."""
    TOKEN_LIMIT = "token_limit"
    """The next turn would not have fitted into the token budget of the episode."""
    ERROR = "error"
    """The task itself raised: an infrastructure fault, counted as a failed episode."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: the agent reads an observation and answers with an action."""

    observation: str
    """Text that the agent read before it acted."""
    action: str
    """Text that the agent answered, without the end-of-turn token."""
    token_ids: tuple[int, ...]
    """Sampled token ids of the action, the end-of-turn token included; empty for policies that
    do not sample tokens."""
    logprobs: tuple[float, ...]
    """Log-probability of each sampled token under the sampling distribution."""
    valid: bool
    """Whether the task understood the action."""
    distance_before: float
    """Exact number of expert steps to success before the action (inf when lost)."""
    distance_after: float
    """The same after the action; 0 on success."""
    weights: str = ""
    """Fingerprint of the weights that sampled the action; empty for scripted policies."""


def _no_ids() -> NDArray[np.int32]:
    return np.zeros(0, dtype=np.int32)


def _no_mask() -> NDArray[np.int8]:
    return np.zeros(0, dtype=np.int8)


def _no_logprobs() -> NDArray[np.float32]:
    return np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """One episode: the unit of training in agent RL."""

    task: str
    """Name of the task family, e.g. ``babyai``."""
    instance_id: int
    """Seed that generates the instance."""
    instance_hash: str
    """Hash of the full initial state."""
    group_id: int
    """Trajectories with one group id start from the same initial state."""
    member: int
    """Index inside the group."""
    policy: str
    """Name of the policy that acted."""
    weights: str
    """Fingerprint of the policy's weights; empty for scripted policies."""
    seed: int
    """Seed of the stream that sampled the actions."""
    temperature: float
    """Sampling temperature; 0 means greedy."""
    horizon: int
    """Turns allowed."""
    turns: tuple[Turn, ...]
    """What happened, in order."""
    final_observation: str
    """Text after the last action; never acted upon."""
    end: EndReason
    """Why the episode ended."""
    error: str = ""
    """Class and message of the task's exception when ``end`` is ``ERROR``."""
    token_ids: NDArray[np.int32] = field(default_factory=_no_ids)
    """(L,) every token of the episode in order: prompts, observations and actions."""
    mask: NDArray[np.int8] = field(default_factory=_no_mask)
    """(L,) 1 where the token was sampled by the policy, 0 where the environment wrote it."""
    logprobs: NDArray[np.float32] = field(default_factory=_no_logprobs)
    """(L,) log-probability of the sampled tokens, 0 elsewhere."""

    @property
    def success(self) -> bool:
        return self.end is EndReason.SUCCESS

    @property
    def distances(self) -> NDArray[np.float64]:
        """(T + 1,) distance before each turn and after the last one."""
        if not self.turns:
            return np.zeros(0)
        return np.array(
            [self.turns[0].distance_before, *(turn.distance_after for turn in self.turns)]
        )

    @property
    def turn_spans(self) -> NDArray[np.int32]:
        """(T, 2) first and one-past-last position of each turn's sampled tokens in ``token_ids``.

        Only for trajectories with tokens: spans are recovered from the lengths of the turns.
        """
        sampled = np.flatnonzero(self.mask)
        spans, start = [], 0
        for turn in self.turns:
            stop = start + len(turn.token_ids)
            spans.append((int(sampled[start]), int(sampled[stop - 1]) + 1))
            start = stop
        return np.array(spans, dtype=np.int32).reshape(-1, 2)

    def validate(self) -> None:
        """Raise ``ValueError`` when the record contradicts itself."""
        where = f"trajectory of instance {self.instance_id}, group {self.group_id}.{self.member}"
        lengths = {len(self.token_ids), len(self.mask), len(self.logprobs)}
        if len(lengths) != 1:
            raise ValueError(f"{where}: ids, mask and log-probs have lengths {sorted(lengths)}")
        for index, turn in enumerate(self.turns):
            if len(turn.token_ids) != len(turn.logprobs):
                raise ValueError(f"{where}: turn {index} has unequal ids and log-probs")
        if len(self.token_ids):
            sampled = [i for turn in self.turns for i in turn.token_ids]
            if self.token_ids[self.mask == 1].tolist() != sampled:
                raise ValueError(f"{where}: the masked ids are not the ids of the actions")
        if len(self.turns) > self.horizon:
            raise ValueError(f"{where}: {len(self.turns)} turns exceed horizon {self.horizon}")
        if self.success and (not self.turns or self.turns[-1].distance_after != 0):
            raise ValueError(f"{where}: success without distance 0")


@dataclass(frozen=True, slots=True)
class TrajectoryGroup:
    """Trajectories of one instance: the group whose mean is GRPO's baseline."""

    trajectories: tuple[Trajectory, ...]

    def __post_init__(self) -> None:
        hashes = {trajectory.instance_hash for trajectory in self.trajectories}
        ids = {trajectory.group_id for trajectory in self.trajectories}
        if len(hashes) != 1 or len(ids) != 1:
            raise ValueError(
                f"a group must share one id and one initial state, got ids {sorted(ids)} and "
                f"{len(hashes)} initial states"
            )

    def __len__(self) -> int:
        return len(self.trajectories)


def group_trajectories(trajectories: Sequence[Trajectory]) -> list[TrajectoryGroup]:
    """Collect trajectories by group id, in order of first appearance."""
    groups: dict[int, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.group_id, []).append(trajectory)
    return [TrajectoryGroup(tuple(members)) for members in groups.values()]
