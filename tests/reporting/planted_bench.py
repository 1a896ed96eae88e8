"""A made-up ``bench.csv``. Its numbers mean nothing; every ratio can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

COLUMNS = ["case", "engine", "task", "model", "batch", "metric", "value", "low", "high", "runs"]
SMALL = "Llama d=64, 2 layers, 0.11 M"
ENGINES = {"agent_rl": 4000, "generate": 1000, "continuous": 800, "trl": 500}


def rows() -> list[list[object]]:
    found: list[list[object]] = []

    def add(case, engine, task, model, batch, metric, value, spread=0.1):
        low, high = value * (1 - spread), value * (1 + spread)
        found.append([case, engine, task, model, batch, metric, value, low, high, 5])

    for engine, turns in ENGINES.items():
        add("engines", engine, "babyai", SMALL, 128, "turns/s", turns)
        add("engines", engine, "babyai", SMALL, 128, "peak memory of rollouts, MiB", 600)
    for engine, updates in (("agent_rl", 1.0), ("trl", 0.25)):
        add("engines", engine, "babyai", SMALL, 128, "updates/s", updates)
    for batch in (8, 32, 128, 512):
        add("batch", "agent_rl", "babyai", SMALL, batch, "turns/s", 100 * batch**0.5)
    for turns in (4, 8, 16, 32, 64):
        add("turns", "agent_rl", f"babyai, {turns} turns", SMALL, 128, "ms per episode", turns**1.5)
    add("turns", "agent_rl", "babyai, 8 to 64 turns", SMALL, 128, "exponent", 1.5)
    for millions in ("0.11", "0.48", "10.30"):
        name = f"Llama d=9, 2 layers, {millions} M"
        add("model", "agent_rl", "babyai", name, 32, "turns/s", 400 / float(millions))
    for name, turns in (("1 process", 4000), ("2 processes", 7200)):
        add("workers", "agent_rl", "babyai", SMALL, 128, f"turns/s, {name}", turns)
    add("training", "torch", "1024 x 1024 matrices", "none", 1, "peak GFLOP/s, fp32", 100)
    add("training", "torch", "64 x 144 tokens", SMALL, 64, "GFLOP/s", 40)
    add("training", "torch", "64 x 144 tokens", SMALL, 64, "share of fp32 peak", 0.4)
    add("task speed", "none", "chain", "none", 1, "environment steps/s, new instances", 9000)
    return found


def write_bench(directory: Path, change=lambda frame: frame) -> Path:
    """Add the file to a results folder."""
    directory.mkdir(parents=True, exist_ok=True)
    frame = change(pd.DataFrame(rows(), columns=COLUMNS))
    frame.to_csv(directory / "bench.csv", index=False)
    return directory
