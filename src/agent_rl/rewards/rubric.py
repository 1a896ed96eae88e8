"""The rubric: weighted criteria over the whole trajectory, for tasks without a distance.

Each criterion is a named predicate; the reward is the weighted share that holds, paid at the last
turn. What each criterion says is logged apart, because a sum that rises does not tell why.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from agent_rl.config import RewardConfig
from agent_rl.errors import UserError
from agent_rl.rewards.facts import EpisodeFacts
from agent_rl.rewards.specs import reward

Criterion = Callable[[EpisodeFacts], NDArray[np.bool_]]

CRITERIA: dict[str, Criterion] = {}
"""Predicates by name; :func:`criterion` adds to it."""


def criterion(function: Criterion) -> Criterion:
    """Register a predicate ``facts -> (N,) bool`` under the function's name.

    Raises: UserError for a name that is taken.
    """
    name = function.__name__
    if name in CRITERIA:
        raise UserError(f"criterion {name!r} exists already: give the function another name")
    CRITERIA[name] = function
    return function


@criterion
def right_answer(facts: EpisodeFacts) -> NDArray[np.bool_]:
    """The task says that the goal was reached."""
    return facts.success


@criterion
def answered(facts: EpisodeFacts) -> NDArray[np.bool_]:
    """The agent ended the episode by an action of its own, not by running out of turns."""
    return facts.answered


@criterion
def valid_calls(facts: EpisodeFacts) -> NDArray[np.bool_]:
    """The task understood every action."""
    return np.all(facts.valid | ~facts.alive, axis=1)


@criterion
def no_repeats(facts: EpisodeFacts) -> NDArray[np.bool_]:
    """No action was given twice with the same text coming back."""
    return np.all(~facts.repeated, axis=1)


def find_criterion(name: str) -> Criterion:
    """A registered predicate. Raises: UserError for an unknown name."""
    if name not in CRITERIA:
        raise UserError(f"unknown criterion {name!r} of the rubric; known: {', '.join(CRITERIA)}")
    return CRITERIA[name]


def judged_criteria(facts: EpisodeFacts, config: RewardConfig) -> dict[str, NDArray[np.bool_]]:
    """(N,) verdict of every criterion of the settings; False for an episode without a turn.

    Raises: UserError for an unknown criterion.
    """
    played = facts.lengths > 0
    return {name: find_criterion(name)(facts) & played for name in config.criteria}


@reward("rubric", maximum=1.0)
def rubric(facts: EpisodeFacts, config: RewardConfig) -> NDArray[np.float64]:
    """r_t = [t is the last turn] sum_c w_c [c holds], the weights w_c sum to 1.

    Target: solve the task in good form: valid calls, nothing asked twice, an answer in the end.
    Signal: predicates over the whole trajectory; no distance is needed.
    Encoding: one sum at the last turn, between 0 and 1; form is paid whether or not the answer is
        right, so its weight must stay well below that of the right answer.
    Source: rubrics as rewards, Gunjal et al. 2025 (arXiv 2507.17746), explicit aggregation.
    """
    total = np.zeros(len(facts.lengths))
    for name, verdict in judged_criteria(facts, config).items():
        total += config.criteria[name] * verdict
    return facts.last * total[:, None]
