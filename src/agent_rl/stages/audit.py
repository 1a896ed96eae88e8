"""Stage ``audit``: scripted policies under every reward, and the rewards in small mazes.

Run it alone:  python -m agent_rl.stages.audit --task babyai
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from agent_rl.config import RewardConfig, StudyConfig
from agent_rl.files import write_json
from agent_rl.rewards import JUDGE, episode_facts, returns
from agent_rl.rewards.audit import AuditRow, VerdictRow, assess, audit
from agent_rl.rewards.scoring import score
from agent_rl.rewards.tabular import tabular_rows
from agent_rl.rollouts.exploits import GreedyPolicy, exploit_policies
from agent_rl.rollouts.setup import make_engine
from agent_rl.seeding import Stream, sequence
from agent_rl.stages.common import Artifacts, episodes_of, load_instances, task_stage
from agent_rl.tasks.instances import Instance
from agent_rl.tasks.registry import make_task
from agent_rl.trajectory import EndReason, Trajectory

DIGITS = 9
"""Digits after the point in the file: sums of rewards differ beyond them by rounding."""


def build(study: StudyConfig, task_name: str, artifacts: Artifacts) -> None:
    """Play every scripted policy on the first ``audit.instances`` training instances."""
    train = [i for i in load_instances(artifacts.instances) if i.split == "train"]
    content = audit_task(study, task_name, train[: study.audit.instances])
    write_json(artifacts.audit, content)


def audit_task(
    study: StudyConfig, task_name: str, instances: Sequence[Instance]
) -> dict[str, list[dict[str, Any]]]:
    """Rows of the audit, the verdicts, the tabular check and the judge.

    Raises: UserError for a judge that cannot be reached.
    """
    task = study.task(task_name)
    episodes = episodes_of(study, instances, 0, Stream.AUDIT)
    make = partial(make_task, task.family, task.settings)
    policies = exploit_policies(make, seed=episodes[0].instance_id)
    configs = {name: config for name, config in study.rewards.items() if config.name != JUDGE}
    engine = make_engine(task_name, task, seed=0)
    total = (len(policies) + len(configs)) * len(episodes)
    with tqdm(total=total, desc=f"audit {task_name}", unit="episode", disable=None) as bar:
        played = {
            name: engine.play(policy, episodes, bar.update) for name, policy in policies.items()
        }
        tailored = {}
        for name, config in configs.items():
            greedy = GreedyPolicy(make, partial(_earned, config))
            tailored[name] = {greedy.name: engine.play(greedy, episodes, bar.update)}
    rows, verdicts = audit(task_name, played, configs, tailored)
    judged = []
    for name, config in study.rewards.items():
        if config.name == JUDGE:
            found, verdict, row = _judged(study, task_name, name, config, played)
            rows += found
            verdicts += [verdict] if verdict else []
            judged.append(row)
    scale = next((config.scale for config in configs.values() if config.name == "shaped"), 0.5)
    content = {
        "audit": [asdict(row) for row in rows],
        "verdicts": [asdict(row) for row in verdicts],
        "tabular": [asdict(row) for row in tabular_rows(scale=scale)],
        "judge": judged,
    }
    return {part: [_rounded(row) for row in found] for part, found in content.items()}


def _judged(
    study: StudyConfig,
    task: str,
    reward: str,
    config: RewardConfig,
    played: Mapping[str, Sequence[Trajectory]],
) -> tuple[list[AuditRow], VerdictRow | None, dict[str, Any]]:
    """What a judge says when it compares all policies on one instance.

    Instances without a valid answer are left out of the rows, for every policy, and counted.
    """
    # Episodes of one instance have one group id, whoever played them.
    everyone = [trajectory for trajectories in played.values() for trajectory in trajectories]
    scored = score(config, everyone, sequence(study.seed, 0, Stream.AUDIT, 1))
    shape = (len(played), -1)
    earned = scored.rewards.sum(axis=1).reshape(shape)
    success = scored.facts.success.reshape(shape)
    crashed = np.array([t.end is EndReason.ERROR for t in everyone]).reshape(shape)
    invalid = (scored.facts.crashed.reshape(shape) & ~crashed).any(axis=0)
    row = {
        "reward": reward,
        "groups": len(invalid),
        "invalid_groups": int(invalid.sum()),
        "requests": int(scored.parts["judge_requests"]),
        "retries": int(scored.parts["judge_retries"]),
        "pair_agreement": _known(scored.parts["judge_pair_agreement"]),
        "pairs": int(scored.parts["judge_pairs"]),
        "order_effect": _known(scored.parts["judge_order_effect"]),
        "order_disagreement": _known(scored.parts["judge_order_disagreement"]),
    }
    if invalid.all():
        return [], None, row
    valid = {name: earned[index, ~invalid] for index, name in enumerate(played)}
    won = {name: success[index, ~invalid] for index, name in enumerate(played)}
    rows, verdict = assess(task, reward, valid, won, declared=1.0)
    return rows, verdict, row


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _earned(config: RewardConfig, trajectories: Sequence[Trajectory]) -> NDArray[np.float64]:
    return returns(config, episode_facts(trajectories))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, DIGITS) if isinstance(v, float) else v for k, v in row.items()}


if __name__ == "__main__":
    sys.exit(task_stage(__doc__ or "", build))
