"""All cases of the benchmark by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import task_speed
from benchmarks.cases import Case, Sizes

# The libraries of a case are imported in its own process: the parent stays small, and what a case
# needs in memory is its own.


def _call(module: str, name: str, sizes: Sizes, folder: Path) -> Any:
    return getattr(import_module(module), name)(sizes, folder)


def _later(module: str, name: str) -> Callable[[Sizes, Path], Any]:
    """A function that its module gives when it is called: in the process of the case."""
    return partial(_call, f"benchmarks.{module}", name)


_BASE = _later("base", "prepare_base")

CASES: tuple[Case, ...] = (
    Case("agent_rl", _later("engines", "agent_rl"), _BASE),
    Case("generate", _later("engines", "generate"), _BASE),
    Case("continuous", _later("engines", "continuous"), _BASE),
    Case("trl", _later("stock_trl", "trl"), _BASE),
    Case("batch", _later("scaling", "over_batches"), _BASE),
    Case("turns", _later("scaling", "over_turns"), _BASE),
    Case("model", _later("scaling", "over_models")),
    Case("workers", _later("scaling", "over_processes"), _BASE),
    Case("training", _later("training", "training")),
    *task_speed.cases(),
)
"""Every case, in the order of a round."""
