"""One game as facts and moves: the whole logic in a few integers.

A state is one integer. Its low bits are the facts that can change, then follows one bit per quest
(fulfilled once and for all) and a last one for a lost game. A move is possible when its ``needs``
hold; it removes and adds facts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Move(NamedTuple):
    """A command and what it does. ``needs``, ``adds`` and ``removes`` are sets of facts."""

    command: str
    needs: int
    adds: int
    removes: int


class Quest(NamedTuple):
    """Sets of facts of which any one, when it holds, fulfils the quest or loses the game."""

    wins: tuple[int, ...]
    fails: tuple[int, ...]


class Placed(NamedTuple):
    """An object that is somewhere when ``at`` holds."""

    at: int
    name: str
    marks: tuple[tuple[int, str], ...]
    """Words for its condition, each with the fact that makes it true."""


class Exit(NamedTuple):
    """A way out of a room."""

    direction: str
    door: str
    """Name of the door, empty without one."""
    closed: int
    locked: int


class Fixture(NamedTuple):
    """Furniture that things can be in or on."""

    name: str
    inside: bool
    """Whether it is a container; else things lie on it."""
    open: int
    closed: int
    locked: int
    content: tuple[Placed, ...]


class Room(NamedTuple):
    """A room as it is seen from within."""

    name: str
    here: int
    """The fact that the player is here."""
    exits: tuple[Exit, ...]
    floor: tuple[Placed, ...]
    fixtures: tuple[Fixture, ...]


@dataclass(slots=True)
class World:
    """A game; the same for all who play it."""

    facts: int
    """Number of facts that can change."""
    start: int
    moves: tuple[Move, ...]
    """In the order in which TextWorld resolves a command that fits several."""
    quests: tuple[Quest, ...]
    rooms: tuple[Room, ...]
    carried: tuple[Placed, ...]
    goal: str
    """The last command of the game in few words."""
    recipe: str
    keys: tuple[str, ...]
    """What the goal is about."""
    others: dict[str, int]
    """Alternative goals and the facts that fulfil them."""
    digest: str
    """SHA-256 of the initial state and the goal."""
    lost_bit: int = field(init=False)
    won_bits: int = field(init=False)
    _tracked: tuple[tuple[int, Quest], ...] = field(init=False)

    def __post_init__(self) -> None:
        bits = [1 << (self.facts + number) for number in range(len(self.quests) + 1)]
        self.lost_bit = bits[-1]
        self._tracked = tuple(zip(bits, self.quests, strict=False))
        self.won_bits = sum(bit for bit, quest in self._tracked if quest.wins)

    def begin(self) -> int:
        """The state in which the game starts."""
        return self._settle(self.start)

    def after(self, state: int, move: Move) -> int:
        """The state that a possible move leads to."""
        return self._settle(state & ~move.removes | move.adds)

    def won(self, state: int) -> bool:
        """Whether all quests are fulfilled."""
        return state & self.won_bits == self.won_bits

    def lost(self, state: int) -> bool:
        """Whether something has happened that loses the game."""
        return bool(state & self.lost_bit)

    def _settle(self, state: int) -> int:
        for bit, quest in self._tracked:
            if state & bit:
                continue
            for fail in quest.fails:
                if state & fail == fail:
                    state |= self.lost_bit
            for win in quest.wins:
                if state & win == win:
                    state |= bit
        return state

    def dump(self) -> str:
        """The game as one line of JSON."""
        names = ("facts", "start", "moves", "quests", "rooms", "carried", "goal", "recipe", "keys")
        content = {name: getattr(self, name) for name in (*names, "others", "digest")}
        return json.dumps(content, separators=(",", ":"))


def load(text: str) -> World:
    """The game that :meth:`World.dump` wrote."""
    content: dict[str, Any] = json.loads(text)
    content["moves"] = tuple(Move(*one) for one in content["moves"])
    content["quests"] = tuple(Quest(tuple(w), tuple(f)) for w, f in content["quests"])
    content["rooms"] = tuple(_room(*one) for one in content["rooms"])
    content["carried"] = _placed(content["carried"])
    content["keys"] = tuple(content["keys"])
    return World(**content)


def digest_of(state: object) -> str:
    """SHA-256 of a JSON-like value."""
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def _placed(found: list[Any]) -> tuple[Placed, ...]:
    return tuple(Placed(at, name, tuple((b, w) for b, w in marks)) for at, name, marks in found)


def _room(name: str, here: int, exits: Any, floor: Any, fixtures: Any) -> Room:
    made = tuple(Fixture(*one)._replace(content=_placed(one[-1])) for one in fixtures)
    return Room(name, here, tuple(Exit(*one) for one in exits), _placed(floor), made)
