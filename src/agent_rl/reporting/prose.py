"""Sentences whose every number comes from the results files."""

from __future__ import annotations

import math
from pathlib import Path

from agent_rl.reporting import facts, style, summary
from agent_rl.reporting.document import count, interval, number
from agent_rl.reporting.summary import Contrast
from agent_rl.reporting.tables import Results, load_results


def question() -> str:
    """What the study asks."""
    return (
        "On multi-step tasks, when does reinforcement learning over whole trajectories beat "
        "supervised fine-tuning and single-turn preference tuning, and at what cost?"
    )


def names(tasks: list[str]) -> str:
    """Task names in running text: "a", "a and b", "a, b and c"."""
    if not tasks:
        return "none"
    *most, last = tasks
    return f"{', '.join(most)} and {last}" if most else last


def number_word(size: int, noun: str) -> str:
    """A small count with its noun: "one task", "two tasks"."""
    words = ("no", "one", "two", "three", "four", "five", "six")
    word = words[size] if size < len(words) else str(size)
    return f"{word} {noun}{'' if size == 1 else 's'}"


def tasks_lead(results: Results) -> str:
    """How many tasks the study has."""
    return f"It is asked here on {number_word(len(results.tasks), 'task')}:"


def task_sentence(results: Results, task: str) -> str:
    """One task in words: what the agent does, and how far it has to go."""
    frame = results.by_distance
    distances = frame.loc[(frame["task"] == task) & (frame["split"] == "test"), "distance"]
    text = f"**{task}**: {facts.description(facts.task_facts(results.provenance, task))}"
    if distances.empty:
        return text
    low, high = int(distances.min()), int(distances.max())
    steps = number_word(low, "step") if low == high else f"{low} to {high} steps"
    return f"{text} The expert needs {steps} on test instances."


def scope(results: Results) -> str:
    """How far the answer reaches."""
    tasks = results.tasks
    policy = "one base policy" if len(tasks) == 1 else "one base policy for each"
    return (
        f"The study stands on {number_word(len(tasks), 'task')} ({names(tasks)}) and {policy}: "
        "it says what happened there, not what happens everywhere. All seeds of an arm start from "
        "the same base and, where they learn from collected groups, from the same groups: the "
        "intervals say what another training seed would give, not another base."
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


_ACROSS = {
    "higher": "**higher** on",
    "lower": "**lower** on",
    "inconclusive": "**inconclusive** on",
    "descriptive": "descriptive (too few seeds) on",
    "refused": "refused (unequal budgets) on",
    "missing": "not compared on",
}
"""Words of a contrast in the order in which they are counted."""


def across_lead(results: Results) -> str:
    """What the lines on all tasks are."""
    return (
        f"**Across the {number_word(len(results.tasks), 'task')}** ({names(results.tasks)}). The "
        "verdicts of each comparison, counted; the tasks are not pooled:"
    )


def across_claims(results: Results) -> list[str]:
    """On which tasks each contrast of the answer has which verdict, one line per contrast.

    The best RL arm may be another one on every task; it has one line all the same.
    """
    per_task = [
        {_role(results, task, pair): summary.contrast(results, task, *pair) for pair in pairs}
        for task in results.tasks
        for pairs in [summary.answer_pairs(results, task)]
    ]
    roles = list(dict.fromkeys(role for found in per_task for role in found))
    # A task without any RL run comes without the line on the best arm, which stands first.
    roles.sort(key=lambda role: role[0] != _BEST)
    lines = []
    for left, right in roles:
        verdicts: dict[str, list[str]] = {}
        for task, found in zip(results.tasks, per_task, strict=True):
            known = found.get((left, right))
            verdicts.setdefault(known.word if known else "missing", []).append(task)
        total = len(results.tasks)
        parts = [
            f"{text} {len(verdicts[word])} of {total} ({names(verdicts[word])})"
            for word, text in _ACROSS.items()
            if word in verdicts
        ]
        lines.append(f"{left} against {right}: {', '.join(parts)}.")
    return lines


_BEST = "The best RL arm"


def _role(results: Results, task: str, pair: tuple[str, str]) -> tuple[str, str]:
    """A contrast as the reader knows it on every task."""
    best = summary.best_rl(results, task)
    is_best = best is not None and pair == (best[0], "base")
    return _BEST if is_best else style.label(pair[0]), style.label(pair[1])


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


def budget_sentence(results: Results) -> str:
    """The common budget of every task and where it comes from."""
    parts = []
    for task in results.tasks:
        known = results.provenance["budget_tokens"].get(task)
        source = "configured" if known else "the median of the arms' means"
        parts.append(f"`{task}` {count(summary.common_budget(results, task))} tokens ({source})")
    return f"Common budget: {'; '.join(parts)}."


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
    where = ""
    if len(results.tasks) > 1:
        affected = set(runs.loc[runs["status"] != "ok", "task"])
        where = f" (on {names(sorted(affected))})"
    return (
        f"Failed runs, which are in no mean: {failed}; collapsed runs, which are in every mean: "
        f"{collapsed}{where}. Both are listed below."
    )


def headline(results_dir: Path) -> str:
    """Short Markdown for the README: the comparisons of the answer, for every task.

    Raises :class:`~agent_rl.errors.UserError` when a results file is missing or wrong.
    """
    results = load_results(results_dir)
    lines = []
    if len(results.tasks) > 1:
        across = [f"* {line}" for line in across_claims(results)]
        lines.append("\n".join([across_lead(results), "", *across]))
    for task in results.tasks:
        base = number(summary.cell(results, task, "base").value)
        kind = facts.short_words(facts.task_facts(results.provenance, task))
        claims = [f"* {sentence}" for sentence in answer_claims(results, task)]
        lines.append("\n".join([f"**{task}** ({kind}), base success {base}:", "", *claims]))
    note = (
        f"Differences in greedy test success, paired by training seed; brackets: "
        f"{summary.LEVEL:.0%} t-intervals; n: seeds."
    )
    return "\n\n".join([*lines, note, scope(results)]) + "\n"
