"""What must agree when the study is run again on another kind of machine.

Another CPU or another BLAS adds floats in another order. After some hundred updates the sampled
tokens differ, and a run becomes a new draw of the same experiment: bytes cannot be promised,
estimates can.

* What no model touches must agree: instances, scripted policies, the audit of rewards, reward
  cards, settings. Numbers may differ by one unit of the last written digit, ``ROUNDING``.
* Counts that the design fixes must agree: episodes, expert labels, groups.
* The mean over seeds of a method's success must lie within the committed 95% t-interval, or within
  ``TOLERANCE`` of the committed mean; so must the last point of its validation curve. A policy
  without seeds has Wilson's interval over its episodes.
* What one base policy's episodes say (reward statistics, dead groups) must lie within
  ``TOLERANCE``.

Two honest repetitions of a study of 8 seeds differ too. With the spread over seeds of the committed
results, 56 comparisons at 0.05 would raise a false alarm in about one of four repetitions, at 0.08
in about one of a hundred (4,000 simulated pairs of studies); hence 0.08.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from agent_rl.evaluation.statistics import Estimate, t_interval, wilson
from agent_rl.evaluation.transcripts import ROLES
from agent_rl.stages.comparison import OBJECTS, FileComparison, Row, Rows, compare_rows

TOLERANCE = 0.08
"""Largest absolute difference of two shares or means that another machine may bring."""
ROUNDING = 1.5e-6
"""One unit of the sixth decimal, to which results are rounded, and half a unit of slack."""
SCRIPTED = ("random", "oracle")
"""Methods without a model."""

UNTOUCHED = (
    "instances.csv",
    "reward_audit.csv",
    "reward_verdicts.csv",
    "tabular_check.csv",
)
"""Tables that no model touches."""

COUNTS: dict[str, tuple[str, ...]] = {
    "runs.csv": ("episodes", "expert_labels"),
    "by_distance.csv": ("episodes",),
    "reward_stats.csv": ("episodes",),
    "rubric_criteria.csv": ("weight",),
    "dead_groups.csv": ("instances", "groups"),
}
"""Columns of every row that the design fixes."""

ESTIMATES: dict[str, tuple[str, ...]] = {
    "reward_stats.csv": ("mean", "std_in_group", "correlation_with_success"),
    "rubric_criteria.csv": ("rate", "correlation_with_success"),
    "dead_groups.csv": ("measured", "predicted"),
}
"""Columns that the episodes of the base decide."""


def compare_elsewhere(name: str, committed: Rows, fresh: Rows) -> FileComparison:
    """Compare one file of two machines by the rules above.

    A table without a rule is held to nothing; JSON is expected to be its :func:`certain_part`.
    """
    if name in UNTOUCHED or name in OBJECTS:
        return compare_rows(name, committed, fresh, tolerance=ROUNDING)
    if name == "curves.csv":
        return compare_estimates(name, _last_points(committed), _last_points(fresh))
    found = FileComparison(name)
    if name in COUNTS:
        found += compare_rows(name, committed, fresh, columns=COUNTS[name])
    if name in ESTIMATES:
        # Rows that one side lacks were counted above.
        common = committed.keys() & fresh.keys()
        left, right = (_only(rows, common) for rows in (committed, fresh))
        found += compare_rows(name, left, right, columns=ESTIMATES[name], tolerance=TOLERANCE)
    if name == "runs.csv":
        left, right = _scripted(committed), _scripted(fresh)
        found += compare_rows(name, left, right, tolerance=ROUNDING)
        found += compare_estimates(name, _final_rates(committed), _final_rates(fresh))
    return found


Rates = dict[Row, list[Mapping[str, str]]]
"""(task, method, ...) -> one row per seed that has a number."""


def compare_estimates(name: str, committed: Rates, fresh: Rates) -> FileComparison:
    """Hold the mean over seeds of every group to the committed interval and the tolerance."""
    old = {key: _estimate(group) for key, group in committed.items()}
    new = {key: _estimate(group) for key, group in fresh.items()}
    inside = {
        key
        for key in old.keys() & new.keys()
        if old[key].has_interval and not old[key].excludes(new[key].value)
    }
    left, right = ({k: {"mean": _text(e.value)} for k, e in side.items()} for side in (old, new))
    return compare_rows(name, left, right, tolerance=TOLERANCE, accepted=inside)


def _text(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"


def _estimate(group: Sequence[Mapping[str, str]]) -> Estimate:
    """Mean over the seeds of a group; over its episodes where there is one run without a seed."""
    if len(group) == 1 and not group[0]["seed"]:
        return wilson(int(group[0]["successes"]), int(group[0]["episodes"]))
    return t_interval([float(row["rate"]) for row in group])


def _final_rates(rows: Rows) -> Rates:
    """Success of every method with a model, by task, method, split and decoding."""
    groups: Rates = {}
    for row in rows.values():
        if row["method"] not in SCRIPTED and row.get("success_rate"):
            key = (row["task"], row["method"], row["split"], row["decoding"])
            groups.setdefault(key, []).append({**row, "rate": row["success_rate"]})
    return groups


def _last_points(rows: Rows) -> Rates:
    """The last validation success of every run, by task and method."""
    last: dict[Row, Mapping[str, str]] = {}
    for row in rows.values():
        run = (row["task"], row["method"], row["seed"])
        if row.get("val_success_rate") and (
            run not in last or float(row["update"]) >= float(last[run]["update"])
        ):
            last[run] = row
    groups: Rates = {}
    for (task, method, _), row in last.items():
        groups.setdefault((task, method), []).append({**row, "rate": row["val_success_rate"]})
    return groups


def _scripted(rows: Rows) -> Rows:
    return _only(rows, {key for key, row in rows.items() if row["method"] in SCRIPTED})


def _only(rows: Rows, keys: Set[Row]) -> Rows:
    return {key: row for key, row in rows.items() if key in keys}


def certain_part(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """The part of a JSON file that no model had a part in.

    Success of the base is an estimate, and stands in ``runs.csv``. Of the transcripts only the
    oracle's first is chosen without looking at what models did.
    """
    if name == "provenance.json":
        tasks = {
            task: {k: v for k, v in facts.items() if k != "base_success"}
            for task, facts in content["tasks"].items()
        }
        return {**content, "tasks": tasks}
    if name == "transcripts.json":
        certain = [e for e in content["episodes"] if e.get("role") == ROLES[0]]
        return {**content, "episodes": certain}
    return content
