"""Stage ``audit``: scripted policies under every reward, and the rewards in small mazes.

Run it alone:  python -m agent_rl.stages.audit --task babyai
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from tqdm import tqdm

from agent_rl.config import StudyConfig
from agent_rl.files import write_json
from agent_rl.rewards import JUDGE
from agent_rl.rewards.audit import audit
from agent_rl.rewards.tabular import tabular_rows
from agent_rl.rollouts.exploits import exploit_policies
from agent_rl.rollouts.setup import make_engine
from agent_rl.seeding import Stream
from agent_rl.stages.common import Artifacts, episodes_of, load_instances, task_stage
from agent_rl.tasks.registry import make_task

DIGITS = 9
"""Digits after the point in the file: sums of rewards differ beyond them by rounding."""


def build(study: StudyConfig, task_name: str, artifacts: Artifacts) -> None:
    """Play every scripted policy on the first ``audit.instances`` training instances.

    The judge scores nothing here, since it needs a server: its part of the file stays empty.
    """
    task = study.task(task_name)
    train = [i for i in load_instances(artifacts.instances) if i.split == "train"]
    episodes = episodes_of(study, train[: study.audit.instances], 0, Stream.AUDIT)
    policies = exploit_policies(
        lambda: make_task(task.family, task.settings), seed=episodes[0].instance_id
    )
    engine = make_engine(task_name, task, seed=0)
    total = len(policies) * len(episodes)
    with tqdm(total=total, desc=f"audit {task_name}", unit="episode", disable=None) as bar:
        played = {
            name: engine.play(policy, episodes, bar.update) for name, policy in policies.items()
        }
    configs = {name: config for name, config in study.rewards.items() if config.name != JUDGE}
    rows, verdicts = audit(task_name, played, configs)
    scale = next((config.scale for config in configs.values() if config.name == "shaped"), 0.5)
    content = {
        "audit": [asdict(row) for row in rows],
        "verdicts": [asdict(row) for row in verdicts],
        "tabular": [asdict(row) for row in tabular_rows(scale=scale)],
        "judge": [],
    }
    write_json(
        artifacts.audit,
        {part: [_rounded(row) for row in found] for part, found in content.items()},
    )


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, DIGITS) if isinstance(v, float) else v for k, v in row.items()}


if __name__ == "__main__":
    sys.exit(task_stage(__doc__ or "", build))
