"""Initial states: generated once per seed, kept, and laid out again for every episode."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from minigrid.core.roomgrid import RoomGrid
from minigrid.core.world_object import Ball, Box, Key, WorldObj
from minigrid.envs.babyai.core.verifier import (
    GoToInstr,
    Instr,
    ObjDesc,
    PickupInstr,
    PutNextInstr,
)

from agent_rl.tasks.babyai.goals import Goal, Kind, alternative_goals
from agent_rl.tasks.babyai.levels import QuietLevel, build_env
from agent_rl.tasks.babyai.planner import Planner
from agent_rl.tasks.babyai.room import Room, room

MAX_SCENES = 8192
"""Initial states kept per level and size."""


def _description(instr: Instr) -> tuple[tuple[str, str | None, str | None], ...]:
    """Type, colour and location of what an instruction is about."""
    found = (getattr(instr, name, None) for name in ("desc", "desc_move", "desc_fixed"))
    return tuple((one.type, one.color, one.loc) for one in found if one is not None)


@dataclass(slots=True)
class Scene:
    """The initial state of one instance, shared by all environments of the same settings."""

    room: Room
    objects: tuple[tuple[str, str, int], ...]
    """(colour, type, cell) of every object, in minigrid's scan order."""
    pose: int
    mission: str
    instr_class: type[Instr]
    described: tuple[tuple[str, str | None, str | None], ...]
    goal: Goal
    others: dict[str, Goal] = field(init=False)
    names: tuple[str, ...] = field(init=False)
    cells: tuple[int, ...] = field(init=False)
    _planners: dict[str, Planner] = field(init=False, default_factory=dict)
    _hash: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.names = tuple(f"{color} {kind}" for color, kind, _ in self.objects)
        self.cells = tuple(cell for _, _, cell in self.objects)
        found = alternative_goals(self.goal, self.names, self.cells, self.room.size)
        self.others = {goal.text: goal for goal in found}

    def planner(self, goal: Goal) -> Planner:
        """The planner of a goal, with all that it has found out so far."""
        found = self._planners.get(goal.text)
        if found is None:
            found = self._planners[goal.text] = Planner(self.room, goal, len(self.objects))
        return found

    def hash(self) -> str:
        """SHA-256 of the state, least over the four rotations of the world."""
        if not self._hash:
            digests = [hashlib.sha256(text.encode()).hexdigest() for text in self._rotations()]
            self._hash = min(digests)
        return self._hash

    def _rotations(self) -> list[str]:
        size = self.room.size
        agent, direction = divmod(self.pose, 4)
        placed = list(self.objects)
        texts = []
        for _ in range(4):
            state = [size, self.mission, agent, direction, None, sorted(placed)]
            texts.append(json.dumps(state))
            placed = [(color, kind, self._turned(cell)) for color, kind, cell in placed]
            agent, direction = self._turned(agent), (direction + 1) % 4
        return texts

    def _turned(self, cell: int) -> int:
        """The cell after a quarter turn of the world, east to south."""
        y, x = divmod(cell, self.room.size)
        return x * self.room.size + self.room.size - 1 - y


_OBJECTS: dict[str, Callable[[str], WorldObj]] = {"ball": Ball, "box": Box, "key": Key}
_KINDS: dict[type[Instr], Kind] = {
    GoToInstr: Kind.GO_TO,
    PickupInstr: Kind.PICK_UP,
    PutNextInstr: Kind.PUT_NEXT,
}


def _generate(env: QuietLevel, where: Room, seed: int) -> Scene:
    size = where.size
    env.reset(seed=seed)
    found: list[tuple[WorldObj, int]] = []
    for cell in where.floor:
        item = env.grid.get(cell % size, cell // size)
        if item is not None:
            found.append((item, cell))
    instr = env.instrs
    moved = instr.desc_move if isinstance(instr, PutNextInstr) else instr.desc
    fixed = instr.desc_fixed.obj_set if isinstance(instr, PutNextInstr) else []
    x, y = env.agent_pos
    return Scene(
        room=where,
        objects=tuple((item.color, item.type, cell) for item, cell in found),
        pose=(int(y) * size + int(x)) * 4 + int(env.agent_dir),
        mission=str(env.mission),
        instr_class=type(instr),
        described=_description(instr),
        goal=Goal(
            _KINDS[type(instr)],
            str(env.mission),
            _numbers(found, moved.obj_set),
            _numbers(found, fixed),
        ),
    )


def _numbers(found: list[tuple[WorldObj, int]], chosen: list[WorldObj]) -> frozenset[int]:
    # By identity: equal objects outside a described location are no targets.
    return frozenset(
        number for number, (item, _) in enumerate(found) if any(item is one for one in chosen)
    )


@lru_cache(maxsize=16)
def scenes(level: str, room_size: int, num_dists: int) -> Callable[[int], Scene]:
    """The scenes of these settings by seed, shared by all environments of this process.

    They are generated on first use; the least recently used ones are forgotten.
    """
    env, where = build_env(level, room_size, num_dists), room(room_size)

    @lru_cache(maxsize=MAX_SCENES)
    def scene(seed: int) -> Scene:
        return _generate(env, where, seed)

    return scene


class Stage:
    """A minigrid environment on which a scene is played."""

    def __init__(self, level: str, room_size: int, num_dists: int) -> None:
        self.env = build_env(level, room_size, num_dists)
        RoomGrid._gen_grid(self.env, room_size, room_size)
        # Walls never change, so all episodes share them.
        self._walls = list(self.env.grid.grid)
        self.items: list[WorldObj] = []
        """The objects of the scene, by number."""

    def set(self, scene: Scene) -> None:
        """Lay out the scene with fresh objects and a fresh verifier."""
        env, size = self.env, scene.room.size
        grid = list(self._walls)
        items = []
        for color, kind, cell in scene.objects:
            item = _OBJECTS[kind](color)
            item.init_pos = item.cur_pos = (cell % size, cell // size)
            grid[cell] = item
            items.append(item)
        self.items = items
        env.grid.grid = grid
        cell, env.agent_dir = divmod(scene.pose, 4)
        env.agent_pos = (cell % size, cell // size)
        env.carrying = None
        env.step_count = 0
        env.mission = env.surface = scene.mission
        env.instrs = scene.instr_class(*(ObjDesc(*one) for one in scene.described))
        env.instrs.reset_verifier(env)

    def pose(self) -> int:
        """Where the agent stands and looks."""
        x, y = self.env.agent_pos
        return (int(y) * self.env.width + int(x)) * 4 + int(self.env.agent_dir)

    def cells(self) -> tuple[int, ...]:
        """The cell of every object, -1 for the carried one."""
        carried, width = self.env.carrying, self.env.width
        cells = []
        for item in self.items:
            if item is carried or item.cur_pos is None:
                cells.append(-1)
            else:
                x, y = item.cur_pos
                cells.append(int(y) * width + int(x))
        return tuple(cells)
