"""All cases of the benchmark by name."""

from __future__ import annotations

from pathlib import Path

from benchmarks import task_speed
from benchmarks.cases import Case, Measure, Sizes

# The libraries of a case are imported in its own process: the parent stays small, and what a case
# needs in memory is its own.


def _prepare(sizes: Sizes, folder: Path) -> None:
    from benchmarks.base import prepare_base

    prepare_base(sizes, folder)


def _agent_rl(sizes: Sizes, folder: Path) -> list[Measure]:
    from benchmarks.engines import agent_rl

    return agent_rl(sizes, folder)


def _generate(sizes: Sizes, folder: Path) -> list[Measure]:
    from benchmarks.engines import generate

    return generate(sizes, folder)


def _continuous(sizes: Sizes, folder: Path) -> list[Measure]:
    from benchmarks.engines import continuous

    return continuous(sizes, folder)


def _trl(sizes: Sizes, folder: Path) -> list[Measure]:
    from benchmarks.stock_trl import trl

    return trl(sizes, folder)


def _batch(sizes: Sizes, folder: Path) -> list[Measure]:
    from benchmarks.scaling import over_batches

    return over_batches(sizes, folder)


def _turns(sizes: Sizes, folder: Path) -> list[Measure]:
    from benchmarks.scaling import over_turns

    return over_turns(sizes, folder)


def _model(sizes: Sizes, folder: Path) -> list[Measure]:
    from benchmarks.scaling import over_models

    return over_models(sizes, folder)


def _training(sizes: Sizes, folder: Path) -> list[Measure]:
    from benchmarks.training import training

    return training(sizes, folder)


def _workers(sizes: Sizes, folder: Path) -> list[Measure]:
    from benchmarks.scaling import over_processes

    return over_processes(sizes, folder)


CASES: tuple[Case, ...] = (
    Case("agent_rl", _agent_rl, _prepare),
    Case("generate", _generate, _prepare),
    Case("continuous", _continuous, _prepare),
    Case("trl", _trl, _prepare),
    Case("batch", _batch, _prepare),
    Case("turns", _turns, _prepare),
    Case("model", _model),
    Case("workers", _workers, _prepare),
    Case("training", _training),
    *task_speed.cases(),
)
"""Every case, in the order of a round."""
