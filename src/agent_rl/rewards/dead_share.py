"""How many groups give no gradient: measured under a reward, and predicted from success alone.

The null model: a group of G episodes from one start is dead under the sparse reward when all win or
all fail, which has probability p^G + (1 - p)^G at a start that is solved with probability p.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from agent_rl.config import RewardConfig
from agent_rl.rewards.credit import advantages, dead_groups
from agent_rl.rewards.facts import EpisodeFacts
from agent_rl.rewards.specs import rewards

Credit = Literal["trajectory", "turn"]


def predicted_dead_share(
    successes: NDArray[np.int64], episodes: int, size: int
) -> NDArray[np.float64]:
    """(M,) unbiased estimate of p^G + (1 - p)^G for every start.

    The share of the subsets of G among the start's n episodes that all win or all fail,
    (C(s, G) + C(n - s, G)) / C(n, G). Putting s / n for p into the formula would be biased upwards:
    both powers are convex.

    Args:
        successes: (M,) s, successes of each start.
        episodes: n, at least ``size``.
        size: G.

    Raises: ValueError for a group larger than the episodes of a start.
    """
    if size > episodes:
        raise ValueError(f"groups of {size} cannot be drawn from {episodes} episodes")
    return (comb(successes, size) + comb(episodes - successes, size)) / comb(episodes, size)


def measured_dead_share(
    facts: EpisodeFacts,
    config: RewardConfig,
    *,
    credit: Credit,
    size: int,
) -> NDArray[np.float64]:
    """(M,) share of dead groups of ``size`` at every start, by the code that training uses.

    The episodes of a start are cut into groups in their order.

    Args:
        facts: the same number of episodes for each of M starts, one start after the other;
            ``facts.groups`` names the start.

    Raises: ValueError when the episodes of a start do not divide into groups of ``size``.
    """
    starts, counts = np.unique(facts.groups, return_counts=True)
    per_start = int(counts[0])
    if (counts != per_start).any() or per_start % size:
        raise ValueError(f"{counts.tolist()} episodes per start do not make groups of {size}")
    cut = replace(facts, groups=np.arange(len(facts.groups)) // size)
    values = advantages(cut, rewards(config, cut), credit=credit, gamma=config.gamma)
    return dead_groups(cut, values).reshape(len(starts), per_start).mean(axis=1)


def half(facts: EpisodeFacts, per_start: int, *, second: bool) -> EpisodeFacts:
    """The first or the second half of the episodes of every start."""
    chosen = (np.arange(len(facts.groups)) % per_start >= per_start // 2) == second
    return EpisodeFacts(
        **{name: getattr(facts, name)[chosen] for name in EpisodeFacts.__dataclass_fields__}
    )
