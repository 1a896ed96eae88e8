"""Geometry of one square room: cells, poses and walking distances.

A cell is ``y * size + x``. A pose is ``cell * 4 + direction``, with minigrid's directions
(0 east, 1 south, 2 west, 3 north). Sets of cells are bit masks, so that a whole arrangement of
objects is a handful of integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

FAR = 255
"""Walking distance of what cannot be reached (distances are stored as bytes)."""

STEP_X = (1, 0, -1, 0)
STEP_Y = (0, 1, 0, -1)


def cells_of(mask: int) -> Iterator[int]:
    """The cells of a bit mask, in increasing order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Room:
    """An empty walled square of ``size`` x ``size`` cells, walls included."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.poses = size * size * 4
        inside = range(1, size - 1)
        self.floor = tuple(y * size + x for y in inside for x in inside)
        self.floor_mask = sum(1 << cell for cell in self.floor)
        self.turned_left = [pose & ~3 | (pose - 1) & 3 for pose in range(self.poses)]
        self.turned_right = [pose & ~3 | (pose + 1) & 3 for pose in range(self.poses)]
        self.front = [-1] * self.poses
        """Cell ahead of a pose that stands on the floor (may be a wall)."""
        self.behind = [-1] * self.poses
        """Pose from which ``forward`` leads here; -1 when that is inside a wall."""
        for cell in self.floor:
            for direction in range(4):
                step = STEP_X[direction] + STEP_Y[direction] * size
                pose = cell * 4 + direction
                self.front[pose] = cell + step
                if self.is_floor(cell - step):
                    self.behind[pose] = (cell - step) * 4 + direction
        self._facing = {
            cell: tuple(pose for pose in self.floor_poses() if self.front[pose] == cell)
            for cell in self.floor
        }

    def is_floor(self, cell: int) -> bool:
        """Whether a cell is no wall."""
        return bool(self.floor_mask >> cell & 1)

    def floor_poses(self) -> Iterator[int]:
        """Every pose that an agent can take in the empty room."""
        return (cell * 4 + direction for cell in self.floor for direction in range(4))

    def facing(self, mask: int) -> list[int]:
        """Poses whose front cell lies in ``mask``."""
        return [pose for cell in cells_of(mask) for pose in self._facing[cell]]

    def beside(self, mask: int) -> int:
        """Mask of the floor cells that share a side with a cell of ``mask``."""
        size = self.size
        return (mask << 1 | mask >> 1 | mask << size | mask >> size) & self.floor_mask

    def field(self, blocked: int, seeds: Iterable[tuple[int, int]]) -> bytes:
        """Turns and steps from every pose to the cheapest seed.

        Args:
            blocked: mask of the cells that cannot be entered.
            seeds: (pose, cost still to pay there) pairs; those on blocked cells are ignored.

        Returns: one byte per pose, ``FAR`` where no seed can be reached.
        """
        distance = bytearray([FAR]) * self.poses
        waiting: dict[int, list[int]] = {}
        for pose, cost in seeds:
            if not blocked >> (pose >> 2) & 1:
                waiting.setdefault(cost, []).append(pose)
        left, right, behind = self.turned_left, self.turned_right, self.behind
        level = min(waiting, default=FAR)
        frontier: list[int] = []
        while level < FAR and (frontier or waiting):
            frontier += waiting.pop(level, ())
            following: list[int] = []
            for pose in frontier:
                if distance[pose] <= level:
                    continue
                distance[pose] = level
                following.append(left[pose])
                following.append(right[pose])
                back = behind[pose]
                if back >= 0 and not blocked >> (back >> 2) & 1:
                    following.append(back)
            frontier = following
            level += 1
        return bytes(distance)

    # The fields below ignore all objects. A walk can only become longer when objects are in the
    # way, whatever is moved meanwhile, so they are lower bounds in every arrangement.

    @lru_cache(maxsize=4096)  # noqa: B019 - a room lives as long as the process (see `room`)
    def reach(self, targets: int) -> bytes:
        """Actions until some cell of ``targets`` is in front."""
        return self.field(0, ((pose, 0) for pose in self.facing(targets)))

    @lru_cache(maxsize=4096)  # noqa: B019
    def deliver(self, fixed: int) -> bytes:
        """Actions until a carried object lies next to a cell of ``fixed``, the drop included."""
        return self.field(0, ((pose, 1) for pose in self.facing(self.beside(fixed))))

    @lru_cache(maxsize=4096)  # noqa: B019
    def fetch(self, movers: int, fixed: int) -> bytes:
        """Actions to take a mover and to lay it next to a fixed object, with an empty hand.

        Either the fixed object stays (face the mover, pick up, deliver) or it is moved as well,
        which takes two pick-ups, two drops and a walk that faces both.
        """
        deliver, mover, other = self.deliver(fixed), self.reach(movers), self.reach(fixed)
        at_mover, at_fixed = self.facing(movers), self.facing(fixed)
        seeds = [(pose, 1 + min(deliver[pose], other[pose] + 3)) for pose in at_mover]
        seeds += [(pose, 4 + mover[pose]) for pose in at_fixed]
        return self.field(0, seeds)


@lru_cache(maxsize=16)
def room(size: int) -> Room:
    """The one room of this size."""
    return Room(size)
