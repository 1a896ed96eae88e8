"""Credit assignment: rewards of a group of trajectories -> advantages per turn.

* ``trajectory``: A_i = (R_i - mean_g R) / (std_g R + eps) on every turn of trajectory i (GRPO, Shao
  et al. 2024, eq. 3, outcome supervision; R is the discounted sum, std the population one).
* ``turn``: returns-to-go G_{i,t} = sum_{k>=t} gamma^(k-t) r_{i,k}, minus their mean over the
  members of the group that are still alive at turn t, divided by the group's root mean square of
  these differences + eps. In that mean square each trajectory counts once (the mean over its own
  turns first), so that long failures do not set the scale.

A group without variance is dead: all its advantages are exactly 0. Crashed episodes say nothing
about the policy: they enter no mean and get advantage 0.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agent_rl.rewards.facts import EpisodeFacts

_DEAD = 1e-12
"""Spread below which a group counts as constant: above float noise, below any real difference."""


def advantages(
    facts: EpisodeFacts,
    rewards: NDArray[np.float64],
    *,
    credit: Literal["trajectory", "turn"],
    gamma: float = 1.0,
    normalisation: Literal["group", "batch", "none"] = "group",
    epsilon: float = 1e-4,
) -> NDArray[np.float64]:
    """(N, T) advantages, 0 where no turn was taken.

    Args:
        facts: the trajectories' lengths, groups and crashes.
        rewards: (N, T) rewards.
        credit: one advantage per trajectory, or one per turn.
        gamma: discount of returns.
        normalisation: divide by the spread of the group, of the batch, or not at all.
        epsilon: added to the spread.

    Raises: ValueError when a group has fewer than two members.
    """
    usable = ~facts.crashed & (facts.lengths > 0)
    alive = facts.alive & usable[:, None]
    returns = returns_to_go(rewards, gamma)
    if credit == "trajectory":
        # One column: the return of the whole trajectory, alive while the trajectory is usable.
        values, present = returns[:, :1], usable[:, None]
    else:
        values, present = returns, alive
    differences = np.zeros_like(values)
    scales = np.ones(len(values))
    for group in np.unique(facts.groups):
        rows = np.flatnonzero(facts.groups == group)
        if len(rows) < 2:
            raise ValueError(f"group {group} has one member: it has no baseline")
        differences[rows] = _centre(values[rows], present[rows])
        scales[rows] = _spread(differences[rows], present[rows])
    dead = scales <= _DEAD
    if normalisation == "group":
        result = differences / (scales + epsilon)[:, None]
    elif normalisation == "batch":
        result = differences / (_spread(differences, present) + epsilon)
    else:
        result = differences
    result = np.where(dead[:, None], 0.0, result)
    return np.where(alive, np.broadcast_to(result, alive.shape), 0.0)


def returns_to_go(rewards: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """(N, T) G_t = sum_{k>=t} gamma^(k-t) r_k."""
    result = np.zeros_like(rewards)
    running = np.zeros(len(rewards))
    for turn in range(rewards.shape[1] - 1, -1, -1):
        running = rewards[:, turn] + gamma * running
        result[:, turn] = running
    return result


def dead_groups(
    facts: EpisodeFacts, rewards: NDArray[np.float64], *, credit: Literal["trajectory", "turn"]
) -> NDArray[np.bool_]:
    """(N,) whether a trajectory's group gives no gradient: every advantage in it is 0."""
    signal = np.abs(advantages(facts, rewards, credit=credit)).max(axis=1, initial=0.0) > 0
    dead = np.zeros(len(signal), dtype=np.bool_)
    for group in np.unique(facts.groups):
        rows = facts.groups == group
        dead[rows] = not signal[rows].any()
    return dead


def _centre(values: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Subtract, per column, the mean over the members that are present; others get 0."""
    count = present.sum(axis=0)
    mean = np.where(present, values, 0.0).sum(axis=0) / np.maximum(count, 1)
    return np.where(present, values - mean, 0.0)


def _spread(differences: NDArray[np.float64], present: NDArray[np.bool_]) -> float:
    """Root mean square of differences; each trajectory counts once."""
    turns = present.sum(axis=1)
    members = turns > 0
    if not members.any():
        return 0.0
    per_trajectory = (differences**2).sum(axis=1)[members] / turns[members]
    return float(np.sqrt(per_trajectory.mean()))
