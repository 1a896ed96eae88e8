"""The reward audit as a picture: what every scripted policy earns under every reward."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from agent_rl.reporting import drawing, style
from agent_rl.reporting.drawing import Plot
from agent_rl.reporting.reward_files import FARMABLE, ORACLE, PAYS_FAILURES, TIGHT, reward_order
from agent_rl.reporting.reward_styles import Look, policy_looks, short_name
from agent_rl.reporting.tables import Results

CAP = 2.5
"""Shares beyond this stand at the edge with their number, so that one reward squeezes no other."""
VERDICT_COLORS = {FARMABLE: "#b3261e", PAYS_FAILURES: "#8a5a00", TIGHT: style.MUTED}
_FARMED, _PAID = "#fbe3e0", "#f4dfae"


def audit_shares(results: Results) -> pd.DataFrame:
    """Return of each policy as a share of the range floor..oracle of its task and reward.

    Columns task, reward, verdict, paid_failures, policy, mean_return, success_rate, share and
    beats_oracle (share above the oracle's); share is nan where the range is empty or unknown.
    """
    audit = results.rewards.rows("reward_audit")
    verdicts = results.rewards.rows("reward_verdicts")
    columns = ["task", "reward", "verdict", "paid_failures", "floor_return", "oracle_return"]
    data = audit.merge(verdicts[columns], on=["task", "reward"], how="inner")
    floor, width = data["floor_return"], data["oracle_return"] - data["floor_return"]
    known = width.where(width > 0)
    data["share"] = ((data["mean_return"] - floor) / known).astype(float)
    # Results files have six decimals: the last one is rounding, not money.
    data["beats_oracle"] = data["mean_return"] > data["oracle_return"] + 1e-6
    front = ["task", "reward", "verdict", "paid_failures", "policy", "mean_return"]
    return data[[*front, "success_rate", "share", "beats_oracle"]]


def reward_audit(results: Results) -> Plot | None:
    """Per task a panel, per reward a row, per policy a mark on the way from floor to oracle."""
    data = audit_shares(results)
    if data.empty:
        return None
    tasks = [task for task in results.tasks if (data["task"] == task).any()]
    rewards = reward_order(set(data["reward"]))
    looks = policy_looks(set(data["policy"]))
    figure = style.new_figure(10.0, 0.7 + (0.75 + 0.56 * len(rewards)) * len(tasks))
    grid = figure.subplots(len(tasks), 1, squeeze=False, sharex=True)[:, 0]
    low, high = min(-0.04, data["share"].min()), max(1.12, min(CAP, data["share"].max()) + 0.06)
    for axes, task in zip(grid, tasks, strict=True):
        axes.set_xlim(max(low, -1.0), high)
        axes.set_ylim(len(rewards) - 0.5, -0.5)
        axes.axvspan(1.0, high, color=_FARMED, linewidth=0, zorder=0)
        axes.axvline(1.0, color=style.INK, linewidth=1.0, zorder=1)
        axes.axvline(0.0, color=style.MUTED, linewidth=0.8, zorder=1)
        for row, reward in enumerate(rewards):
            part = data[(data["task"] == task) & (data["reward"] == reward)]
            _row(axes, row, part.set_index("policy"), looks)
            axes.axhline(row + 0.5, color=style.GRID, linewidth=0.8, zorder=0.5)
        axes.set_yticks(range(len(rewards)), [short_name(reward) for reward in rewards])
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.tick_params(labelbottom=True)
        axes.set_title(task)
    grid[-1].set_xlabel("mean return: 0 = worst failure, 1 = oracle; shaded beyond: farmed")
    figure.legend(handles=_legend(looks), loc="outside lower center", ncols=5)
    drawing.finish(figure)
    return Plot(
        "reward_audit",
        figure,
        data,
        "What scripted policies earn under each reward, as a share of its range on the task: 0 is "
        "the worst mean return of failed episodes, 1 what the oracle earns. Marks beyond 1 "
        "(shaded, named) out-earn the oracle: the reward can be farmed. Bar: the largest share "
        f"that failed episodes of a policy are paid. Marks beyond {CAP:g} stand at the edge with "
        "their number. Right: the verdict.",
        "Returns of scripted policies between the worst failure (0) and the oracle (1). "
        + drawing.sentences(_alt(data, task) for task in tasks),
    )


def _row(axes: Axes, row: int, part: pd.DataFrame, looks: dict[str, Look]) -> None:
    """One reward: a bar for paid failures, one mark for each policy in a lane of its own."""
    edge = axes.get_yaxis_transform()
    if part.empty or part["share"].isna().all():
        words = "not audited" if part.empty else "no range: the oracle earns no more than failures"
        axes.text(0.02, row, words, transform=edge, va="center", fontsize=8, color=style.MUTED)
    if part.empty:
        return
    verdict, paid = str(part["verdict"].iloc[0]), float(part["paid_failures"].iloc[0])
    weight = "bold" if verdict == FARMABLE else "normal"
    axes.text(
        1.012, row, verdict, transform=edge, va="center", fontsize=8.5, weight=weight,
        color=VERDICT_COLORS[verdict],
    )  # fmt: skip
    if paid > 0:
        axes.barh(row, paid, color=_PAID, height=0.86, linewidth=0, zorder=0.6)
    lanes = np.linspace(-0.36, 0.36, len(looks))
    for lane, (policy, look) in zip(lanes, looks.items(), strict=True):
        if policy in part.index and not math.isnan(part.loc[policy, "share"]):
            farmed = policy != ORACLE and bool(part.loc[policy, "beats_oracle"])
            _mark(axes, row + lane, policy, float(part.loc[policy, "share"]), look, farmed)


def _mark(axes: Axes, y: float, policy: str, share: float, look: Look, farmed: bool) -> None:
    beyond = share > CAP
    size = 9.0 if policy == ORACLE else 7.5 if farmed else 5.5
    axes.plot(
        min(share, CAP), y, marker=look.marker, color=look.color, ms=size, linestyle="none",
        mec=VERDICT_COLORS[FARMABLE] if farmed else "white", mew=1.3 if farmed else 0.5, zorder=4,
        clip_on=False,
    )  # fmt: skip
    if farmed:
        # To the left of the mark, inside the shade or not: the right belongs to the verdict.
        text = f"{policy} {share:.2f} \u2192" if beyond else f"{policy} {share:.2f}"
        axes.annotate(
            text, (min(share, CAP), y), xytext=(-7, 0), textcoords="offset points", ha="right",
            va="center", fontsize=8, weight="bold", color=VERDICT_COLORS[FARMABLE], zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
        )  # fmt: skip


def _legend(looks: dict[str, Look]) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D(
            [], [], color=look.color, marker=look.marker, linestyle="none", label=policy,
            ms=9 if policy == ORACLE else 6,
        )
        for policy, look in looks.items()
    ]  # fmt: skip
    return [
        *handles,
        Patch(facecolor=_PAID, label="failed episodes are paid"),
        Patch(facecolor=_FARMED, label="more than the oracle"),
    ]


def _alt(data: pd.DataFrame, task: str) -> str:
    """Verdict of every reward of a task, with the policies that out-earn the oracle."""
    texts = []
    here = data[data["task"] == task]
    for reward in reward_order(set(here["reward"])):
        part = here[here["reward"] == reward]
        farmed = part[part["beats_oracle"] & (part["policy"] != ORACLE)]
        earned = ", ".join(f"{row.policy} {row.share:.2f}" for row in farmed.itertuples())
        texts.append(f"{reward} {part['verdict'].iloc[0]}" + (f" ({earned})" if earned else ""))
    return f"{task}: " + "; ".join(texts)
