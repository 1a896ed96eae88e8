"""Sections on the study itself: its tasks, rewards on the base's rollouts, provenance."""

from __future__ import annotations

import json

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

SHOWN_ELSEWHERE = ("base_success", "held_out", "horizon", "learning_rates")
"""Facts of a task that have a table or a sentence of their own."""


def question(results: Results) -> list[Block]:
    """The question and, in words, the tasks on which it is asked."""
    return [
        Paragraph(prose.question()),
        Paragraph(prose.tasks_lead(results)),
        Bullets([prose.task_sentence(results, task) for task in results.tasks]),
    ]


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
            "computed from the files in `results/`."
        )
    )
    return blocks
