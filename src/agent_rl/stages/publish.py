"""Stage ``publish``: the only writer of the git-tracked ``results/``.

Small, sorted, rounded; no clock, no host, no path. Everything here is computed from the artifacts
of the other stages.

Run it alone:  python -m agent_rl.stages.publish
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from agent_rl.config import PARAMS, StudyConfig, load_params
from agent_rl.evaluation.episodes import EPISODE_SCHEMA
from agent_rl.evaluation.transcripts import select, transcripts
from agent_rl.files import digest, read_json, read_parquet, together, write_json, write_text
from agent_rl.rewards.cards import card
from agent_rl.rollouts.storage import load_trajectories
from agent_rl.stages.common import ARTIFACTS, RESULTS, Artifacts, guarded, load_instances
from agent_rl.training.ledger import CURVE, RUN
from agent_rl.trajectory import EndReason

ENDS = tuple(end.value for end in EndReason)
SPLITS = ("test", "shifted")
LEDGER = {
    "train_env_steps": "env_steps",
    "train_sampled_tokens": "sampled_tokens",
    "train_trained_tokens": "trained_tokens",
    "train_context_tokens": "context_tokens",
    "total_tokens": "total_tokens",
    "expert_labels": "expert_labels",
    "optimizer_steps": "optimizer_steps",
}
"""Column of ``runs.csv`` -> entry of the cost ledger."""

RUN_COLUMNS = (
    "task",
    "method",
    "seed",
    "split",
    "decoding",
    "episodes",
    "successes",
    "success_rate",
    "mean_turns",
    "invalid_action_rate",
    *(f"end_{end}" for end in ENDS),
    "train_env_steps",
    "train_sampled_tokens",
    "train_trained_tokens",
    "expert_labels",
    "optimizer_steps",
    "status",
    "train_context_tokens",
    "total_tokens",
    "reason",
)

REWARD_FILES: dict[str, tuple[str, ...]] = {
    "reward_audit": (
        "task",
        "reward",
        "policy",
        "mean_return",
        "success_rate",
        "episodes",
        "mean_return_failed",
        "max_return",
        "beats_oracle_share",
    ),
    "reward_verdicts": (
        "task",
        "reward",
        "oracle_return",
        "floor_return",
        "best_exploit",
        "best_exploit_return",
        "paid_failures",
        "declared_maximum",
        "highest_return",
        "farmable",
        "verdict",
    ),
    "tabular_check": ("maze", "reward", "setting", "states", "differing_states", "example"),
    "judge": (
        "task",
        "reward",
        "groups",
        "invalid_groups",
        "requests",
        "retries",
        "pair_agreement",
        "pairs",
        "order_effect",
        "order_disagreement",
    ),
    "reward_stats": (
        "task",
        "reward",
        "episodes",
        "mean",
        "std_in_group",
        "variance_in_group",
        "correlation_with_success",
    ),
    "rubric_criteria": (
        "task",
        "reward",
        "criterion",
        "weight",
        "rate",
        "correlation_with_success",
    ),
    "dead_groups": (
        "task",
        "reward",
        "credit",
        "group_size",
        "instances",
        "groups",
        "measured",
        "measured_low",
        "measured_high",
        "predicted",
        "predicted_low",
        "predicted_high",
    ),
}
"""Tables on rewards and their columns."""

OPTIONAL = ("judge",)
"""Tables that are only there when there is something to tell."""

PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "hydra-core",
    "optuna",
    "dvc",
    "seaborn",
    "numpy",
    "pandas",
    "scipy",
    "minigrid",
    "gymnasium",
)

UNTRAINED = ("random", "oracle", "base")


def publish(study: StudyConfig, artifacts_root: Path, results: Path) -> None:
    """Aggregate every task's artifacts into ``results``."""
    runs: list[pd.DataFrame] = []
    curves: list[dict[str, Any]] = []
    by_distance: list[pd.DataFrame] = []
    instances: list[dict[str, Any]] = []
    tasks: dict[str, Any] = {}
    shown = {}
    earned: list[dict[str, Any]] = []
    for name in study.tasks:
        artifacts = Artifacts(artifacts_root / name)
        table = read_parquet(artifacts.episodes, EPISODE_SCHEMA, "dvc repro evaluate")
        episodes = table.to_pandas()
        episodes["seed"] = episodes["seed"].astype("Int64")
        bills = _bills(study, name, artifacts)
        frame = _run_rows(study, name, episodes, bills)
        runs.append(frame)
        curves += _curve_rows(study, name, artifacts)
        by_distance.append(_distance_rows(name, episodes))
        instances += _instance_rows(study, name, artifacts)
        tasks[name] = _task_facts(study, name, frame, artifacts)
        earned.append(_reward_facts(name, artifacts))
        samples = load_trajectories(artifacts.samples, "dvc repro evaluate")
        shown[name] = select(samples, load_instances(artifacts.instances), list(study.arms))
    absent = []
    with together(results) as staged:
        _write(staged / "runs.csv", pd.concat(runs)[list(RUN_COLUMNS)])
        _write(staged / "curves.csv", pd.DataFrame(curves))
        _write(staged / "by_distance.csv", pd.concat(by_distance))
        _write(staged / "instances.csv", pd.DataFrame(instances))
        for file, columns in REWARD_FILES.items():
            rows = [row for facts in earned for row in facts.get(file, [])]
            if rows or file not in OPTIONAL:
                # The mazes are no task's own: every task brings the same rows.
                frame = pd.DataFrame(rows, columns=list(columns)).drop_duplicates()
                _write(staged / f"{file}.csv", frame)
            else:
                absent.append(file)
        write_json(staged / "reward_cards.json", _cards(study))
        write_json(staged / "provenance.json", _provenance(study, tasks))
        write_json(staged / "transcripts.json", transcripts(study, shown))
    for file in absent:
        (results / f"{file}.csv").unlink(missing_ok=True)


def _bills(study: StudyConfig, task: str, artifacts: Artifacts) -> dict[tuple[str, int], Any]:
    return {
        (arm, seed): read_json(
            artifacts.arm(arm) / f"seed-{seed}" / RUN, f"dvc repro train@{task}-{arm}"
        )
        for arm in study.arms
        for seed in study.seeds
    }


def _run_rows(
    study: StudyConfig, task: str, episodes: pd.DataFrame, bills: dict[tuple[str, int], Any]
) -> pd.DataFrame:
    """One row per method x seed x split x decoding; failed runs have rows without numbers."""
    keys = ["method", "seed", "split", "decoding"]
    grouped = episodes.groupby(keys, dropna=False, sort=False)
    rows = []
    for key, part in grouped:
        row: dict[str, Any] = dict(zip(keys, key, strict=True))
        ends = part["end"].value_counts()
        row |= {f"end_{end}": int(ends.get(end, 0)) for end in ENDS}
        row |= {
            "episodes": len(part),
            "successes": row["end_success"],
            "success_rate": row["end_success"] / len(part),
            "mean_turns": part["turns"].mean(),
            "invalid_action_rate": part["invalid_actions"].sum() / max(1, part["turns"].sum()),
            "status": "ok",
            "reason": "",
        }
        rows.append(row)
    for (arm, seed), bill in bills.items():
        if bill["status"] != "ok":
            rows += [
                {
                    "method": arm,
                    "seed": seed,
                    "split": split,
                    "decoding": decoding,
                    "status": bill["status"],
                    "reason": bill["reason"],
                }
                for split in SPLITS
                for decoding in study.evaluation.decodings
            ]
    for row in rows:
        row["task"] = task
        bill = bills.get((row["method"], row["seed"])) if not pd.isna(row["seed"]) else None
        ledger = bill["ledger"] if bill else dict.fromkeys(LEDGER.values(), 0)
        row |= {column: ledger[entry] for column, entry in LEDGER.items()}
    frame = pd.DataFrame(rows)
    frame["seed"] = frame["seed"].astype("Int64")
    _mark_collapsed(frame)
    return _ordered(frame, study)


def _mark_collapsed(frame: pd.DataFrame) -> None:
    """A run whose final policy does worse than the base it started from has collapsed."""
    greedy = (frame["split"] == "test") & (frame["decoding"] == "greedy")
    base = frame.loc[greedy & (frame["method"] == "base"), "success_rate"]
    if base.empty:
        return
    worse = greedy & ~frame["method"].isin(UNTRAINED) & (frame["success_rate"] < base.iloc[0])
    for _, run in frame[worse].iterrows():
        rows = (frame["method"] == run["method"]) & (frame["seed"] == run["seed"])
        frame.loc[rows, "status"] = "collapsed"
        frame.loc[rows, "reason"] = "final success below the base"


def _ordered(frame: pd.DataFrame, study: StudyConfig) -> pd.DataFrame:
    order = {name: i for i, name in enumerate([*UNTRAINED, *study.arms])}
    return frame.assign(
        _method=frame["method"].map(order), _split=frame["split"].map({"test": 0, "shifted": 1})
    ).sort_values(["task", "_method", "seed", "_split", "decoding"], kind="stable")


def _curve_rows(study: StudyConfig, task: str, artifacts: Artifacts) -> list[dict[str, Any]]:
    return [
        {"task": task, "method": arm, "seed": seed, **row}
        for arm in study.arms
        for seed in study.seeds
        for row in read_json(
            artifacts.arm(arm) / f"seed-{seed}" / CURVE, f"dvc repro train@{task}-{arm}"
        )
    ]


def _distance_rows(task: str, episodes: pd.DataFrame) -> pd.DataFrame:
    keys = ["method", "seed", "split", "decoding", "distance"]
    won = episodes.assign(successes=(episodes["end"] == EndReason.SUCCESS.value).astype(int))
    table = (
        won.groupby(keys, dropna=False, sort=False)["successes"]
        .agg(["size", "sum"])
        .reset_index()
        .rename(columns={"size": "episodes", "sum": "successes"})
        .sort_values(keys)
    )
    table.insert(0, "task", task)
    return table


def _instance_rows(study: StudyConfig, task: str, artifacts: Artifacts) -> list[dict[str, Any]]:
    facts = read_json(artifacts.skipped, f"dvc repro instances@{task}")
    instances = load_instances(artifacts.instances)
    rows = []
    for split, skipped in facts["skipped"].items():
        distances = [i.distance for i in instances if i.split == split]
        rows.append(
            {
                "task": task,
                "split": split,
                "instances": len(distances),
                # ``goal``: a held-out goal in an ordinary split, or an ordinary one in ``shifted``.
                "skipped_duplicate": skipped["duplicate"],
                "skipped_held_out": skipped["goal"],
                "skipped_solved": skipped["solved"],
                "skipped_too_far": skipped["too_far"],
                "mean_distance": sum(distances) / max(1, len(distances)),
                "overlap": facts["overlap"],
            }
        )
    return rows


def _task_facts(
    study: StudyConfig, name: str, runs: pd.DataFrame, artifacts: Artifacts
) -> dict[str, Any]:
    task = study.task(name)
    base = runs[(runs["method"] == "base") & (runs["split"] == "test")]
    rates = {row["decoding"]: round(float(row["success_rate"]), 6) for _, row in base.iterrows()}
    return {
        **task.settings,
        "horizon": task.horizon,
        "held_out": list(task.held_out),
        "shifted_settings": task.shifted_settings,
        "learning_rates": {arm: study.arm_on(arm, name).learning_rate for arm in study.arms},
        "base_success": rates,
    }


def _reward_facts(task: str, artifacts: Artifacts) -> dict[str, list[dict[str, Any]]]:
    """Rows of every reward table of one task, by file."""
    summary = read_json(artifacts.reward_summary, f"dvc repro reward@{task}")
    audit = read_json(artifacts.audit, f"dvc repro audit@{task}")
    rows = {
        "reward_audit": audit["audit"],
        "reward_verdicts": audit["verdicts"],
        "tabular_check": audit["tabular"],
        "judge": audit["judge"],
        "reward_stats": summary["stats"],
        "rubric_criteria": summary["criteria"],
        "dead_groups": summary["dead_groups"],
    }
    return {file: [{"task": task, **row} for row in found] for file, found in rows.items()}


def _cards(study: StudyConfig) -> dict[str, Any]:
    """What every reward of the study says of itself."""
    return {
        name: {**card(config), "tasks": sorted(study.tasks)}
        for name, config in sorted(study.rewards.items())
    }


def _provenance(study: StudyConfig, tasks: dict[str, Any]) -> dict[str, Any]:
    settings = asdict(study)
    settings.pop("workers")
    return {
        "config_hash": digest(settings),
        "profile": study.profile,
        "study_seed": study.seed,
        "seeds": list(study.seeds),
        "budget_tokens": {name: study.train_on(name).budget_tokens for name in study.tasks},
        "tasks": tasks,
        "arms": {name: _without_address(asdict(arm)) for name, arm in study.arms.items()},
        "model": asdict(study.model),
        "versions": {name: version(name) for name in PACKAGES},
        "commands": ["make repro", "make report"],
    }


def _without_address(arm: dict[str, Any]) -> dict[str, Any]:
    """Settings of an arm without where its judge is: that is no part of a result."""
    judge = (arm.get("reward") or {}).get("judge")
    if judge:
        judge["url"] = ""
    return arm


def _write(path: Path, frame: pd.DataFrame) -> None:
    """CSV with six decimals, so that the last bit of a float cannot change a tracked file."""
    rounded = frame.copy()
    for column in rounded.columns:
        if pd.api.types.is_float_dtype(rounded[column]):
            values = rounded[column]
            whole = values.dropna()
            if len(whole) and (whole == whole.round()).all() and column in _COUNTS:
                rounded[column] = values.astype("Int64")
            else:
                rounded[column] = values.round(6)
    write_text(path, rounded.to_csv(index=False, lineterminator="\n"))


_COUNTS = frozenset({"seed", "episodes", "successes", "update", *(f"end_{end}" for end in ENDS)})
"""Columns of whole numbers, even where a failed run leaves a gap."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--artifacts", type=Path, default=ARTIFACTS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    return guarded(lambda: publish(load_params(options.params), options.artifacts, options.results))


if __name__ == "__main__":
    sys.exit(main())
