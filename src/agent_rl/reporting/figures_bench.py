"""Speed: rollout engines compared, and how ours scales with episodes, turns and the model."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from agent_rl.reporting import bench, drawing, style
from agent_rl.reporting.bench import Cell
from agent_rl.reporting.drawing import Plot
from agent_rl.reporting.tables import Results

LOOKS = {
    bench.OURS: ("#332288", "P"),
    "generate": ("#0173b2", "o"),
    "continuous": ("#029e73", "^"),
    "trl": ("#de8f05", "s"),
}
"""Colour and marker of every engine."""
OTHER = (style.MUTED, "D")
COMPARED = (
    (bench.TURNS, "rollouts: turns per second"),
    (bench.UPDATES, "GRPO updates per second"),
    (bench.MEMORY, "peak memory of rollouts, MiB"),
)
SCALED: tuple[tuple[str, str, str, str, Callable[[pd.DataFrame], pd.Series]], ...] = (
    (
        "batch",
        bench.TURNS,
        "episodes in parallel",
        "turns per second",
        lambda rows: rows["batch"].astype(float),
    ),
    (
        "turns",
        "ms per episode",
        "turns of an episode",
        "milliseconds per episode",
        lambda rows: rows["task"].map(bench.turns_of).astype(float),
    ),
    (
        "model",
        bench.TURNS,
        "parameters, millions",
        "turns per second",
        lambda rows: rows["model"].map(bench.millions_of).astype(float),
    ),
)
"""Case, metric, words of both axes, and where a row stands on the x axis."""


def speed(results: Results) -> Plot | None:
    """Engines as points with their spread above, scaling curves of our engine below."""
    table = results.bench
    if table is None or not bench.engines(table):
        return None
    figure = style.new_figure(10.0, 5.4)
    grid = figure.subplots(2, 3, squeeze=False, height_ratios=[0.8, 1])
    shown = []
    engines = bench.engines(table)
    for index, (axes, (metric, title)) in enumerate(zip(grid[0], COMPARED, strict=True)):
        shown.append(_engines_panel(axes, table, engines, metric))
        axes.set_title(title)
        names = [bench.engine_name(engine).replace("`", "") for engine in engines]
        axes.set_yticks(range(len(engines)), names if index == 0 else [])
    for axes, (case, metric, x_words, y_words, place) in zip(grid[1], SCALED, strict=True):
        rows = bench.rows(table, case, metric)
        shown.append(rows.assign(panel=case, x=place(rows)))
        _scaling_panel(axes, shown[-1])
        axes.set_xlabel(x_words)
        axes.set_title(y_words)
    drawing.finish(figure)
    data = pd.concat(shown, ignore_index=True)
    columns = ["panel", "engine", "task", "model", "batch", "metric", "x", "value", "low", "high"]
    return Plot(
        "speed",
        figure,
        data[[*columns, "runs"]],
        "Above: rollout engines on the same turns with the same model; an engine without updates "
        "of its own has no point there. Below: our engine by episodes in parallel, by turns (the "
        "dotted line is linear growth) and by the size of the model. Points: medians; bars: "
        "lowest to highest run. Scales are logarithmic, but for memory.",
        _alt(table, engines),
    )


def _engines_panel(
    axes: Axes, table: pd.DataFrame, engines: list[str], metric: str
) -> pd.DataFrame:
    rows = []
    for index, engine in enumerate(engines):
        found = bench.engine_cell(table, engine, metric)
        if found is None:
            axes.text(
                0.02, index, "none", transform=axes.get_yaxis_transform(), va="center",
                fontsize=8, color=style.MUTED,
            )  # fmt: skip
            continue
        color, marker = LOOKS.get(engine, OTHER)
        axes.errorbar(
            found.value, index, xerr=_bars(found), color=color, marker=marker, ms=7, mec="white",
            mew=0.7, elinewidth=1.6, capsize=3,
        )  # fmt: skip
        axes.annotate(
            bench.spread(found).partition(" ")[0], (found.value, index), (0, 7),
            textcoords="offset points", ha="center", fontsize=8,
        )  # fmt: skip
        chosen = bench.rows(table, "engines", metric)
        rows.append(chosen[chosen["engine"] == engine].iloc[[0]])
    axes.set_ylim(len(engines) - 0.4, -0.6)
    axes.margins(x=0.18)
    axes.grid(visible=False, axis="y")
    if metric == bench.MEMORY:
        axes.set_xlim(left=0)  # a share of it is the libraries': ratios would mislead
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(NullLocator())
    drawing.thousands(axes)
    found_rows = pd.concat(rows) if rows else bench.rows(table, "engines", metric)
    return found_rows.assign(panel="engines", x=float("nan"))


def _bars(found: Cell) -> list[list[float]]:
    return [[found.value - found.low], [found.high - found.value]]


def _scaling_panel(axes: Axes, rows: pd.DataFrame) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    if rows.empty:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", fontsize=8)
        return
    rows = rows.sort_values("x")
    color, marker = LOOKS[bench.OURS]
    if rows["panel"].iloc[0] == "turns":
        # Through the last point: there the fixed costs of an episode count least.
        linear = rows["value"].iloc[-1] * rows["x"] / rows["x"].iloc[-1]
        axes.plot(rows["x"], linear, color=style.MUTED, linestyle=":", linewidth=1.3, zorder=1)
    error = [rows["value"] - rows["low"], rows["high"] - rows["value"]]
    axes.errorbar(
        rows["x"], rows["value"], yerr=error, color=color, marker=marker, ms=6, mec="white",
        mew=0.7, linewidth=1.5, elinewidth=1.2, capsize=3,
    )  # fmt: skip
    axes.xaxis.set_major_locator(FixedLocator(list(rows["x"])))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    drawing.thousands(axes, "y")


def _alt(table: pd.DataFrame, engines: list[str]) -> str:
    parts = [
        f"{bench.engine_name(engine).replace('`', '')} {bench.spread(found)}"
        for engine in engines
        if (found := bench.engine_cell(table, engine, bench.TURNS)) is not None
    ]
    return "Turns per second of the rollout engines: " + ", ".join(parts) + "."
