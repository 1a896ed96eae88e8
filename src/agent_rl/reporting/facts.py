"""What ``provenance.json`` says of each task: words for the reader, rewards, learning rates.

A task is described by its settings, which are the same whatever name a study gives it; settings
that are not known here get neutral words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.errors import UserError

Facts = Mapping[str, Any]

_GOALS = {
    "GoToRedBall": "walks up to the red ball",
    "GoToLocal": "walks up to the object that the goal names",
    "PickupLoc": "picks up the object that the goal names",
    "PutNextLocal": "puts one object next to another",
}
_SOURCES = {
    "sql": ("a database", "queries it with SQL"),
    "search": ("a mailbox", "searches and reads messages"),
}


def task_facts(provenance: Facts, task: str) -> Facts:
    """The settings and counts of one task; empty when there are none."""
    facts = provenance["tasks"].get(task) if isinstance(provenance["tasks"], dict) else None
    return facts if isinstance(facts, dict) else {}


def short_words(facts: Facts) -> str:
    """What kind of task it is, in a few words."""
    return _words(facts)[0]


def description(facts: Facts) -> str:
    """What the agent does in a task, for how many turns, and what is new when it is shifted."""
    kind, action = _words(facts)
    text = f"{kind}; {action}"
    horizon = facts.get("horizon")
    if isinstance(horizon, int):
        text += f". An episode has at most {horizon} turns"
    held_out = facts.get("held_out")
    if isinstance(held_out, list) and held_out:
        text += f". Goals kept for the shifted instances: {', '.join(map(str, held_out))}"
    return f"{text}."


def _words(facts: Facts) -> tuple[str, str]:
    """What a task is, and what the agent does in it."""
    if "level" in facts and "room_size" in facts:
        size = facts["room_size"]
        room = f"a room of {size} by {size} cells" if isinstance(size, int) else "a room"
        goal = _GOALS.get(str(facts["level"]), "reaches the goal that it is given")
        return "a grid world read as text", f"in {room} the agent {goal}"
    if "hops" in facts and "mode" in facts:
        source, tool = _SOURCES.get(str(facts["mode"]), ("records", "looks things up"))
        action = f"the agent {tool}, one look-up after the other, and then answers once"
        if facts.get("question") == "compare":
            chains = "for each of two names"
            if facts.get("hops") != 1:
                chains = "along two chains of look-ups"
            action = f"the agent {tool} {chains}, compares, and answers once"
        if facts.get("question") == "find":
            action = f"the agent {tool} until it knows which of three names fits, and answers once"
        return f"questions about {source}", f"{action}: a wrong answer ends the episode"
    return "a text task of several turns", "the agent acts until it is done or out of turns"


def learning_rates(provenance: Facts, path: Path | str) -> dict[str, dict[str, float]]:
    """Learning rate of each arm by task, of the tasks that state any.

    Raises :class:`~agent_rl.errors.UserError` for an entry that is not a positive number.
    """
    tasks = provenance["tasks"] if isinstance(provenance["tasks"], dict) else {}
    found: dict[str, dict[str, float]] = {}
    for task in sorted(tasks):
        stated = task_facts(provenance, task).get("learning_rates")
        if stated is None:
            continue
        if not isinstance(stated, dict):
            raise UserError(
                f"{path}, tasks.{task}.learning_rates: {stated!r} is not an object of arm and "
                "number; run the publish stage again"
            )
        for arm, rate in stated.items():
            number = isinstance(rate, int | float) and not isinstance(rate, bool)
            if not number or not math.isfinite(rate) or rate <= 0:
                raise UserError(
                    f"{path}, tasks.{task}.learning_rates.{arm}: {rate!r} is not a positive "
                    "number; run the publish stage again"
                )
        found[task] = {str(arm): float(rate) for arm, rate in stated.items()}
    return found
