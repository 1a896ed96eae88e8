"""Equal-budget search of each arm's learning rate, on validation instances and tuning seeds.

Every arm gets the same number of trials (values x seeds of ``configs/tune.yaml``) with the study's
full token budget; the objective is the mean greedy success on the validation split at the end of
training. Test instances and study seeds are never touched. The table is ``results/tuning.csv``;
the winners are written into ``configs/method`` and ``configs/arm`` by hand.

Run it:  python -m agent_rl.stages.tune [--arm NAME ...]
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

from agent_rl.compose import compose_config
from agent_rl.config import StudyConfig, load_params
from agent_rl.errors import UserError
from agent_rl.files import read_json, write_text
from agent_rl.parallel import run_parallel
from agent_rl.stages.common import ARTIFACTS, RESULTS, Artifacts, guarded
from agent_rl.stages.train import train_seed
from agent_rl.training.ledger import CURVE, RUN

WORK = Path(".work") / "tune"
OUTPUT = RESULTS / "tuning.csv"


class Trial(NamedTuple):
    """One run of the search."""

    task: str
    arm: str
    learning_rate: float
    seed: int


def run_trial(trial: Trial, *, study: StudyConfig) -> dict[str, Any]:
    """Train one trial; a trial whose folder is complete is not run again."""
    arm = dataclasses.replace(study.arm(trial.arm), learning_rate=trial.learning_rate)
    changed = dataclasses.replace(study, arms={**study.arms, trial.arm: arm})
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


def search(study: StudyConfig, grid: dict[str, Any], arms: Sequence[str]) -> pd.DataFrame:
    """Run all trials of the given arms."""
    seeds = [int(seed) for seed in grid["seeds"]]
    if set(seeds) & set(study.seeds):
        raise UserError(f"configs/tune.yaml: seeds {seeds} overlap with the study's {study.seeds}")
    counts = {arm: len(grid["learning_rate"].get(arm, [])) for arm in study.arms}
    if len(set(counts.values())) != 1:
        raise UserError(f"configs/tune.yaml: arms must get equally many trials, got {counts}")
    trials = [
        Trial(task, arm, float(rate), seed)
        for task in study.tasks
        for arm in arms
        for rate in grid["learning_rate"][arm]
        for seed in seeds
    ]
    rows = run_parallel(
        partial(run_trial, study=study), trials, workers=study.workers, title="tune"
    )
    return pd.DataFrame(rows)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arm", nargs="*", help="only these arms (default: all)")
    options = parser.parse_args(argv)

    def run() -> None:
        study = load_params()
        arms = options.arm or list(study.arms)
        for arm in arms:
            study.arm(arm)
        table = search(study, compose_config("tune"), arms)
        if OUTPUT.exists():
            kept = pd.read_csv(OUTPUT)
            table = pd.concat([kept[~kept["arm"].isin(arms)], table])
        table = table.sort_values(["task", "arm", "learning_rate", "seed"])
        write_text(OUTPUT, table.round(6).to_csv(index=False, lineterminator="\n"))
        means = table.groupby(["task", "arm", "learning_rate"])["val_success_rate"].mean()
        print(means.unstack().round(3).to_string())
        print(f"table: {OUTPUT}")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
