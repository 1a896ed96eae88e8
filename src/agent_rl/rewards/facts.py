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

    @property
    def alive(self) -> NDArray[np.bool_]:
        """(N, T) whether turn t was taken."""
        return np.arange(self.distances.shape[1] - 1)[None, :] < self.lengths[:, None]

    @property
    def won(self) -> NDArray[np.float64]:
        """(N, T) 1 at the winning turn."""
        last = np.arange(self.distances.shape[1] - 1)[None, :] == self.lengths[:, None] - 1
        return (last & self.success[:, None]).astype(np.float64)


def episode_facts(trajectories: Sequence[Trajectory]) -> EpisodeFacts:
    """Collect facts; trajectories without a turn (a crash at reset) have length 0."""
    lengths = np.array([len(t.turns) for t in trajectories], dtype=np.int64)
    width = int(lengths.max(initial=1))
    distances = np.ones((len(trajectories), max(width, 1) + 1))
    for row, trajectory in enumerate(trajectories):
        if trajectory.turns:
            known = trajectory.distances
            distances[row, : len(known)] = known
            distances[row, len(known) :] = known[-1]
    return EpisodeFacts(
        distances=distances,
        lengths=lengths,
        success=np.array([t.success for t in trajectories], dtype=np.bool_),
        crashed=np.array([t.end is EndReason.ERROR for t in trajectories], dtype=np.bool_),
        groups=np.array([t.group_id for t in trajectories], dtype=np.int64),
        horizon=np.array([t.horizon for t in trajectories], dtype=np.int64),
    )
