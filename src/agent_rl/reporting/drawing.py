"""Shared parts of the figures: bands over seeds, labels at line ends, panel grids, CSV twins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from agent_rl.evaluation import statistics as st
from agent_rl.reporting import style
from agent_rl.reporting.summary import LEVEL

DIGITS = 6
"""Digits after the point in the CSV twin of a figure."""


@dataclass(frozen=True)
class Plot:
    """A figure before it is written, with the numbers in it."""

    name: str
    figure: Figure
    data: pd.DataFrame
    caption: str
    alt: str


@dataclass(frozen=True, slots=True)
class SavedFigure:
    """A figure on disk: picture as SVG and PNG, plotted numbers as CSV, and its words."""

    name: str
    svg: Path
    png: Path
    csv: Path
    caption: str
    """What is shown, what the bands mean, and n."""
    alt: str
    """What a reader who cannot see the picture should know."""


def save_plot(plot: Plot, directory: Path) -> SavedFigure:
    """Write the picture twice and its numbers once."""
    svg, png = style.save(plot.figure, directory / plot.name)
    csv = directory / f"{plot.name}.csv"
    text = plot.data.round(DIGITS).to_csv(index=False, lineterminator="\n")
    style.write_atomic(csv, text.encode())
    return SavedFigure(plot.name, svg, png, csv, plot.caption, plot.alt)


def mean_curve(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Mean and t-interval over seeds of the curves y(x) in ``frame`` (columns seed, x, y).

    Runs stop at slightly different x (a token budget does not end on the same update), so each is
    interpolated linearly between its own measured points onto one grid that all of them cover:
    no extrapolation, no smoothing, and the set of runs is the same at every point.
    """
    points = frame.dropna(subset=[x, y]).sort_values(["seed", x]).groupby("seed")
    runs = [(run[x].to_numpy(float), run[y].to_numpy(float)) for _, run in points]
    if not runs:
        return pd.DataFrame(columns=["x", "value", "low", "high", "n"])
    low = max(xs[0] for xs, _ in runs)
    high = min(xs[-1] for xs, _ in runs)
    size = int(np.median([len(xs) for xs, _ in runs]))
    grid = np.linspace(low, high, max(2, size)) if high > low else np.array([low])
    table = np.array([np.interp(grid, xs, ys) for xs, ys in runs])
    estimates = [st.t_interval(column, LEVEL) for column in table.T]
    return pd.DataFrame(
        {
            "x": grid,
            "value": [e.value for e in estimates],
            "low": [e.low for e in estimates],
            "high": [e.high for e in estimates],
            "n": [e.n for e in estimates],
        }
    )


def draw_runs(axes: Axes, frame: pd.DataFrame, x: str, y: str, color: str) -> None:
    """One thin line for each run."""
    for _, run in frame.dropna(subset=[x, y]).sort_values(["seed", x]).groupby("seed"):
        axes.plot(run[x], run[y], color=color, linewidth=0.6, alpha=0.3, zorder=2)


def draw_mean(axes: Axes, curve: pd.DataFrame, method: str, scale: float = 1.0) -> None:
    """The mean as a thick line in the arm's style, with its interval as a band."""
    arm = style.ARMS[method]
    axes.fill_between(
        curve["x"] / scale,
        curve["low"].astype(float),
        curve["high"].astype(float),
        color=arm.color,
        alpha=0.13,
        linewidth=0,
        zorder=1,
    )
    axes.plot(
        curve["x"] / scale,
        curve["value"],
        color=arm.color,
        linestyle=arm.line,
        linewidth=2.0,
        marker=arm.marker,
        markersize=5,
        markevery=max(1, len(curve) // 6),
        markeredgecolor="white",
        markeredgewidth=0.5,
        zorder=4,
    )


def spread(positions: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved as little as needed to be ``gap`` apart, inside [low, high].

    Neighbours that collide are merged into a block that is centred on its members, as in
    isotonic regression; the order is kept.
    """
    order = np.argsort(positions, kind="stable")
    gap = min(gap, (high - low) / max(1, len(positions) - 1))
    blocks: list[tuple[float, int]] = []  # sum of (position - rank * gap), size
    offsets = [positions[index] - rank * gap for rank, index in enumerate(order)]
    for offset in offsets:
        blocks.append((offset, 1))
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, size = blocks.pop()
            blocks[-1] = (blocks[-1][0] + total, blocks[-1][1] + size)
    levels = [total / size for total, size in blocks for _ in range(size)]
    moved = np.clip(levels, low, high - gap * (len(positions) - 1))
    placed: NDArray[np.float64] = moved + gap * np.arange(len(positions))
    result = np.empty(len(positions))
    result[order] = placed
    return [float(value) for value in result]


@dataclass(frozen=True, slots=True)
class End:
    """The end of a line in data coordinates, with the name and the look of the line."""

    label: str
    color: str
    x: float
    y: float
    marker: str = ""
    """Shown beside the name, so that lines that end in one point can be told apart."""


def label_ends(axes: Axes, ends: dict[str, tuple[float, float]], gap: float = 0.062) -> None:
    """Names of arms at the ends of their lines; ``ends`` maps an arm to its last point."""
    points = [
        End(style.ARMS[method].label, style.ARMS[method].color, x, y)
        for method, (x, y) in ends.items()
    ]
    label_points(axes, points, gap)


def label_points(axes: Axes, ends: list[End], gap: float = 0.062) -> None:
    """Names at the right of the panel, each joined to the end of its line.

    ``gap`` is the smallest distance of two names as a share of the panel's height. On a
    logarithmic x axis the joints are straight in the picture all the same.
    """
    if not ends:
        return
    low, high = axes.get_ylim()
    heights = [(end.y - low) / (high - low) for end in ends]
    to_share = (axes.transScale + axes.transLimits).transform
    for end, height in zip(ends, spread(heights, gap, 0.0, 1.0), strict=True):
        x, y = to_share((end.x, end.y))
        axes.plot(
            [x, 1.0, 1.045],
            [y, y, height],
            color=end.color,
            linewidth=0.9,
            linestyle=(0, (1, 1)),
            transform=axes.transAxes,
            clip_on=False,
            zorder=3,
        )
        if end.marker:
            axes.plot(
                1.065, height, marker=end.marker, color=end.color, ms=5, linestyle="none",
                transform=axes.transAxes, clip_on=False,
            )  # fmt: skip
        axes.text(
            1.09 if end.marker else 1.057,
            height,
            end.label,
            transform=axes.transAxes,
            fontsize=8.5,
            va="center",
            ha="left",
            clip_on=False,
        )


def success_axis(axes: Axes) -> None:
    """A success rate always runs from 0 to 1."""
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])


def reference_line(axes: Axes, method: str, value: float) -> None:
    """A horizontal line for a policy that does not train."""
    arm = style.ARMS[method]
    axes.axhline(value, color=arm.color, linestyle=arm.line, linewidth=1.2, zorder=1.5)


def thousands(axes: Axes, which: str = "x") -> None:
    """Large counts as 20k or 1.5M."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))


def compact(value: float) -> str:
    """A count in at most four characters or so: 950, 20k, 1.5M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def finish(figure: Figure) -> None:
    """No box around the panels."""
    sns.despine(fig=figure)


def seeds_text(counts: list[int]) -> str:
    """How many seeds stand behind a figure: "8 seeds" or "6 to 8 seeds"."""
    if not counts:
        return "no seed"
    low, high = min(counts), max(counts)
    return f"{low} seed{'s' if low != 1 else ''}" if low == high else f"{low} to {high} seeds"


def sentences(parts: Iterable[str]) -> str:
    """Parts of an alternative text, each closed by a full stop."""
    return " ".join(f"{part}." for part in parts)


def own_axes(tasks: list[str]) -> str:
    """A sentence for captions of figures in which the axes of two tasks must not be compared."""
    return " Axis ranges are set for each task." if len(tasks) > 1 else ""


def panel_title(task: str, text: str, width: int) -> str:
    """Title of a small panel in one line of at most ``width`` characters, else in two."""
    line = f"{task}: {text}"
    return line if len(line) <= width else f"{task}:\n{text}"
