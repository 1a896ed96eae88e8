"""Task families by name: from settings to environments.

A family is one of ``family_names()``, or ``module:ATTRIBUTE``: a :class:`Family` in a module that
the current folder or PYTHONPATH holds. The second form needs no registration, so it also works in
configs and in the processes that the stages start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from agent_rl.errors import UserError
from agent_rl.plugins import load_attribute
from agent_rl.tasks.babyai import LEVELS, BabyAITask
from agent_rl.tasks.base import TextTask
from agent_rl.tasks.horizon import Horizon
from agent_rl.tasks.sqlqa import SqlQATask
from agent_rl.tasks.sqlqa.schema import MAX_HOPS
from agent_rl.tasks.textworld import TextWorldTask
from agent_rl.tasks.textworld.settings import MAX_LEVEL


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task."""

    make: Callable[..., TextTask]
    settings: tuple[str, ...] = ()
    """Keyword arguments of ``make``; all of them have defaults."""
    goal_keys: Callable[[], tuple[str, ...]] = tuple
    """Every single goal key that can be held out."""


FAMILIES: dict[str, Family] = {
    "babyai": Family(BabyAITask, ("level", "room_size", "num_dists"), BabyAITask.goal_keys),
    "sqlqa": Family(SqlQATask, ("hops", "tables", "mode", "question"), SqlQATask.goal_keys),
    "textworld": Family(
        TextWorldTask,
        ("game", "level", "ingredients", "rooms", "open", "cook", "cut", "text"),
        TextWorldTask.goal_keys,
    ),
}


def register_family(name: str, family: Family) -> None:
    """Make a family known under a short name, in this process.

    Raises: UserError for a name that is taken or holds a colon.
    """
    if name in FAMILIES:
        raise UserError(f"task {name!r} exists already: register it under another name")
    if not name or ":" in name:
        raise UserError(f"task {name!r}: a name must not be empty or hold a colon")
    FAMILIES[name] = family


def family_names() -> tuple[str, ...]:
    """Names of all families that are registered."""
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
                f"choose among {', '.join(found.settings) or '(none)'}"
            )
    missing = getattr(found.make, "__abstractmethods__", ())
    if missing:
        raise UserError(f"task {family} cannot be made: it defines no {', '.join(sorted(missing))}")
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
    as ``agent_rl/SqlQA-<hops>Hop-v0`` and over a mailbox as ``agent_rl/MailQA-<hops>Hop-v0``;
    TextWorld's games as ``agent_rl/TreasureHunter-<level>-v0`` and ``agent_rl/Cooking-v0``.
    """
    for level in LEVELS:
        _register(f"BabyAI-{level}", "babyai:BabyAITask", {"level": level})
    for hops in range(1, MAX_HOPS + 1):
        _register(f"SqlQA-{hops}Hop", "sqlqa:SqlQATask", {"hops": hops})
        _register(f"MailQA-{hops}Hop", "sqlqa:SqlQATask", {"hops": hops, "mode": "search"})
    for number in range(1, MAX_LEVEL + 1):
        _register(f"TreasureHunter-{number}", "textworld:TextWorldTask", {"level": number})
    _register("Cooking", "textworld:TextWorldTask", {"game": "cooking"})


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
    if ":" in name:
        return load_attribute(name, Family, "task", "examples.jugs:FAMILY")
    if name not in FAMILIES:
        raise UserError(
            f"task {name!r} does not exist: choose one of {', '.join(FAMILIES)}, "
            "or name your own as module:ATTRIBUTE"
        )
    return FAMILIES[name]
