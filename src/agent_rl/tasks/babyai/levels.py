"""The minigrid levels that can be chosen, made quiet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minigrid.core.roomgrid import RoomGrid
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.goto import GoToLocal, GoToRedBall
from minigrid.envs.babyai.pickup import PickupLoc
from minigrid.envs.babyai.putnext import PutNextLocal

from agent_rl.errors import UserError

COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
TYPES = ("ball", "box", "key")
MIN_ROOM, MAX_ROOM = 4, 8
"""In rooms of up to 8 cells the 7 x 7 view always reaches the wall ahead."""

MAX_REJECTIONS = 1000
NEVER = 10**9
"""Step limit handed to minigrid: the horizon is the study's, and minigrid's reward, whose sign
is the verdict, would turn negative beyond its own limit."""


@dataclass(frozen=True, slots=True)
class Level:
    """A level that can be chosen, with its default size."""

    env_class: type[QuietLevel]
    objects: str
    """The attribute of ``env_class`` that holds the number of objects drawn."""
    room_size: int
    num_dists: int
    min_dists: int


class QuietLevel(RoomGridLevel):
    """Generation without prints and observations without images.

    The library prints every rejected sample. Redirecting stdout would act on the whole process,
    so the rejection loop itself is replaced; it draws the same random numbers.
    """

    instrs: Any
    """The instruction; the library types it anew in every level."""

    def _gen_grid(self, width: int, height: int) -> None:
        for _ in range(MAX_REJECTIONS):
            try:
                RoomGrid._gen_grid(self, width, height)
                self.gen_mission()
                self.validate_instrs(self.instrs)
            except (RecursionError, RejectSampling):
                continue
            self.mission = self.surface = self.instrs.surface(self)
            return
        raise UserError(
            f"no room found in {MAX_REJECTIONS} attempts with room_size {self.room_size}: "
            "use fewer objects (num_dists) or a larger room_size"
        )

    def gen_obs(self) -> dict[str, Any]:
        return {}


class _GoToRedBall(QuietLevel, GoToRedBall): ...


class _GoToLocal(QuietLevel, GoToLocal): ...


class _PickupLoc(QuietLevel, PickupLoc): ...


class _PutNextLocal(QuietLevel, PutNextLocal): ...


LEVELS: dict[str, Level] = {
    "GoToRedBall": Level(_GoToRedBall, "num_dists", 7, 4, 0),
    "GoToLocal": Level(_GoToLocal, "num_dists", 7, 4, 1),
    "PickupLoc": Level(_PickupLoc, "num_dists", 7, 5, 1),
    "PutNextLocal": Level(_PutNextLocal, "num_objs", 6, 4, 2),
}
"""Every level by its name in minigrid, from easy to hard."""


def check_settings(level: str, room_size: object, num_dists: object) -> tuple[int, int]:
    """Room size and number of objects with the level's defaults for None.

    Raises: UserError for what does not exist or does not fit.
    """
    if level not in LEVELS:
        raise UserError(f"level {level!r} does not exist: choose one of {', '.join(LEVELS)}")
    known = LEVELS[level]
    size = known.room_size if room_size is None else room_size
    if type(size) is not int or not MIN_ROOM <= size <= MAX_ROOM:
        raise UserError(
            f"room_size {size!r} of {level}: must be an integer from {MIN_ROOM} to {MAX_ROOM}"
        )
    count = known.num_dists if num_dists is None else num_dists
    most = (size - 2) ** 2 // 2
    if type(count) is not int or not known.min_dists <= count <= most:
        raise UserError(
            f"num_dists {count!r} of {level}: must be an integer from {known.min_dists} to {most} "
            f"in a room of size {size}"
        )
    return size, count


def build_env(level: str, room_size: int, num_dists: int) -> QuietLevel:
    """A quiet minigrid environment that has not been reset."""
    known = LEVELS[level]
    env = known.env_class(room_size=room_size, max_steps=NEVER)
    setattr(env, known.objects, num_dists)
    return env
