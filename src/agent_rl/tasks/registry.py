"""Task families by name: from settings to environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from agent_rl.errors import UserError
from agent_rl.tasks.babyai import LEVELS, BabyAITask
from agent_rl.tasks.base import TextTask
from agent_rl.tasks.horizon import Horizon
from agent_rl.tasks.sqlqa import SqlQATask
from agent_rl.tasks.sqlqa.schema import MAX_HOPS


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task."""

    make: Callable[..., TextTask]
    settings: tuple[str, ...]
    """Keyword arguments of ``make``."""
    goal_keys: Callable[[], tuple[str, ...]]
    """Every single goal key that can be held out."""


FAMILIES: dict[str, Family] = {
    "babyai": Family(BabyAITask, ("level", "room_size", "num_dists"), BabyAITask.goal_keys),
    "sqlqa": Family(SqlQATask, ("hops", "tables", "mode"), SqlQATask.goal_keys),
}


def family_names() -> tuple[str, ...]:
    """Names of all families."""
    return tuple(FAMILIES)


def goal_keys(family: str) -> tuple[str, ...]:
    """Every goal key of a family, for splits that hold some out.

    Raises: UserError for an unknown family.
    """
    return _family(family).goal_keys()


def make_task(family: str, settings: Mapping[str, Any]) -> TextTask:
    """A task without a horizon.

    Raises: UserError for an unknown family or setting, or a value that the task refuses.
    """
    found = _family(family)
    for name in settings:
        if name not in found.settings:
            raise UserError(
                f"setting {name!r} of task {family} does not exist: "
                f"choose among {', '.join(found.settings)}"
            )
    return found.make(**settings)


def make_env(family: str, settings: Mapping[str, Any], horizon: int) -> Horizon:
    """A task that truncates after ``horizon`` turns and refuses to be stepped beyond its end.

    Raises: UserError as ``make_task``, and for a horizon below 1.
    """
    if type(horizon) is not int or horizon < 1:
        raise UserError(f"horizon {horizon!r} of task {family}: must be an integer of at least 1")
    return Horizon(make_task(family, settings), horizon)


def register_levels() -> None:
    """Make the tasks known to gymnasium.

    BabyAI's levels as ``agent_rl/BabyAI-<level>-v0``; questions of 1 to 4 look-ups over a database
    as ``agent_rl/SqlQA-<hops>Hop-v0`` and over a mailbox as ``agent_rl/MailQA-<hops>Hop-v0``.
    """
    for level in LEVELS:
        _register(f"BabyAI-{level}", "babyai:BabyAITask", {"level": level})
    for hops in range(1, MAX_HOPS + 1):
        _register(f"SqlQA-{hops}Hop", "sqlqa:SqlQATask", {"hops": hops})
        _register(f"MailQA-{hops}Hop", "sqlqa:SqlQATask", {"hops": hops, "mode": "search"})


def _register(name: str, entry_point: str, settings: dict[str, Any]) -> None:
    if f"agent_rl/{name}-v0" not in gymnasium.registry:
        # The task checks its own inputs and order of calls; wrappers would only cost time.
        gymnasium.register(
            f"agent_rl/{name}-v0",
            entry_point=f"agent_rl.tasks.{entry_point}",
            kwargs=settings,
            disable_env_checker=True,
            order_enforce=False,
        )


def _family(name: str) -> Family:
    if name not in FAMILIES:
        raise UserError(f"task {name!r} does not exist: choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]
