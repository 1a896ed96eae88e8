"""One card for each reward: what it says, what it pays for by mistake, what it pays the base.

The text is the code's own (``results/reward_cards.json``), the numbers are those of the audit and
of the base's episodes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter

from agent_rl.evaluation.statistics import Estimate
from agent_rl.reporting.document import (
    DASH,
    Block,
    Card,
    Missing,
    Paragraph,
    Table,
    count,
    interval,
    number,
    plain,
)
from agent_rl.reporting.figures_dead_groups import MAIN_SIZE
from agent_rl.reporting.reward_files import CardText
from agent_rl.reporting.sections_rewards import absent, stat_cells, verdict_word
from agent_rl.reporting.tables import Results

NOT_STATED = "not stated"
_TITLES = {
    "target": "target behaviour",
    "signal": "signal",
    "encoding": "encoding",
    "source": "source",
}
_LONGEST = 80


def file_names(names: list[str]) -> dict[str, str]:
    """A file name (without suffix) for every reward, safe on every file system.

    A name such as ``module:ATTRIBUTE`` becomes ``module-ATTRIBUTE``. Names that would meet in one
    file, also where upper and lower case are the same, get a part of their digest.
    """
    stems = {
        name: re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:_LONGEST] or "reward"
        for name in names
    }
    uses = Counter(stem.lower() for stem in stems.values())
    return {
        name: f"{stem}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        if uses[stem.lower()] > 1
        else stem
        for name, stem in stems.items()
    }


def reward_cards(results: Results) -> list[Card]:
    """Cards in display order; none where no file speaks of a reward."""
    files = file_names(results.rewards.names)
    return [
        Card(name, files[name], _summary(results, name), _blocks(results, name))
        for name in results.rewards.names
    ]


def _summary(results: Results, name: str) -> str:
    rows = results.rewards.rows("reward_verdicts", reward=name)
    verdicts = [f"{row.task}: {verdict_word(row.verdict)}" for row in rows.itertuples()]
    return "; ".join(verdicts) or "not audited"


def _blocks(results: Results, name: str) -> list[Block]:
    return [
        *_facts(results, name),
        Paragraph("**What it pays for by mistake** (scripted policies, from the reward audit)"),
        *_mistakes(results, name),
        Paragraph("**What it pays the base** (sampled episodes before any training)"),
        *_base(results, name),
        Paragraph(
            f"**Dead groups at G = {MAIN_SIZE}** (groups of the base in which no advantage "
            "differs from 0)"
        ),
        *_dead(results, name),
    ]


def _facts(results: Results, name: str) -> list[Block]:
    if results.rewards.cards is None:
        return [Missing("`results/reward_cards.json` is absent: the reward is not described.")]
    text = results.rewards.cards.get(name, CardText({}, {}, ()))
    formula = plain(text.texts.get("formula", "")).replace("`", "")
    rows = [["formula", f"`{formula}`" if formula else NOT_STATED]]
    rows += [
        [title, plain(text.texts.get(key, "")).replace("``", "`") or NOT_STATED]
        for key, title in _TITLES.items()
    ]
    settings = ", ".join(
        f"`{key} = {value if isinstance(value, str) else json.dumps(value, sort_keys=True)}`"
        for key, value in sorted(text.settings.items())
        if value not in (None, "", {}) and (key, value) != ("name", name)
    )
    rows.append(["settings", settings or NOT_STATED])
    rows.append(["tasks", ", ".join(text.tasks) or NOT_STATED])
    return [Table(["what", "the code says"], rows, text_columns=2)]


def _mistakes(results: Results, name: str) -> list[Block]:
    gap = absent(results, "reward_verdicts", "the reward has no verdict")
    if gap:
        return [gap]
    verdicts = results.rewards.rows("reward_verdicts", reward=name)
    if verdicts.empty:
        return [Missing("The audit did not score this reward.")]
    rows = []
    for row in verdicts.itertuples():
        paid, payee = _best_paid_failure(results, row.task, name)
        share = DASH if math.isnan(row.paid_failures) else f"{row.paid_failures:.0%}"
        rows.append(
            [
                row.task,
                verdict_word(row.verdict),
                f"`{row.best_exploit}`" if row.best_exploit else DASH,
                f"{number(row.best_exploit_return)} ({number(row.oracle_return)})",
                _paid_cell(paid, payee, float(row.floor_return)),
                number(row.floor_return),
                share,
            ]
        )
    header = ["task", "verdict", "best exploit", "its return (oracle's)"]
    header += ["most paid failures", "floor", "paid failures, of the range"]
    return [Table(header, rows, text_columns=3)]


def _paid_cell(paid: float, payee: str, floor: float) -> str:
    """What failed episodes are paid at most, and by playing how; the floor needs no policy."""
    return f"{number(paid)} by `{payee}`" if paid > floor + 1e-6 else number(paid)


def _best_paid_failure(results: Results, task: str, name: str) -> tuple[float, str]:
    """The highest mean return of a policy's failed episodes, and that policy."""
    rows = results.rewards.rows("reward_audit", task=task, reward=name)
    failed = rows.dropna(subset=["mean_return_failed"])
    if failed.empty:
        return math.nan, ""
    best = failed.loc[failed["mean_return_failed"].astype(float).idxmax()]
    return float(best["mean_return_failed"]), str(best["policy"])


def _base(results: Results, name: str) -> list[Block]:
    gap = absent(results, "reward_stats", "what the base is paid is not known")
    if gap:
        return [gap]
    rows = [
        [row.task, count(row.episodes), *stat_cells(row)]
        for row in results.rewards.rows("reward_stats", reward=name).itertuples()
    ]
    header = ["task", "episodes", "mean", "std in group", "variance in group"]
    if not rows:
        return [Missing("The base's episodes were not scored with this reward.")]
    return [Table([*header, "correlation with success"], rows)]


def _dead(results: Results, name: str) -> list[Block]:
    gap = absent(results, "dead_groups", "dead groups are not known")
    if gap:
        return [gap]
    found = results.rewards.rows("dead_groups", reward=name, group_size=MAIN_SIZE)
    rows = [
        [
            row.task,
            row.credit,
            interval(
                Estimate(row.measured, row.measured_low, row.measured_high, row.instances, "")
            ),
            number(row.predicted),
            count(row.groups),
        ]
        for row in found.itertuples()
    ]
    if not rows:
        return [Missing(f"Dead groups at G = {MAIN_SIZE} were not measured with this reward.")]
    return [Table(["task", "credit", "measured", "predicted", "groups"], rows, text_columns=2)]
