"""Dead groups against group size: measured on the base's rollouts, and predicted."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from agent_rl.reporting import drawing, style, summary
from agent_rl.reporting.drawing import End, Plot
from agent_rl.reporting.reward_files import CREDITS
from agent_rl.reporting.reward_styles import Look, reward_looks, short_name
from agent_rl.reporting.tables import Results

MAIN_SIZE = 8
"""Group size that texts state: the one of the study's GRPO arms by default."""
_TITLES = {"trajectory": "trajectory credit", "turn": "turn credit"}


def dead_groups(results: Results) -> Plot | None:
    """Per task a row and per credit a panel: share of dead groups by group size."""
    data = results.rewards.rows("dead_groups")
    if data.empty:
        return None
    data = data.sort_values(["task", "credit", "reward", "group_size"], ignore_index=True)
    tasks = [task for task in results.tasks if (data["task"] == task).any()]
    credits = [credit for credit in CREDITS if (data["credit"] == credit).any()]
    looks = reward_looks(set(data["reward"]))
    sizes = sorted(set(data["group_size"]))
    figure = style.new_figure(5.6 * len(credits), 0.7 + 3.4 * len(tasks))
    grid = figure.subplots(len(tasks), len(credits), squeeze=False, sharex=True, sharey=True)
    for row_axes, task in zip(grid, tasks, strict=True):
        for axes, credit in zip(row_axes, credits, strict=True):
            part = data[(data["task"] == task) & (data["credit"] == credit)]
            _panel(axes, part, looks, sizes)
            axes.set_title(f"{task}: {_TITLES[credit]}")
            axes.tick_params(labelbottom=True)
        row_axes[0].set_ylabel("share of groups without signal")
    for axes in grid[-1]:
        axes.set_xlabel("group size G")
    handles = [
        Line2D([], [], color=style.MUTED, marker="o", ms=5, label="measured, with interval"),
        Line2D([], [], color=style.INK, linestyle="--", linewidth=1.4, label="predicted"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=3)
    drawing.finish(figure)
    return Plot(
        "dead_groups",
        figure,
        data,
        "Share of groups of the base's episodes from one start in which every advantage is 0, by "
        f"reward and credit. Bars and band: {summary.LEVEL:.0%} t-intervals over instances. "
        "Dashed: what success alone predicts, p^G + (1 - p)^G with p for each instance, estimated "
        "on other episodes of the same instances. Rewards with equal shares share one line; which "
        "these are is in the numbers.",
        f"Dead groups at G = {MAIN_SIZE}. " + drawing.sentences(_alt(data, task) for task in tasks),
    )


def _panel(axes: Axes, part: pd.DataFrame, looks: dict[str, Look], sizes: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(sizes) / 1.25, max(sizes) * 1.25)
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    drawing.success_axis(axes)
    lines = _lines(part, looks)
    ends = []
    # A little apart, so that no interval hides another; more would look like a difference.
    reach = min(0.04, 0.012 * len(lines))
    shifts = 2 ** np.linspace(-reach, reach, len(lines)) if len(lines) > 1 else [1.0]
    for shift, (label, look, line) in zip(shifts, lines, strict=True):
        x = line["group_size"].to_numpy(float) * shift
        bounds = line[["measured_low", "measured_high"]].to_numpy(float)
        error = np.abs(bounds - line[["measured"]].to_numpy(float)).T
        axes.errorbar(
            x, line["measured"], yerr=error, color=look.color, marker=look.marker, ms=5, mew=0.5,
            mec="white", linewidth=1.3, elinewidth=1.1, capsize=2, zorder=3,
        )  # fmt: skip
        ends.append(
            End(label, look.color, float(x[-1]), float(line["measured"].iloc[-1]), look.marker)
        )
    # Success has one probability for each instance, so the prediction is the same under every
    # reward; the mean only joins rows of rewards that were not scored at every size.
    predicted = part.groupby("group_size")["predicted"].mean().dropna()
    if len(predicted):
        bounds = part.groupby("group_size")[["predicted_low", "predicted_high"]].mean()
        axes.fill_between(
            bounds.index, bounds["predicted_low"], bounds["predicted_high"], color=style.INK,
            alpha=0.1, lw=0, zorder=1,
        )  # fmt: skip
        axes.plot(predicted.index, predicted, color=style.INK, ls="--", lw=1.4, zorder=4)
    drawing.label_points(axes, ends, gap=0.066)


def _lines(part: pd.DataFrame, looks: dict[str, Look]) -> list[tuple[str, Look, pd.DataFrame]]:
    """One entry for each different line; rewards that no line could tell apart share one."""
    shared: dict[tuple[object, ...], list[str]] = {}
    for reward in looks:
        line = part[part["reward"] == reward]
        if len(line):
            columns = line[["group_size", "measured", "measured_low", "measured_high"]].round(4)
            shared.setdefault(tuple(columns.fillna(-1.0).to_numpy().ravel()), []).append(reward)
    return [
        (_label(names), looks[names[0]], part[part["reward"] == names[0]])
        for names in shared.values()
    ]


def _label(names: list[str]) -> str:
    """Rewards of one line: at most two by name, so that the label leaves the panel its room."""
    shown = [short_name(name) for name in names]
    return ", ".join(shown) if len(names) <= 2 else f"{shown[0]} and {len(names) - 1} more"


def _alt(data: pd.DataFrame, task: str) -> str:
    """Measured and predicted share at the main group size."""
    here = data[(data["task"] == task) & (data["group_size"] == MAIN_SIZE)]
    texts = [f"{row.reward}, {row.credit} {row.measured:.2f}" for row in here.itertuples()]
    predicted = here["predicted"].mean()
    tail = f"; predicted {predicted:.2f}" if predicted == predicted else ""
    return f"{task}: {'; '.join(texts) or 'not measured'}{tail}"
