"""The own text of a game: goal, room, exits, things and hands in few words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent_rl.tasks.textworld.world import Exit, Fixture, Placed, World

NOT_POSSIBLE = "not possible"
"""Answer to everything that cannot be done now."""

WORDS = ("goal", "room", "exit", "carry", "nothing", ".", ",")


def goal_text(world: World) -> str:
    """What is to be done; never how."""
    recipe = f"recipe {world.recipe} . " if world.recipe else ""
    return f"goal {world.goal} . {recipe}"


def scene_text(world: World, state: int) -> str:
    """The room in which the player is, and what is carried."""
    room = next(room for room in world.rooms if state & room.here == room.here)
    seen = ["room " + room.name, *_exits(room.exits, state), *_named(room.floor, state)]
    for fixture in room.fixtures:
        seen += _fixture(fixture, state)
    hands = " , ".join(_named(world.carried, state)) or "nothing"
    return f"{' , '.join(seen)} . carry {hands}"


def _exits(exits: Iterable[Exit], state: int) -> Iterator[str]:
    for found in exits:
        way = f"exit {found.direction}"
        if found.door:
            way += f" by {_condition(state, 0, found.closed, found.locked)}{found.door}"
        yield way


def _fixture(fixture: Fixture, state: int) -> Iterator[str]:
    if not fixture.inside:
        yield fixture.name
        yield from (f"{name} on {fixture.name}" for name in _named(fixture.content, state))
        return
    yield _condition(state, fixture.open, fixture.closed, fixture.locked) + fixture.name
    # What is in a closed container cannot be seen.
    if not state & (fixture.closed | fixture.locked):
        yield from (f"{name} in {fixture.name}" for name in _named(fixture.content, state))


def _condition(state: int, opened: int, closed: int, locked: int) -> str:
    for word, mask in (("locked ", locked), ("closed ", closed), ("open ", opened)):
        if state & mask:
            return word
    return ""


def _named(placed: Iterable[Placed], state: int) -> Iterator[str]:
    for at, name, marks in placed:
        if state & at == at:
            yield " ".join([*(word for mask, word in marks if state & mask), name])
