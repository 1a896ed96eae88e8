"""Success against the number of steps that the expert needs."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from agent_rl.evaluation import statistics as st
from agent_rl.reporting import drawing, style, summary
from agent_rl.reporting.drawing import Plot
from agent_rl.reporting.tables import Results

MIN_EPISODES = 20
"""Distances at the far end are pooled until this many episodes of a run are in the last bin."""


def success_by_distance(results: Results) -> Plot | None:
    """Success against the number of steps that the expert needs, one panel per arm."""
    frame = results.by_distance
    frame = frame[(frame["split"] == "test") & (frame["decoding"] == "greedy")]
    panels = [
        (task, method)
        for task in results.tasks
        for method in results.trained(task)
        if ((frame["task"] == task) & (frame["method"] == method)).any()
    ]
    if not panels:
        return None
    columns = 4
    per_task = {task: [m for t, m in panels if t == task] for task in dict(panels)}
    heights = {task: math.ceil(len(arms) / columns) for task, arms in per_task.items()}
    figure = style.new_figure(10.0, 0.5 + 2.1 * sum(heights.values()))
    grid = figure.subplots(sum(heights.values()), columns, squeeze=False, sharey=True)
    rows: list[pd.DataFrame] = []
    top = 0
    for task, arms in per_task.items():
        binned = _bin_distances(frame[frame["task"] == task])
        for index in range(heights[task] * columns):
            axes = grid[top + index // columns][index % columns]
            if index >= len(arms):
                axes.set_visible(False)
                continue
            rows.append(_distance_panel(axes, binned, task, arms[index]))
            if index % columns == 0:
                axes.set_ylabel("success rate")
            if index + columns >= len(arms):
                axes.set_xlabel("expert steps at the start, $d_0$")
        top += heights[task]
    base = style.ARMS["base"]
    line = Line2D([], [], color=base.color, linewidth=1.2, linestyle="--", label="base")
    figure.legend(handles=[line], loc="outside lower center", handlelength=3)
    drawing.finish(figure)
    data = pd.concat(rows, ignore_index=True).drop_duplicates(ignore_index=True)
    return Plot(
        "success_by_distance",
        figure,
        data,
        "Greedy success on test instances by the expert's number of steps at the start; mean and "
        f"{summary.LEVEL:.0%} t-interval over seeds; dashed: the base. {_episodes_per_point(data)}",
        "Success of every trained arm and the base by the expert's number of steps, from the "
        "nearest to the farthest. "
        + drawing.sentences(_distance_alt(data, task) for task in per_task),
    )


def _episodes_per_point(data: pd.DataFrame) -> str:
    low, high = (int(size) for size in data["episodes_per_run"].agg(["min", "max"]))
    span = f"{low}" if low == high else f"{low} to {high}"
    pooled = " A point at ≥ pools the rare long distances." if data["and_longer"].any() else ""
    return f"Each run plays {span} episodes per point.{pooled}"


def _distance_alt(data: pd.DataFrame, task: str) -> str:
    part = data[data["task"] == task]
    ends = [
        f"{style.label(arm)} {curve['value'].iloc[0]:.2f} to {curve['value'].iloc[-1]:.2f}"
        for arm in style.arm_order(set(part["method"]))
        for curve in [part[part["method"] == arm]]
    ]
    return f"{task}, {int(part['x'].min())} to {int(part['x'].max())} steps: {', '.join(ends)}"


def _bin_distances(frame: pd.DataFrame) -> pd.DataFrame:
    """Pool the far distances so that the last bin has ``MIN_EPISODES`` episodes of each run.

    All arms play the same instances, so the bins are the same for all of them.
    """
    per_run = frame.groupby(["method", "seed", "distance"])["episodes"].sum()
    sizes = per_run.groupby("distance").max().sort_index(ascending=False).cumsum()
    enough = sizes[sizes >= MIN_EPISODES]
    last = int(enough.index[0]) if len(enough) else int(frame["distance"].min())
    bins = frame.assign(
        pooled=frame["distance"].max() > last, distance=frame["distance"].clip(upper=last)
    )
    keys = ["method", "seed", "distance", "pooled"]
    summed = bins.groupby(keys, as_index=False)[["episodes", "successes"]].sum()
    return summed.assign(
        rate=summed["successes"] / summed["episodes"],
        open_end=summed["pooled"] & (summed["distance"] == last),
    )


def _distance_curve(binned: pd.DataFrame, method: str) -> pd.DataFrame:
    rows = []
    for distance, group in binned[binned["method"] == method].groupby("distance"):
        estimate = st.t_interval(group["rate"], summary.LEVEL)
        rows.append(
            {
                "x": distance,
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "n": estimate.n,
                "episodes_per_run": group["episodes"].mean(),
                "and_longer": bool(group["open_end"].any()),
            }
        )
    return pd.DataFrame(rows)


def _distance_panel(axes: Axes, binned: pd.DataFrame, task: str, method: str) -> pd.DataFrame:
    drawing.success_axis(axes)
    curves = []
    for name in ("base", method):
        curve = _distance_curve(binned, name)
        if curve.empty:
            continue
        if name == "base":
            base = style.ARMS["base"]
            _distance_point(axes, curve, name)
            axes.plot(curve["x"], curve["value"], color=base.color, ls="--", lw=1.2)
        else:
            _distance_point(axes, curve, name)
            drawing.draw_mean(axes, curve, name)
        curves.append(curve.assign(task=task, method=name))
    data = pd.concat(curves, ignore_index=True)
    ticks = sorted(data["x"].unique())
    ticks = ticks[:: max(1, math.ceil(len(ticks) / 8))]
    last = data["x"].max()
    if ticks[-1] != last:
        ticks = [*[tick for tick in ticks if last - tick >= 2], last]
    more = bool(data["and_longer"].any())
    names = [f"≥{int(t)}" if more and t == last else f"{int(t)}" for t in ticks]
    axes.set_xticks(ticks, names)
    axes.set_title(drawing.panel_title(task, style.label(method), 25), fontsize=9)
    return data


def _distance_point(axes: Axes, curve: pd.DataFrame, method: str) -> None:
    """A bar or marker where a task has one distance alone, and a line would not be seen."""
    if len(curve) > 1:
        return
    row = curve.iloc[0]
    color = style.ARMS[method].color
    if method in style.UNTRAINED:
        axes.axhline(row["value"], color=color, linestyle="--", linewidth=1.2)
    else:
        axes.plot([row["x"]] * 2, [row["low"], row["high"]], color=color, linewidth=1.8)
