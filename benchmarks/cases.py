"""What a benchmark case is: a piece of work that a fresh process does and reports in numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work every case does."""

    runs: int
    """Repetitions of every case."""
    horizon: int
    """Turns of every episode."""
    batch: int
    """Episodes in lock-step, in groups of ``GROUP``."""
    warm_steps: int
    """Optimiser steps by which the model learns the format of an answer."""
    batches: tuple[int, ...]
    """Episodes in parallel, for the scaling curve."""
    turns: tuple[int, ...]
    """Lengths of episodes, for the scaling curve."""
    turns_batch: int
    """Episodes in lock-step of that curve."""
    models: tuple[tuple[int, int], ...]
    """Width and layers of the models of the scaling curve."""
    model_batch: int
    """Episodes in lock-step of that curve."""
    training: tuple[tuple[int, int], ...]
    """Width and layers of the models whose training step is timed."""
    training_batch: tuple[int, int]
    """Sequences and tokens of a training step."""
    matmul: int
    """Side of the matrices whose product gives the peak."""
    recorded: int
    """Recorded episodes that every task plays again."""


FULL = Sizes(
    runs=5,
    horizon=12,
    batch=128,
    warm_steps=150,
    batches=(8, 32, 128, 512),
    turns=(4, 8, 16, 32, 64),
    turns_batch=64,
    models=((64, 2), (96, 4), (128, 5), (192, 7), (320, 8)),
    model_batch=32,
    training=((64, 4), (128, 4)),
    training_batch=(64, 144),
    matmul=1024,
    recorded=1000,
)
QUICK = Sizes(
    runs=1,
    horizon=3,
    batch=16,
    warm_steps=40,
    batches=(2, 4),
    turns=(2, 4),
    turns_batch=4,
    models=((16, 1), (32, 1)),
    model_batch=4,
    training=((16, 1),),
    training_batch=(4, 16),
    matmul=128,
    recorded=16,
)


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of one run."""

    case: str
    engine: str
    task: str
    model: str
    batch: int
    metric: str
    value: float

    @property
    def key(self) -> tuple[str, str, str, str, int, str]:
        """What it is a measure of."""
        return (self.case, self.engine, self.task, self.model, self.batch, self.metric)


Work = Callable[[Sizes, Path], list[Measure]]
"""(sizes, folder of what was prepared) -> measures; called in a process of its own."""
Preparation = Callable[[Sizes, Path], None]
"""(sizes, folder to write to); called once, in a process of its own."""


@dataclass(frozen=True, slots=True)
class Case:
    """A piece of work that is repeated."""

    name: str
    work: Work
    prepare: Preparation | None = None
    """What must be there before the first run; shared by the cases that name the same one."""
    missing: Callable[[], str] | None = None
    """Why the case cannot run here, or empty."""
    torch: bool = True
    """Whether it runs a model: then its process has the settings of those that do."""
