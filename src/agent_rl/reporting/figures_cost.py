"""Stacked bars: what a run costs, and how its episodes end."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from agent_rl.reporting import drawing, style, summary
from agent_rl.reporting.drawing import Plot
from agent_rl.reporting.tables import Results

END_STYLES = {
    "end_success": ("success", "#2f7d4f", ""),
    "end_failure": ("failure", "#b65d2e", "//"),
    "end_turn_limit": ("turn limit", "#c9cfd6", ""),
    "end_token_limit": ("token limit", "#8b949e", "\\\\"),
    "end_error": ("error", "#24292f", ""),
}
TOKEN_STYLES = {
    "sampled": ("sampled", "#2a6f97", ""),
    "trained": ("trained on", "#e09f3e", "//"),
    "context": ("context (read only)", "#cfd5db", ""),
}


def cost(results: Results) -> Plot | None:
    """What a run of each arm costs: tokens by kind, environment steps, expert labels."""
    tasks = [task for task in results.tasks if results.trained(task)]
    rows = [
        {"task": task, "method": method, **summary.costs(results, task, method).mean().to_dict()}
        for task in tasks
        for method in results.trained(task)
        if len(summary.costs(results, task, method))
    ]
    if not rows:
        return None
    data = pd.DataFrame(rows).drop(columns="seed")
    arms = style.arm_order(set(data["method"]))
    figure = style.new_figure(10.0, 0.6 + (0.95 + 0.27 * len(arms)) * len(tasks))
    # No shared axes: tasks may have budgets and lengths of quite different size.
    grid = figure.subplots(len(tasks), 3, squeeze=False, width_ratios=[2.2, 1, 1])
    for row_axes, task in zip(grid, tasks, strict=True):
        part = data[data["task"] == task].set_index("method").reindex(arms)
        _token_bars(row_axes[0], part, summary.common_budget(results, task))
        row_axes[0].set_title(f"{task}: tokens per run")
        for axes, column, title in (
            (row_axes[1], "env_steps", "env steps"),
            (row_axes[2], "expert_labels", "expert labels"),
        ):
            axes.barh(range(len(part)), part[column].fillna(0.0), color="#57606a", height=0.62)
            axes.set_title(drawing.panel_title(task, title, 23))
            axes.set_yticks(range(len(part)), [])
            _mark_absent(axes, part["task"].isna())
        for axes in row_axes:
            axes.set_ylim(len(arms) - 0.4, -0.6)  # the same in all three: the bars are in line
            axes.grid(visible=False, axis="y")
            axes.set_xlim(left=0)
            axes.locator_params(axis="x", nbins=5)
            drawing.thousands(axes)
    handles = [
        Patch(facecolor=color, hatch=hatch, edgecolor="white", label=name)
        for name, color, hatch in TOKEN_STYLES.values()
    ]
    strokes = [
        Line2D([], [], color=style.INK, linestyle="none", marker="|", ms=9, mew=1.4, label="total"),
        Line2D([], [], color=style.MUTED, linestyle="--", linewidth=1.1, label="common budget"),
    ]
    figure.legend(handles=[*handles, *strokes], loc="outside lower center", ncols=5)
    drawing.finish(figure)
    return Plot(
        "cost",
        figure,
        data,
        "Mean cost of one training run: tokens, environment steps (env steps) and expert labels. "
        "Tokens are sampled, trained on, or only read as context; a vertical stroke marks the "
        "ledger's total, the dashed line the common budget." + drawing.own_axes(tasks),
        "Bars of tokens, environment steps and expert labels per training run for every arm. "
        + drawing.sentences(_cost_alt(data[data["task"] == task]) for task in tasks),
    )


def _cost_alt(part: pd.DataFrame) -> str:
    """Range of the totals and the largest other costs of a task."""
    totals = " to ".join(drawing.compact(part["total"].agg(edge)) for edge in ("min", "max"))
    text = f"{part['task'].iloc[0]}: {totals} tokens"
    for column, name in (("env_steps", "environment steps"), ("expert_labels", "expert labels")):
        if part[column].notna().any():
            most = part.loc[part[column].idxmax()]
            arm = style.label(most["method"])
            text += f", at most {drawing.compact(most[column])} {name} ({arm})"
    return text


def _token_bars(axes: Axes, part: pd.DataFrame, budget: float) -> None:
    left = np.zeros(len(part))
    for column, (_, color, hatch) in TOKEN_STYLES.items():
        width = part[column].fillna(0.0).to_numpy(float)
        axes.barh(
            range(len(part)), width, left=left, color=color, hatch=hatch, edgecolor="white",
            linewidth=0, height=0.62,
        )  # fmt: skip
        left += width
    for index, total in enumerate(part["total"]):
        if not math.isnan(total):
            axes.plot([total, total], [index - 0.4, index + 0.4], color=style.INK, linewidth=1.4)
    if not math.isnan(budget):
        axes.axvline(budget, color=style.MUTED, linestyle="--", linewidth=1.1, zorder=0.5)
    _mark_absent(axes, part["task"].isna())
    axes.set_yticks(range(len(part)), [style.label(method) for method in part.index])


def _mark_absent(axes: Axes, absent: pd.Series) -> None:
    """A word in the place of a bar that would look like 0."""
    for index in np.flatnonzero(absent):
        axes.text(
            0.02, float(index), "no run", transform=axes.get_yaxis_transform(), va="center",
            fontsize=8, color=style.MUTED,
        )  # fmt: skip


def end_reasons(results: Results) -> Plot | None:
    """How episodes end: shares of the five outcomes for every arm (greedy, test split)."""
    rows = []
    for task in results.tasks:
        for method in results.methods(task):
            frame = summary.select(results, task, method, "test", "greedy")
            frame = frame.dropna(subset=list(END_STYLES))
            if len(frame):
                shares = frame[list(END_STYLES)].div(frame["episodes"], axis=0).mean()
                rows.append({"task": task, "method": method, "n": len(frame), **shares})
    if not rows:
        return None
    data = pd.DataFrame(rows)
    tasks = list(dict.fromkeys(data["task"]))
    arms = style.arm_order(set(data["method"]))
    figure = style.new_figure(max(10.0, 1.6 + 3.4 * len(tasks)), 1.0 + 0.28 * len(arms))
    grid = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
    for axes, task in zip(grid, tasks, strict=True):
        _end_bars(axes, data[data["task"] == task].set_index("method").reindex(arms))
        axes.set_title(task)
        axes.set_xlabel("share of episodes")
    grid[0].set_yticks(range(len(arms)), [style.label(method) for method in arms])
    grid[0].invert_yaxis()
    handles = [
        Patch(facecolor=color, hatch=hatch, edgecolor="white", label=name)
        for name, color, hatch in END_STYLES.values()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    drawing.finish(figure)
    return Plot(
        "end_reasons",
        figure,
        data,
        "How greedy test episodes end, as shares of episodes, mean over "
        f"{drawing.seeds_text([int(n) for n in data['n'] if n > 1])} (one run for the untrained "
        "policies). Only `success` counts as success. `failure`: the task ended the episode, for "
        "example after a wrong answer; `error`: the episode crashed, and counts as failed.",
        "Stacked bars of end reasons per arm: success, failure, turn limit, token limit, error. "
        + drawing.sentences(_ends_alt(data, task) for task in tasks),
    )


def _end_bars(axes: Axes, part: pd.DataFrame) -> None:
    left = np.zeros(len(part))
    for column, (_, color, hatch) in END_STYLES.items():
        axes.barh(
            range(len(part)), part[column].fillna(0.0), left=left, color=color, hatch=hatch,
            edgecolor="white", linewidth=0.4, height=0.7,
        )  # fmt: skip
        left += part[column].fillna(0.0).to_numpy(float)
    _mark_absent(axes, part["task"].isna())
    axes.set_xlim(0, 1)
    axes.grid(visible=False, axis="y")


def _ends_alt(data: pd.DataFrame, task: str) -> str:
    """Shares of the outcomes that occur, for every arm of a task."""
    parts = []
    for _, row in data[data["task"] == task].iterrows():
        shares = [
            f"{name} {row[column]:.0%}"
            for column, (name, _, _) in END_STYLES.items()
            if row[column] >= 0.005
        ]
        parts.append(f"{style.label(row['method'])} {', '.join(shares)}")
    return f"{task}: {'; '.join(parts)}"
