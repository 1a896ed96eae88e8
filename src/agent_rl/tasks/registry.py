"""Task families by name: from settings to environments.

A family is one of ``family_names()``, or ``module:ATTRIBUTE``: a :class:`Family` in a module that
the current folder or PYTHONPATH holds. The second form needs no registration, so it also works in
configs and in the processes that the stages start.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from agent_rl.errors import UserError
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
        return _load(name)
    if name not in FAMILIES:
        raise UserError(
            f"task {name!r} does not exist: choose one of {', '.join(FAMILIES)}, "
            "or name your own as module:ATTRIBUTE"
        )
    return FAMILIES[name]


def _load(name: str) -> Family:
    """The family that a module holds. Raises: UserError naming what is missing."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UserError(f"task {name!r}: expected module:ATTRIBUTE, e.g. examples.jugs:FAMILY")
    # ``python -m`` finds modules of the current folder; the console script and DVC shall as well.
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _names(error.name, module_name):
            raise UserError(
                f"task {name!r}: there is no module {error.name!r} in the current folder or on "
                "PYTHONPATH"
            ) from error
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"task {name!r}: importing {module_name} failed with {reason}") from error
    found = getattr(module, attribute, None)
    if found is None:
        raise UserError(f"task {name!r}: module {module_name} has no {attribute!r}")
    if not isinstance(found, Family):
        raise UserError(
            f"task {name!r}: {attribute} is of type {type(found).__name__}, not a Family of "
            "agent_rl.tasks.registry"
        )
    return found


def _names(missing: str | None, module: str) -> bool:
    """Whether the missing module is the wanted one or a package above it, not one it imports."""
    return missing is not None and f"{module}.".startswith(f"{missing}.")
