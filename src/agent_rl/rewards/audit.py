"""The reward audit: does a reward pay anything but solving the task?

Scripted policies play the same instances; every reward scores what they did. Two kinds of row come
out: one per reward and policy (:class:`AuditRow`), and one verdict per reward
(:class:`VerdictRow`). Success is the task's own verdict in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agent_rl.config import RewardConfig
from agent_rl.rewards.credit import returns
from agent_rl.rewards.facts import episode_facts
from agent_rl.rewards.specs import find_reward
from agent_rl.trajectory import Trajectory

ORACLE = "oracle"
"""Name of the policy that every other one is measured against."""

TOLERANCE = 1e-9
"""Differences of returns below this are rounding."""

PAID = 0.01
"""Share of the oracle's pay, above the floor, from which on failures count as paid."""

Verdict = Literal["farmable", "pays failures", "tight"]


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One policy under one reward."""

    task: str
    reward: str
    policy: str
    mean_return: float
    success_rate: float
    episodes: int
    mean_return_failed: float | None
    """Over the failed episodes, crashed ones included; None when none failed."""
    max_return: float
    beats_oracle_share: float
    """Share of instances on which the policy earned more than the oracle did there."""


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """What the audit found out about one reward."""

    task: str
    reward: str
    oracle_return: float
    floor_return: float | None
    """Lowest mean return of failed episodes, over policies; None when no episode failed."""
    best_exploit: str
    """Policy other than the oracle with the highest mean return; the first of equal ones."""
    best_exploit_return: float
    paid_failures: float
    """Highest mean return of failed episodes, over policies, as a share of the way from the floor
    to the oracle: 0 when failures are all worth the same, 1 when one kind pays like solving."""
    declared_maximum: float
    """What the reward says an episode can earn at most, at the task's horizon."""
    highest_return: float
    """Highest return of any episode."""
    farmable: bool
    """Whether the best exploit earned more than the oracle on average. The mean decides, since it
    is what a policy gradient climbs. On a single instance a lucky guess may end sooner than the
    expert, and earns more under a discount: the share of such instances stands in the audit rows,
    and is no fault of the reward."""
    verdict: Verdict


def audit(
    task: str,
    played: Mapping[str, Sequence[Trajectory]],
    configs: Mapping[str, RewardConfig],
    tailored: Mapping[str, Mapping[str, Sequence[Trajectory]]] | None = None,
) -> tuple[list[AuditRow], list[VerdictRow]]:
    """Score every policy under every reward.

    Args:
        task: name of the task, for the rows.
        played: policy -> its trajectories, on the same instances in the same order.
        configs: reward specifications by name.
        tailored: reward -> policies that were played for this reward alone.

    Raises: ValueError when the oracle or any other policy is missing, when the instances differ,
        or when an episode earned more than its reward declares possible.
    """
    rows: list[AuditRow] = []
    verdicts: list[VerdictRow] = []
    for reward, config in configs.items():
        every = {**played, **(tailored or {}).get(reward, {})}
        _check(every)
        facts = {name: episode_facts(trajectories) for name, trajectories in every.items()}
        earned = {name: returns(config, known) for name, known in facts.items()}
        success = {name: known.success for name, known in facts.items()}
        horizon = max(t.horizon for t in every[ORACLE])
        declared = find_reward(config.name).maximum(horizon, config)
        found, verdict = assess(task, reward, earned, success, declared)
        rows.extend(found)
        verdicts.append(verdict)
    return rows, verdicts


def assess(
    task: str,
    reward: str,
    earned: Mapping[str, NDArray[np.float64]],
    success: Mapping[str, NDArray[np.bool_]],
    declared: float,
) -> tuple[list[AuditRow], VerdictRow]:
    """Rows and verdict of one reward.

    Args:
        earned: policy -> (N,) return of each episode, the same instances for every policy.
        success: policy -> (N,) whether the episode was solved.
        declared: the most that an episode can earn.

    Raises: ValueError when an episode earned more than that.
    """
    rows = [
        _row(task, reward, name, values, success[name], earned[ORACLE])
        for name, values in earned.items()
    ]
    return rows, _verdict(rows, declared)


def _check(played: Mapping[str, Sequence[Trajectory]]) -> None:
    if ORACLE not in played or len(played) < 2:
        raise ValueError(f"an audit needs the oracle and another policy, got {list(played)}")
    expected = [t.instance_id for t in played[ORACLE]]
    if not expected:
        raise ValueError("an audit needs episodes")
    for name, trajectories in played.items():
        if [t.instance_id for t in trajectories] != expected:
            raise ValueError(f"policy {name} played other instances than the oracle")


def _row(
    task: str,
    reward: str,
    policy: str,
    earned: NDArray[np.float64],
    success: NDArray[np.bool_],
    oracle: NDArray[np.float64],
) -> AuditRow:
    failed = earned[~success]
    return AuditRow(
        task=task,
        reward=reward,
        policy=policy,
        mean_return=float(earned.mean()),
        success_rate=float(success.mean()),
        episodes=len(earned),
        mean_return_failed=float(failed.mean()) if len(failed) else None,
        max_return=float(earned.max()),
        beats_oracle_share=float((earned > oracle + TOLERANCE).mean()),
    )


def _verdict(rows: Sequence[AuditRow], declared: float) -> VerdictRow:
    """The verdict on the reward whose rows, one per policy, are given."""
    oracle = next(row for row in rows if row.policy == ORACLE)
    best = max((row for row in rows if row is not oracle), key=lambda row: row.mean_return)
    highest = max(row.max_return for row in rows)
    if highest > declared + TOLERANCE:
        raise ValueError(
            f"reward {oracle.reward} paid {highest:.6g} for an episode of {oracle.task}, but "
            f"declares a maximum of {declared:.6g}"
        )
    failed = [row.mean_return_failed for row in rows if row.mean_return_failed is not None]
    paid = _paid_failures(failed, oracle.mean_return)
    farmable = best.mean_return > oracle.mean_return + TOLERANCE
    return VerdictRow(
        task=oracle.task,
        reward=oracle.reward,
        oracle_return=oracle.mean_return,
        floor_return=min(failed, default=None),
        best_exploit=best.policy,
        best_exploit_return=best.mean_return,
        paid_failures=paid,
        declared_maximum=declared,
        highest_return=highest,
        farmable=farmable,
        verdict="farmable" if farmable else "pays failures" if paid > PAID else "tight",
    )


def _paid_failures(failed: Sequence[float], oracle: float) -> float:
    """Where the best paid failures stand between the floor (0) and the oracle (1)."""
    if not failed:
        return 0.0
    floor = min(failed)
    if oracle - floor <= TOLERANCE:
        # Even the worst paid failures earn what the oracle earns.
        return 1.0
    return (max(failed) - floor) / (oracle - floor)
