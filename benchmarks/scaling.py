"""How our engine scales: episodes in parallel, turns, size of the model, processes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agent_rl.rollouts.engine import RolloutEngine
from benchmarks.base import described, fresh_model, load_base, make_tokenizer, sampler
from benchmarks.cases import Measure, Sizes
from benchmarks.processes import settle
from benchmarks.room import TASK, groups, make_room, study

ENGINE = "agent_rl"
ACTION_TOKENS = 2
"""Tokens of every action: an answer that has not ended by then is cut, so that models which know
no format do the same work as those which do."""
FITTED_FROM = 8
"""Turns from which the exponent is fitted: below, the fixed costs of an episode count too much."""
PATIENCE = 120.0
"""Seconds that one process waits for the other."""


def exponent(turns: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log seconds over log turns, by least squares: 1 is linear, 2 quadratic.

    Raises: ValueError with fewer than two different numbers of turns, or numbers that are not
        positive.
    """
    x, y = np.asarray(turns, dtype=float), np.asarray(seconds, dtype=float)
    if len(set(x)) < 2 or (x <= 0).any() or (y <= 0).any():
        raise ValueError(f"no slope through turns {list(turns)} and seconds {list(seconds)}")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def seconds_to_play(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    batch: int,
    horizon: int,
    stream: int,
) -> float:
    """Seconds for one batch of episodes. Raises: RuntimeError when one has other turns."""
    task = study().task(TASK)
    engine = RolloutEngine(TASK, lambda: make_room(task, horizon), batch_size=batch)
    episodes = groups(task, batch, stream)
    policy = sampler(model, tokenizer, ACTION_TOKENS)
    settle()
    start = time.perf_counter()
    played = engine.play(policy, episodes)
    seconds = time.perf_counter() - start
    if {len(trajectory.turns) for trajectory in played} != {horizon}:
        raise RuntimeError(f"an episode of {horizon} turns ended early")
    return seconds


def over_batches(sizes: Sizes, folder: Path) -> list[Measure]:
    """Turns per second by episodes in parallel."""
    model, tokenizer = load_base(folder)
    name = described(model)
    seconds_to_play(model, tokenizer, min(sizes.batches), sizes.horizon, 1)
    found = []
    for batch in sizes.batches:
        seconds = seconds_to_play(model, tokenizer, batch, sizes.horizon, 2)
        turns = batch * sizes.horizon
        found.append(Measure("batch", ENGINE, TASK, name, batch, "turns/s", turns / seconds))
    return found


def over_turns(sizes: Sizes, folder: Path) -> list[Measure]:
    """Milliseconds per episode by its number of turns, and the exponent of their growth."""
    model, tokenizer = load_base(folder)
    name = described(model)
    seconds_to_play(model, tokenizer, sizes.turns_batch, min(sizes.turns), 1)
    seconds = {t: seconds_to_play(model, tokenizer, sizes.turns_batch, t, 2) for t in sizes.turns}
    found = [
        Measure(
            "turns",
            ENGINE,
            f"{TASK}, {turns} turns",
            name,
            sizes.turns_batch,
            "ms per episode",
            1000 * taken / sizes.turns_batch,
        )
        for turns, taken in seconds.items()
    ]
    fitted = [t for t in sizes.turns if t >= FITTED_FROM] or list(sizes.turns)
    slope = exponent(fitted, [seconds[t] for t in fitted])
    task = f"{TASK}, {fitted[0]} to {fitted[-1]} turns"
    return [*found, Measure("turns", ENGINE, task, name, sizes.turns_batch, "exponent", slope)]


def over_models(sizes: Sizes, folder: Path) -> list[Measure]:
    """Turns per second by the size of the model; the weights are fresh."""
    config, tokenizer = study(), make_tokenizer()
    found = []
    for width, layers in sizes.models:
        model = fresh_model(config, tokenizer, width, layers)
        seconds_to_play(model, tokenizer, sizes.model_batch, 2, 1)
        seconds = seconds_to_play(model, tokenizer, sizes.model_batch, sizes.horizon, 2)
        turns = sizes.model_batch * sizes.horizon
        found.append(
            Measure(
                *("model", ENGINE, TASK, described(model)),
                sizes.model_batch,
                "turns/s",
                turns / seconds,
            )
        )
    return found


def over_processes(sizes: Sizes, folder: Path) -> list[Measure]:
    """Turns per second of one process alone and of two that play at the same time, together."""
    context = multiprocessing.get_context("spawn")
    barrier, spans = context.Barrier(2), context.SimpleQueue()
    processes = [
        context.Process(target=_play_together, args=(sizes, folder, index, barrier, spans))
        for index in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("a process of the case workers failed")
    found = [spans.get() for _ in range(3)]
    alone = [end - start for alone, start, end, _ in found if alone]
    together = [(start, end) for alone, start, end, _ in found if not alone]
    both = max(end for _, end in together) - min(start for start, _ in together)
    turns, name = sizes.batch * sizes.horizon, found[0][3]
    return [
        Measure("workers", ENGINE, TASK, name, sizes.batch, f"turns/s, {count}", value)
        for count, value in (
            ("1 process", turns / alone[0]),
            ("2 processes", 2 * turns / both),
        )
    ]


def _play_together(sizes: Sizes, folder: Path, index: int, barrier: Any, spans: Any) -> None:
    """The first process plays alone while the second waits, then both play."""
    from agent_rl.parallel import prepare_process

    prepare_process()
    model, tokenizer = load_base(folder)
    name = described(model)

    def timed(alone: bool, stream: int) -> None:
        seconds = seconds_to_play(model, tokenizer, sizes.batch, sizes.horizon, stream)
        end = time.perf_counter()  # one clock for all processes of a machine
        spans.put((alone, end - seconds, end, name))

    seconds_to_play(model, tokenizer, sizes.batch, sizes.horizon, 1)
    barrier.wait(PATIENCE)
    if index == 0:
        timed(True, 2)
    barrier.wait(PATIENCE)
    timed(False, 3 + index)
