"""Stage ``reward``: the same collected trajectories, scored under every reward specification.

Scoring again needs no new sampling; that is why it is a stage of its own. The summary says what
each reward pays the base, how it goes with success, and how many groups would be dead at each group
size, measured and as predicted from per-instance success by p^G + (1 - p)^G.

Run it alone:  python -m agent_rl.stages.reward --task babyai
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agent_rl.config import StudyConfig
from agent_rl.files import write_json, write_parquet
from agent_rl.rewards import REWARDS, EpisodeFacts, episode_facts, rewards
from agent_rl.rollouts.storage import load_trajectories
from agent_rl.stages.common import Artifacts, task_stage

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
    """Score the collected rollouts."""
    trajectories = load_trajectories(artifacts.collected, "dvc repro collect")
    facts = episode_facts(trajectories)
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {"base_success_rate": round(float(facts.success.mean()), 6)}
    for name in REWARDS:
        earned = rewards(name, facts)
        totals = earned.sum(axis=1)
        for index, trajectory in enumerate(trajectories):
            rows.append(
                {
                    "group_id": trajectory.group_id,
                    "member": trajectory.member,
                    "reward": name,
                    "rewards": earned[index, : len(trajectory.turns)].round(9).tolist(),
                    "total": round(float(totals[index]), 9),
                    "success": trajectory.success,
                }
            )
        summary[name] = _summary(facts, totals, study.collect.group_size)
    write_parquet(artifacts.rewards, pa.Table.from_pylist(rows, schema=SCHEMA))
    write_json(artifacts.reward_summary, summary)


def _summary(facts: EpisodeFacts, totals: NDArray[np.float64], collected: int) -> dict[str, Any]:
    """Mean, spread inside groups, agreement with success, dead groups by group size."""
    grouped = totals.reshape(-1, collected)
    success = facts.success.astype(np.float64)
    rate = success.reshape(-1, collected).mean(axis=1)
    constant = totals.std() == 0 or success.std() == 0
    dead = {}
    for size in (2, 4, 8, 16):
        if collected % size:
            continue
        parts = grouped.reshape(-1, size)
        dead[str(size)] = {
            "measured": round(float((np.ptp(parts, axis=1) < 1e-12).mean()), 6),
            "predicted": round(float((rate**size + (1 - rate) ** size).mean()), 6),
        }
    return {
        "mean": round(float(totals.mean()), 6),
        "std_in_group": round(float(grouped.std(axis=1).mean()), 6),
        "correlation_with_success": None
        if constant
        else round(float(np.corrcoef(totals, success)[0, 1]), 6),
        "dead_groups": dead,
    }


if __name__ == "__main__":
    sys.exit(task_stage(__doc__ or "", build))
