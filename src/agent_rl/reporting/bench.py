"""What ``results/bench.csv`` says of speed and memory: cells, ratios within one run, sentences.

The file is written by ``make bench``, apart from the study: timings belong to a machine. ``value``
is a median of runs, ``low`` and ``high`` are the lowest and the highest of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from agent_rl.errors import UserError
from agent_rl.reporting.csv_files import Schema, check_unique, read_csv

FILE = "bench.csv"
MADE_BY = "run `make bench` again"
OURS = "agent_rl"
ENGINES = {
    OURS: "this repository",
    "generate": "`generate` per turn",
    "continuous": "continuous batching",
    "trl": "TRL's stock loop",
}
"""Rollout engines in display order and the reader's names of them."""
TURNS = "turns/s"
UPDATES = "updates/s"
MEMORY = "peak memory of rollouts, MiB"
ADDED = "memory added by rollouts, MiB"
PEAK = "peak GFLOP/s, fp32"
SHARE = "share of fp32 peak"

_COLUMNS: Schema = {
    "case": "str",
    "engine": "str",
    "task": "str",
    "model": "str",
    "batch": "int",
    "metric": "str",
    "value": "float",
    "low": "float",
    "high": "float",
    "runs": "int",
}
_KEY = ["case", "engine", "task", "model", "batch", "metric"]


class Cell(NamedTuple):
    """A median with its spread."""

    value: float
    low: float
    high: float
    runs: int


def load_bench(path: Path) -> pd.DataFrame | None:
    """The table, checked; None when it does not exist.

    Raises: UserError for a missing column, a wrong number or a repeated row.
    """
    if not path.exists():
        return None
    frame = read_csv(path, _COLUMNS, again=MADE_BY)
    check_unique(frame, _KEY, path)
    for row in frame.itertuples():
        where = f"{path}, line {row.Index + 2}"
        if not row.low <= row.value <= row.high:
            raise UserError(
                f"{where}: value {row.value:g} is not between low {row.low:g} and high "
                f"{row.high:g}; {MADE_BY}"
            )
        if row.runs < 1:
            raise UserError(f"{where}, column runs: {row.runs} is less than 1; {MADE_BY}")
    return frame


def rows(bench: pd.DataFrame, case: str, metric: str | None = None) -> pd.DataFrame:
    """Rows of a case, of one metric if it is named."""
    chosen = bench[bench["case"] == case]
    return chosen if metric is None else chosen[chosen["metric"] == metric]


def engines(bench: pd.DataFrame) -> list[str]:
    """Rollout engines of the table: the known ones in display order, then the others."""
    present = list(dict.fromkeys(rows(bench, "engines")["engine"]))
    known = [engine for engine in ENGINES if engine in present]
    return known + [engine for engine in present if engine not in ENGINES]


def engine_name(engine: str) -> str:
    """The reader's name of an engine."""
    return ENGINES.get(engine, engine)


def cell(frame: pd.DataFrame) -> Cell | None:
    """The one row of a selection; None when there is none."""
    if frame.empty:
        return None
    row = frame.iloc[0]
    return Cell(float(row["value"]), float(row["low"]), float(row["high"]), int(row["runs"]))


def engine_cell(bench: pd.DataFrame, engine: str, metric: str) -> Cell | None:
    """A number of a rollout engine; None when it was not measured."""
    chosen = rows(bench, "engines", metric)
    return cell(chosen[chosen["engine"] == engine])


def ratio(ours: Cell, other: Cell) -> Cell:
    """How many times as much; the bounds pair the worst run of one with the best of the other."""
    return Cell(
        ours.value / other.value,
        ours.low / other.high,
        ours.high / other.low,
        min(ours.runs, other.runs),
    )


def spread(found: Cell, digits: int = 3) -> str:
    """``2,817 [2,700 to 2,900]`` with so many significant digits."""
    value, low, high = (_significant(part, digits) for part in found[:3])
    return f"{value} [{low} to {high}]"


def _significant(value: float, digits: int) -> str:
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def turns_of(task: str) -> int:
    """Turns of an episode from a task's name such as ``maze, 16 turns``.

    Raises: UserError when the name tells none.
    """
    found = re.search(r", (\d+) turns$", task)
    if found is None:
        raise UserError(f"{FILE}, column task: {task!r} does not end in a number of turns")
    return int(found.group(1))


def millions_of(model: str) -> float:
    """Parameters in millions from a model's name such as ``Llama d=64, 2 layers, 0.11 M``.

    Raises: UserError when the name tells none.
    """
    found = re.search(r"([\d.]+) M$", model)
    if found is None:
        raise UserError(f"{FILE}, column model: {model!r} does not end in millions of parameters")
    return float(found.group(1))


def rollout_sentence(bench: pd.DataFrame) -> str:
    """How fast our rollouts are, against every other engine of the same run."""
    ours = engine_cell(bench, OURS, TURNS)
    if ours is None:
        return ""
    row = rows(bench, "engines", TURNS).iloc[0]
    against = [
        _against(ours, other, engine)
        for engine in engines(bench)
        if engine != OURS and (other := engine_cell(bench, engine, TURNS)) is not None
    ]
    text = (
        f"Rollouts ({row['task']}, {row['model']}, {row['batch']} episodes in parallel, one "
        f"thread): **{spread(ours)} turns per second**"
    )
    return f"{text}; {', '.join(against)}." if against else f"{text}."


def _against(ours: Cell, other: Cell, engine: str) -> str:
    """Ranges that overlap are no difference."""
    if ours.low <= other.high and other.low <= ours.high:
        return f"not told apart from {engine_name(engine)} ({spread(other)})"
    return f"{spread(ratio(ours, other), 2)} times {engine_name(engine)}"


def update_sentence(bench: pd.DataFrame) -> str:
    """Whole updates of GRPO, ours and TRL's."""
    ours, stock = (engine_cell(bench, engine, UPDATES) for engine in (OURS, "trl"))
    if ours is None:
        return ""
    text = f"A whole GRPO update takes {_significant(1 / ours.value, 2)} s"
    return f"{text}: {_against(ours, stock, 'trl')}." if stock is not None else f"{text}."


def scaling_sentence(bench: pd.DataFrame) -> str:
    """How the time grows with turns, and what a second process adds."""
    parts = []
    fitted = rows(bench, "turns", "exponent")
    if (slope := cell(fitted)) is not None:
        over = str(fitted.iloc[0]["task"]).partition(", ")[2]
        parts.append(
            f"Time per episode grows as turns to the power {spread(slope)} ({over}; 1 is linear)."
        )
    one, two = (
        cell(rows(bench, "workers", f"turns/s, {name}")) for name in ("1 process", "2 processes")
    )
    if one is not None and two is not None:
        parts.append(f"Two processes play {spread(ratio(two, one), 2)} times as many turns as one.")
    return " ".join(parts)


def training_sentence(bench: pd.DataFrame) -> str:
    """Arithmetic of the training step against the peak of the same core."""
    shares, peak = rows(bench, "training", SHARE), cell(rows(bench, "training", PEAK))
    if shares.empty or peak is None:
        return ""
    parts = [f"{row.value:.0%} with {row.model}" for row in shares.itertuples()]
    return (
        f"A training step reaches this share of the {_significant(peak.value, 3)} GFLOP/s of an "
        f"fp32 matrix product on one core: {', '.join(parts)}."
    )


def reading(bench: pd.DataFrame) -> str:
    """What value and brackets mean."""
    runs = sorted(set(bench["runs"]))
    if runs == [1]:
        return "One run of every case: no spread is known, and differences may be chance."
    span = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    return (
        f"Medians of {span} runs in fresh processes that took turns; brackets: lowest to highest "
        "run, and for ratios the lowest of one over the highest of the other and the reverse."
    )


def sentences(bench: pd.DataFrame) -> list[str]:
    """What there is to say, in order."""
    told = (rollout_sentence, update_sentence, scaling_sentence, training_sentence)
    return [text for make in told if (text := make(bench))]


def performance(results_dir: Path) -> str:
    """The README's paragraph on performance, from the table alone."""
    bench = load_bench(results_dir / FILE)
    claims = sentences(bench) if bench is not None else []
    if bench is None or not claims:
        return f"No engines were compared in this checkout: `make bench` writes `results/{FILE}`.\n"
    return "\n".join([*(f"* {claim}" for claim in claims), "", reading(bench)]) + "\n"
