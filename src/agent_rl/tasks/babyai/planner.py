"""Exact distances: the least number of actions until minigrid's verifier reports success.

A state is the agent's pose, what it carries and where all objects lie. Almost always the
shortest plan touches nothing but the goal's own objects; a breadth-first field over poses finds
it. That field is an upper bound. Where it equals the bound for a room without obstacles it is
exact; elsewhere an A* search over full states decides, because taking a blocking object out of
the way (one action, two with the drop) can beat the detour around it. Answers are kept per
arrangement of objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from agent_rl.errors import UserError
from agent_rl.tasks.babyai.goals import Goal, Kind
from agent_rl.tasks.babyai.room import FAR, Room, cells_of

LEFT, RIGHT, FORWARD, PICKUP, DROP = range(5)

MOVER, FIXED, OTHER = range(3)
"""Roles of objects for one goal; objects of one role are interchangeable."""
NOTHING = -1
CARRIED = -1
"""Cell of the object that is in the hand."""

UNKNOWN = 255
LOST = 254
MAX_LAYOUTS = 64
MAX_STATES = 300_000

Arrangement = tuple[int, int, int, int]
"""Role in the hand, cell masks of the three roles."""
State = tuple[int, int, int, int, int]
"""Pose and arrangement."""


class Layout:
    """One arrangement of objects and what is known about the distances in it."""

    __slots__ = ("hand", "known", "masks", "occupied", "walk")

    def __init__(self, arrangement: Arrangement, poses: int) -> None:
        self.hand = arrangement[0]
        self.masks = arrangement[1:]
        self.occupied = self.masks[0] | self.masks[1] | self.masks[2]
        self.walk = b""
        """Upper bounds, one byte per pose."""
        self.known = bytearray([UNKNOWN]) * poses


class Planner:
    """Shortest plans to one goal in one room."""

    def __init__(self, room: Room, goal: Goal, objects: int) -> None:
        self._room = room
        self._kind = goal.kind
        self._roles = [
            MOVER if number in goal.movers else FIXED if number in goal.fixed else OTHER
            for number in range(objects)
        ]
        self._layouts: dict[Arrangement, Layout] = {}
        self._fields: dict[Kind, Callable[[Layout], bytes]] = {
            Kind.GO_TO: self._go_to_field,
            Kind.PICK_UP: self._pick_up_field,
            Kind.PUT_NEXT: self._put_next_field,
        }

    def layout(self, cells: Sequence[int]) -> Layout:
        """The arrangement in which object ``i`` lies at ``cells[i]`` (or is ``CARRIED``)."""
        masks = [0, 0, 0]
        hand = NOTHING
        for role, cell in zip(self._roles, cells, strict=True):
            if cell == CARRIED:
                hand = role
            else:
                masks[role] |= 1 << cell
        return self._arranged((hand, masks[0], masks[1], masks[2]))

    def holds(self, layout: Layout, pose: int) -> bool:
        """Whether the goal is fulfilled as things lie, whoever brought that about."""
        movers, fixed, _ = layout.masks
        if self._kind is Kind.GO_TO:
            return bool(movers >> self._room.front[pose] & 1)
        if self._kind is Kind.PICK_UP:
            return layout.hand == MOVER
        return bool(self._room.beside(fixed) & movers)

    def distance(self, layout: Layout, pose: int) -> float:
        """Least number of actions to success, inf when there is no way.

        Raises: UserError when the room is too crowded to decide within ``MAX_STATES`` states.
        """
        found = layout.known[pose]
        if found == UNKNOWN:
            found = self._solve(layout, pose)
            layout.known[pose] = found
        return math.inf if found == LOST else float(found)

    def action(self, layout: Layout, pose: int) -> int | None:
        """First action of a shortest plan, the lowest number among equals; None without plan."""
        distance = self.distance(layout, pose)
        if distance == 0 or distance == math.inf:
            return None
        state = (pose, layout.hand, *layout.masks)
        for action in range(5):
            following = self._after(state, action)
            if following is None:
                continue
            if self._wins(state, action, following):
                if distance == 1:
                    return action
            elif self._bound(following) <= distance - 1:
                there = self._arranged(following[1:])
                if self.distance(there, following[0]) == distance - 1:
                    return action
        raise AssertionError(f"no action brings the goal nearer than {distance}")

    def _arranged(self, key: Arrangement) -> Layout:
        found = self._layouts.get(key)
        if found is None:
            if len(self._layouts) >= MAX_LAYOUTS:
                # Only the recent past is asked for again; memory must not grow with play.
                self._layouts.clear()
            found = Layout(key, self._room.poses)
            found.walk = self._fields[self._kind](found)
            self._layouts[key] = found
        return found

    def _solve(self, layout: Layout, pose: int) -> int:
        if self._kind is not Kind.PUT_NEXT and self.holds(layout, pose):
            return 0
        state = (pose, layout.hand, *layout.masks)
        upper = layout.walk[pose]
        if upper != FAR and upper <= self._bound(state):
            return upper
        best = self._search(state, upper)
        if best >= LOST:
            return LOST
        return best

    def _after(self, state: State, action: int) -> State | None:
        """The state that ``action`` leads to, None when it changes nothing."""
        pose, hand, movers, fixed, others = state
        room = self._room
        if action == LEFT:
            return room.turned_left[pose], hand, movers, fixed, others
        if action == RIGHT:
            return room.turned_right[pose], hand, movers, fixed, others
        front = room.front[pose]
        bit = 1 << front
        free = room.floor_mask & bit and not (movers | fixed | others) & bit
        if action == FORWARD:
            return (front * 4 + (pose & 3), hand, movers, fixed, others) if free else None
        if action == PICKUP and hand == NOTHING:
            if movers & bit:
                return pose, MOVER, movers ^ bit, fixed, others
            if fixed & bit:
                return pose, FIXED, movers, fixed ^ bit, others
            if others & bit:
                return pose, OTHER, movers, fixed, others ^ bit
        if action == DROP and free:
            if hand == MOVER:
                return pose, NOTHING, movers | bit, fixed, others
            if hand == FIXED:
                return pose, NOTHING, movers, fixed | bit, others
            if hand == OTHER:
                return pose, NOTHING, movers, fixed, others | bit
        return None

    def _wins(self, state: State, action: int, following: State) -> bool:
        """Whether the verifier reports success after this transition."""
        pose, hand, movers, fixed, _ = following
        if self._kind is Kind.GO_TO:
            return bool(movers >> self._room.front[pose] & 1)
        if self._kind is Kind.PICK_UP:
            return action == PICKUP and hand == MOVER and state[1] == NOTHING
        dropped = action == DROP and state[1] == MOVER and hand == NOTHING
        return dropped and bool(self._room.beside(fixed) >> self._room.front[pose] & 1)

    def _search(self, start: State, limit: int) -> int:
        """Length of the shortest plan if it is below ``limit``, else ``limit`` (A*)."""
        best = {start: 0}
        heap = [(self._bound(start), 0, start)]
        while heap:
            estimate, minus_cost, state = heappop(heap)
            if estimate >= limit:
                break
            cost = 1 - minus_cost
            if cost > best[state] + 1:
                continue
            for action in range(5):
                following = self._after(state, action)
                if following is None:
                    continue
                # Success belongs to the transition: the same state can be met before without it.
                if self._wins(state, action, following):
                    limit = min(limit, cost)
                    continue
                if cost >= best.get(following, FAR):
                    continue
                best[following] = cost
                estimate = cost + self._bound(following)
                if estimate < limit:
                    heappush(heap, (estimate, -cost, following))
            if len(best) > MAX_STATES:
                raise UserError(
                    f"no exact distance within {MAX_STATES} states of a room of size "
                    f"{self._room.size}: use fewer objects (num_dists) or a larger room_size"
                )
        return limit

    def _bound(self, state: State) -> int:
        """A number of actions that no plan can undercut: the walk without any obstacles."""
        pose, hand, movers, fixed, _ = state
        room = self._room
        if self._kind is Kind.GO_TO:
            return 1 if hand == MOVER else room.reach(movers)[pose]
        if self._kind is Kind.PICK_UP:
            return 0 if hand == MOVER else room.reach(movers)[pose] + (1 if hand == NOTHING else 2)
        if hand == MOVER:
            # With the mover in hand, moving the fixed object costs three drops and two pick-ups. No
            # room was found where that pays, but without this term the bound would be a guess.
            return min(room.deliver(fixed)[pose], room.reach(fixed)[pose] + 5)
        if hand == FIXED:
            return room.reach(movers)[pose] + 3
        return room.fetch(movers, fixed)[pose] + (0 if hand == NOTHING else 1)

    def _go_to_field(self, layout: Layout) -> bytes:
        room, movers = self._room, layout.masks[MOVER]
        seeds = [(pose, 0) for pose in room.facing(movers)]
        if layout.hand == MOVER:
            # Only on the way to an alternative goal: putting the object down means facing it.
            free = room.floor_mask & ~layout.occupied
            seeds += [(pose, 1) for pose in room.facing(free)]
        return room.field(layout.occupied, seeds)

    def _pick_up_field(self, layout: Layout) -> bytes:
        room, movers = self._room, layout.masks[MOVER]
        if layout.hand == MOVER:
            return bytes(room.poses)
        walk = room.field(layout.occupied, ((pose, 1) for pose in room.facing(movers)))
        return walk if layout.hand == NOTHING else self._with_drop(layout.occupied, walk)

    def _with_drop(self, occupied: int, walk: bytes) -> bytes:
        """One drop more than ``walk`` where that can happen on the way at no further cost.

        Before a turn the object can be laid on the free cell ahead: no shortest path that turns
        away from a cell comes back to it.
        """
        room = self._room
        droppable = bytearray([FAR]) * room.poses
        near_first = sorted(room.floor_poses(), key=walk.__getitem__)
        for pose in near_first:
            length = walk[pose]
            if length == FAR:
                break
            front = room.front[pose]
            free = room.is_floor(front) and not occupied >> front & 1
            for turned in (room.turned_left[pose], room.turned_right[pose]):
                if walk[turned] == length - 1 and (free or droppable[turned] != FAR):
                    droppable[pose] = length + 1
            ahead = front * 4 + (pose & 3)
            if free and walk[ahead] == length - 1 and droppable[ahead] != FAR:
                droppable[pose] = length + 1
        return bytes(droppable)

    def _put_next_field(self, layout: Layout) -> bytes:
        room = self._room
        movers, fixed, _ = layout.masks
        if layout.hand == MOVER:
            return self._delivery(layout.occupied, fixed)
        if layout.hand != NOTHING:
            return bytes([FAR]) * room.poses
        seeds = []
        for cell in cells_of(movers):
            delivery = self._delivery(layout.occupied & ~(1 << cell), fixed)
            seeds += [(pose, 1 + delivery[pose]) for pose in room.facing(1 << cell)]
        return room.field(layout.occupied, (seed for seed in seeds if seed[1] < FAR))

    def _delivery(self, occupied: int, fixed: int) -> bytes:
        room = self._room
        free = room.beside(fixed) & ~occupied
        return room.field(occupied, ((pose, 1) for pose in room.facing(free)))
