"""From TextWorld's game to ``World``: every move that can ever become possible, by its own rules.

TextWorld matches its rules against all facts after every action. Here that happens once per game,
on facts that only grow: the fixed point holds every action that any play can make possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agent_rl.tasks.textworld import library, words
from agent_rl.tasks.textworld.world import (
    Exit,
    Fixture,
    Move,
    Placed,
    Quest,
    Room,
    World,
    digest_of,
)

DIRECTIONS = ("north", "east", "south", "west")
COOKED = ("fried", "roasted", "grilled")
CUT = ("chopped", "sliced", "diced")
MARKS = ("burned", *CUT, *COOKED)
"""Conditions of food in the order in which they are told."""
HAND = "I"
PLAYER = "P"
PORTABLE = ("o", "f", "k", "meal")

Fact = tuple[str, ...]
"""Name of a predicate and the identifiers it is about."""


def fact_of(proposition: Any) -> Fact:
    """A TextWorld proposition; its strings may be numpy's."""
    return str(proposition.name), *(str(one.name) for one in proposition.arguments)


def ground(game: Any) -> World:
    """All moves, quests and visible things of a game.

    Raises: library.Refused when it cannot be won.
    """
    return _Grounding(game).world()


class _Grounding:
    def __init__(self, game: Any) -> None:
        self.game = game
        self.names = {str(key): str(info.name or "").lower() for key, info in game.infos.items()}
        self.types = {str(key): str(info.type) for key, info in game.infos.items()}
        self.start = {fact_of(one) for one in game.world.state.facts}
        self.recipe = [tuple(map(str, one)) for one in game.metadata.get("ingredients", ())]
        self.actions = self._actions()
        changing = {
            fact_of(one) for action in self.actions for one in (*action.added, *action.removed)
        }
        self.bits = {fact: 1 << number for number, fact in enumerate(sorted(changing))}
        self.possible = self.start | changing

    def world(self) -> World:
        goal, own = self._goal()
        carried = self._placed(("in", HAND))
        rooms = tuple(self._room(key) for key in self._kind("r"))
        return World(
            facts=len(self.bits),
            start=self._mask(self.start),
            moves=tuple(self._moves()),
            quests=tuple(self._quests()),
            rooms=rooms,
            carried=carried,
            goal=goal,
            recipe=" , ".join(" ".join(self._told(one)) for one in self.recipe),
            keys=tuple(sorted({one[0] for one in self.recipe})) or (words.noun(goal),),
            others=self._others(own, carried, rooms),
            digest=digest_of([goal, self.recipe, sorted(map(self._named, self.start))]),
        )

    def _actions(self) -> list[Any]:
        state, rules = self.game.world.state.copy(), self.game.kb.rules
        order = {name: number for number, name in enumerate(rules.keys())}
        # A recipe of n ingredients is made by the rule for n; TextWorld keeps the others too.
        other = {f"make/recipe/{n}" for n in range(1, 6) if n != len(self.recipe)}
        chosen = [rule for name, rule in rules.items() if name not in other]
        found: dict[Any, str] = {}
        while True:
            fresh = [
                action
                for action in state.all_applicable_actions(
                    chosen, self.game.kb.types.constants_mapping
                )
                if action not in found
            ]
            if not fresh:
                break
            for action in fresh:
                found[action] = str(action)
                state.add_facts(action.added)
        return sorted(found, key=lambda action: (order[action.name], found[action]))

    def _moves(self) -> Iterator[Move]:
        inform7 = library.part("generator.inform7").Inform7Game(self.game)
        commands = inform7.gen_commands_from_actions(self.actions)
        for action, command in zip(self.actions, commands, strict=True):
            needs = {fact_of(one) for one in action.preconditions}
            if action.name.startswith("make/recipe"):
                needs |= self._ready()
            yield Move(
                " ".join(str(command).lower().split()),
                self._mask(needs),
                self._mask(map(fact_of, action.added)),
                self._mask(map(fact_of, action.removed)),
            )

    def _ready(self) -> set[Fact]:
        """What must be done to the ingredients first.

        The rules of the logic would let a raw meal be prepared and then count the game as lost;
        the compiled game refuses it. Here, too, it is refused.
        """
        keys = {self.names[key]: key for key in self._kind("f")}
        return {
            (condition, keys[name])
            for name, *conditions in self.recipe
            for condition in conditions
            if condition in (*COOKED, *CUT)
        }

    def _quests(self) -> Iterator[Quest]:
        for quest in self.game.quests:
            wins = tuple(filter(None, map(self._conditions, quest.win_events)))
            if quest.win_events and not wins:
                raise library.Refused("a quest that no play can fulfil")
            yield Quest(wins, tuple(filter(None, map(self._conditions, quest.fail_events))))

    def _conditions(self, event: Any) -> int | None:
        """The facts of an event; None when it can never happen."""
        facts = [fact_of(one) for one in event.condition.preconditions]
        return self._mask(facts) if self.possible.issuperset(facts) else None

    def _goal(self) -> tuple[str, int]:
        """The goal in words, and the facts whose attainment is part of it."""
        wins = [event.condition for quest in self.game.quests for event in quest.win_events]
        facts = {fact_of(one) for condition in wins for one in condition.preconditions}
        if self.recipe:
            return "eat meal", self._mask(facts)
        taken = next(fact for fact in facts if fact[0] == "in" and fact[2] == HAND)
        return f"take {self.names[taken[1]]}", self._mask(facts)

    def _told(self, ingredient: tuple[str, ...]) -> list[str]:
        name, cooking, cutting = ingredient
        return [word for word in (cutting, cooking) if word in MARKS] + [name]

    def _others(
        self, own: int, carried: tuple[Placed, ...], rooms: tuple[Room, ...]
    ) -> dict[str, int]:
        """Taking another thing, walking to another room."""
        start = self._mask(self.start)
        goals = {
            f"take {one.name}": one.at
            for one in carried
            if one.at and one.name != "meal" and not one.at & (own | start)
        }
        goals |= {f"go to {room.name}": room.here for room in rooms if room.here & ~start}
        return dict(sorted(goals.items()))

    def _room(self, key: str) -> Room:
        fixtures = [
            thing
            for thing in sorted(self.types, key=self.names.__getitem__)
            if ("at", thing, key) in self.start
            and self.types[thing] not in PORTABLE
            and thing != PLAYER
        ]
        return Room(
            self.names[key],
            self.bits.get(("at", PLAYER, key), 0),
            tuple(self._exits(key)),
            self._placed(("at", key)),
            tuple(self._fixture(thing) for thing in fixtures),
        )

    def _exits(self, key: str) -> Iterator[Exit]:
        for direction in DIRECTIONS:
            for other in self._kind("r"):
                if (f"{direction}_of", other, key) not in self.start:
                    continue
                doors = [
                    door for door in self._kind("d") if ("link", key, door, other) in self.start
                ]
                door = doors[0] if doors else ""
                if door or ("free", key, other) in self.start:
                    closed, locked = self._bit("closed", door), self._bit("locked", door)
                    yield Exit(direction, self.names.get(door, ""), closed, locked)

    def _fixture(self, key: str) -> Fixture:
        inside = any((one, key) in self.possible for one in ("open", "closed", "locked"))
        return Fixture(
            self.names[key],
            inside,
            self._bit("open", key),
            self._bit("closed", key),
            self._bit("locked", key),
            self._placed(("in" if inside else "on", key)),
        )

    def _placed(self, where: tuple[str, str]) -> tuple[Placed, ...]:
        """Everything portable that can be there, by name."""
        relation, place = where
        found = []
        for key in sorted(self.types, key=self.names.__getitem__):
            fact = (relation, key, place)
            if self.types[key] in PORTABLE and fact in self.possible:
                marks = tuple(
                    (self._bit(word, key), word) for word in MARKS if (word, key) in self.possible
                )
                found.append(Placed(self.bits.get(fact, 0), self.names[key], marks))
        return tuple(found)

    def _bit(self, *fact: str) -> int:
        """The bit of a fact; for one that always holds all bits, for an impossible one none."""
        return self.bits.get(fact, -1 if fact in self.start else 0)

    def _mask(self, facts: Iterable[Fact]) -> int:
        """The facts that can change, as a set."""
        return sum({self.bits.get(fact, 0) for fact in facts})

    def _kind(self, kind: str) -> list[str]:
        return [key for key, found in sorted(self.types.items()) if found == kind]

    def _named(self, fact: Fact) -> Fact:
        """The fact with names for identifiers, which differ where nothing else does."""
        return fact[0], *(self.names[key] or self.types[key] for key in fact[1:])
