"""Credit assignment: rewards of a group of trajectories -> advantages per turn.

* ``trajectory``: A_i = (R_i - mean_g R) / (std_g R + eps) on every turn of trajectory i (GRPO, Shao
  et al. 2024, eq. 3, outcome supervision; R is the discounted sum, std the population one).
* ``turn``: returns-to-go G_{i,t} = sum_{k>=t} gamma^(k-t) r_{i,k}, minus their mean over the
  members of the group that are still alive at turn t, divided by the group's root mean square of
  these differences + eps. In that mean square each trajectory counts once (the mean over its own
  turns first), so that long failures do not set the scale.
* ``turn`` with lambda < 1 and the shaped reward: G is discounted by gamma lambda instead. The
  shaped reward is the temporal difference of the sparse one under the value V = k Phi, so this sum
  is GAE (Schulman et al. 2016, eq. 16) with that value in place of a critic.

Normalisation: ``group`` divides by the group's own spread as above; ``batch`` by that of all groups
together, so that a group with small differences stays small; ``none`` divides by nothing
(Liu et al. 2025, Dr. GRPO).

A group without variance is dead: all its advantages are exactly 0. Crashed episodes say nothing
about the policy: they enter no mean and get advantage 0.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agent_rl.config import RewardConfig
from agent_rl.rewards.facts import EpisodeFacts
from agent_rl.rewards.specs import rewards

_DEAD = 1e-12
"""Spread below which a group counts as constant: above float noise, below any real difference."""


def advantages(
    facts: EpisodeFacts,
    rewards: NDArray[np.float64],
    *,
    credit: Literal["trajectory", "turn"],
    gamma: float = 1.0,
    gae_lambda: float = 1.0,
    normalisation: Literal["group", "batch", "none"] = "group",
    epsilon: float = 1e-4,
) -> NDArray[np.float64]:
    """(N, T) advantages, 0 where no turn was taken.

    Args:
        facts: the trajectories' lengths, groups and crashes.
        rewards: (N, T) rewards.
        credit: one advantage per trajectory, or one per turn.
        gamma: discount of returns.
        gae_lambda: further discount of what followed a turn; only with credit ``turn``.
        normalisation: divide by the spread of the group, of the batch, or not at all.
        epsilon: added to the spread.

    Raises: ValueError when a group has fewer than two members, or for lambda with one advantage
    per trajectory.
    """
    if credit == "trajectory" and gae_lambda != 1:
        raise ValueError(f"gae_lambda {gae_lambda} needs credit 'turn'")
    index = _group_index(facts)
    usable = ~facts.crashed & (facts.lengths > 0)
    alive = facts.alive & usable[:, None]
    values = returns_to_go(rewards, gamma * gae_lambda)
    present = alive
    if credit == "trajectory":
        # One column: the return of the whole trajectory, alive while the trajectory is usable.
        values, present = values[:, :1], usable[:, None]
    differences = _centred(values, present, index)
    scales = _spreads(differences, present, index)
    dead = scales <= _DEAD
    if normalisation == "group":
        result = differences / (scales[index] + epsilon)[:, None]
    elif normalisation == "batch":
        whole = _spreads(differences, present, np.zeros_like(index))
        result = differences / (whole[0] + epsilon)
    else:
        result = differences
    result = np.where(dead[index][:, None], 0.0, result)
    return np.where(alive, np.broadcast_to(result, alive.shape), 0.0)


def returns_to_go(rewards: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """(N, T) G_t = sum_{k>=t} gamma^(k-t) r_k."""
    result = np.zeros_like(rewards)
    running = np.zeros(len(rewards))
    for turn in range(rewards.shape[1] - 1, -1, -1):
        running = rewards[:, turn] + gamma * running
        result[:, turn] = running
    return result


def returns(config: RewardConfig, facts: EpisodeFacts) -> NDArray[np.float64]:
    """(N,) what each episode earns: the sum of its rewards, discounted as the settings say."""
    return returns_to_go(rewards(config, facts), config.gamma)[:, 0]


def dead_groups(facts: EpisodeFacts, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(N,) whether a trajectory's group gives no gradient: every advantage in it is 0.

    Args:
        values: (N, T) advantages.
    """
    index = _group_index(facts)
    signal = np.abs(values).max(axis=1, initial=0.0)
    return (np.bincount(index, weights=signal) == 0)[index]


def _group_index(facts: EpisodeFacts) -> NDArray[np.int64]:
    """(N,) position of each trajectory's group. Raises: ValueError for a group of one."""
    groups, index, sizes = np.unique(facts.groups, return_inverse=True, return_counts=True)
    if (sizes < 2).any():
        raise ValueError(f"group {groups[sizes < 2][0]} has one member: it has no baseline")
    return index


def _centred(
    values: NDArray[np.float64], present: NDArray[np.bool_], index: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(N, T) values minus the mean over the present members of the group; 0 where absent."""
    shape = (int(index.max(initial=-1)) + 1, values.shape[1])
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, index, np.where(present, values, 0.0))
    np.add.at(counts, index, present)
    means = sums / np.maximum(counts, 1)
    return np.where(present, values - means[index], 0.0)


def _spreads(
    differences: NDArray[np.float64], present: NDArray[np.bool_], index: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(groups,) root mean square of differences; each trajectory counts once."""
    turns = present.sum(axis=1)
    members = turns > 0
    square = np.where(members, (differences**2).sum(axis=1) / np.maximum(turns, 1), 0.0)
    total = np.bincount(index, weights=square)
    return np.sqrt(total / np.maximum(np.bincount(index, weights=members), 1))
