"""What two results folders have in common: tables row by row, JSON value by value.

A table is compared as text, cell by cell, in the rows of the tasks asked for. A column that one
side lacks is empty there; equal numbers in other digits (``1`` and ``1.0``) are the same, because
the columns of a file and their types depend on the other tasks in it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from agent_rl.reporting.csv_files import check_unique, read_csv

KEYS: dict[str, tuple[str, ...]] = {
    "runs.csv": ("task", "method", "seed", "split", "decoding"),
    "curves.csv": ("task", "method", "seed", "update"),
    "by_distance.csv": ("task", "method", "seed", "split", "decoding", "distance"),
    "instances.csv": ("task", "split"),
    "reward_audit.csv": ("task", "reward", "policy"),
    "reward_verdicts.csv": ("task", "reward"),
    "tabular_check.csv": ("maze", "reward", "setting"),
    "reward_stats.csv": ("task", "reward"),
    "rubric_criteria.csv": ("task", "reward", "criterion"),
    "dead_groups.csv": ("task", "reward", "credit", "group_size"),
}
"""Tables of the pipeline and the columns that name a row."""

OBJECTS = ("provenance.json", "reward_cards.json", "transcripts.json")
"""JSON files of the pipeline."""

Row = tuple[str, ...]
Rows = Mapping[Row, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class FileComparison:
    """What came out for one file: counts of its rows (of values, for JSON)."""

    name: str
    rows: int = 0
    identical: int = 0
    different: int = 0
    missing: int = 0
    """Rows that only one side has."""
    worst: str = ""
    """Where the largest difference is, and what it is; one that counts comes first."""
    size: float = 0.0
    """The largest difference; infinite where no number can say it."""

    @property
    def same(self) -> bool:
        return not self.different and not self.missing

    def __add__(self, other: FileComparison) -> FileComparison:
        """Both checks of one file in one."""
        larger = max(self, other, key=lambda found: (not found.same, found.size))
        return FileComparison(
            self.name,
            self.rows + other.rows,
            self.identical + other.identical,
            self.different + other.different,
            self.missing + other.missing,
            larger.worst,
            larger.size,
        )


def difference(left: str, right: str) -> float:
    """Absolute difference of two cells: 0 for equal ones, infinite where they are not numbers."""
    if left == right:
        return 0.0
    try:
        size = abs(float(left) - float(right))
    except ValueError:
        return math.inf
    return size if math.isfinite(size) else math.inf


def compare_rows(
    name: str,
    committed: Rows,
    fresh: Rows,
    *,
    columns: Collection[str] | None = None,
    tolerance: float = 0.0,
    accepted: Collection[Row] = (),
) -> FileComparison:
    """Compare rows of equal keys.

    Args:
        name: the file, for the result.
        committed: key -> column -> cell.
        fresh: the same of the new run.
        columns: compare these only.
        tolerance: largest absolute difference of two numbers that still counts as identical.
        accepted: keys whose rows count as identical, however large the difference of numbers.
    """
    missing = [key for key in committed if key not in fresh]
    extra = [key for key in fresh if key not in committed]
    different, worst, largest = 0, "", (False, 0.0)
    for key in (key for key in committed if key in fresh):
        size, column = _largest(committed[key], fresh[key], columns)
        wrong = size > tolerance and (key not in accepted or math.isinf(size))
        different += wrong
        if (wrong, size) > largest:
            largest = (wrong, size)
            old, new = (rows[key].get(column) or "empty" for rows in (committed, fresh))
            worst = f"{_words(key)}: {column} {old} -> {new}"
    if not different and (missing or extra):
        side = "not in the new run" if missing else "only in the new run"
        worst = f"{_words((missing or extra)[0])}: {side}"
    rows = len(committed) + len(extra)
    absent = len(missing) + len(extra)
    same = rows - absent - different
    return FileComparison(name, rows, same, different, absent, worst, largest[1])


def _largest(
    left: Mapping[str, str], right: Mapping[str, str], columns: Collection[str] | None
) -> tuple[float, str]:
    """The largest difference of two rows and its column."""
    cells = [
        (difference(left.get(column, ""), right.get(column, "")), column)
        for column in dict.fromkeys([*left, *right])
        if columns is None or column in columns
    ]
    return max(cells, key=lambda cell: cell[0], default=(0.0, ""))


def _words(key: Row) -> str:
    return " ".join(part for part in key if part)


def read_table(path: Path, tasks: Sequence[str]) -> Rows:
    """Rows of the tasks in one table, by key, every cell as text.

    Raises: UserError when the file is missing, truncated or has a key twice.
    """
    keys = KEYS.get(path.name, ())
    frame = read_csv(path, dict.fromkeys(keys, "str?"))
    if "task" in frame:
        frame = frame[frame["task"].isin(tasks)]
    if keys:
        check_unique(frame, list(keys), path)
    return {
        tuple(str(row[key]) for key in keys) or (f"row {number}",): row
        for number, row in enumerate(_records(frame))
    }


def _records(frame: pd.DataFrame) -> list[dict[str, str]]:
    return [{str(k): str(v) for k, v in row.items()} for row in frame.to_dict("records")]


def compare_table(name: str, committed: Rows, fresh: Rows) -> FileComparison:
    """Every cell, and the order of the rows."""
    found = compare_rows(name, committed, fresh)
    if found.same and list(committed) != list(fresh):
        return replace(found, identical=0, different=found.rows, worst="rows in another order")
    return found


def leaves(content: dict[str, Any]) -> Rows:
    """Values of a JSON object by their place in it."""
    return {(place,): {"value": repr(value)} for place, value in _leaves(content)}


def task_part(name: str, content: dict[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """The part of a JSON file that the tasks and nothing but the results decide.

    Left out of the provenance: the versions of packages, which are told apart, and the digest of
    all settings, which covers tasks that were not asked for.
    """
    if name == "provenance.json":
        kept = {k: v for k, v in content.items() if k not in ("versions", "config_hash")}
        for entry in ("tasks", "budget_tokens"):
            if isinstance(kept.get(entry), dict):
                kept[entry] = {k: v for k, v in kept[entry].items() if k in tasks}
        return kept
    if name == "reward_cards.json":
        return {
            reward: {**card, "tasks": [task for task in card.get("tasks", []) if task in tasks]}
            for reward, card in content.items()
        }
    if name == "transcripts.json":
        episodes = [e for e in content.get("episodes", []) if e.get("task") in tasks]
        return {**content, "episodes": episodes}
    return content


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """(place, value) of everything in a JSON value that is no container, or an empty one."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from _leaves(value[key], f"{place}.{key}" if place else str(key))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, f"{place}[{number}]")
    else:
        yield place, value


def compare_bytes(committed: Path, fresh: Path, found: FileComparison) -> FileComparison:
    """Hold whole files to their bytes, after their values were found to be the same."""
    if not found.same or committed.read_bytes() == fresh.read_bytes():
        return found
    worst = "equal values in other bytes (order of columns, digits, line ends)"
    return replace(found, identical=0, different=found.rows, worst=worst, size=0.0)
