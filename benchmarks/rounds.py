"""Rounds of runs: every case once per round, each run in a fresh process, and what comes of them.

The cases take turns, so that a slow minute of the machine does not fall on one of them, and
numbers that are compared come from one call of the command.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from benchmarks.cases import Case, Measure, Sizes
from benchmarks.processes import in_a_new_process

COLUMNS = ["case", "engine", "task", "model", "batch", "metric", "value", "low", "high", "runs"]
DIGITS = 4
"""Significant digits of a number in the table."""


def measure_all(cases: Sequence[Case], sizes: Sizes) -> pd.DataFrame:
    """The table: median, lowest and highest of the runs of every measure.

    A case that cannot run here is left out with a line on stderr.
    """
    possible = [case for case in cases if _possible(case)]
    preparations = _once(case for case in possible if case.prepare is not None)
    found: list[Measure] = []
    total = len(preparations) + sizes.runs * len(possible)
    with (
        tempfile.TemporaryDirectory() as folder,
        tqdm(total=total, desc="benchmarks", unit="run") as bar,
    ):
        for case in preparations:
            bar.set_postfix_str(f"preparing {case.name}")
            in_a_new_process(case.prepare, sizes, Path(folder), torch=case.torch)
            bar.update()
        for _ in range(sizes.runs):
            for case in possible:
                bar.set_postfix_str(case.name)
                found += in_a_new_process(case.work, sizes, Path(folder), torch=case.torch)
                bar.update()
        bar.set_postfix_str("")
    return summarised(found)


def summarised(found: Sequence[Measure]) -> pd.DataFrame:
    """One row per measure in the order of appearance: median, lowest and highest of its runs."""
    values: dict[tuple[str, str, str, str, int, str], list[float]] = {}
    for measure in found:
        values.setdefault(measure.key, []).append(measure.value)
    rows = [
        [*key, *map(_rounded, (statistics.median(runs), min(runs), max(runs))), len(runs)]
        for key, runs in values.items()
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _possible(case: Case) -> bool:
    """Whether a case can run here; what cannot is told, not hidden."""
    reason = case.missing() if case.missing is not None else ""
    if reason:
        print(f"left out: {case.name}: {reason}", file=sys.stderr)
    return not reason


def _once(cases: Iterable[Case]) -> list[Case]:
    """The first case of every preparation."""
    first: dict[object, Case] = {}
    for case in cases:
        first.setdefault(case.prepare, case)
    return list(first.values())
