"""Text of what an agent sees: few words, each of them a whole token.

``red ball f2 l1 grey key f1 wall f3 carry blue box`` reads: a red ball two steps ahead and one
to the left, a grey key right in front, a wall three steps ahead, a blue box in the hand. A colour
opens every object, so no separator is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from minigrid.core.roomgrid import RoomGrid

from agent_rl.tasks.babyai.levels import COLORS, TYPES, build_env
from agent_rl.tasks.babyai.room import STEP_X, STEP_Y, room

ACTIONS = ("left", "right", "forward", "pickup", "drop")

VOCABULARY = (
    *ACTIONS,
    *("goal", "."),
    *("go", "to", "pick", "up", "put", "next", "the", "a"),
    *("in", "front", "of", "behind", "you", "on", "your"),
    *COLORS,
    *TYPES,
    *("wall", "carry"),
    *(f"f{steps}" for steps in range(1, 7)),
    *(f"{side}{steps}" for side in "lr" for steps in range(1, 4)),
)
"""Every word of goals, observations and actions."""


class Sight:
    """Phrases for what is visible from every pose of one room size."""

    def __init__(self, size: int) -> None:
        self._phrases: dict[int, dict[int, tuple[int, str]]] = {}
        self._wall: dict[int, str] = {}
        geometry = room(size)
        for pose, visible in visible_cells(size).items():
            near_first = sorted(visible, key=_nearness)
            self._phrases[pose] = {
                cell: (rank, _place(ahead, right))
                for rank, (cell, ahead, right) in enumerate(near_first)
                if geometry.is_floor(cell) and rank > 0
            }
            self._wall[pose] = next(
                f"wall {_place(ahead, right)}"
                for cell, ahead, right in near_first
                if right == 0 and not geometry.is_floor(cell)
            )

    def text(self, pose: int, names: Sequence[str], cells: Sequence[int]) -> str:
        """The observation.

        Args:
            pose: where the agent stands and looks.
            names: ``colour type`` of every object.
            cells: where every object lies, -1 for the carried one.
        """
        phrases = self._phrases[pose]
        seen = []
        carried = ""
        for name, cell in zip(names, cells, strict=True):
            if cell in phrases:
                rank, place = phrases[cell]
                seen.append((rank, f"{name} {place} "))
            elif cell < 0:
                carried = f" carry {name}"
        seen.sort()
        return "".join(part for _, part in seen) + self._wall[pose] + carried


def visible_cells(size: int) -> dict[int, list[tuple[int, int, int]]]:
    """What minigrid lets an agent see of an empty room, from every pose.

    Objects do not hide what is behind them, only walls do, so the empty room tells all.

    Returns: pose -> (cell, steps ahead, steps to the right) of every visible cell.
    """
    env = build_env("GoToLocal", size, 1)
    RoomGrid._gen_grid(env, size, size)
    last, middle = env.agent_view_size - 1, env.agent_view_size // 2
    seen: dict[int, list[tuple[int, int, int]]] = {}
    for pose in room(size).floor_poses():
        cell, direction = divmod(pose, 4)
        env.agent_pos, env.agent_dir = (cell % size, cell // size), direction
        _, visible = env.gen_obs_grid()
        seen[pose] = []
        for ahead in range(last + 1):
            for right in range(-middle, middle + 1):
                # Right of east is south: a quarter turn of (dx, dy) is (-dy, dx).
                x = cell % size + ahead * STEP_X[direction] - right * STEP_Y[direction]
                y = cell // size + ahead * STEP_Y[direction] + right * STEP_X[direction]
                if visible[right + middle, last - ahead] and 0 <= x < size and 0 <= y < size:
                    seen[pose].append((y * size + x, ahead, right))
    return seen


def _nearness(place: tuple[int, int, int]) -> tuple[int, int, int]:
    """Nearest first; among equals the straightest, then left before right."""
    _, ahead, right = place
    return ahead + abs(right), abs(right), right


def _place(ahead: int, right: int) -> str:
    parts = []
    if ahead:
        parts.append(f"f{ahead}")
    if right:
        parts.append(f"{'r' if right > 0 else 'l'}{abs(right)}")
    return " ".join(parts)


@lru_cache(maxsize=16)
def sight(size: int) -> Sight:
    """The phrases of this room size, worked out once per process."""
    return Sight(size)
