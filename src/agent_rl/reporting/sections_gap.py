"""Reward against success in numbers, and the sentence that names the arms whose gap grew."""

from __future__ import annotations

from agent_rl.reporting import prose, reward_gap, style
from agent_rl.reporting.document import (
    DASH,
    Block,
    Bullets,
    Missing,
    Paragraph,
    Table,
    interval,
    number,
    with_sign,
)
from agent_rl.reporting.reward_gap import Gap
from agent_rl.reporting.summary import LEVEL, MIN_SEEDS
from agent_rl.reporting.tables import Results

READING = (
    "Normalised reward: (reward − floor) / (oracle − floor), where oracle is what the oracle "
    "earns under the arm's reward and floor the worst mean of failed episodes, both from the "
    "audit below. Gap: normalised reward − success. First and last: means of the first and the "
    "last fifth of the updates of a run, then over seeds; only runs of two updates or more "
    f"count. Change: last gap − first gap, paired by seed, with its {LEVEL:.0%} t-interval. A "
    "change that is 0 in three digits is unchanged. A gap alone is no fault, because a reward "
    "may pay for partial progress; a gap that grows means that the policy learns to be paid "
    "faster than it learns to succeed. The audit plays some training instances only, so the "
    "range is approximate. The changes are read one by one and not corrected for their number."
)


def gap_blocks(results: Results) -> list[Block]:
    """The sentences, a table per task, and how to read it."""
    per_task = {task: reward_gap.gaps(results, task) for task in results.tasks}
    found = [gap for gaps in per_task.values() for gap in gaps]
    if not found:
        return []
    if "reward_verdicts" not in results.rewards.frames:
        return [
            Missing(
                "`results/reward_verdicts.csv` is absent: the gap between reward and success is "
                "not measured."
            )
        ]
    blocks: list[Block] = [Bullets([gap_sentence(task, gaps) for task, gaps in per_task.items()])]
    for task, gaps in per_task.items():
        if gaps:
            blocks.append(_table(task, gaps))
    unknown = dict.fromkeys(
        f"{gap.task}, {style.label(gap.method)}: {gap.reason}" for gap in found if gap.reason
    )
    blocks += [Missing(f"No gap for {text}.") for text in unknown]
    return [*blocks, Paragraph(READING)]


def gap_sentence(task: str, gaps: list[Gap]) -> str:
    """Names the arms whose gap grew by the rule, or says that none did."""
    known = [gap for gap in gaps if gap.word != "unknown"]
    if not known:
        return f"**{task}**: no gap is known."
    tested = [gap for gap in known if gap.word != "descriptive"]
    grew = [gap for gap in tested if gap.word == "grew"]
    parts = []
    if grew:
        named = prose.names([f"{style.label(gap.method)} ({_change(gap)})" for gap in grew])
        parts.append(f"**reward rose faster than success**: {named}")
    elif tested:
        parts.append("no arm's gap grew with an interval above 0")
    if len(tested) < len(known):
        few = prose.names([style.label(gap.method) for gap in known if gap not in tested])
        parts.append(f"descriptive, fewer than {MIN_SEEDS} seeds, so nothing is claimed: {few}")
    return f"**{task}**: {'; '.join(parts)}."


def _change(gap: Gap) -> str:
    return f"{interval(gap.change, signed=True)}, n = {gap.change.n}"


def _table(task: str, gaps: list[Gap]) -> Table:
    header = [f"{task}: arm", "reward", "success, first → last", "normalised reward, first → last"]
    header += ["gap, first", "gap, last", "change of the gap", "reading", "n"]
    rows = [
        [
            style.label(gap.method),
            f"`{gap.reward}`" if gap.reward else DASH,
            " → ".join(map(number, gap.success)),
            " → ".join(map(number, gap.normalised)),
            *(with_sign(value) for value in gap.gap),
            interval(gap.change, signed=True),
            gap.word,
            str(gap.change.n),
        ]
        for gap in gaps
    ]
    return Table(header, rows, text_columns=2)
