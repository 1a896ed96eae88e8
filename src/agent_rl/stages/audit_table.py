"""The reward audit in the terminal: can this reward be farmed on this task?

Run it:  python -m agent_rl audit babyai [--reward brisk] [--instances 100] [--set horizon=10]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent_rl.compose import CONFIGS
from agent_rl.errors import UserError
from agent_rl.stages.audit import audit_task
from agent_rl.stages.common import check_rewards, guarded
from agent_rl.stages.task_settings import load_task_study, playable, split_instances

INSTANCES = 100
MOST_INSTANCES = 2000


def table(content: dict[str, list[dict[str, Any]]]) -> str:
    """Mean return of every policy under every reward, and the verdicts below."""
    rewards = [row["reward"] for row in content["verdicts"]]
    policies = list(dict.fromkeys(row["policy"] for row in content["audit"]))
    paid = {(row["policy"], row["reward"]): row["mean_return"] for row in content["audit"]}
    success = {row["policy"]: row["success_rate"] for row in content["audit"]}
    left = max(len(policy) for policy in policies)
    widths = [max(len(reward), 7) for reward in rewards]
    head = "  ".join(f"{reward:>{width}}" for reward, width in zip(rewards, widths, strict=True))
    lines = [f"{'mean return':<{left}}  success  {head}"]
    for policy in policies:
        cells = "  ".join(
            f"{paid[policy, reward]:>{width}.3f}" if (policy, reward) in paid else " " * width
            for reward, width in zip(rewards, widths, strict=True)
        )
        lines.append(f"{policy:<{left}}  {success[policy]:7.3f}  {cells}")
    return "\n".join([*lines, "", *(_sentence(row) for row in content["verdicts"])])


def _sentence(row: dict[str, Any]) -> str:
    best = f"{row['best_exploit']} earns {row['best_exploit_return']:.3f}"
    against = f"the oracle {row['oracle_return']:.3f}"
    failures = f"failures are paid {row['paid_failures']:.0%} of the way to the oracle"
    return f"{row['reward']}: {row['verdict']} ({best}, {against}; {failures})"


def show(options: argparse.Namespace) -> None:
    """Play and print. Raises: UserError for an unknown task, reward or setting."""
    if not 2 <= options.instances <= MOST_INSTANCES:
        raise UserError(f"--instances {options.instances}: must lie between 2 and {MOST_INSTANCES}")
    wanted = list(dict.fromkeys(options.reward or []))
    present = sorted(path.stem for path in (CONFIGS / "reward").glob("*.yaml"))
    for name in wanted:
        if name not in present:
            raise UserError(
                f"--reward {name}: there is no {CONFIGS}/reward/{name}.yaml; "
                f"choose among {', '.join(present)}"
            )
    studied = load_task_study(options.task, options.set).rewards
    added = [f"+reward@rewards.{name}={name}" for name in wanted if name not in studied]
    study = load_task_study(options.task, options.set, added)
    if wanted:
        study = replace(study, rewards={name: study.rewards[name] for name in wanted})
    check_rewards(study)
    task = study.task(options.task)
    playable(options.task, task)
    instances = split_instances(options.task, task, "train", options.instances)
    print(table(audit_task(study, options.task, instances)))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m agent_rl audit",
        description="Scripted policies under every reward: what is paid that should not be.",
    )
    parser.add_argument("task", help="a file of configs/task/, e.g. babyai")
    parser.add_argument(
        "--reward",
        action="append",
        metavar="NAME",
        help="a file of configs/reward/ (repeatable; default: those of the study)",
    )
    parser.add_argument(
        "--instances", type=int, default=INSTANCES, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting of the task, e.g. horizon=10 (repeatable)",
    )
    options = parser.parse_args(argv)
    return guarded(lambda: show(options))


if __name__ == "__main__":
    sys.exit(main())
