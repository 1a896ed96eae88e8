"""One run from the command line: the same functions as the DVC stages, outside the pipeline.

Run it:  python -m agent_rl run task=babyai method=grpo reward=shaped credit=turn seed=3
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from agent_rl.config import StudyConfig, study_from
from agent_rl.errors import UserError
from agent_rl.evaluation.episodes import EPISODE_SCHEMA
from agent_rl.files import alone, read_json, write_parquet
from agent_rl.stages.common import (
    ARTIFACTS,
    Artifacts,
    check_rewards,
    check_task,
    guarded,
    shared_digest,
)
from agent_rl.stages.params import compose_study
from agent_rl.trajectory import EndReason, Trajectory

WORK = Path(".work")
ARM = "run"
"""Name of the single arm in the composed settings."""

SHORTCUTS = {
    "task": "babyai",
    "method": "grpo",
    "reward": "sparse",
    "credit": "trajectory",
    "group_size": None,
    "horizon": None,
    "seed": "0",
    "profile": "default",
}


def parse(arguments: Sequence[str]) -> tuple[dict[str, str | None], list[str]]:
    """Split ``key=value`` words into shortcuts and Hydra overrides.

    ``reward.scale=1`` and the like are settings of the run's own arm.

    Raises: UserError for a word that is not ``key=value``.
    """
    chosen: dict[str, str | None] = dict(SHORTCUTS)
    overrides = []
    for word in arguments:
        key, separator, value = word.partition("=")
        if not separator:
            raise UserError(f"{word!r} is not key=value; try `python -m agent_rl --help`")
        if key in SHORTCUTS:
            chosen[key] = value
        elif key.split(".")[0] in ("reward", "credit"):
            overrides.append(f"arms.{ARM}.{word}")
        else:
            overrides.append(word)
    return chosen, overrides


def settings(chosen: dict[str, str | None], overrides: Sequence[str]) -> StudyConfig:
    """Compose the study with one extra arm, the run's."""
    method = chosen["method"]
    words = [f"profile={chosen['profile']}", f"+method@arms.{ARM}={method}"]
    if method == "grpo":
        words += [
            f"+reward@arms.{ARM}.reward={chosen['reward']}",
            f"+credit@arms.{ARM}.credit={chosen['credit']}",
        ]
        if chosen["group_size"] is not None:
            words.append(f"++arms.{ARM}.group_size={chosen['group_size']}")
    elif chosen["group_size"] is not None:
        raise UserError(f"group_size={chosen['group_size']}: method {method!r} plays no groups")
    content = compose_study([f"tasks={chosen['task']}", *words, *overrides])
    if chosen["profile"] == "smoke" and method == "grpo":
        # The smoke profile shrinks the study's own arms; the run's arm follows them.
        own = content["arms"]["grpo_sparse"]
        content["arms"][ARM]["episodes_per_update"] = own["episodes_per_update"]
        if chosen["group_size"] is None:
            content["arms"][ARM]["group_size"] = own["group_size"]
    if not any(word.lstrip("+").startswith(f"arms.{ARM}.learning_rate=") for word in overrides):
        # What was tuned for the study's arm of this kind is a better guess than one rate for all.
        rates = content["learning_rates"][str(chosen["task"])]
        kin = str(method) if method != "grpo" else f"grpo_{chosen['reward']}"
        content["arms"][ARM]["learning_rate"] = rates.get(kin, rates[ARM])
        if method == "grpo" and not any(".sft_learning_rate=" in word for word in overrides):
            content["arms"][ARM]["sft_learning_rate"] = rates.get(
                "sft", content["arms"][ARM]["sft_learning_rate"]
            )
    content["arms"] = {ARM: content["arms"][ARM]}
    content["learning_rates"] = {}
    content["seeds"] = [_number("seed", chosen["seed"])]
    return study_from(content, "run")


def with_horizon(study: StudyConfig, task: str, horizon: str | None) -> StudyConfig:
    """The study with another horizon for training and evaluation; the base keeps its own."""
    if horizon is None:
        return study
    changed = dataclasses.replace(study.task(task), horizon=_number("horizon", horizon))
    check_task(task, changed)
    return dataclasses.replace(study, tasks={**study.tasks, task: changed})


def shared_artifacts(study: StudyConfig, task: str) -> Artifacts:
    """Instances, demonstrations, base and collected groups: those of ``dvc repro`` where they were
    made with the same settings, otherwise a copy of their own, made once."""
    from agent_rl.stages import collect, demos, instances, reward, warmstart

    wanted = shared_digest(study, task)
    own = Artifacts(ARTIFACTS / task)
    if own.collect_card.exists():
        made_with = read_json(own.collect_card, "dvc repro collect")["settings"]
        if made_with == wanted:
            return own
    made = Artifacts(WORK / "base" / wanted / task)
    with alone(WORK / "base" / wanted):
        for stage, last in (  # the file that the stage writes last: before it, nothing is complete
            (instances, made.skipped),
            (demos, made.mixed),
            (warmstart, made.base / "card.json"),
            (collect, made.collect_card),
            (reward, made.reward_summary),
        ):
            if not last.exists():
                stage.build(study, task, made)
    return made


def _number(key: str, value: str | None) -> int:
    try:
        return int(str(value))
    except ValueError as error:
        raise UserError(f"{key}={value}: expected a whole number") from error


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, composed and checked."""

    study: StudyConfig
    """Settings with the single arm :data:`ARM`; the base is made with these."""
    trained: StudyConfig
    """The same with the horizon of training and evaluation."""
    task: str
    method: str
    seed: int

    @property
    def digest(self) -> str:
        """Of everything that decides the run."""
        from agent_rl.training.arms import run_digest

        return run_digest(self.trained, self.task, ARM, self.seed)

    @property
    def folder(self) -> Path:
        """Where the run is kept; equal settings, equal folder."""
        return WORK / "runs" / f"{self.task}-{self.method}-seed{self.seed}-{self.digest}"


class Finished(NamedTuple):
    """What a run gave."""

    record: dict[str, Any]
    """Content of ``run.json``."""
    rows: list[dict[str, Any]]
    """One per evaluation episode, of all splits and decodings."""
    kept: list[Trajectory]
    """Evaluation episodes to read."""


def plan(arguments: Sequence[str]) -> Plan:
    """Compose a run from ``key=value`` words. Raises: UserError for a word or value that is bad."""
    chosen, overrides = parse(arguments)
    study = settings(chosen, overrides)
    task = str(chosen["task"])
    check_task(task, study.task(task))
    check_rewards(study)
    trained = with_horizon(study, task, chosen["horizon"])
    return Plan(study, trained, task, str(chosen["method"]), study.seeds[0])


def make_run(planned: Plan, shared: Artifacts) -> Finished:
    """Train and evaluate, and say where everything is. Raises: UserError when the run failed."""
    from tqdm import tqdm

    from agent_rl.stages.evaluate import Contender, evaluate
    from agent_rl.stages.train import arm_inputs
    from agent_rl.training.arms import train_arm
    from agent_rl.training.ledger import CURVE, RUN

    folder, trained, task = planned.folder, planned.trained, planned.task
    with alone(folder):
        with tqdm(total=100, desc=f"train {folder.name}", unit="%") as bar:
            train_arm(
                arm_inputs(trained, task, shared),
                ARM,
                planned.seed,
                folder / "policy",
                lambda share: bar.update(100 * share),
            )
        record = read_json(folder / "policy" / RUN, "python -m agent_rl run")
        print(f"curve:      {folder / 'policy' / CURVE}")
        if record["status"] != "ok":
            raise UserError(f"the run failed: {record['reason']}")
        contender = Contender(ARM, planned.seed, folder / "policy")
        rows, kept = evaluate(contender, study=trained, task_name=task, artifacts=shared)
        write_parquet(
            folder / "episodes.parquet", pa.Table.from_pylist(rows, schema=EPISODE_SCHEMA)
        )
        print(f"checkpoint: {folder / 'policy'}")
        print(f"evaluation: {folder / 'episodes.parquet'}")
        return Finished(record, rows, kept)


def success_rate(rows: Sequence[dict[str, Any]], split: str, decoding: str) -> tuple[float, int]:
    """Share of the episodes of one split and decoding that succeeded, and their number."""
    ends = [r["end"] for r in rows if r["split"] == split and r["decoding"] == decoding]
    return ends.count(EndReason.SUCCESS) / len(ends), len(ends)


def execute(arguments: Sequence[str]) -> None:
    """Make the run and say how well it does."""
    planned = plan(arguments)

    from agent_rl.parallel import prepare_process

    prepare_process()
    rows = make_run(planned, shared_artifacts(planned.study, planned.task)).rows
    for split in ("test", "shifted"):
        for decoding in planned.trained.evaluation.decodings:
            rate, n = success_rate(rows, split, decoding)
            print(f"  {split:8s} {decoding:6s} success {rate:.3f}  (n = {n})")


def main(arguments: Sequence[str]) -> int:
    """Exit code of one run."""
    return guarded(lambda: execute(arguments))
