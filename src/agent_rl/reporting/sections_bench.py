"""The section on speed and memory, from ``results/bench.csv``."""

from __future__ import annotations

import pandas as pd

from agent_rl.reporting import bench
from agent_rl.reporting.document import (
    DASH,
    Block,
    Bullets,
    Code,
    Missing,
    Paragraph,
    Table,
)

METRICS = (
    (bench.TURNS, "turns/s"),
    ("sampled tokens/s", "sampled tokens/s"),
    ("episodes/s", "episodes/s"),
    ("turns per episode", "turns per episode"),
    (bench.UPDATES, "GRPO updates/s"),
    (bench.MEMORY, "peak memory, MiB"),
    (bench.ADDED, "of it by rollouts"),
)
"""Columns of the table of engines."""


def speed_blocks(table: pd.DataFrame | None, figure: Block) -> list[Block]:
    """What was measured, or a visible gap.

    Args:
        table: of ``bench.csv``; None when there is none.
        figure: the picture of the engines, or the gap in its place.
    """
    if table is None:
        return [
            Missing(
                f"`results/{bench.FILE}` is absent: speed was not measured (`make bench` does)."
            )
        ]
    blocks: list[Block] = [figure]
    if claims := bench.sentences(table):
        blocks += [Bullets(claims), *_engine_table(table)]
    blocks += [*_other_tables(table), Paragraph(_NOTE + bench.reading(table))]
    return [
        *blocks,
        Paragraph("Measured by, and drawn again with:"),
        Code(["make bench", "make report"]),
    ]


_NOTE = (
    "Timings belong to the machine in `results/bench_machine.json`, not to the study. Compared are "
    "only numbers of one run of the command; `docs/benchmarks.md` says what every case does. "
)


def _engine_table(table: pd.DataFrame) -> list[Block]:
    rows = []
    for engine in bench.engines(table):
        cells = [bench.engine_cell(table, engine, metric) for metric, _ in METRICS]
        shown = [DASH if found is None else bench.spread(found) for found in cells]
        rows.append([bench.engine_name(engine), *shown])
    return [Table(["engine", *(words for _, words in METRICS)], rows)]


def _other_tables(table: pd.DataFrame) -> list[Block]:
    """Every row that is no engine's, one table for each case."""
    blocks: list[Block] = []
    for case in dict.fromkeys(table["case"]):
        if case == "engines":
            continue
        rows = [
            [
                str(row.task),
                DASH if row.model == "none" else str(row.model),
                str(row.batch),
                str(row.metric),
                bench.spread(bench.Cell(row.value, row.low, row.high, row.runs)),
            ]
            for row in bench.rows(table, case).itertuples()
        ]
        header = [f"{case}: task", "model", "batch", "metric", "median"]
        blocks.append(Table(header, rows, text_columns=2))
    return blocks
