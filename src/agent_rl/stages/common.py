"""What every stage shares: where files lie, the command line, how errors are told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from agent_rl.config import PARAMS, GRPOArmConfig, StudyConfig, TaskConfig, load_params
from agent_rl.errors import INTERRUPTED, UserError, out_of_memory
from agent_rl.files import digest, read_parquet, write_parquet
from agent_rl.rewards.scoring import check_reward
from agent_rl.rollouts.engine import Episode
from agent_rl.seeding import Stream, sequence
from agent_rl.tasks.instances import Instance
from agent_rl.tasks.registry import make_env

ARTIFACTS = Path("artifacts")
RESULTS = Path("results")
REPORTS = Path("reports")


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Paths of one task's intermediate files."""

    root: Path
    """Folder of the task, e.g. ``artifacts/babyai``."""

    @property
    def instances(self) -> Path:
        return self.root / "instances" / "instances.parquet"

    @property
    def skipped(self) -> Path:
        return self.root / "instances" / "skipped.json"

    @property
    def mixed(self) -> Path:
        return self.root / "demos" / "mixed.parquet"

    @property
    def expert(self) -> Path:
        return self.root / "demos" / "expert.parquet"

    @property
    def base(self) -> Path:
        return self.root / "base"

    @property
    def collected(self) -> Path:
        return self.root / "collect" / "rollouts.parquet"

    @property
    def probe(self) -> Path:
        return self.root / "collect" / "probe.parquet"

    @property
    def collect_card(self) -> Path:
        return self.root / "collect" / "card.json"

    @property
    def rewards(self) -> Path:
        return self.root / "reward" / "rewards.parquet"

    @property
    def reward_summary(self) -> Path:
        return self.root / "reward" / "summary.json"

    @property
    def audit(self) -> Path:
        return self.root / "audit" / "audit.json"

    def arm(self, arm: str) -> Path:
        return self.root / "train" / arm

    def unfinished(self, arm: str) -> Path:
        """Where runs under way keep checkpoints: no output of a stage, since DVC empties those."""
        return self.root.parent.parent / ".work" / "unfinished" / f"{self.root.name}-{arm}"

    @property
    def episodes(self) -> Path:
        return self.root / "evaluate" / "episodes.parquet"

    @property
    def samples(self) -> Path:
        return self.root / "evaluate" / "trajectories.parquet"


INSTANCE_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("instance_id", pa.int64()),
        ("hash", pa.string()),
        ("distance", pa.int64()),
        ("goal_key", pa.string()),
    ]
)


def save_instances(path: Path, instances: Sequence[Instance]) -> None:
    """Write the instance list."""
    rows = [{name: getattr(i, name) for name in INSTANCE_SCHEMA.names} for i in instances]
    write_parquet(path, pa.Table.from_pylist(rows, schema=INSTANCE_SCHEMA))


def load_instances(path: Path) -> list[Instance]:
    """Read the instance list. Raises: UserError when missing or damaged."""
    table = read_parquet(path, INSTANCE_SCHEMA, "dvc repro instances")
    return [Instance(**row) for row in table.to_pylist()]


def episodes_of(
    study: StudyConfig,
    instances: Sequence[Instance],
    seed: int,
    stream: Stream,
    *index: int,
    members: int = 1,
) -> list[Episode]:
    """``members`` episodes of each instance, each with a stream of its own."""
    return [
        Episode(
            instance.instance_id,
            instance.hash,
            group_id=position,
            member=member,
            seed=np.random.SeedSequence(
                study.seed,
                spawn_key=(*sequence(study.seed, seed, stream, *index).spawn_key, position, member),
            ),
        )
        for position, instance in enumerate(instances)
        for member in range(members)
    ]


def shared_digest(study: StudyConfig, task: str) -> str:
    """Digest of the settings that decide instances, demonstrations, base and collected groups."""
    parts = [
        asdict(study.task(task)),
        asdict(study.model),
        asdict(study.warmstart),
        asdict(study.collect),
    ]
    return digest([study.seed, study.train.max_grad_norm, *parts])


def check_rewards(study: StudyConfig) -> None:
    """Find every reward and criterion that is named, so that a typing error stops a study before
    it starts. Raises: UserError."""
    named = {f"rewards.{name}": config for name, config in study.rewards.items()}
    for name, arm in study.arms.items():
        if isinstance(arm, GRPOArmConfig):
            named[f"arms.{name}.reward"] = arm.reward
    for key, config in named.items():
        try:
            check_reward(config)
        except UserError as error:
            raise UserError(f"{key}: {error}") from error


def check_task(name: str, task: TaskConfig) -> None:
    """Make the task once, so that an unknown level or setting stops a run before it starts."""
    try:
        for split in ("test", "shifted"):
            make_env(task.family, task.on(split).settings, task.horizon)
    except UserError as error:
        raise UserError(f"tasks.{name}: {error}") from error


def guarded(main: Callable[[], None]) -> int:
    """Run ``main``; bad input becomes one line on stderr and exit code 2."""
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:200]
        print(f"error: out of memory ({reason}); free memory and run again", file=sys.stderr)
        return 2
    return 0


def task_stage(
    description: str,
    build: Callable[[StudyConfig, str, Artifacts], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Command line of a stage that works on one task."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--task", required=True, help="a task of params.yaml, e.g. babyai")
    parser.add_argument(
        "--params", type=Path, default=PARAMS, help="settings (default: %(default)s)"
    )
    parser.add_argument("--artifacts", type=Path, default=ARTIFACTS, help="default: %(default)s")
    options = parser.parse_args(argv)

    def main() -> None:
        study = load_params(options.params)
        check_task(options.task, study.task(options.task))
        check_rewards(study)
        build(study, options.task, Artifacts(options.artifacts / options.task))

    return guarded(main)
