"""Equal-budget search of each arm's learning rate, on validation instances and tuning seeds.

On every task each arm gets the same number of trials (values x seeds of ``configs/tune.yaml``) with
the study's full token budget; the objective is the mean greedy success on the validation split at
the end of training. Test instances and study seeds are never touched. The table is
``results/tuning.csv``, the winners are ``configs/tuned/<task>.yaml``.

Run it:  python -m agent_rl.stages.tune [--task NAME ...] [--arm NAME ...]
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from agent_rl.compose import CONFIGS, compose_config
from agent_rl.config import StudyConfig, load_params
from agent_rl.errors import UserError
from agent_rl.files import read_json, write_text
from agent_rl.parallel import run_parallel
from agent_rl.stages.common import ARTIFACTS, RESULTS, Artifacts, guarded
from agent_rl.stages.train import train_seed
from agent_rl.training.ledger import CURVE, RUN

WORK = Path(".work") / "tune"
OUTPUT = RESULTS / "tuning.csv"
TUNED = CONFIGS / "tuned"
HEADER = (
    "# Written by make tune: the learning rates that won on validation, see results/tuning.csv.\n"
)


class Trial(NamedTuple):
    """One run of the search."""

    task: str
    arm: str
    learning_rate: float
    seed: int


def run_trial(trial: Trial, *, study: StudyConfig) -> dict[str, Any]:
    """Train one trial; a trial whose folder is complete is not run again."""
    rates = {**study.learning_rates.get(trial.task, {}), trial.arm: trial.learning_rate}
    changed = dataclasses.replace(study, learning_rates={trial.task: rates})
    from agent_rl.training.arms import run_digest

    # The base is part of what a trial was; its code is not: delete .work after changing that.
    base = read_json(Artifacts(ARTIFACTS / trial.task).base / "card.json", "dvc repro warmstart")
    work = WORK / f"{base['weights']}-{run_digest(changed, trial.task, trial.arm, trial.seed)}"
    done = work / RUN
    if not done.exists():
        train_seed(
            trial.seed,
            study=changed,
            task_name=trial.task,
            artifacts=Artifacts(ARTIFACTS / trial.task),
            arm=trial.arm,
            folder=work,
        )
    curve = read_json(work / CURVE, "make tune")
    validated = [row["val_success_rate"] for row in curve if row["val_success_rate"] is not None]
    record = read_json(done, "make tune")
    return {
        **trial._asdict(),
        "val_success_rate": validated[-1] if record["status"] == "ok" else 0.0,
        "status": record["status"],
    }


def planned(
    study: StudyConfig, grid: dict[str, Any], tasks: Sequence[str], arms: Sequence[str]
) -> list[Trial]:
    """All trials of some tasks and arms.

    Raises: UserError when tuning seeds are study seeds or arms would get unequal budgets.
    """
    seeds = [int(seed) for seed in grid["seeds"]]
    if set(seeds) & set(study.seeds):
        raise UserError(f"configs/tune.yaml: seeds {seeds} overlap with the study's {study.seeds}")
    for task in tasks:
        rates = grid["learning_rate"].get(task, {})
        counts = {arm: len(rates.get(arm, [])) for arm in study.arms}
        if len(set(counts.values())) != 1 or not min(counts.values()):
            raise UserError(
                f"configs/tune.yaml: on {task} arms must get equally many learning rates, at least "
                f"one, got {counts}"
            )
    return [
        Trial(task, arm, float(rate), seed)
        for task in tasks
        for arm in arms
        for rate in grid["learning_rate"][task][arm]
        for seed in seeds
    ]


def winners(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Task -> arm -> learning rate of the best mean; of equals the smallest."""
    means = table.groupby(["task", "arm", "learning_rate"])["val_success_rate"].mean()
    best = means.groupby(["task", "arm"]).idxmax()
    found: dict[str, dict[str, float]] = {}
    for task, arm, rate in best:
        found.setdefault(task, {})[arm] = float(rate)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", nargs="*", help="only these tasks (default: all)")
    parser.add_argument("--arm", nargs="*", help="only these arms (default: all)")
    options = parser.parse_args(argv)

    def run() -> None:
        study = load_params()
        tasks, arms = options.task or list(study.tasks), options.arm or list(study.arms)
        for task in tasks:
            study.task(task)
        for arm in arms:
            study.arm(arm)
        trials = planned(study, compose_config("tune"), tasks, arms)
        rows = run_parallel(
            partial(run_trial, study=study),
            trials,
            workers=study.workers,
            title="tune",
            preload=["agent_rl.training.arms"],
        )
        table = pd.DataFrame(rows)
        if OUTPUT.exists():
            kept = pd.read_csv(OUTPUT)
            redone = kept["task"].isin(tasks) & kept["arm"].isin(arms)
            table = pd.concat([kept[~redone], table])
        table = table.sort_values(["task", "arm", "learning_rate", "seed"])
        write_text(OUTPUT, table.round(6).to_csv(index=False, lineterminator="\n"))
        for task, rates in winners(table).items():
            lines = [HEADER, *(f"{arm}: {rate:g}\n" for arm, rate in sorted(rates.items()))]
            write_text(TUNED / f"{task}.yaml", "".join(lines))
        means = table.groupby(["task", "arm", "learning_rate"])["val_success_rate"].mean()
        print(means.unstack().round(3).to_string())
        print(f"table: {OUTPUT}; winners: {TUNED}/; next: make params")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
