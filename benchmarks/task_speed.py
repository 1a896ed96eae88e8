"""Environment steps per second of every task, one process each: median and spread of several runs.

Episodes are recorded first (expert and chance mixed), in a process of their own, and then played
again by a process that has seen nothing: once on *new* instances, in groups of 8 as RL plays them,
and then on instances that are *known* to it, as in later updates. Texts, validity and the exact
distance are part of every step; choosing the actions is not. The runs of different tasks take
turns, so that a slow minute of the machine does not fall on one of them.

Run it:  python -m benchmarks.task_speed [--runs 5] [--episodes 2000] [--out results/bench.csv]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from agent_rl.errors import UserError
from agent_rl.files import write_text
from agent_rl.stages.common import RESULTS, guarded
from agent_rl.tasks.registry import make_env

GROUP = 8
FIRST_SEED = 50_000_000
"""Seeds that no split of the study uses."""
EXPERT_SHARE = 0.7
COLUMNS = ["case", "engine", "task", "model", "batch", "metric", "value", "low", "high", "runs"]

Recording = list[tuple[int, list[str]]]
"""Seed and actions of every episode."""


@dataclass(frozen=True, slots=True)
class Case:
    """A task to time."""

    name: str
    family: str
    settings: dict[str, Any]
    horizon: int


CASES = (
    Case("babyai GoToLocal", "babyai", {"level": "GoToLocal"}, 12),
    Case("sqlqa chain", "sqlqa", {"hops": 2}, 8),
    Case("sqlqa compare", "sqlqa", {"hops": 2, "question": "compare"}, 8),
    Case("sqlqa search", "sqlqa", {"hops": 2, "mode": "search"}, 10),
    Case("textworld treasure", "textworld", {}, 16),
)


def record(case: Case, episodes: int) -> Recording:
    """Play ``episodes`` episodes and keep what was done."""
    env = make_env(case.family, case.settings, case.horizon)
    rng = np.random.default_rng(0)
    recording: Recording = []
    for seed in range(FIRST_SEED, FIRST_SEED + episodes // GROUP):
        for _ in range(GROUP):
            env.reset(seed=seed)
            actions: list[str] = []
            over = False
            while not over:
                listed = env.task.admissible_actions()
                if listed and rng.random() > EXPERT_SHARE:
                    actions.append(listed[int(rng.integers(len(listed)))])
                else:
                    actions.append(env.task.expert_action())
                *_, terminated, truncated, _ = env.step(actions[-1])
                over = terminated or truncated
            recording.append((seed, actions))
    return recording


def timed(case: Case, recording: Recording) -> dict[str, float]:
    """Steps per second on new and on known instances; resets included."""
    env = make_env(case.family, case.settings, case.horizon)
    steps = sum(len(actions) for _, actions in recording)
    found = {}
    for metric in ("new instances", "known instances"):
        start = time.perf_counter()
        for seed, actions in recording:
            env.reset(seed=seed)
            for action in actions:
                env.step(action)
        found[metric] = steps / (time.perf_counter() - start)
    return found


def in_a_new_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Result of a call in a process that has imported and cached nothing yet."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def available(case: Case) -> bool:
    """Whether the task can be made here; a missing optional package is told, not hidden."""
    try:
        make_env(case.family, case.settings, case.horizon)
    except UserError as error:
        print(f"left out: {case.name}: {error}", file=sys.stderr)
        return False
    return True


def measure(cases: Sequence[Case], runs: int, episodes: int) -> pd.DataFrame:
    """One row per task and metric: median, lowest and highest of ``runs`` runs."""
    values: dict[tuple[str, str], list[float]] = {}
    with tqdm(total=len(cases) * (runs + 1), desc="task speed", unit="run") as bar:
        recordings = {}
        for case in cases:
            recordings[case.name] = in_a_new_process(record, case, episodes)
            bar.update()
        for _ in range(runs):
            for case in cases:
                found = in_a_new_process(timed, case, recordings[case.name])
                for metric, value in found.items():
                    values.setdefault((case.name, metric), []).append(value)
                bar.update()
    rows = [
        {
            "case": "task speed",
            "engine": "none",
            "task": name,
            "model": "none",
            "batch": 1,
            "metric": f"environment steps/s, {metric}",
            "value": statistics.median(found),
            "low": min(found),
            "high": max(found),
            "runs": len(found),
        }
        for (name, metric), found in values.items()
    ]
    return pd.DataFrame(rows, columns=COLUMNS).round(1)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=RESULTS / "bench.csv")
    options = parser.parse_args(argv)

    def run() -> None:
        if options.runs < 1 or options.episodes < GROUP:
            raise UserError(
                f"--runs {options.runs} --episodes {options.episodes}: at least 1 run and "
                f"{GROUP} episodes are needed"
            )
        table = measure([c for c in CASES if available(c)], options.runs, options.episodes)
        write_text(options.out, table.to_csv(index=False, lineterminator="\n"))
        print(table[["task", "metric", "value", "low", "high", "runs"]].to_string(index=False))
        print(f"table: {options.out}")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
