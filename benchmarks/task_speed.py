"""Environment steps per second of every task, each in processes of its own.

Episodes are recorded first (expert and chance mixed), in a process of their own, and then played
again by a process that has seen nothing: once on *new* instances, in groups of 8 as RL plays them,
and then on instances that are *known* to it, as in later updates. Texts, validity and the exact
distance are part of every step; choosing the actions is not.

Run it alone:  python -m benchmarks --only "task speed"
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agent_rl.errors import UserError
from agent_rl.files import read_json, write_json
from agent_rl.tasks.registry import make_env
from benchmarks.cases import Case, Measure, Sizes

NAME = "task speed"
GROUP = 8
FIRST_SEED = 50_000_000
"""Seeds that no split of the study uses."""
EXPERT_SHARE = 0.7

Recording = list[tuple[int, list[str]]]
"""Seed and actions of every episode."""


@dataclass(frozen=True, slots=True)
class TimedTask:
    """A task to time."""

    name: str
    family: str
    settings: dict[str, Any]
    horizon: int


TASKS = (
    TimedTask("babyai GoToLocal", "babyai", {"level": "GoToLocal"}, 12),
    TimedTask("sqlqa chain", "sqlqa", {"hops": 2}, 8),
    TimedTask("sqlqa compare", "sqlqa", {"hops": 2, "question": "compare"}, 8),
    TimedTask("sqlqa search", "sqlqa", {"hops": 2, "mode": "search"}, 10),
    TimedTask("textworld treasure", "textworld", {}, 16),
)


def record(task: TimedTask, episodes: int) -> Recording:
    """Play ``episodes`` episodes and keep what was done."""
    env = make_env(task.family, task.settings, task.horizon)
    rng = np.random.default_rng(0)
    recording: Recording = []
    for seed in range(FIRST_SEED, FIRST_SEED + episodes // GROUP):
        for _ in range(GROUP):
            env.reset(seed=seed)
            actions: list[str] = []
            over = False
            while not over:
                listed = env.task.admissible_actions()
                if listed and rng.random() > EXPERT_SHARE:
                    actions.append(listed[int(rng.integers(len(listed)))])
                else:
                    actions.append(env.task.expert_action())
                *_, terminated, truncated, _ = env.step(actions[-1])
                over = terminated or truncated
            recording.append((seed, actions))
    return recording


def timed(task: TimedTask, recording: Recording) -> dict[str, float]:
    """Steps per second on new and on known instances; resets included."""
    env = make_env(task.family, task.settings, task.horizon)
    steps = sum(len(actions) for _, actions in recording)
    found = {}
    for metric in ("new instances", "known instances"):
        start = time.perf_counter()
        for seed, actions in recording:
            env.reset(seed=seed)
            for action in actions:
                env.step(action)
        found[metric] = steps / (time.perf_counter() - start)
    return found


def missing(task: TimedTask) -> str:
    """Why the task cannot be made here (an optional package is not installed), or empty."""
    try:
        make_env(task.family, task.settings, task.horizon)
    except UserError as error:
        return str(error)
    return ""


def prepare(task: TimedTask, sizes: Sizes, folder: Path) -> None:
    """Record the episodes in a process that is not the timed one."""
    write_json(folder / f"{task.name}.json", record(task, sizes.recorded))


def work(task: TimedTask, sizes: Sizes, folder: Path) -> list[Measure]:
    """Play the recording again."""
    recording = read_json(folder / f"{task.name}.json", "make bench")
    return [
        Measure(NAME, "none", task.name, "none", 1, f"environment steps/s, {metric}", value)
        for metric, value in timed(task, recording).items()
    ]


def cases() -> tuple[Case, ...]:
    """One case per task: their runs take turns like all others."""
    return tuple(
        Case(
            NAME,
            partial(work, task),
            partial(prepare, task),
            partial(missing, task),
            torch=False,
        )
        for task in TASKS
    )
