"""Sections on the study itself: its tasks, rewards on the base's rollouts, provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_rl.reporting import facts, prose, style
from agent_rl.reporting.document import (
    DASH,
    Block,
    Bullets,
    Code,
    Paragraph,
    Table,
    count,
    number,
)
from agent_rl.reporting.tables import Results

SHOWN_ELSEWHERE = ("base_success", "collected", "held_out", "horizon", "learning_rates")
"""Facts of a task that have a table or a sentence of their own."""


def question(results: Results) -> list[Block]:
    """The question and, in words, the tasks on which it is asked."""
    return [
        Paragraph(prose.question()),
        Paragraph(prose.tasks_lead(results)),
        Bullets([prose.task_sentence(results, task) for task in results.tasks]),
    ]


def collected_rewards(results: Results) -> list[Block]:
    """What each reward says of the same episodes of the base; nothing where it is not recorded."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    for task in results.tasks:
        collected = facts.task_facts(results.provenance, task).get("collected")
        rewards = collected.items() if isinstance(collected, dict) else ()
        found += [(task, name, entry) for name, entry in sorted(rewards) if isinstance(entry, dict)]
    if not found:
        return []
    sizes = sorted(
        {size for _, _, entry in found for size in entry.get("dead_groups", {})}, key=int
    )
    header = ["task", "reward", "mean", "std in group", "correlation with success"]
    header += [f"dead groups, G = {size}" for size in sizes]
    text = (
        "The same sampled episodes of the base under every reward, before any training. "
        "Dead groups: share of groups of G episodes from one start with equal rewards, and in "
        "brackets the share that success alone would give, p^G + (1 - p)^G with p per start."
    )
    rows = [[task, name, *_reward_cells(entry, sizes)] for task, name, entry in found]
    return [Table(header, rows, text_columns=2), Paragraph(text)]


def _reward_cells(entry: Mapping[str, Any], sizes: list[str]) -> list[str]:
    cells = [_optional(entry.get(key)) for key in ("mean", "std_in_group")]
    cells.append(_optional(entry.get("correlation_with_success"), 2))
    for size in sizes:
        dead = entry.get("dead_groups", {}).get(size, {})
        measured, predicted = (_optional(dead.get(key), 2) for key in ("measured", "predicted"))
        cells.append(f"{measured} ({predicted})")
    return cells


def _optional(value: float | None, digits: int = 3) -> str:
    return DASH if value is None else number(float(value), digits)


def instances(results: Results) -> list[Block]:
    """Counts of instances, what was skipped, and whether splits share any."""
    rows = [
        [
            row.task,
            row.split,
            count(row.instances),
            count(row.skipped_duplicate),
            count(row.skipped_held_out),
            count(row.skipped_solved),
            number(row.mean_distance, 2),
            count(row.overlap),
        ]
        for row in results.instances.itertuples()
    ]
    header = ["task", "split", "instances", "skipped: duplicate", "skipped: held out"]
    header += ["skipped: solved at start", "mean expert steps", "overlap"]
    overlap = results.instances["overlap"]
    if overlap.empty or overlap.isna().any():
        verdict = "**not known for every split**"  # a sum would turn the missing ones into 0
    else:
        shared = "no instance is in two splits" if overlap.sum() == 0 else "**splits share some**"
        verdict = f"{count(overlap.sum())} in total, so {shared}"
    return [
        Table(header, rows, text_columns=2),
        Paragraph(
            "Instances are told apart by a hash of the full initial state. Overlap with other "
            f"splits: {verdict}."
        ),
    ]


def provenance(results: Results) -> list[Block]:
    """What was run, with which versions and settings."""
    known = results.provenance
    seeds = ", ".join(str(seed) for seed in known["seeds"])
    rows = [
        ["configuration hash", f"`{known['config_hash']}`"],
        ["profile", f"`{known['profile']}`"],
        ["seeds", seeds],
        ["versions", ", ".join(f"{k} {v}" for k, v in sorted(known["versions"].items()))],
    ]
    for task, settings in sorted(known["tasks"].items()):
        pairs = settings.items() if isinstance(settings, dict) else [("setting", settings)]
        text = ", ".join(
            f"{key} = {value if isinstance(value, str) else json.dumps(value, sort_keys=True)}"
            for key, value in sorted(pairs)
            if key not in SHOWN_ELSEWHERE
        )
        rows.append([f"task {task}", text or DASH])
    return [Table(["what", "value"], rows, text_columns=2), *_learning_rates(results)]


def _learning_rates(results: Results) -> list[Block]:
    """Learning rates by arm and task; nothing when the results do not state them."""
    rates = facts.learning_rates(results.provenance, "provenance.json")
    if not rates:
        return []
    named = {arm for by_arm in rates.values() for arm in by_arm}
    arms = [*style.arm_order(named), *sorted(named - set(style.ARMS))]
    rows = [
        [
            style.label(arm) if arm in style.ARMS else arm,
            *(f"{by_arm[arm]:g}" if arm in by_arm else DASH for by_arm in rates.values()),
        ]
        for arm in arms
    ]
    return [
        Paragraph("**Learning rates** (tuned on validation, per task)"),
        Table(["arm", *rates], rows),
    ]


def rebuild(results: Results) -> list[Block]:
    """The commands that make these numbers and this page."""
    blocks: list[Block] = [
        Paragraph("Everything, from the instances on; then the report alone, from `results/`:"),
        Code(["make repro", "make report"]),
    ]
    commands = [str(command) for command in results.provenance["commands"]]
    if commands:
        blocks += [Paragraph("The commands of this study:"), Code(commands)]
    blocks.append(
        Paragraph(
            "Beside every figure lie its numbers as CSV in `reports/figures/`; all of them are "
            "computed from `results/runs.csv`, `curves.csv` and `by_distance.csv`."
        )
    )
    return blocks
