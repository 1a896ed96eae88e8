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
from benchmarks.room import TASK, groups, make_room, study

ENGINE = "agent_rl"
ACTION_TOKENS = 2
"""Tokens of every action: an answer that has not ended by then is cut, so that models which know
no format do the same work as those which do."""
FITTED_FROM = 8
"""Turns from which the exponent is fitted: below, the fixed costs of an episode count too much."""
SECONDS_OF_WORKERS = 60.0
"""Patience with the two processes."""


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
    seconds_to_play(model, tokenizer, sizes.batch, min(sizes.turns), 1)
    seconds = {t: seconds_to_play(model, tokenizer, sizes.batch, t, 2) for t in sizes.turns}
    found = [
        Measure(
            "turns",
            ENGINE,
            f"{TASK}, {turns} turns",
            name,
            sizes.batch,
            "ms per episode",
            1000 * taken / sizes.batch,
        )
        for turns, taken in seconds.items()
    ]
    fitted = [t for t in sizes.turns if t >= FITTED_FROM] or list(sizes.turns)
    slope = exponent(fitted, [seconds[t] for t in fitted])
    task = f"{TASK}, {fitted[0]} to {fitted[-1]} turns"
    return [*found, Measure("turns", ENGINE, task, name, sizes.batch, "exponent", slope)]


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


def one_process(sizes: Sizes, folder: Path) -> list[Measure]:
    """Turns per second of one process, beside those of two at a time."""
    return _workers(sizes, folder, 1)


def two_processes(sizes: Sizes, folder: Path) -> list[Measure]:
    """Turns per second of two processes that play at the same time, together."""
    return _workers(sizes, folder, 2)


def _workers(sizes: Sizes, folder: Path, count: int) -> list[Measure]:
    """All processes begin at a barrier; the last one to end stops the clock."""
    context = multiprocessing.get_context("spawn")
    barrier, spans = context.Barrier(count), context.SimpleQueue()
    processes = [
        context.Process(target=_play_together, args=(sizes, folder, index, barrier, spans))
        for index in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("a process of the case workers failed")
    times = [spans.get() for _ in processes]
    seconds = max(end for _, end, _ in times) - min(start for start, _, _ in times)
    turns = count * sizes.batch * sizes.horizon
    metric = f"turns/s, {count} process{'es' if count > 1 else ''}"
    return [Measure("workers", ENGINE, TASK, times[0][2], sizes.batch, metric, turns / seconds)]


def _play_together(sizes: Sizes, folder: Path, index: int, barrier: Any, spans: Any) -> None:
    from agent_rl.parallel import prepare_process

    prepare_process()
    model, tokenizer = load_base(folder)
    seconds_to_play(model, tokenizer, sizes.batch, sizes.horizon, 1)
    barrier.wait(SECONDS_OF_WORKERS)
    start = time.perf_counter()  # one clock for all processes of a machine
    seconds_to_play(model, tokenizer, sizes.batch, sizes.horizon, 2 + index)
    spans.put((start, time.perf_counter(), described(model)))
