"""The main result, and the list of all figures.

``draw_all`` makes every figure of the report; a figure whose numbers are absent becomes a
:class:`Gap` with its reason, so that a missing arm or column is seen and nothing crashes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from agent_rl.evaluation import statistics as st
from agent_rl.reporting import drawing, style, summary
from agent_rl.reporting.drawing import Plot, SavedFigure
from agent_rl.reporting.figures_audit import reward_audit
from agent_rl.reporting.figures_bench import speed
from agent_rl.reporting.figures_cost import cost, end_reasons
from agent_rl.reporting.figures_dead_groups import dead_groups
from agent_rl.reporting.figures_distance import success_by_distance
from agent_rl.reporting.figures_pipeline import pipeline
from agent_rl.reporting.figures_training import (
    learning_curves,
    reward_vs_success,
    training_health,
)
from agent_rl.reporting.tables import SPLITS, Results

SPLIT_TITLES = {"test": "test instances", "shifted": "shifted instances"}


@dataclass(frozen=True, slots=True)
class Gap:
    """A figure that could not be drawn, and why."""

    name: str
    reason: str


def draw_all(results: Results, directory: Path) -> dict[str, SavedFigure | Gap]:
    """Draw and save every figure into ``directory``."""
    makers: dict[str, Callable[[Results], Plot | None]] = {
        "pipeline": lambda _: pipeline(),
        "main_results": main_results,
        "learning_curves": learning_curves,
        "reward_vs_success": reward_vs_success,
        "reward_audit": reward_audit,
        "dead_groups": dead_groups,
        "success_by_distance": success_by_distance,
        "end_reasons": end_reasons,
        "cost": cost,
        "training_health": training_health,
        "speed": speed,
    }
    drawn: dict[str, SavedFigure | Gap] = {}
    with style.drawing_style():
        for name, make in makers.items():
            plot = make(results)
            drawn[name] = (
                drawing.save_plot(plot, directory)
                if plot is not None
                else Gap(name, "the results files hold no numbers for it")
            )
    return drawn


def main_results(results: Results) -> Plot | None:
    """Greedy success of every trained arm: one point per seed, mean with t-interval."""
    tasks = [task for task in results.tasks if results.trained(task)]
    if not tasks:
        return None
    arms = style.arm_order({arm for task in tasks for arm in results.trained(task)})
    width = max(7.0, 2.4 + 0.62 * len(arms) * len(SPLITS))
    figure = style.new_figure(width, 0.4 + 3.5 * len(tasks))
    grid = figure.subplots(len(tasks), len(SPLITS), squeeze=False, sharex=True, sharey=True)
    rows: list[dict[str, object]] = []
    counts: list[int] = []
    for row_axes, task in zip(grid, tasks, strict=True):
        for axes, split in zip(row_axes, SPLITS, strict=True):
            rows += _success_panel(axes, results, task, split, arms)
            axes.set_title(f"{task}: {SPLIT_TITLES[split]}")
            axes.tick_params(labelbottom=True)
        row_axes[0].set_ylabel("success rate (greedy)")
        counts += [len(summary.rates(results, task, arm)) for arm in arms]
    drawing.finish(figure)
    return Plot(
        "main_results",
        figure,
        pd.DataFrame(rows),
        "Success with greedy decoding. Small points: one training run each; large marker and bar: "
        f"mean and {summary.LEVEL:.0%} t-interval over "
        f"{drawing.seeds_text([count for count in counts if count])}. Lines: the untrained base, "
        "the random policy and the oracle (the expert that knows the way).",
        _main_alt(results, tasks),
    )


def _success_panel(
    axes: Axes, results: Results, task: str, split: str, arms: list[str]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    drawing.success_axis(axes)
    axes.set_xlim(-0.6, len(arms) - 0.4)
    axes.grid(visible=False, axis="x")
    references = {}
    for method in style.UNTRAINED:
        estimate = summary.cell(results, task, method, split)
        if not math.isnan(estimate.value):
            drawing.reference_line(axes, method, estimate.value)
            references[method] = (len(arms) - 0.4, estimate.value)
            rows.append(_row(task, split, method, "mean", None, estimate))
    drawing.label_ends(axes, references)
    for index, method in enumerate(arms):
        by_seed = summary.rates(results, task, method, split)
        arm = style.ARMS[method]
        # Runs stand left of their mean, in the order of the seeds: nothing hides anything, and
        # there is no random jitter.
        size = len(by_seed)
        places = index + (np.linspace(-0.34, -0.06, size) if size > 1 else np.full(size, -0.2))
        axes.plot(
            places, list(by_seed.values()), "o", color=arm.color, alpha=0.55, markersize=3, mew=0
        )
        for seed, rate in by_seed.items():
            rows.append(
                {"task": task, "split": split, "method": method, "kind": "run", "seed": seed}
                | {"value": rate}
            )
        estimate = summary.cell(results, task, method, split)
        if math.isnan(estimate.value):
            axes.text(index, 0.02, "no run", ha="center", fontsize=8, color=style.MUTED)
            continue
        _mean_marker(axes, index + 0.18, method, estimate)
        rows.append(_row(task, split, method, "mean", None, estimate))
    names = [style.label(arm).replace(" ", "\n", 1).replace("+ ", "+\u00a0") for arm in arms]
    axes.set_xticks(range(len(arms)), names)
    return rows


def _mean_marker(axes: Axes, x: float, method: str, estimate: st.Estimate) -> None:
    arm = style.ARMS[method]
    if estimate.has_interval:
        axes.errorbar(
            x,
            estimate.value,
            yerr=[[estimate.value - estimate.low], [estimate.high - estimate.value]],
            color=arm.color,
            linewidth=1.8,
            capsize=4,
            capthick=1.8,
            zorder=4,
        )
    axes.plot(
        x, estimate.value, color=arm.color, marker=arm.marker, ms=7, mec="white", mew=0.7, zorder=5
    )


def _row(
    task: str, split: str, method: str, kind: str, seed: int | None, estimate: st.Estimate
) -> dict[str, object]:
    return {
        "task": task,
        "split": split,
        "method": method,
        "kind": kind,
        "seed": seed,
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
        "interval": estimate.method,
    }


def _main_alt(results: Results, tasks: list[str]) -> str:
    parts = []
    for task in tasks:
        values = [
            f"{style.label(method)} {summary.cell(results, task, method).value:.2f}"
            for method in results.methods(task)
            if summary.rates(results, task, method)
        ]
        parts.append(f"{task}: " + ", ".join(values))
    return "Mean greedy success on test instances. " + ". ".join(parts) + "."
