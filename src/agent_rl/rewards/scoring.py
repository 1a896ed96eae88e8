"""From a batch of trajectories to rewards, whatever the reward reads: facts or texts.

Training calls this one function; what it needs to know about a reward besides its numbers is which
episodes must teach nothing, and what to log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agent_rl.config import RewardConfig
from agent_rl.rewards.facts import EpisodeFacts, episode_facts
from agent_rl.rewards.rubric import find_criterion, judged_criteria
from agent_rl.rewards.specs import JUDGE, find_reward, rewards
from agent_rl.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Scored:
    """Rewards of N trajectories."""

    rewards: NDArray[np.float64]
    """(N, T) reward of every turn."""
    facts: EpisodeFacts
    """Facts for the credit: groups that a judge could not score count as crashed, so that they
    enter no mean and get no advantage. Success is untouched."""
    parts: dict[str, float]
    """What is logged apart: the share of episodes that meet each criterion of a rubric; a judge's
    faults, and how it agrees with the true outcome."""


def score(
    config: RewardConfig, trajectories: Sequence[Trajectory], seed: np.random.SeedSequence
) -> Scored:
    """Score a batch.

    Args:
        seed: decides the orders in which a judge sees a group; nothing else is drawn.

    Raises: UserError for an unknown reward, or a judge that cannot be reached.
    """
    facts = episode_facts(trajectories)
    if config.name == JUDGE:
        return _judged(config, trajectories, facts, seed)
    return Scored(rewards(config, facts), facts, _criteria_rates(config, facts))


def check_reward(config: RewardConfig) -> None:
    """Raise UserError when a name in the settings is not known; asks no server."""
    if config.name != JUDGE:
        find_reward(config.name)
    for name in config.criteria:
        find_criterion(name)


def _criteria_rates(config: RewardConfig, facts: EpisodeFacts) -> dict[str, float]:
    verdicts = judged_criteria(facts, config)
    return {f"rubric_{name}": float(verdict.mean()) for name, verdict in verdicts.items()}


def _judged(
    config: RewardConfig,
    trajectories: Sequence[Trajectory],
    facts: EpisodeFacts,
    seed: np.random.SeedSequence,
) -> Scored:
    # Only a study with a judge needs an HTTP client.
    from agent_rl.rewards import judge as relative

    assert config.judge is not None  # checked at load
    verdict = relative.judge(trajectories, config.judge, seed)
    agreement, pairs = relative.pair_agreement(
        verdict.scores, facts.success, facts.groups, verdict.invalid | facts.crashed
    )
    parts = {
        "judge_requests": float(verdict.requests),
        "judge_retries": float(verdict.retries),
        "judge_invalid_share": float(verdict.invalid.mean()),
        "judge_pair_agreement": agreement,
        "judge_pairs": float(pairs),
        "judge_order_effect": relative.order_effect(verdict, facts.groups),
        "judge_order_disagreement": relative.order_disagreement(verdict),
    }
    return Scored(
        facts.last * verdict.scores[:, None],
        replace(facts, crashed=facts.crashed | verdict.invalid),
        parts,
    )
