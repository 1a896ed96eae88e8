"""The gap between reward and success while an arm trains.

With oracle and floor (the worst that a failed episode is paid, from the audit) of the arm's reward
on its task, an update's mean reward is normalised as (reward - floor) / (oracle - floor), and

    gap = normalised reward - success rate.

A gap that stays is a property of the reward, for example pay for partial progress. A gap that
*grows* says that the policy learned to be paid more than to succeed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from agent_rl.evaluation import statistics as st
from agent_rl.reporting import style
from agent_rl.reporting.summary import LEVEL, MIN_SEEDS
from agent_rl.reporting.tables import Results

SHARE = 5
"""First and last are means of this fraction (one fifth) of the updates of a run."""
PRINTED = 0.0005
"""Changes below this are 0 in three digits: rounding of the results files, not learning."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Reward against success of one RL arm on one task, first and last, mean over seeds."""

    task: str
    method: str
    reward: str
    """Name of the arm's reward; empty when the provenance does not state it."""
    success: tuple[float, float]
    normalised: tuple[float, float]
    """nan when the audit does not know the reward's range on the task."""
    gap: tuple[float, float]
    change: st.Estimate
    """Last gap minus first gap, paired by seed."""
    reason: str = ""
    """Why there is no gap; empty when there is one."""

    @property
    def word(self) -> str:
        """grew, shrank, inconclusive, unchanged, descriptive or unknown."""
        bounds = (self.change.value, self.change.low, self.change.high)
        if math.isnan(self.change.value):
            return "unknown"
        if self.change.n < MIN_SEEDS:
            return "descriptive"
        if max(map(abs, bounds)) < PRINTED:
            return "unchanged"
        if not self.change.excludes(0.0):
            return "inconclusive"
        return "grew" if self.change.value > 0 else "shrank"


def rl_updates(results: Results, task: str, method: str) -> pd.DataFrame:
    """Curve rows of RL updates, counted from 1: an arm may have had other steps before."""
    curves = results.curves
    frame = curves[(curves["task"] == task) & (curves["method"] == method)]
    frame = frame.dropna(subset=["success_rate"])
    return frame.assign(rl_update=frame.groupby("seed").cumcount() + 1)


def reward_of(results: Results, method: str) -> dict[str, Any]:
    """Settings of the reward that an arm learns from; empty when they are not stated."""
    entry: object = results.provenance
    for key in ("arms", method, "reward"):
        entry = entry.get(key) if isinstance(entry, dict) else None
    stated = isinstance(entry, dict) and isinstance(entry.get("name"), str)
    return entry if isinstance(entry, dict) and stated else {}


def audited_name(results: Results, reward: dict[str, Any]) -> str:
    """The name under which the audit scored a reward with these settings.

    The audit lists rewards by the names that the study gives them, and one function may stand
    there twice with different settings. Empty when it was scored with other settings only: the
    range of those is not the arm's.
    """
    name = str(reward["name"])
    cards = results.rewards.cards or {}
    same = [key for key, card in cards.items() if card.settings.get("name", key) == name]
    fitting = [key for key in same if _fits(cards[key].settings, reward)]
    if name in fitting or not same:
        return name
    return fitting[0] if fitting else ""


def _fits(settings: dict[str, Any], reward: dict[str, Any]) -> bool:
    """Whether the settings that both state are equal; a judge's address is no part of results."""
    return all(
        settings[key] == reward[key] for key in (settings.keys() & reward.keys()) - {"judge"}
    )


def gaps(results: Results, task: str) -> list[Gap]:
    """One entry for every RL arm with a reward curve on a task, in display order."""
    found = []
    for method in style.RL:
        frame = rl_updates(results, task, method).dropna(subset=["reward_mean"])
        # One update has no first and last: its run says nothing about a change.
        frame = frame[frame.groupby("seed")["seed"].transform("size") > 1]
        if len(frame):
            found.append(_gap(results, task, method, frame))
    return found


def _gap(results: Results, task: str, method: str, frame: pd.DataFrame) -> Gap:
    stated = reward_of(results, method)
    floor, oracle, reason = _range(results, task, stated)
    parts = [
        _ends(frame.assign(normalised=(frame["reward_mean"] - floor) / (oracle - floor)), last)
        for last in (False, True)
    ]
    first, last = (dict((part["normalised"] - part["success_rate"]).dropna()) for part in parts)
    return Gap(
        task,
        method,
        str(stated.get("name", "")),
        _pair(parts, "success_rate"),
        _pair(parts, "normalised"),
        (_mean(first), _mean(last)),
        st.paired_difference(last, first, LEVEL),
        reason,
    )


def _range(results: Results, task: str, stated: dict[str, Any]) -> tuple[float, float, str]:
    """Floor and oracle of a reward, or nan with the reason."""
    if not stated:
        return math.nan, math.nan, "its reward is not stated in `results/provenance.json`"
    reward = audited_name(results, stated)
    if not reward:
        return math.nan, math.nan, f"`{stated['name']}` was audited with other settings"
    rows = results.rewards.rows("reward_verdicts", task=task, reward=reward)
    if rows.empty:
        return math.nan, math.nan, f"`results/reward_verdicts.csv` has no range for `{reward}`"
    floor, oracle = float(rows["floor_return"].iloc[0]), float(rows["oracle_return"].iloc[0])
    if not oracle > floor:
        return math.nan, math.nan, f"under `{reward}` the oracle earns no more than failures do"
    return floor, oracle, ""


def _ends(frame: pd.DataFrame, last: bool) -> pd.DataFrame:
    """Mean of the first or last fifth of the updates of every run, at least one; by seed."""
    runs = frame.groupby("seed")
    place = runs.cumcount(ascending=not last)
    size = np.ceil(runs["seed"].transform("size") / SHARE)
    return frame[place < size].groupby("seed")[["success_rate", "normalised"]].mean()


def _pair(parts: list[pd.DataFrame], column: str) -> tuple[float, float]:
    first, last = (float(part[column].mean()) for part in parts)
    return first, last


def _mean(by_seed: dict[int, float]) -> float:
    return float(np.mean(list(by_seed.values()))) if by_seed else math.nan
