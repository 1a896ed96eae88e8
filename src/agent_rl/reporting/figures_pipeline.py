"""The one figure without data: what is trained on what, and which file holds it."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from agent_rl.reporting import style
from agent_rl.reporting.drawing import Plot

STEPS = (
    ("task", "text world, expert,\ndistance to success", "tasks/"),
    ("rollout", "the policy acts over\nseveral turns", "rollouts/"),
    ("trajectory", "one episode: the\nunit of training", "trajectory.py"),
    ("reward", "numbers for the\nwhole interaction", "rewards/"),
    ("update", "advantage in the\ngroup, new weights", "training/"),
)
STAGES = (
    "instances",
    "demos",
    "warmstart",
    "collect",
    "reward",
    "audit",
    "train",
    "evaluate",
    "publish",
    "report",
)
_BLUE, _WARM = "#dfeaf5", "#fdeedb"


def _box(axes: Axes, x: float, y: float, width: float, height: float, color: str) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=1.2",
            facecolor=color,
            edgecolor=style.MUTED,
            linewidth=1.0,
        )
    )


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=11,
            color=style.INK,
            linewidth=1.2,
            shrinkA=0,
            shrinkB=0,
        )
    )


def pipeline() -> Plot:
    """The flow task, rollout, trajectory, reward, update, and the stages that carry it out."""
    figure = style.new_figure(10.0, 4.4)
    axes = figure.subplots()
    axes.set_xlim(0, 100)
    axes.set_ylim(3, 47)
    axes.axis("off")
    _training_loop(axes)
    _stage_row(axes)
    data = pd.DataFrame(
        [("step", name, file) for name, _, file in STEPS]
        + [("stage", name, f"stages/{name}.py") for name in STAGES],
        columns=["kind", "name", "file"],
    )
    return Plot(
        "pipeline",
        figure,
        data,
        "What one update sees, with the files under `src/agent_rl/` that hold each step, and the "
        "DVC stages. `collect` and `reward` run once, on the base policy, for the arms that learn "
        "from fixed rollouts; `audit` lets scripted policies play under every reward; inside "
        "`train` the GRPO arms call the same code for every update.",
        "Flow chart. Task, rollout, trajectory, reward and update follow each other; the new "
        f"policy returns to rollout. Below, the stages {', '.join(STAGES)}, with a loop from "
        "train back to collect.",
    )


def _training_loop(axes: Axes) -> None:
    width, height, y = 16.4, 12.0, 32.5
    centres = [10 + 20 * index for index in range(len(STEPS))]
    axes.text(1.8, 45, "One update", fontsize=10, fontweight="bold", va="center")
    for x, (name, text, file) in zip(centres, STEPS, strict=True):
        _box(axes, x, y, width, height, _WARM if name == "trajectory" else _BLUE)
        axes.text(x, y + 3.8, name, ha="center", va="center", fontsize=10.5, fontweight="bold")
        axes.text(x, y - 0.2, text, ha="center", va="center", fontsize=8.2)
        axes.text(
            x, y - 4.3, file, ha="center", va="center", fontsize=8.5, family="DejaVu Sans Mono"
        )
    for left, right in pairwise(centres):
        _arrow(axes, (left + width / 2 + 0.2, y), (right - width / 2 - 0.2, y))
    _return(axes, centres[4], centres[1], y + height / 2, 43.0, 1.0)
    axes.text(
        60, 45, "the new policy acts next (on-policy)", ha="center", va="center", fontsize=8.5
    )


def _stage_row(axes: Axes) -> None:
    width, height, y = 8.4, 5.2, 13.0
    centres = [5.4 + 9.92 * index for index in range(len(STAGES))]
    collect, train = (centres[STAGES.index(name)] for name in ("collect", "train"))
    axes.text(1.8, 19.5, "DVC stages", fontsize=10, fontweight="bold", va="center")
    for x, name in zip(centres, STAGES, strict=True):
        _box(axes, x, y, width, height, _WARM if name == "train" else _BLUE)
        axes.text(x, y, name, ha="center", va="center", fontsize=8.8)
    for left, right in pairwise(centres):
        _arrow(axes, (left + width / 2, y), (right - width / 2, y))
    _return(axes, train, collect, y - height / 2, 6.6, -1.0)
    axes.text(
        (collect + train) / 2,
        4.4,
        "GRPO arms: the same rollout and reward code, inside train, at every update",
        ha="center",
        va="center",
        fontsize=8.5,
    )


def _return(axes: Axes, start: float, end: float, y: float, level: float, sign: float) -> None:
    """An arrow that leaves a box vertically, runs back along ``level`` and enters another."""
    # Unsnapped, like the arrow that continues it: otherwise the two part by half a pixel.
    axes.plot(
        [start, start, end],
        [y, level, level],
        color=style.INK,
        linewidth=1.2,
        solid_joinstyle="miter",
        snap=False,
    )
    _arrow(axes, (end, level), (end, y + 0.2 * sign))
