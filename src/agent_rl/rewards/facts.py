"""The facts of a batch of trajectories as padded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent_rl.trajectory import EndReason, Trajectory


@dataclass(frozen=True, slots=True)
class EpisodeFacts:
    """N trajectories of at most T turns."""

    distances: NDArray[np.float64]
    """(N, T + 1) d_0..d_n, the last value repeated to the right."""
    lengths: NDArray[np.int64]
    """(N,) turns taken, n."""
    success: NDArray[np.bool_]
    """(N,) whether the task was solved (by the last turn)."""
    crashed: NDArray[np.bool_]
    """(N,) whether the task raised: no evidence about the policy."""
    groups: NDArray[np.int64]
    """(N,) group ids."""
    horizon: NDArray[np.int64]
    """(N,) turns allowed."""
    valid: NDArray[np.bool_]
    """(N, T) whether the task understood the action; False where no turn was taken."""
    repeated: NDArray[np.bool_]
    """(N, T) whether an earlier turn gave the same action and got the same text for it: a turn
    from which nothing could be learned. False where no turn was taken."""
    answered: NDArray[np.bool_]
    """(N,) whether the agent's own action ended the episode, rightly or wrongly."""

    @property
    def alive(self) -> NDArray[np.bool_]:
        """(N, T) whether turn t was taken."""
        return np.arange(self.distances.shape[1] - 1)[None, :] < self.lengths[:, None]

    @property
    def last(self) -> NDArray[np.bool_]:
        """(N, T) whether turn t was the last one."""
        return np.arange(self.distances.shape[1] - 1)[None, :] == self.lengths[:, None] - 1

    @property
    def won(self) -> NDArray[np.float64]:
        """(N, T) 1 at the winning turn."""
        return (self.last & self.success[:, None]).astype(np.float64)


def episode_facts(trajectories: Sequence[Trajectory]) -> EpisodeFacts:
    """Collect facts; trajectories without a turn (a crash at reset) have length 0."""
    lengths = np.array([len(t.turns) for t in trajectories], dtype=np.int64)
    width = max(int(lengths.max(initial=1)), 1)
    distances = np.ones((len(trajectories), width + 1))
    valid = np.zeros((len(trajectories), width), dtype=np.bool_)
    repeated = np.zeros((len(trajectories), width), dtype=np.bool_)
    for row, trajectory in enumerate(trajectories):
        if trajectory.turns:
            known = trajectory.distances
            distances[row, : len(known)] = known
            distances[row, len(known) :] = known[-1]
            valid[row, : lengths[row]] = [turn.valid for turn in trajectory.turns]
            repeated[row, : lengths[row]] = _repeated(trajectory)
    ends = [t.end for t in trajectories]
    return EpisodeFacts(
        distances=distances,
        lengths=lengths,
        success=np.array([t.success for t in trajectories], dtype=np.bool_),
        crashed=np.array([end is EndReason.ERROR for end in ends], dtype=np.bool_),
        groups=np.array([t.group_id for t in trajectories], dtype=np.int64),
        horizon=np.array([t.horizon for t in trajectories], dtype=np.int64),
        valid=valid,
        repeated=repeated,
        answered=np.array(
            [end in (EndReason.SUCCESS, EndReason.FAILURE) for end in ends], dtype=np.bool_
        ),
    )


def _repeated(trajectory: Trajectory) -> list[bool]:
    """Per turn, whether its action and the text that came back occurred before."""
    texts = [turn.observation for turn in trajectory.turns[1:]] + [trajectory.final_observation]
    seen: set[tuple[str, str]] = set()
    result = []
    for turn, text in zip(trajectory.turns, texts, strict=True):
        result.append((turn.action, text) in seen)
        seen.add((turn.action, text))
    return result
