"""Figures of what happens during training: learning curves, reward against success, health."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from agent_rl.reporting import drawing, style, summary
from agent_rl.reporting.drawing import Plot
from agent_rl.reporting.reward_gap import rl_updates
from agent_rl.reporting.tables import Results

_BAND = f"{summary.LEVEL:.0%} t-interval"


def _arms_with(results: Results, task: str, column: str, arms: list[str]) -> list[str]:
    """The arms that have at least one number in a column of the curves."""
    curves = results.curves[results.curves["task"] == task].dropna(subset=[column])
    return [arm for arm in arms if (curves["method"] == arm).any()]


def _curve(results: Results, task: str, method: str) -> pd.DataFrame:
    curves = results.curves
    return curves[(curves["task"] == task) & (curves["method"] == method)]


def _base_on_validation(results: Results, task: str) -> float:
    """Success before the first step, the same for every run."""
    curves = results.curves[results.curves["task"] == task]
    return float(curves.loc[curves["update"] == 0, "val_success_rate"].mean())


def _draw(axes: Axes, frame: pd.DataFrame, method: str, x: str, y: str) -> pd.DataFrame:
    """Runs, mean and band of one arm; returns the drawn numbers of both."""
    drawing.draw_runs(axes, frame, x, y, style.ARMS[method].color)
    mean = drawing.mean_curve(frame, x, y)
    drawing.draw_mean(axes, mean, method)
    runs = frame.dropna(subset=[x, y])[["seed", x, y]].rename(columns={x: "x", y: "value"})
    both = pd.concat([mean.assign(kind="mean"), runs.assign(kind="run")], ignore_index=True)
    return both.assign(method=method, measure=y, against=x)


def _ends(drawn: list[pd.DataFrame]) -> dict[str, tuple[float, float]]:
    ends = {}
    for frame in drawn:
        mean = frame[frame["kind"] == "mean"]
        if len(mean):
            ends[str(mean["method"].iloc[-1])] = (
                float(mean["x"].iloc[-1]),
                float(mean["value"].iloc[-1]),
            )
    return ends


def _interacts(frame: pd.DataFrame) -> bool:
    """Whether environment steps grow while the arm trains."""
    steps = frame.groupby("seed")["env_steps"].agg(["min", "max"]).dropna()
    return bool((steps["max"] > steps["min"]).any())


def _combine(parts: list[pd.DataFrame]) -> pd.DataFrame:
    front = ["task", "method", "kind", "seed", "measure", "against", "x", "value"]
    data = pd.concat(parts, ignore_index=True)
    return data[front + [column for column in data.columns if column not in front]]


def _seeds(parts: list[pd.DataFrame]) -> str:
    counts = [int(part["n"].max()) for part in parts if part["n"].notna().any()]
    return drawing.seeds_text(counts)


def learning_curves(results: Results) -> Plot | None:
    """Validation success against tokens processed and against environment steps."""
    tasks = [
        task
        for task in results.tasks
        if _arms_with(results, task, "val_success_rate", results.trained(task))
    ]
    if not tasks:
        return None
    figure = style.new_figure(11.0, 0.3 + 3.7 * len(tasks))
    grid = figure.subplots(len(tasks), 2, squeeze=False, sharey=True, width_ratios=[1.25, 1])
    parts: list[pd.DataFrame] = []
    for row_axes, task in zip(grid, tasks, strict=True):
        arms = _arms_with(results, task, "val_success_rate", results.trained(task))
        for axes, x in zip(row_axes, ("tokens", "env_steps"), strict=True):
            drawn = []
            for arm in arms:
                frame = _curve(results, task, arm)
                if x == "env_steps" and not _interacts(frame):
                    continue
                drawn.append(_draw(axes, frame, arm, x, "val_success_rate"))
            drawing.success_axis(axes)
            axes.set_xlim(left=0)
            drawing.thousands(axes)
            ends = _ends(drawn)
            base = _base_on_validation(results, task)
            if not math.isnan(base):
                drawing.reference_line(axes, "base", base)
                ends["base"] = (axes.get_xlim()[1], base)
            drawing.label_ends(axes, ends)
            parts += [frame.assign(task=task) for frame in drawn]
        row_axes[0].set_title(f"{task}: by total tokens")
        row_axes[1].set_title(f"{task}: by environment steps")
        row_axes[0].set_ylabel("success rate, validation (greedy)")
        row_axes[0].set_xlabel("tokens processed (sampling, training, data)")
        row_axes[1].set_xlabel("environment steps")
    drawing.finish(figure)
    return Plot(
        "learning_curves",
        figure,
        _combine(parts),
        "Greedy success on validation instances while training. Thin: single runs; thick: mean; "
        f"band: {_BAND} over {_seeds(parts)}. Runs are interpolated linearly between their own "
        "measured points to one grid; nothing is smoothed. Dashed: the base on the same instances. "
        "RFT and DPO begin where the rollouts that they learn from are paid for. Right: only "
        "the arms that interact while they train." + drawing.own_axes(tasks),
        "Learning curves. Last mean on validation: "
        + drawing.sentences(
            f"{task}, base {_base_on_validation(results, task):.2f}, "
            + ", ".join(
                f"{style.label(arm)} {summary.final_validation(results, task, arm):.2f}"
                for arm in _arms_with(results, task, "val_success_rate", results.trained(task))
            )
            for task in tasks
        ),
    )


def reward_vs_success(results: Results) -> Plot | None:
    """Training reward beside true success, one panel per RL arm, on the same axis."""
    tasks = [
        task for task in results.tasks if _arms_with(results, task, "reward_mean", list(style.RL))
    ]
    if not tasks:
        return None
    per_task = {task: _arms_with(results, task, "reward_mean", list(style.RL)) for task in tasks}
    # One column per arm, so that the tasks of an arm stand one below the other.
    columns = style.arm_order({arm for arms in per_task.values() for arm in arms})
    figure = style.new_figure(max(5.0, 2.6 * len(columns)), 0.8 + 2.5 * len(tasks))
    grid = figure.subplots(len(tasks), len(columns), squeeze=False, sharey="row")
    parts: list[pd.DataFrame] = []
    for row_axes, task in zip(grid, tasks, strict=True):
        for axes, arm in zip(row_axes, columns, strict=True):
            if arm not in per_task[task]:
                axes.set_visible(False)
                continue
            parts += [part.assign(task=task) for part in _reward_panel(axes, results, task, arm)]
            axes.set_title(drawing.panel_title(task, style.label(arm), 27), fontsize=9)
            axes.set_xlabel("RL update")
        first = row_axes[columns.index(per_task[task][0])]
        first.set_ylabel("per episode, mean over a batch")
        first.tick_params(labelleft=True)
        lows = [
            part[["value", "low"]].min(axis=None) for part in parts if part["task"].iloc[0] == task
        ]
        first.set_ylim(bottom=min(0.0, *lows))
    handles = [
        Line2D([], [], color=style.MUTED, linewidth=2.6, label="true success (arm's colour)"),
        Line2D([], [], color=style.INK, linewidth=1.3, ls=(0, (2.5, 1.5)), label="reward"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=3)
    drawing.finish(figure)
    return Plot(
        "reward_vs_success",
        figure,
        _combine(parts),
        "Mean reward of an episode as the learner sees it, and true success in the same training "
        f"episodes; mean and {_BAND} over {_seeds(parts)}. A reward that rises faster than "
        "success is paid for something else; a constant offset is not such a sign: the shaped "
        "reward adds, without discount, the same amount to every episode from the same start."
        + drawing.own_axes(tasks),
        "Training reward and true success over updates, first to last mean. "
        + drawing.sentences(_rise_alt(parts, task) for task in tasks),
    )


def _reward_panel(axes: Axes, results: Results, task: str, arm: str) -> list[pd.DataFrame]:
    frame = rl_updates(results, task, arm)
    parts = []
    # The reward lies on top, thin and dashed: under the sparse reward the two are one line.
    for column, color, line, width in (
        ("success_rate", style.ARMS[arm].color, "-", 2.6),
        ("reward_mean", style.INK, (0, (2.5, 1.5)), 1.3),
    ):
        mean = drawing.mean_curve(frame, "rl_update", column)
        if mean.empty:
            continue
        low, high = mean["low"].astype(float), mean["high"].astype(float)
        axes.fill_between(mean["x"], low, high, color=color, alpha=0.15, linewidth=0)
        axes.plot(mean["x"], mean["value"], color=color, linestyle=line, linewidth=width)
        parts.append(mean.assign(kind="mean", method=arm, measure=column, against="rl_update"))
    axes.set_xlim(left=0)
    return [part.assign(seed=pd.NA) for part in parts]


def _rise_alt(parts: list[pd.DataFrame], task: str) -> str:
    """First and last mean of reward and success of every arm of a task."""
    arms: dict[str, list[str]] = {}
    names = {"success_rate": "success", "reward_mean": "reward"}
    for part in parts:
        if part["task"].iloc[0] == task:
            ends = part["value"].iloc[0], part["value"].iloc[-1]
            text = f"{names[part['measure'].iloc[0]]} {ends[0]:.2f} to {ends[1]:.2f}"
            arms.setdefault(style.label(part["method"].iloc[0]), []).append(text)
    return f"{task}: " + "; ".join(f"{arm} {', '.join(texts)}" for arm, texts in arms.items())


def training_health(results: Results) -> Plot | None:
    """Entropy and the share of groups without a gradient over updates, for the RL arms."""
    columns = (("entropy", "entropy (nats per token)"), ("dead_group_share", "dead groups, share"))
    tasks = [
        task
        for task in results.tasks
        if any(_arms_with(results, task, column, list(style.RL)) for column, _ in columns)
    ]
    if not tasks:
        return None
    figure = style.new_figure(11.0, 0.3 + 3.0 * len(tasks))
    grid = figure.subplots(len(tasks), 2, squeeze=False)
    parts: list[pd.DataFrame] = []
    for row_axes, task in zip(grid, tasks, strict=True):
        for axes, (column, title) in zip(row_axes, columns, strict=True):
            drawn = [
                _draw(axes, rl_updates(results, task, arm), arm, "rl_update", column)
                for arm in _arms_with(results, task, column, list(style.RL))
            ]
            if column == "dead_group_share":
                drawing.success_axis(axes)
            else:
                axes.set_ylim(bottom=0)
            axes.set_xlim(left=0)
            axes.set_xlabel("RL update")
            axes.set_title(f"{task}: {title}")
            drawing.label_ends(axes, _ends(drawn), gap=0.075)
            parts += [frame.assign(task=task) for frame in drawn]
    drawing.finish(figure)
    return Plot(
        "training_health",
        figure,
        _combine(parts),
        "Left: mean entropy of the policy on sampled tokens. Right: share of groups in which all "
        "advantages are 0, so that no gradient comes from them; with turn credit and shaping "
        "a group in which everyone failed still has advantages, so it is not counted. Thin: "
        f"single runs; thick: mean; band: {_BAND} over {_seeds(parts)}." + drawing.own_axes(tasks),
        "Entropy and dead-group share over updates for the RL arms; last means. "
        + drawing.sentences(_health_alt(parts, task) for task in tasks),
    )


def _health_alt(parts: list[pd.DataFrame], task: str) -> str:
    """Last entropy and share of dead groups of every arm of a task."""
    texts = []
    for column, name in (("entropy", "entropy"), ("dead_group_share", "dead groups")):
        here = [part for part in parts if (part["task"].iloc[0], part["measure"].iloc[0]) == (
            task, column)]  # fmt: skip
        ends = [f"{style.label(arm)} {y:.2f}" for arm, (_, y) in _ends(here).items()]
        texts += [f"{name} {', '.join(ends)}"] if ends else []
    return f"{task}: {'; '.join(texts)}"
