"""Reward specifications: r_t for every turn of every trajectory, from the task's facts.

Notation: d_t is the exact number of expert steps to success after turn t, D = d_0,
b_t = min(d_0..d_t), [won at t] is 1 at the turn that reaches the goal. All return (N, T) arrays
that are 0 where no turn was taken.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from agent_rl.errors import UserError
from agent_rl.rewards.facts import EpisodeFacts

RewardFunction = Callable[[EpisodeFacts, float, float], NDArray[np.float64]]

REWARDS: dict[str, RewardFunction] = {}
"""Reward functions by name; :func:`reward` adds to it."""


def reward(name: str) -> Callable[[RewardFunction], RewardFunction]:
    """Register a reward function ``(facts, scale, gamma) -> (N, T) rewards`` under a name."""

    def register(function: RewardFunction) -> RewardFunction:
        REWARDS[name] = function
        return function

    return register


def rewards(
    name: str, facts: EpisodeFacts, *, scale: float = 0.5, gamma: float = 1.0
) -> NDArray[np.float64]:
    """(N, T) rewards under the specification ``name``.

    Raises: UserError for an unknown name.
    """
    if name not in REWARDS:
        raise UserError(f"unknown reward {name!r}; known: {', '.join(sorted(REWARDS))}")
    return np.where(facts.alive, REWARDS[name](facts, scale, gamma), 0.0)


def _unit(facts: EpisodeFacts) -> NDArray[np.float64]:
    """(N, 1) D, at least 1 so that a start without work to do divides by nothing silly."""
    return np.maximum(facts.distances[:, :1], 1.0)


@reward("sparse")
def sparse(facts: EpisodeFacts, scale: float, gamma: float) -> NDArray[np.float64]:
    """r_t = [won at t]."""
    return facts.won


@reward("dense")
def dense(facts: EpisodeFacts, scale: float, gamma: float) -> NDArray[np.float64]:
    """r_t = 0.5 (b_{t-1} - b_t) / D + 0.5 [won at t].

    Best-so-far progress: coming back to a place pays nothing, the sum lies in [0, 1]. Failures
    are paid for partial progress.
    """
    best = np.minimum.accumulate(facts.distances, axis=1)
    return 0.5 * (best[:, :-1] - best[:, 1:]) / _unit(facts) + 0.5 * facts.won


@reward("dense_naive")
def dense_naive(facts: EpisodeFacts, scale: float, gamma: float) -> NDArray[np.float64]:
    """r_t = 0.1 [d_t < d_{t-1}] + [won at t].

    A negative control: stepping back and forth earns.
    """
    closer = facts.distances[:, 1:] < facts.distances[:, :-1]
    return 0.1 * closer + facts.won


@reward("shaped")
def shaped(facts: EpisodeFacts, scale: float, gamma: float) -> NDArray[np.float64]:
    """r_t = [won at t] + k (gamma Phi(s_{t+1}) - Phi(s_t)), Phi = -d / D.

    Potential-based shaping (Ng, Harada & Russell 1999, eq. 2). Phi is 0 at *every* end of an
    episode, a time-out included; otherwise the sum keeps a bonus for the place where time ran out.
    A lost state (d = inf) counts as horizon + D steps away, which keeps Phi finite.
    """
    potential = shaping_potential(facts)
    return facts.won + scale * (gamma * potential[:, 1:] - potential[:, :-1])


def shaping_potential(facts: EpisodeFacts) -> NDArray[np.float64]:
    """(N, T + 1) Phi before each turn and after the last; 0 from the end of the episode on."""
    unit = _unit(facts)
    lost = facts.horizon[:, None] + unit
    distances = np.where(np.isfinite(facts.distances), facts.distances, lost)
    over = np.arange(distances.shape[1])[None, :] >= facts.lengths[:, None]
    return np.where(over, 0.0, -distances / unit)
