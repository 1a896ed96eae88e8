"""What the goals of a room are, as sets of object numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_rl.tasks.babyai.room import room

MAX_PAIRS = 12
"""Most alternative goals of a put-next room (18 objects would have 306 pairs)."""


class Kind(StrEnum):
    """The three verifiers that the levels use."""

    GO_TO = "go to"
    PICK_UP = "pick up"
    PUT_NEXT = "put next"


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal over the numbered objects of one room."""

    kind: Kind
    text: str
    movers: frozenset[int]
    """Objects of which one must be faced, carried or moved."""
    fixed: frozenset[int] = frozenset()
    """Objects next to which the mover belongs (put-next only)."""


def alternative_goals(
    own: Goal, names: Sequence[str], cells: Sequence[int], size: int
) -> tuple[Goal, ...]:
    """Goals of the same kind about other objects, sorted by their text.

    Args:
        own: the instance's own goal.
        names: ``colour type`` of every object.
        cells: where every object lies at the start.
        size: side of the room in cells.
    """
    if own.kind is Kind.PUT_NEXT:
        return _other_pairs(own, names, cells, size)
    verb = str(own.kind)
    goals = []
    for name in sorted(set(names)):
        same = frozenset(number for number, other in enumerate(names) if other == name)
        # A group that shares an object with the own goal would fulfil the own goal as well.
        if not same & own.movers:
            article = "the" if len(same) == 1 else "a"
            goals.append(Goal(own.kind, f"{verb} {article} {name}", same))
    return tuple(goals)


def _other_pairs(
    own: Goal, names: Sequence[str], cells: Sequence[int], size: int
) -> tuple[Goal, ...]:
    geometry = room(size)
    pairs = []
    for mover, name in enumerate(names):
        near = geometry.beside(1 << cells[mover])
        for fixed, other in enumerate(names):
            is_own = mover in own.movers and fixed in own.fixed
            if mover != fixed and not is_own and not near >> cells[fixed] & 1:
                text = f"put the {name} next to the {other}"
                pairs.append(Goal(own.kind, text, frozenset({mover}), frozenset({fixed})))
    pairs.sort(key=lambda goal: goal.text)
    # Evenly spaced, so that the bound does not favour the first colours of the alphabet.
    stride = max(1, -(-len(pairs) // MAX_PAIRS))
    return tuple(pairs[::stride])
