"""Settings and instances of one task, for the commands that look at tasks and train nothing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, fields

from agent_rl.config import StudyConfig, TaskConfig, study_from
from agent_rl.errors import UserError
from agent_rl.stages.params import compose_study
from agent_rl.tasks.horizon import Horizon
from agent_rl.tasks.instances import SPLITS, Instance, build_instances
from agent_rl.tasks.registry import make_env

MAX_INSTANCE = 2**31 - 1
"""Largest seed that generates an instance."""


def load_task_study(
    name: str, changes: Sequence[str] = (), overrides: Sequence[str] = ()
) -> StudyConfig:
    """The study with this one task, part of the default study or not.

    Args:
        name: a file of ``configs/task/``.
        changes: ``key=value`` words: a key of the task (``horizon``), a setting of its family
            (``level``, ``settings.level``), or a key of the model (``model.instructions``).
        overrides: further words for Hydra.

    Raises: UserError for an unknown task, a word that is no ``key=value``, or a bad value.
    """
    changed = (_override(name, change) for change in changes)
    content = compose_study([f"tasks={name}", *changed, *overrides])
    # Nothing is trained here, so a task may have fewer instances than training asks for.
    content["collect"]["instances"] = content["train"]["validation_instances"] = 1
    content["collect"]["probe_instances"] = content["audit"]["instances"] = 2
    return study_from(content, "configs")


def _override(task: str, change: str) -> str:
    key, separator, value = change.partition("=")
    if not separator or not key:
        raise UserError(f"--set {change}: expected key=value, e.g. --set horizon=10")
    first = key.split(".")[0]
    if first == "model":
        return change
    # ``++``: whether a setting exists is for the family to say, which also names those it has.
    if first not in {field.name for field in fields(TaskConfig)}:
        key = f"settings.{key}"
    return f"++tasks.{task}.{key}={value}"


def playable(name: str, task: TaskConfig) -> Horizon:
    """The task with its horizon.

    Raises: UserError when a setting is wrong or an optional package is not installed.
    """
    try:
        return make_env(task.family, task.settings, task.horizon)
    except UserError as error:
        raise UserError(f"task {name}: {error}") from error
    except ImportError as error:
        raise UserError(
            f"task {name}: {error}; install it with pip install '.[{task.family}]'"
        ) from error


def instance_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that name the task, its settings and an instance."""
    parser.add_argument("task", help="a file of configs/task/, e.g. babyai")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--seed", type=int, default=0, help="instance number in the split, from 0 (default: 0)"
    )
    which.add_argument("--instance", type=int, help="instance by the id that results carry")
    parser.add_argument(
        "--split", choices=SPLITS, default="test", help="where --seed counts (default: test)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="key=value",
        help="change a setting, e.g. --set horizon=20 --set level=PickupLoc",
    )


def split_instances(name: str, task: TaskConfig, split: str, number: int) -> list[Instance]:
    """The first ``number`` instances of a split, found as the study finds them.

    Val and train leave out what earlier splits hold; here they are walked alone, so a rare
    instance may shift their numbers. Test comes first in a study and is the same here.

    Raises: UserError when the split has fewer.
    """
    size: int = asdict(task.instances)[split]
    if not 1 <= number <= size:
        raise UserError(
            f"--seed: split {split} of task {name} has the instances 0 to {size - 1}, "
            f"number {number - 1} was asked for"
        )
    found, _ = build_instances(
        task.family,
        task.settings,
        {split: number},
        task.held_out,
        max_distance=task.horizon,
        shifted_settings=task.shifted_settings,
    )
    return found


def named_instance(name: str, task: TaskConfig, instance_id: int) -> Instance:
    """One instance by its id. Raises: UserError for an id out of range."""
    if not 0 <= instance_id <= MAX_INSTANCE:
        raise UserError(f"--instance {instance_id}: task {name} has ids from 0 to {MAX_INSTANCE}")
    env = playable(name, task)
    _, info = env.reset(seed=instance_id)
    # No split: an id that is named may belong to any of them, or to none.
    return Instance(
        "", instance_id, env.task.instance_hash(), info["distance"], env.task.goal_key()
    )
