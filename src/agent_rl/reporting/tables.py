"""The files under ``results/`` that every study has, checked and typed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from agent_rl.errors import UserError
from agent_rl.reporting import bench as bench_file
from agent_rl.reporting.csv_files import (
    Schema,
    check_choice,
    check_unique,
    read_csv,
    read_object,
)
from agent_rl.reporting.facts import learning_rates
from agent_rl.reporting.reward_files import RewardFiles, load_reward_files
from agent_rl.reporting.style import ARMS, UNTRAINED, arm_order
from agent_rl.reporting.transcripts import Showcase, Transcripts, load_showcases, load_transcripts

STATUSES = ("ok", "collapsed", "failed")
SPLITS = ("test", "shifted")
DECODINGS = ("greedy", "t1")
UNSEEDED = -1
"""Seed of a policy that was not trained in the study."""

_COST = ("train_env_steps", "train_sampled_tokens", "train_trained_tokens", "expert_labels")
_ENDS = ("end_success", "end_failure", "end_turn_limit", "end_token_limit", "end_error")

RUNS: Schema = {
    "task": "str",
    "method": "str",
    "seed": "int?",
    "split": "str",
    "decoding": "str",
    "episodes": "int?",
    "successes": "int?",
    "success_rate": "float?",
    "mean_turns": "float?",
    "invalid_action_rate": "float?",
    **dict.fromkeys(_ENDS, "int?"),
    **dict.fromkeys(_COST, "int?"),
    "optimizer_steps": "int?",
    "status": "str",
}
RUNS_OPTIONAL: Schema = {
    "reason": "str?",
    "train_context_tokens": "int?",
    "total_tokens": "int?",
}
CURVES: Schema = {
    "task": "str",
    "method": "str",
    "seed": "int",
    "update": "int",
    "env_steps": "float?",
    "tokens": "float?",
    "success_rate": "float?",
    "reward_mean": "float?",
    "reward_std": "float?",
    "dead_group_share": "float?",
    "entropy": "float?",
    "mean_turns": "float?",
}
CURVES_OPTIONAL: Schema = {"val_success_rate": "float?", "ratio_max_deviation": "float?"}
BY_DISTANCE: Schema = {
    "task": "str",
    "method": "str",
    "seed": "int?",
    "split": "str",
    "decoding": "str",
    "distance": "int",
    "episodes": "int",
    "successes": "int",
}
INSTANCES: Schema = {
    "task": "str",
    "split": "str",
    "instances": "int",
    "skipped_duplicate": "int?",
    "skipped_held_out": "int?",
    "skipped_solved": "int?",
    "mean_distance": "float?",
    "overlap": "int?",
}
PROVENANCE = ("config_hash", "profile", "versions", "tasks", "seeds", "budget_tokens", "commands")


@dataclass(frozen=True, eq=False)
class Results:
    """The results files, checked; never changed once they are read."""

    runs: pd.DataFrame
    """One row per task x method x seed x split x decoding; numbers of failed runs are nan."""
    curves: pd.DataFrame
    """One row per task x method x seed x update."""
    by_distance: pd.DataFrame
    """Success by the expert's number of steps at the start."""
    instances: pd.DataFrame
    """Counts of instances and of overlap between splits."""
    provenance: dict[str, Any]
    """What was run, with which versions and commands."""
    optional: dict[str, pd.DataFrame] = field(default_factory=dict)
    """Files that may be absent, as text, by name without suffix."""
    transcripts: Transcripts | None = None
    """Episodes to read; None when the file is absent."""
    showcases: tuple[Showcase, ...] = ()
    """Episodes of runs beside the study, by task."""
    bench: pd.DataFrame | None = None
    """Timings of ``make bench``; None when the file is absent."""
    rewards: RewardFiles = field(default_factory=RewardFiles)
    """What the audit, the scored rollouts and the docstrings say of each reward."""

    @property
    def tasks(self) -> list[str]:
        """Task names in the order of their names."""
        return sorted(self.runs["task"].unique())

    def methods(self, task: str) -> list[str]:
        """Arms with a row for a task, in display order."""
        return arm_order(set(self.runs.loc[self.runs["task"] == task, "method"]))

    def trained(self, task: str) -> list[str]:
        """Arms with training seeds for a task, in display order."""
        return [method for method in self.methods(task) if method not in UNTRAINED]


def _without_failed(curves: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Curves of the runs that came to an end: a curve that breaks off is in no mean."""
    keys = ["task", "method", "seed"]
    failed = set(runs.loc[runs["status"] == "failed", keys].itertuples(index=False, name=None))
    kept = [key not in failed for key in curves[keys].itertuples(index=False, name=None)]
    return curves[kept]


def load_results(results_dir: Path) -> Results:
    """Read and check every results file.

    Raises :class:`~agent_rl.errors.UserError` that names the file, the line, the column and the
    value. ``contrasts.csv`` and the files on rewards may be absent.
    """
    runs = read_csv(results_dir / "runs.csv", RUNS, RUNS_OPTIONAL)
    runs["seed"] = runs["seed"].fillna(UNSEEDED).astype(int)
    _check_runs(runs, results_dir / "runs.csv")
    curves = read_csv(results_dir / "curves.csv", CURVES, CURVES_OPTIONAL)
    by_distance = read_csv(results_dir / "by_distance.csv", BY_DISTANCE)
    by_distance["seed"] = by_distance["seed"].fillna(UNSEEDED).astype(int)
    for name, frame in (("curves.csv", curves), ("by_distance.csv", by_distance)):
        check_choice(frame, "method", tuple(ARMS), results_dir / name)
    check_unique(curves, ["task", "method", "seed", "update"], results_dir / "curves.csv")
    curves = _without_failed(curves, runs)
    keys = ["task", "method", "seed", "split", "decoding", "distance"]
    check_unique(by_distance, keys, results_dir / "by_distance.csv")
    optional = {
        name: read_csv(path, {})
        for name in ("contrasts",)
        if (path := results_dir / f"{name}.csv").exists()
    }
    return Results(
        runs=runs,
        curves=curves.sort_values(["task", "method", "seed", "update"], ignore_index=True),
        by_distance=by_distance,
        instances=read_csv(results_dir / "instances.csv", INSTANCES),
        provenance=_read_provenance(results_dir / "provenance.json"),
        optional=optional,
        transcripts=load_transcripts(results_dir / "transcripts.json"),
        showcases=load_showcases(results_dir / "showcase"),
        bench=bench_file.load_bench(results_dir / bench_file.FILE),
        rewards=load_reward_files(results_dir, sorted(runs["task"].unique())),
    )


def _check_runs(runs: pd.DataFrame, path: Path) -> None:
    check_choice(runs, "method", tuple(ARMS), path)
    check_choice(runs, "split", SPLITS, path)
    check_choice(runs, "decoding", DECODINGS, path)
    check_choice(runs, "status", STATUSES, path)
    check_unique(runs, ["task", "method", "seed", "split", "decoding"], path)
    for row in runs.itertuples():
        where = f"{path}, line {row.Index + 2}"
        if row.status == "failed":
            continue
        if not (row.episodes > 0 and 0 <= row.successes <= row.episodes):
            raise UserError(
                f"{where}: a run with status {row.status} needs 0 <= successes <= episodes, "
                f"got {row.successes} of {row.episodes}"
            )
        if not abs(row.success_rate - row.successes / row.episodes) < 1e-3:
            raise UserError(
                f"{where}: success_rate {row.success_rate} is not successes / episodes = "
                f"{row.successes / row.episodes:.6f}"
            )
        if row.seed == UNSEEDED and row.method not in UNTRAINED:
            raise UserError(f"{where}, column seed: empty, but {row.method} has a training seed")


def _read_provenance(path: Path) -> dict[str, Any]:
    content = read_object(path)
    missing = [key for key in PROVENANCE if key not in content]
    if missing:
        raise UserError(f"{path}: key {', '.join(missing)} is missing; run the publish stage again")
    learning_rates(content, path)  # a wrong one is refused before anything is drawn
    return content
