"""Sections on the rewards themselves: can they be farmed, and what do they pay the base."""

from __future__ import annotations

import math

import pandas as pd

from agent_rl.reporting import prose, summary
from agent_rl.reporting.document import (
    DASH,
    Block,
    Bullets,
    Missing,
    Paragraph,
    Table,
    count,
    number,
)
from agent_rl.reporting.reward_files import FARMABLE, VERDICTS, reward_order
from agent_rl.reporting.tables import Results

AUDIT = (
    "Scripted policies, most of them exploits, play the same instances under every reward. A "
    f"reward is **{FARMABLE}** when an exploit out-earns the oracle; it **pays failures** when no "
    "exploit does, but failed episodes of a policy are paid for something that other failed "
    "episodes are not; else it is **tight** (the rule is in `src/agent_rl/rewards/audit.py`). The "
    "floor is the lowest mean return of a policy's failed episodes; paid failures is the largest "
    "share of the range from floor to oracle that a policy's failed episodes are paid. A highest "
    "return in bold lies above the declared maximum."
)
TABULAR = (
    "Potential-based shaping keeps the greedy policy (Ng et al. 1999). Value iteration on small "
    "mazes, where the best policy is known exactly, checks it: differing are the states in which "
    "the greedy policy under a reward is not that under the sparse one. With a horizon the sparse "
    "reward often has no preference (goes anywhere): the goal is out of reach, or there is time to "
    "spare; a reward that has one there counts as differing. States are summed over the mazes; "
    "`results/tabular_check.csv` has each."
)
JUDGE = (
    "A judge ranks the trajectories of a group. Pair agreement: share of pairs of one success and "
    "one failure that it ranks right, ties half. Order effect: score in the last place shown "
    "minus that in the first, 0 without a preference; order disagreement: mean absolute difference "
    "of the score of one trajectory between two orders."
)
BASE = (
    "The same sampled episodes of the base under every reward, before any training. The variance "
    "inside groups is what a group's advantages rest on before they are normalised; the "
    "correlation says whether it points at success."
)
CRITERIA = (
    "The criteria of the rubric on the same episodes: how often each is met, and how that goes "
    "along with success. A criterion that is always or never met has no correlation."
)


def absent(results: Results, name: str, consequence: str) -> Missing | None:
    """A visible line when a file is absent or holds nothing of this study; else None."""
    if name not in results.rewards.frames:
        return Missing(f"`results/{name}.csv` is absent: {consequence}.")
    if results.rewards.rows(name).empty:
        return Missing(
            f"`results/{name}.csv` has no row of this study's tasks "
            f"({prose.names(results.tasks)}): {consequence}."
        )
    return None


def audit_blocks(results: Results, picture: Block) -> list[Block]:
    """Verdicts in words and as a table, the picture, the exact check on mazes, the judge."""
    return [
        Paragraph(AUDIT),
        *_verdicts(results),
        *_gap_of_audit(results),
        picture,
        *_lucky(results),
        *_tabular(results),
        *_judge(results),
    ]


def _gap_of_audit(results: Results) -> list[Block]:
    gap = absent(results, "reward_audit", "the returns of the scripted policies are not shown")
    return [gap] if gap else []


LUCKY = 0.05
"""Success from which on a script that does not try to solve the task is worth a line."""
HONEST = ("oracle", "dawdle")
"""Scripts that do solve the task."""


def lucky_scripts(results: Results, task: str) -> list[str]:
    """Scripts that solve a task now and then without trying, with their success, best first."""
    frame = results.rewards.rows("reward_audit", task=task)
    frame = frame[~frame["policy"].isin(HONEST) & (frame["success_rate"] >= LUCKY)]
    best = frame.groupby("policy")["success_rate"].max().sort_values(ascending=False)
    return [f"`{policy}` {number(rate)}" for policy, rate in best.items()]


def luck_sentence(results: Results, task: str) -> str:
    """A warning where a script does better by luck than the base does; else empty."""
    frame = results.rewards.rows("reward_audit", task=task)
    frame = frame[~frame["policy"].isin(HONEST)]
    base = list(summary.rates(results, task, "base").values())
    if frame.empty or not base or frame["success_rate"].max() <= base[0]:
        return ""
    best = frame.loc[frame["success_rate"].idxmax()]
    return (
        f"**Luck goes far on {task}**: the script `{best['policy']}` of the reward audit, which "
        f"does not try to solve it, succeeds in {number(best['success_rate'])} of the training "
        f"instances, the base in {number(base[0])} of the test instances; only success beyond "
        "that shows a skill."
    )


def _lucky(results: Results) -> list[Block]:
    """What luck alone achieves: an arm is to be compared with that, not with 0."""
    found = {task: lucky_scripts(results, task) for task in results.tasks}
    parts = [f"{task}: {prose.names(scripts)}" for task, scripts in found.items() if scripts]
    if not parts:
        return []
    text = f"Success that scripts have by luck, on training instances: {'; '.join(parts)}. "
    return [Paragraph(text + "An arm's success is to be read against that, not against 0.")]


def _verdicts(results: Results) -> list[Block]:
    gap = absent(results, "reward_verdicts", "no reward has a verdict")
    if gap:
        return [gap]
    frame = ordered(results.rewards.rows("reward_verdicts"))
    rows = [
        [
            row.task,
            f"`{row.reward}`",
            verdict_word(row.verdict),
            f"`{row.best_exploit}`" if row.best_exploit else DASH,
            number(row.best_exploit_return),
            number(row.oracle_return),
            number(row.floor_return),
            DASH if math.isnan(row.paid_failures) else f"{row.paid_failures:.0%}",
            _against_maximum(row.highest_return, row.declared_maximum),
            number(row.declared_maximum),
        ]
        for row in frame.itertuples()
    ]
    header = ["task", "reward", "verdict", "best exploit", "its return", "oracle", "floor"]
    header += ["paid failures", "highest return", "declared maximum"]
    lines = [_verdict_line(task, frame[frame["task"] == task]) for task in results.tasks]
    return [Bullets([line for line in lines if line]), Table(header, rows, text_columns=4)]


def verdict_word(verdict: str) -> str:
    """A verdict as it stands in a table: the one that warns is strong."""
    return f"**{verdict}**" if verdict == FARMABLE else verdict


def _against_maximum(highest: float, declared: float) -> str:
    over = highest > declared + 1e-6  # false without a declared maximum
    return f"**{number(highest)}**" if over else number(highest)


def _verdict_line(task: str, frame: pd.DataFrame) -> str:
    """The rewards of one task by verdict, the farmable ones with what the exploit earns."""
    parts = []
    for verdict in VERDICTS:
        found = frame[frame["verdict"] == verdict]
        if found.empty:
            continue
        names = [
            f"`{row.reward}` (`{row.best_exploit}` earns {number(row.best_exploit_return)}, the "
            f"oracle {number(row.oracle_return)})"
            if verdict == FARMABLE
            else f"`{row.reward}`"
            for row in found.itertuples()
        ]
        parts.append(f"{verdict_word(verdict)}: {prose.names(names)}")
    return f"**{task}**: {'; '.join(parts)}." if parts else ""


def _tabular(results: Results) -> list[Block]:
    gap = absent(results, "tabular_check", "greedy policies are not compared on mazes")
    if gap:
        return [gap]
    frame = results.rewards.rows("tabular_check")
    rows = [
        _tabular_row(str(reward), str(setting), part)
        for (reward, setting), part in frame.groupby(["reward", "setting"], sort=False)
    ]
    header = ["reward", "setting", "one that differs", "mazes that differ", "states", "differing"]
    totals = frame.groupby("reward")["differing_states"].sum()
    kept, changed = (
        prose.names([f"`{reward}`" for reward in reward_order(set(totals.index[mask]))])
        for mask in (totals == 0, totals > 0)
    )
    words = f"Kept everywhere: {kept}. Changed somewhere: {changed}."
    return [Paragraph(f"{TABULAR} {words}"), Table(header, rows, text_columns=3)]


def _tabular_row(reward: str, setting: str, part: pd.DataFrame) -> list[str]:
    """One reward in one setting, summed over the mazes, with the first example."""
    differing = int(part["differing_states"].sum())
    examples = [example for example in part["example"] if example]
    return [
        f"`{reward}`",
        setting,
        examples[0] if examples else DASH,
        f"{int((part['differing_states'] > 0).sum())} of {len(part)}",
        count(part["states"].sum()),
        f"**{differing:,}**" if differing else "0",
    ]


def _judge(results: Results) -> list[Block]:
    if results.rewards.rows("judge").empty:
        return [Paragraph("No judge was asked: that reward is off unless an endpoint is set.")]
    rows = [
        [
            row.task,
            f"`{row.reward}`",
            count(row.groups),
            count(row.invalid_groups),
            count(row.requests),
            count(row.retries),
            number(row.pair_agreement),
            count(row.pairs),
            number(row.order_effect),
            number(row.order_disagreement),
        ]
        for row in ordered(results.rewards.rows("judge")).itertuples()
    ]
    header = ["task", "reward", "groups", "invalid", "requests", "retries", "pair agreement"]
    header += ["pairs", "order effect", "order disagreement"]
    return [Paragraph(JUDGE), Table(header, rows, text_columns=2)]


def base_blocks(results: Results, picture: Block) -> list[Block]:
    """What each reward says of the base's episodes, dead groups, the rubric's criteria."""
    gap = absent(results, "dead_groups", "dead groups are neither measured nor predicted")
    return [*_stats(results), *([gap] if gap else []), picture, *_criteria(results)]


def _stats(results: Results) -> list[Block]:
    gap = absent(results, "reward_stats", "the rewards of the base's episodes are not shown")
    if gap:
        return [gap]
    rows = [
        [row.task, f"`{row.reward}`", count(row.episodes), *stat_cells(row)]
        for row in ordered(results.rewards.rows("reward_stats")).itertuples()
    ]
    header = ["task", "reward", "episodes", "mean", "std in group", "variance in group"]
    return [
        Table([*header, "correlation with success"], rows, text_columns=2),
        Paragraph(BASE),
    ]


def stat_cells(row: object) -> list[str]:
    """Mean, spread inside groups, and correlation of one row of ``reward_stats``."""
    columns = ("mean", "std_in_group", "variance_in_group")
    cells = [number(getattr(row, column)) for column in columns]
    return [*cells, number(getattr(row, "correlation_with_success"), 2)]  # noqa: B009


def _criteria(results: Results) -> list[Block]:
    gap = absent(results, "rubric_criteria", "no criterion of a rubric is shown")
    if gap:
        return [gap]
    rows = [
        [
            row.task,
            f"`{row.reward}`",
            row.criterion,
            f"{row.weight:g}",
            number(row.rate),
            number(row.correlation_with_success, 2),
        ]
        for row in results.rewards.rows("rubric_criteria").itertuples()
    ]
    header = ["task", "reward", "criterion", "weight", "rate", "correlation with success"]
    return [Table(header, rows, text_columns=3), Paragraph(CRITERIA)]


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows by task, then by reward in display order."""
    order = {name: place for place, name in enumerate(reward_order(set(frame["reward"])))}
    keys = frame.assign(_reward=frame["reward"].map(order))
    return keys.sort_values(["task", "_reward"], kind="stable").drop(columns="_reward")
