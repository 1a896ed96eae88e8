"""One run from the command line: the same functions as the DVC stages, outside the pipeline.

Run it:  python -m agent_rl run task=babyai method=grpo reward=shaped credit=turn seed=3
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from agent_rl.config import StudyConfig, study_from
from agent_rl.errors import UserError
from agent_rl.evaluation.episodes import EPISODE_SCHEMA
from agent_rl.files import read_json, write_parquet
from agent_rl.stages.common import (
    ARTIFACTS,
    Artifacts,
    check_task,
    guarded,
    shared_digest,
)
from agent_rl.stages.params import compose_study

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
    for stage, output in (
        (instances, made.instances),
        (demos, made.mixed),
        (warmstart, made.base / "card.json"),
        (collect, made.collected),
        (reward, made.reward_summary),
    ):
        if not output.exists():
            stage.build(study, task, made)
    return made


def _number(key: str, value: str | None) -> int:
    try:
        return int(str(value))
    except ValueError as error:
        raise UserError(f"{key}={value}: expected a whole number") from error


def execute(arguments: Sequence[str]) -> None:
    """Make the run and say where everything is."""
    chosen, overrides = parse(arguments)
    study = settings(chosen, overrides)
    task, seed = str(chosen["task"]), study.seeds[0]
    check_task(task, study.task(task))
    trained = with_horizon(study, task, chosen["horizon"])

    from tqdm import tqdm

    from agent_rl.parallel import prepare_process
    from agent_rl.stages.evaluate import Contender, evaluate
    from agent_rl.stages.train import arm_inputs
    from agent_rl.training.arms import run_digest, train_arm
    from agent_rl.training.ledger import CURVE, RUN

    prepare_process()
    shared = shared_artifacts(study, task)
    name = "-".join(
        [task, str(chosen["method"]), f"seed{seed}", run_digest(trained, task, ARM, seed)]
    )
    folder = WORK / "runs" / name
    with tqdm(total=100, desc=f"train {name}", unit="%") as bar:
        train_arm(
            arm_inputs(trained, task, shared),
            ARM,
            seed,
            folder / "policy",
            lambda share: bar.update(100 * share),
        )
    record = read_json(folder / "policy" / RUN, "python -m agent_rl run")
    print(f"curve:      {folder / 'policy' / CURVE}")
    if record["status"] != "ok":
        raise UserError(f"the run failed: {record['reason']}")
    rows, _ = evaluate(
        Contender(ARM, seed, folder / "policy"), study=trained, task_name=task, artifacts=shared
    )
    write_parquet(folder / "episodes.parquet", pa.Table.from_pylist(rows, schema=EPISODE_SCHEMA))
    print(f"checkpoint: {folder / 'policy'}")
    print(f"evaluation: {folder / 'episodes.parquet'}")
    for split in ("test", "shifted"):
        for decoding in trained.evaluation.decodings:
            part = [r for r in rows if r["split"] == split and r["decoding"] == decoding]
            won = sum(r["end"] == "success" for r in part)
            print(f"  {split:8s} {decoding:6s} success {won / len(part):.3f}  (n = {len(part)})")


def main(arguments: Sequence[str]) -> int:
    """Exit code of one run."""
    return guarded(lambda: execute(arguments))
