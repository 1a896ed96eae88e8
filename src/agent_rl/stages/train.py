"""Stage ``train``: one arm, all seeds in parallel.

Run it alone:  python -m agent_rl.stages.train --task babyai --arm grpo_shaped
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent_rl.config import PARAMS, StudyConfig, load_params
from agent_rl.files import alone, read_parquet
from agent_rl.parallel import run_parallel, tick
from agent_rl.rollouts.storage import SCHEMA, load_trajectories
from agent_rl.stages.common import ARTIFACTS, Artifacts, check_task, guarded, load_instances
from agent_rl.trajectory import Trajectory, TrajectoryGroup, group_trajectories

if TYPE_CHECKING:
    from agent_rl.training.arms import ArmInputs


@lru_cache(maxsize=2)
def _expert(path: Path) -> Sequence[Trajectory]:
    return load_trajectories(path, "dvc repro demos")


@lru_cache(maxsize=2)
def _groups(path: Path) -> Sequence[TrajectoryGroup]:
    return group_trajectories(load_trajectories(path, "dvc repro collect"))


def arm_inputs(study: StudyConfig, task_name: str, artifacts: Artifacts) -> ArmInputs:
    """What arms may learn from; trajectories are read when first asked for."""
    # Imported here, in the workers: the parent only waits and needs neither torch nor TRL.
    from agent_rl.training.arms import ArmInputs

    return ArmInputs(
        study=study,
        task_name=task_name,
        instances=load_instances(artifacts.instances),
        base=artifacts.base,
        expert=partial(_expert, artifacts.expert),
        groups=partial(_groups, artifacts.collected),
    )


def train_seed(
    seed: int,
    *,
    study: StudyConfig,
    task_name: str,
    artifacts: Artifacts,
    arm: str,
    folder: Path | None = None,
) -> None:
    """One run in this process; ``folder`` defaults to the seed's folder of the pipeline."""
    from agent_rl.training.arms import train_arm

    inputs = arm_inputs(study, task_name, artifacts)
    folder = folder or artifacts.arm(arm) / f"seed-{seed}"
    train_arm(inputs, arm, seed, folder, tick, artifacts.unfinished(arm))


def build(study: StudyConfig, task_name: str, artifacts: Artifacts, arm: str) -> None:
    """Train every seed of an arm; a stage that was killed goes on where it was."""
    # A damaged input is found here, in one line, and not in every worker.
    load_instances(artifacts.instances)
    read_parquet(artifacts.collected, SCHEMA, "dvc repro collect")
    unfinished = artifacts.unfinished(arm)
    with alone(unfinished):
        run_parallel(
            partial(train_seed, study=study, task_name=task_name, artifacts=artifacts, arm=arm),
            study.seeds,
            workers=study.workers,
            title=f"train {task_name} {arm}",
            preload=["agent_rl.training.arms"],
        )
        shutil.rmtree(unfinished, ignore_errors=True)
    print(f"trained policies and curves: {artifacts.arm(arm)}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True, help="a task of params.yaml, e.g. babyai")
    parser.add_argument("--arm", required=True, help="an arm of params.yaml, e.g. grpo_shaped")
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--artifacts", type=Path, default=ARTIFACTS)
    options = parser.parse_args(argv)

    def run() -> None:
        study = load_params(options.params)
        check_task(options.task, study.task(options.task))
        study.arm(options.arm)
        build(study, options.task, Artifacts(options.artifacts / options.task), options.arm)

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
