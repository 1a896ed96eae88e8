"""Table of the tasks: what they are, how many instances they have, how far the goals are.

Run it:  python -m agent_rl tasks
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from agent_rl.compose import CONFIGS
from agent_rl.config import TaskConfig
from agent_rl.errors import UserError
from agent_rl.stages.common import guarded
from agent_rl.stages.params import task_names
from agent_rl.stages.task_settings import load_task_study
from agent_rl.tasks.base import TextTask
from agent_rl.tasks.instances import SPLITS, build_instances
from agent_rl.tasks.registry import family_names, goal_keys, make_task

SEEDS = 200
"""Test instances that are looked at, unless told otherwise."""
HEADER = ("task", "family", "horizon", *SPLITS, "mean steps", "from", "words", "longest action")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a look at some instances says."""

    instances: int
    mean_distance: float
    """Expert steps to success."""
    longest_action: int
    """Words of the expert's longest action."""


def measure(name: str, task: TaskConfig, number: int) -> Measured:
    """Let the expert play the first ``number`` test instances. Raises: UserError as a task does."""
    found, _ = build_instances(
        task.family, task.settings, {"test": number}, task.held_out, max_distance=task.horizon
    )
    env = make_task(task.family, task.settings)
    longest = 0
    for instance in found:
        env.reset(seed=instance.instance_id)
        for _ in range(instance.distance):
            action = env.expert_action()
            longest = max(longest, len(action.split()))
            env.step(action)
    mean = sum(instance.distance for instance in found) / len(found)
    return Measured(len(found), mean, longest)


def need(family: str, error: Exception) -> str:
    """What keeps a task from being made: a package to install, or the error itself."""
    command = re.search(r"pip install '?[^\s'`\"]+'?", str(error))
    if command is not None:
        return f"needs {command.group(0)}"
    if isinstance(error, ImportError):
        return f"needs pip install '.[{family}]'"
    return f"cannot be made: {error}"


def describe(name: str, seeds: int) -> tuple[list[str], list[str]]:
    """Cells of a task's row, and the lines below it."""
    task = load_task_study(name).task(name)
    sizes = asdict(task.instances)
    row = [name, task.family, str(task.horizon), *(str(sizes[split]) for split in SPLITS)]
    settings = " ".join(f"{key}={value}" for key, value in task.settings.items())
    lines = [f"settings: {settings or 'none'}"]
    try:
        env: TextTask = make_task(task.family, task.settings)
        keys = goal_keys(task.family)
        number = min(seeds, task.instances.test)
        seen = measure(name, task, number) if number else None
    except (UserError, ImportError) as error:
        return [*row, *["-"] * 4], [*lines, need(task.family, error)]
    words = str(len(env.vocabulary)) if env.vocabulary else "free text"
    share = f" ({len(task.held_out)} of {len(keys)} goal keys)" if keys else ""
    held = f"{', '.join(task.held_out) or 'none'}{share}"
    lines.append(f"held out (split shifted): {held}")
    if seen is None:
        return [*row, "-", "-", words, "-"], lines
    cells = [f"{seen.mean_distance:.2f}", str(seen.instances), words, f"{seen.longest_action}"]
    return [*row, *cells], lines


def table(rows: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Aligned columns, each row followed by its own lines."""
    every = [HEADER, *(cells for cells, _ in rows)]
    widths = [max(len(cells[column]) for cells in every) for column in range(len(HEADER))]

    def line(cells: Sequence[str]) -> str:
        left = [f"{cell:<{width}}" for cell, width in zip(cells[:2], widths[:2], strict=True)]
        right = [f"{cell:>{width}}" for cell, width in zip(cells[2:], widths[2:], strict=True)]
        return "  ".join([*left, *right]).rstrip()

    printed = [line(HEADER)]
    for cells, below in rows:
        printed += [line(cells), *(f"    {text}" for text in below)]
    return "\n".join(printed)


def show(seeds: int) -> None:
    """Print every task of ``configs/task/`` and the families that none of them uses."""
    if seeds < 0:
        raise UserError(f"--seeds {seeds}: must be 0 (look at no instance) or more")
    rows = [describe(name, seeds) for name in task_names()]
    print(table(rows))
    unused = sorted(set(family_names()) - {cells[1] for cells, _ in rows})
    if unused:
        print(f"families without a file in {CONFIGS}/task/: {', '.join(unused)}")
    print(
        "\nmean steps: the expert's steps to success, over the first test instances ('from' says "
        "how many)\nwords: vocabulary of observations and actions; longest action: in words, of "
        "the expert on these"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m agent_rl tasks", description="Table of the tasks."
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS,
        metavar="N",
        help="test instances to look at per task; 0 for none (default: %(default)s)",
    )
    options = parser.parse_args(argv)
    return guarded(lambda: show(options.seeds))


if __name__ == "__main__":
    sys.exit(main())
