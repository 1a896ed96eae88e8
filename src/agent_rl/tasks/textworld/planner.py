"""Exact distances: the least number of commands to a goal, by search over TextWorld's own rules.

TextWorld keeps a plan of its own and repairs it after every step. That plan wins, but nothing makes
it the shortest. Here a breadth-first search over the states of ``World`` decides. Four
observations keep it small, none of which can lengthen a plan:

* Moves that only prepare what no needed move needs are left out.
* A move that can only be undone again (putting down, closing, locking) is left out: whatever it
  adds serves only moves that restore what it took away, and no rule asks for the absence of a fact.
* A move that every plan needs exactly once, and that is in no other's way, is made as soon as it
  is possible: any plan that makes it later can make it now.
* States that differ only in facts that no remaining move reads are one state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from agent_rl.errors import UserError
from agent_rl.tasks.textworld.world import Move, World

MAX_STATES = 400_000
"""States of one search; ordinary ones take tens to some thousands."""
MAX_KNOWN = 2_000
"""Distances kept per goal."""


class Planner:
    """Shortest plans to one goal of one game.

    Args:
        world: the game.
        goal: facts to attain; None means winning.

    A plan never leads through the end of the game, except as its last step.
    """

    def __init__(self, world: World, goal: int | None = None) -> None:
        self._world = world
        self._goal = goal
        # Facts that are wanted by a goal, and facts that a loss hangs on.
        self._wins = _union(win for quest in world.quests for win in quest.wins) | (goal or 0)
        self._fails = _union(fail for quest in world.quests for fail in quest.fails)
        self._moves = _without_detours(
            [move for move in world.moves if move.adds], self._wins, self._fails
        )
        ends = ~((1 << world.facts) - 1) & ((1 << (world.facts + len(world.quests) + 1)) - 1)
        # The verdict hangs on all conditions and on which quests are fulfilled already.
        self._read = self._wins | self._fails | ends
        self._care = self._read | _union(move.needs for move in self._moves)
        self._known: dict[int, float] = {}

    def reached(self, state: int) -> bool:
        """Whether the goal holds."""
        if self._goal is None:
            return self._world.won(state) and not self._world.lost(state)
        return state & self._goal == self._goal

    def distance(self, state: int) -> float:
        """Commands to the goal; 0 where it holds, inf where it cannot be reached any more.

        Raises: UserError when the search does not end within ``MAX_STATES`` states.
        """
        if self.reached(state):
            return 0.0
        key = state & self._care
        found = self._known.get(key)
        if found is None:
            if len(self._known) > MAX_KNOWN:
                # Only the recent past is asked for again; memory must not grow with play.
                self._known.clear()
            found = self._search(state)
        return found

    def command(self, state: int) -> str | None:
        """First command of a shortest plan, by the alphabet among equals; None without a plan."""
        distance = self.distance(state)
        if distance in (0.0, math.inf):
            return None
        possible = (move for move in self._moves if state & move.needs == move.needs)
        for move in sorted(possible):
            following = self._world.after(state, move)
            if self.reached(following):
                if distance == 1:
                    return move.command
            elif not self._over(following) and self.distance(following) == distance - 1:
                return move.command
        raise AssertionError(f"no command brings the goal nearer than {distance}")

    def _over(self, state: int) -> bool:
        return self._world.lost(state) or self._world.won(state)

    def _search(self, start: int) -> float:
        if self._over(start):
            return self._remember(start, math.inf)
        moves = self._useful(start)
        if moves is None:
            return self._remember(start, math.inf)
        after, care = self._world.after, self._read | _union(move.needs for move in moves)
        urgent = self._urgent(start, moves)
        parents: dict[int, int] = {start & care: -1}
        frontier = [start & care]
        depth = 0
        while frontier:
            depth += 1
            following = []
            for state in frontier:
                possible = [move for move in moves if state & move.needs == move.needs]
                for move in next(([one] for one in possible if one in urgent), possible):
                    found = after(state, move) & care
                    if found in parents:
                        continue
                    if self.reached(found):
                        return self._trace(start, parents, state, depth, care)
                    parents[found] = state
                    if not self._over(found):
                        following.append(found)
            if len(parents) > MAX_STATES:
                raise UserError(
                    f"no shortest plan to {self._world.goal!r} within {MAX_STATES} states: use "
                    "fewer ingredients or rooms, or a lower level"
                )
            frontier = following
        return self._remember(start, math.inf)

    def _trace(
        self, start: int, parents: dict[int, int], last: int, depth: int, care: int
    ) -> float:
        """Keep the distances along the plan that ends one step after ``last``."""
        # The states of the search lack what its moves do not read; it has not changed since.
        rest = start & ~care
        distance = 1.0
        while last != -1:
            self._remember(last | rest, distance)
            last, distance = parents[last], distance + 1
        assert distance == depth + 1
        return float(depth)

    def _remember(self, state: int, distance: float) -> float:
        self._known[state & self._care] = distance
        return distance

    def _useful(self, start: int) -> list[Move] | None:
        """Moves that can become possible from here and can help; None when they do not suffice."""
        reached, open_moves = start, list(self._moves)
        possible: list[Move] = []
        while True:
            ready = [move for move in open_moves if reached & move.needs == move.needs]
            if not ready:
                break
            open_moves = [move for move in open_moves if reached & move.needs != move.needs]
            possible += ready
            reached |= _union(move.adds for move in ready)
        wanted = 0
        for ways in self._aims(start):
            if not any(reached & way == way for way in ways):
                return None
            wanted |= _union(ways)
        useful: list[Move] = []
        rest = possible
        while True:
            chosen = [move for move in rest if move.adds & wanted]
            if not chosen:
                # In the order of the game, so that the search does not depend on how it came here.
                return [move for move in self._moves if move in set(useful)]
            rest = [move for move in rest if not move.adds & wanted]
            useful += chosen
            wanted |= _union(move.needs for move in chosen)

    def _aims(self, state: int) -> list[tuple[int, ...]]:
        """What is still to be attained, all of it, each in one of several ways."""
        if self._goal is not None:
            return [(self._goal,)]
        facts = self._world.facts
        return [
            quest.wins
            for number, quest in enumerate(self._world.quests)
            if quest.wins and not state >> (facts + number) & 1
        ]

    def _urgent(self, start: int, moves: Sequence[Move]) -> frozenset[Move]:
        """Moves to make as soon as they are possible.

        Each is necessary, because it alone adds a fact that every plan from here must attain. It
        can be made once only, because it takes away something that nothing gives back. It is in
        nobody's way: what it takes away no other move and no aim needs, and what it adds nobody
        else adds and no loss hangs on.
        """
        adders: dict[int, list[Move]] = {}
        for move in moves:
            for bit in _bits(move.adds):
                adders.setdefault(bit, []).append(move)
        necessary: set[Move] = set()
        missing = [ways[0] & ~start for ways in self._aims(start) if len(ways) == 1]
        while missing:
            for bit in _bits(missing.pop()):
                only = adders.get(bit, [])
                if len(only) == 1 and only[0] not in necessary:
                    necessary.add(only[0])
                    missing.append(only[0].needs & ~start)
        given = _union(adders)
        return frozenset(
            move
            for move in necessary
            if move.removes & start & ~given
            and not move.removes & (self._wins | _union(o.needs for o in moves if o != move))
            and not move.adds & (self._fails | start)
            and all(adders[bit] == [move] for bit in _bits(move.adds))
        )


def _bits(mask: int) -> Iterator[int]:
    """The single facts of a set."""
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _without_detours(moves: Sequence[Move], wanted: int, feared: int) -> list[Move]:
    """Leave out moves that others only undo.

    Such a move adds facts that serve, of all moves that are left, only those that give back
    everything it removed and take away what it added. Neither may the goal want what it adds, nor
    may a loss hang on what it removes.
    """
    kept = list(moves)
    while True:
        left = [move for move in kept if not _detour(move, kept, wanted, feared)]
        if len(left) == len(kept):
            return left
        kept = left


def _detour(move: Move, moves: Sequence[Move], wanted: int, feared: int) -> bool:
    if not move.removes or move.adds & wanted or move.removes & feared:
        return False
    return all(
        other.adds & move.removes == move.removes and other.removes & move.adds
        for other in moves
        if other.needs & move.adds
    )
