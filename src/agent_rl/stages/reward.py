"""Stage ``reward``: the same collected trajectories, scored under every reward specification.

Scoring again needs no new sampling; that is why it is a stage of its own. The summary says what
each reward pays the base and how it goes with success; and, from the probe's larger groups, how
many groups would be dead at each group size, beside p^G + (1 - p)^G from other episodes of the
same starts.

Run it alone:  python -m agent_rl.stages.reward --task babyai
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agent_rl.config import RewardConfig, StudyConfig
from agent_rl.evaluation.statistics import t_interval
from agent_rl.files import write_json, write_parquet
from agent_rl.rewards import JUDGE, EpisodeFacts, episode_facts, returns_to_go, rewards
from agent_rl.rewards.dead_share import Credit, half, measured_dead_share, predicted_dead_share
from agent_rl.rewards.rubric import judged_criteria
from agent_rl.rollouts.storage import load_trajectories
from agent_rl.stages.common import Artifacts, task_stage
from agent_rl.trajectory import Trajectory

GROUP_SIZES = (2, 4, 8, 16)
CREDITS: tuple[Credit, ...] = ("trajectory", "turn")

SCHEMA = pa.schema(
    [
        ("group_id", pa.int64()),
        ("member", pa.int64()),
        ("reward", pa.string()),
        ("rewards", pa.list_(pa.float64())),
        ("total", pa.float64()),
        ("success", pa.bool_()),
    ]
)


def build(study: StudyConfig, task_name: str, artifacts: Artifacts) -> None:
    """Score the collected rollouts and the probe."""
    trajectories = load_trajectories(artifacts.collected, "dvc repro collect")
    probe = episode_facts(load_trajectories(artifacts.probe, "dvc repro collect"))
    facts = episode_facts(trajectories)
    rows: list[dict[str, Any]] = []
    summary: dict[str, list[dict[str, Any]]] = {"stats": [], "criteria": [], "dead_groups": []}
    for name, config in scored_rewards(study).items():
        earned = rewards(config, facts)
        totals = returns_to_go(earned, config.gamma)[:, 0]
        rows += _reward_rows(name, trajectories, earned, totals)
        summary["stats"].append(
            {"reward": name, **_statistics(facts, totals, study.collect.group_size)}
        )
        summary["criteria"] += [{"reward": name, **row} for row in _criteria(config, facts)]
        summary["dead_groups"] += [
            {"reward": name, **row}
            for row in _dead_groups(probe, config, study.collect.probe_group_size)
        ]
    write_parquet(artifacts.rewards, pa.Table.from_pylist(rows, schema=SCHEMA))
    write_json(artifacts.reward_summary, summary)


def scored_rewards(study: StudyConfig) -> dict[str, RewardConfig]:
    """The study's rewards that facts decide; the judge's are bought, and only for the audit."""
    return {name: config for name, config in study.rewards.items() if config.name != JUDGE}


def _reward_rows(
    name: str,
    trajectories: Sequence[Trajectory],
    earned: NDArray[np.float64],
    totals: NDArray[np.float64],
) -> list[dict[str, Any]]:
    return [
        {
            "group_id": trajectory.group_id,
            "member": trajectory.member,
            "reward": name,
            "rewards": earned[index, : len(trajectory.turns)].round(9).tolist(),
            "total": round(float(totals[index]), 9),
            "success": trajectory.success,
        }
        for index, trajectory in enumerate(trajectories)
    ]


def _statistics(facts: EpisodeFacts, totals: NDArray[np.float64], members: int) -> dict[str, Any]:
    """Mean, spread inside groups, agreement with success."""
    grouped = totals.reshape(-1, members)
    return {
        "episodes": len(totals),
        "mean": round(float(totals.mean()), 6),
        "std_in_group": round(float(grouped.std(axis=1).mean()), 6),
        "variance_in_group": round(float(grouped.var(axis=1).mean()), 6),
        "correlation_with_success": _correlation(totals, facts.success),
    }


def _criteria(config: RewardConfig, facts: EpisodeFacts) -> list[dict[str, Any]]:
    """Share of the base's episodes that meet each criterion of a rubric."""
    return [
        {
            "criterion": name,
            "weight": config.criteria[name],
            "rate": round(float(verdict.mean()), 6),
            "correlation_with_success": _correlation(verdict, facts.success),
        }
        for name, verdict in judged_criteria(facts, config).items()
    ]


def _correlation(values: NDArray[Any], success: NDArray[np.bool_]) -> float | None:
    """Pearson's r; None where one of the two is constant."""
    if np.ptp(values.astype(np.float64)) < 1e-12 or np.ptp(success.astype(np.float64)) == 0:
        return None
    return round(float(np.corrcoef(values.astype(np.float64), success)[0, 1]), 6)


def _dead_groups(probe: EpisodeFacts, config: RewardConfig, members: int) -> list[dict[str, Any]]:
    """Measured on one half of the probe's episodes, predicted from success on the other."""
    predicting, measuring = half(probe, members, second=False), half(probe, members, second=True)
    episodes = members // 2
    successes = predicting.success.reshape(-1, episodes).sum(axis=1)
    rows = []
    for size in GROUP_SIZES:
        if episodes % size:
            continue
        predicted = t_interval(predicted_dead_share(successes, episodes, size))
        for credit in CREDITS:
            shares = measured_dead_share(measuring, config, credit=credit, size=size)
            found = t_interval(shares)
            rows.append(
                {
                    "credit": credit,
                    "group_size": size,
                    "instances": len(shares),
                    "groups": len(shares) * (episodes // size),
                    "measured": round(found.value, 6),
                    "measured_low": round(found.low, 6),
                    "measured_high": round(found.high, 6),
                    "predicted": round(predicted.value, 6),
                    "predicted_low": round(predicted.low, 6),
                    "predicted_high": round(predicted.high, 6),
                }
            )
    return rows


if __name__ == "__main__":
    sys.exit(task_stage(__doc__ or "", build))
