"""Reward specifications: r_t for every turn of every trajectory, from the task's facts.

Notation: d_t is the exact number of expert steps to success after turn t, D = d_0,
b_t = min(d_0..d_t), T is the horizon, [won at t] is 1 at the turn that reaches the goal. All return
(N, T) arrays that are 0 where no turn was taken.

A reward of your own is one function in one file, see ``examples/brisk.py``. The labelled parts of
its docstring (Target, Signal, Encoding, Source) become its card in the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent_rl.config import RewardConfig
from agent_rl.errors import UserError
from agent_rl.plugins import load_attribute
from agent_rl.rewards.facts import EpisodeFacts

RewardFunction = Callable[[EpisodeFacts, RewardConfig], NDArray[np.float64]]
Maximum = Callable[[int, RewardConfig], float]

JUDGE = "judge"
"""The one reward that reads texts instead of facts, see :mod:`agent_rl.rewards.judge`."""


@dataclass(frozen=True, slots=True)
class Reward:
    """A function of facts, and the most that an episode can earn under it."""

    function: RewardFunction
    maximum: Maximum
    """(horizon, settings) -> largest possible return of an episode."""

    def __call__(self, facts: EpisodeFacts, config: RewardConfig) -> NDArray[np.float64]:
        return self.function(facts, config)


REWARDS: dict[str, Reward] = {}
"""Rewards by name; :func:`reward` adds to it."""


def reward(name: str, *, maximum: float | Maximum) -> Callable[[RewardFunction], Reward]:
    """Register ``(facts, settings) -> (N, T) rewards`` under a name.

    Args:
        maximum: the most that an episode can earn, a number or a function of (horizon, settings).
            It is a promise that the audit checks.

    Raises: UserError for a name that is taken.
    """

    def register(function: RewardFunction) -> Reward:
        if name in REWARDS or name == JUDGE:
            raise UserError(f"reward {name!r} exists already: register it under another name")
        bound = maximum if callable(maximum) else lambda horizon, config: float(maximum)
        REWARDS[name] = Reward(function, bound)
        return REWARDS[name]

    return register


def find_reward(name: str) -> Reward:
    """A registered reward, or that of ``module:ATTRIBUTE``.

    Raises: UserError for an unknown name.
    """
    if ":" in name:
        return load_attribute(name, Reward, "reward", "examples.brisk:brisk")
    if name not in REWARDS:
        raise UserError(
            f"unknown reward {name!r}; known: {', '.join(sorted(REWARDS))}, "
            "or name your own as module:ATTRIBUTE"
        )
    return REWARDS[name]


def spec(
    name: str,
    *,
    scale: float = 0.5,
    gamma: float = 1.0,
    criteria: Mapping[str, float] | None = None,
) -> RewardConfig:
    """Settings of a reward outside a study, e.g. in a test or a notebook."""
    return RewardConfig(name, scale, gamma, dict(criteria or {}), judge=None)


def rewards(config: RewardConfig, facts: EpisodeFacts) -> NDArray[np.float64]:
    """(N, T) rewards under a specification.

    Raises: UserError for an unknown name; ValueError when the function gives another shape or
    numbers that are not finite.
    """
    earned = find_reward(config.name)(facts, config)
    if np.shape(earned) != facts.alive.shape:
        raise ValueError(
            f"reward {config.name!r} gave shape {np.shape(earned)}, expected {facts.alive.shape}"
        )
    earned = np.where(facts.alive, earned, 0.0)
    if not np.isfinite(earned).all():
        raise ValueError(f"reward {config.name!r} gave a number that is not finite")
    return earned


def _unit(facts: EpisodeFacts) -> NDArray[np.float64]:
    """(N, 1) D, at least 1 so that a start without work to do divides by nothing silly."""
    return np.maximum(facts.distances[:, :1], 1.0)


@reward("sparse", maximum=1.0)
def sparse(facts: EpisodeFacts, config: RewardConfig) -> NDArray[np.float64]:
    """r_t = [won at t].

    Target: solve the task within the horizon.
    Signal: the task's own verdict and nothing else.
    Encoding: 1 at the winning turn, 0 at all others; an episode earns 0 or 1.
    Source: outcome supervision, Shao et al. 2024 (arXiv 2402.03300), section 4.1.2.
    """
    return facts.won


@reward("dense", maximum=1.0)
def dense(facts: EpisodeFacts, config: RewardConfig) -> NDArray[np.float64]:
    """r_t = 0.5 (b_(t-1) - b_t) / D + 0.5 [won at t].

    Target: solve the task; come closer than ever before on the way.
    Signal: the task's verdict and the exact distance to the goal.
    Encoding: half a point in all for best-so-far progress, half a point for winning; coming back
        to a place pays nothing, an episode earns between 0 and 1.
    Source: best-so-far progress as in the milestones of Ma et al. 2024 (AgentBoard, arXiv
        2401.13178), with the exact distance in place of hand-made milestones.
    """
    best = np.minimum.accumulate(facts.distances, axis=1)
    return 0.5 * (best[:, :-1] - best[:, 1:]) / _unit(facts) + 0.5 * facts.won


@reward("dense_naive", maximum=lambda horizon, config: 1.0 + 0.1 * horizon)
def dense_naive(facts: EpisodeFacts, config: RewardConfig) -> NDArray[np.float64]:
    """r_t = 0.1 [d_t < d_(t-1)] + [won at t].

    Target: come closer with every turn, and win. A negative control: it is here to be farmed.
    Signal: the task's verdict and whether the last turn lowered the distance.
    Encoding: 0.1 for every turn that comes closer, 1 for winning; stepping away costs nothing, so
        stepping back and forth earns for as long as the episode lasts.
    Source: the bicycle that rode in circles, Randlov & Alstrom 1998, ICML.
    """
    closer = facts.distances[:, 1:] < facts.distances[:, :-1]
    return 0.1 * closer + facts.won


@reward("shaped", maximum=lambda horizon, config: 1.0 + config.scale)
def shaped(facts: EpisodeFacts, config: RewardConfig) -> NDArray[np.float64]:
    """r_t = [won at t] + k (gamma Phi(s_(t+1)) - Phi(s_t)), Phi = -d / D, Phi = 0 at every end.

    Target: solve the task; each turn is told at once whether it brought the goal nearer.
    Signal: the task's verdict and the exact distance to the goal, as a potential.
    Encoding: coming closer pays what going back takes away, and what is left at the end is taken
        back; the discounted sum is that of sparse plus k, whatever the agent does.
    Source: potential-based shaping, Ng, Harada & Russell 1999, ICML, theorem 1; the potential is 0
        at a time-out too, Grzes 2017, AAMAS.

    A lost state (d = inf) counts as horizon + D steps away, which keeps Phi finite.
    """
    potential = shaping_potential(facts)
    return facts.won + config.scale * (config.gamma * potential[:, 1:] - potential[:, :-1])


def shaping_potential(facts: EpisodeFacts) -> NDArray[np.float64]:
    """(N, T + 1) Phi before each turn and after the last; 0 from the end of the episode on."""
    unit = _unit(facts)
    lost = facts.horizon[:, None] + unit
    distances = np.where(np.isfinite(facts.distances), facts.distances, lost)
    over = np.arange(distances.shape[1])[None, :] >= facts.lengths[:, None]
    return np.where(over, 0.0, -distances / unit)
