"""Sentences whose every number comes from the results files."""

from __future__ import annotations

import math
from pathlib import Path

from agent_rl.reporting import style, summary
from agent_rl.reporting.document import count, interval, number
from agent_rl.reporting.summary import Contrast
from agent_rl.reporting.tables import Results, load_results


def question() -> str:
    """What the study asks."""
    return (
        "On multi-step tasks, when does reinforcement learning over whole trajectories beat "
        "supervised fine-tuning and single-turn preference tuning, and at what cost?"
    )


def claim(contrast: Contrast) -> str:
    """One sentence on one contrast, in the word that the rule allows."""
    left, right = style.label(contrast.left), style.label(contrast.right)
    if contrast.word == "missing":
        return f"{left} against {right}: not compared ({contrast.reason})."
    if contrast.word == "refused":
        return f"{left} against {right}: the comparison is refused, because {contrast.reason}."
    seeds = contrast.estimate.n
    numbers = f"{interval(contrast.estimate, signed=True)}, n = {seeds}"
    if contrast.word == "descriptive":
        return (
            f"{left} minus {right} is {numbers} (descriptive: fewer than "
            f"{summary.MIN_SEEDS} seeds)."
        )
    if contrast.word == "inconclusive":
        return f"{left} against {right} is **inconclusive**: {numbers}."
    return f"{left} is **{contrast.word}** than {right}: {numbers}."


def best_sentence(results: Results, task: str) -> str:
    """How far the best RL arm comes, how it was chosen, and where the base starts."""
    best = summary.best_rl(results, task)
    if best is None:
        return f"**{task}.** There is no finished run of an RL arm."
    method, chosen_on = best
    how = (
        "chosen on validation instances"
        if chosen_on == "validation"
        else "chosen on the test instances themselves, which flatters it"
    )
    return (
        f"**{task}.** The best RL arm ({style.label(method)}, {how}) reaches a success of "
        f"{interval(summary.cell(results, task, method))} on test instances; the base has "
        f"{interval(summary.cell(results, task, 'base'))}."
    )


def answer_claims(results: Results, task: str) -> list[str]:
    """The contrasts that answer the question, one sentence each."""
    pairs = summary.answer_pairs(results, task)
    return [claim(summary.contrast(results, task, left, right)) for left, right in pairs]


def cost_sentence(results: Results, task: str) -> str:
    """What interaction costs and what the expert costs, per run; empty when nothing is known."""
    parts = []
    for method in (summary.COMPARISON_ARM, "dpo", "sft"):
        mean = summary.costs(results, task, method).mean()
        if math.isnan(mean["total"]):
            continue
        parts.append(
            f"{style.label(method)} {count(mean['total'])} tokens, {count(mean['env_steps'])} "
            f"environment steps and {count(mean['expert_labels'])} expert labels"
        )
    return f"Cost of one run: {'; '.join(parts)}." if parts else ""


def reading_note() -> str:
    """How to read the numbers of the answer."""
    return (
        f"Success rates are greedy on held-out test instances. Brackets are {summary.LEVEL:.0%} "
        "t-intervals over training seeds (Wilson over episodes for the untrained policies), "
        "differences are paired by seed, n counts seeds. **higher** and **lower** mean that the "
        f"interval excludes 0; below {summary.MIN_SEEDS} seeds numbers are descriptive. RL "
        f"against another method uses {style.label(summary.COMPARISON_ARM)}, the arm that was "
        "named beforehand, not the best one. The contrasts here are one by one and not "
        "corrected for their number."
    )


def failures_note(results: Results) -> str:
    """How many runs failed or collapsed."""
    runs = results.runs.drop_duplicates(["task", "method", "seed", "status"])
    failed = int((runs["status"] == "failed").sum())
    collapsed = int((runs["status"] == "collapsed").sum())
    if not failed and not collapsed:
        return "No run failed or collapsed."
    return (
        f"Failed runs, which are in no mean: {failed}; collapsed runs, which are in every mean: "
        f"{collapsed}. Both are listed below."
    )


def headline(results_dir: Path) -> str:
    """Short Markdown for the README: the comparisons of the answer, for every task.

    Raises :class:`~agent_rl.errors.UserError` when a results file is missing or wrong.
    """
    results = load_results(results_dir)
    lines = []
    for task in results.tasks:
        base = number(summary.cell(results, task, "base").value)
        claims = [
            f"* {claim(summary.contrast(results, task, *pair))}"
            for pair in summary.answer_pairs(results, task)
        ]
        lines.append("\n".join([f"**{task}**, base success {base}:", "", *claims]))
    note = (
        f"Differences in greedy test success, paired by training seed; brackets: "
        f"{summary.LEVEL:.0%} t-intervals; n: seeds."
    )
    return "\n\n".join([*lines, note]) + "\n"
