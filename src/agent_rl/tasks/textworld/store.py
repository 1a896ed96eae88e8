"""Games by seed: generated once, kept in memory and, where a folder is named, on disk."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from agent_rl.errors import UserError
from agent_rl.files import digest, write_text
from agent_rl.tasks.textworld import library
from agent_rl.tasks.textworld.grounding import ground
from agent_rl.tasks.textworld.planner import Planner
from agent_rl.tasks.textworld.settings import Settings
from agent_rl.tasks.textworld.world import World, load

LOOK = "look"
CACHE = "AGENT_RL_CACHE"
"""Environment variable that names a folder for generated games."""
VERSION = 1
"""Part of the names of cached games; rises with every change of what is generated."""
MAX_PACKED = 8192
"""Games kept in memory, compressed (about 0.7 kB each for a treasure hunt of level 8)."""
MAX_LIVE = 256
"""Games kept ready to play, with the distances found so far."""


class Game:
    """A world and its planners."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.planner = Planner(world)
        self.moves = tuple(
            move for move in world.moves if move.adds or move.removes or move.command == LOOK
        )
        """Moves that change something, and looking around."""
        self._others: dict[str, Planner] = {}
        self._goals: tuple[str, ...] | None = None

    def other(self, goal: str) -> Planner:
        """The planner of an alternative goal."""
        found = self._others.get(goal)
        if found is None:
            found = self._others[goal] = Planner(self.world, self.world.others[goal])
        return found

    def goals(self) -> tuple[str, ...]:
        """Alternative goals that can be reached from the start."""
        if self._goals is None:
            start = self.world.begin()
            self._goals = tuple(
                goal for goal in self.world.others if self.other(goal).distance(start) < math.inf
            )
        return self._goals


def folder(settings: Settings) -> Path | None:
    """Where games of these settings are kept on disk; None when ``CACHE`` names no folder."""
    root = os.environ.get(CACHE)
    if not root:
        return None
    name = digest([VERSION, library.require().__version__, *settings.key()])
    return Path(root) / "textworld" / name


def _checked(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    try:
        load(text)
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged; delete it, it will be generated again") from error
    return text


def generate(settings: Settings, seed: int) -> World:
    """The game of a seed: that of its first sub-seed which gives one that can be won.

    Sub-seed ``k`` of seed ``s`` is the first word of ``SeedSequence(s, spawn_key=(k,))``.

    Raises: UserError when ``library.MAX_ATTEMPTS`` sub-seeds give none.
    """
    return sub_game(settings, seed)[1]


def sub_game(settings: Settings, seed: int) -> tuple[int, World]:
    """The number of the accepted sub-seed and its game."""
    for attempt in range(library.MAX_ATTEMPTS):
        try:
            world = ground(library.generate(settings, seed, attempt))
        except library.Refused:
            continue
        if 0 < Planner(world).distance(world.begin()) < math.inf:
            return attempt, world
    raise UserError(
        f"textworld seed {seed}: no game in {library.MAX_ATTEMPTS} attempts with {settings}; "
        "choose a lower level or fewer ingredients"
    )


def _text(settings: Settings, seed: int) -> str:
    kept = folder(settings)
    if kept is None:
        return generate(settings, seed).dump()
    path = kept / f"{seed}.json"
    if path.exists():
        return _checked(path)
    text = generate(settings, seed).dump()
    write_text(path, text)
    return text


@lru_cache(maxsize=16)
def games(settings: Settings) -> Callable[[int], Game]:
    """The games of these settings by seed, shared by all environments of this process.

    The least recently used ones are forgotten, first as games and later as compressed text.
    """

    @lru_cache(maxsize=MAX_PACKED)
    def packed(seed: int) -> bytes:
        return zlib.compress(_text(settings, seed).encode())

    @lru_cache(maxsize=MAX_LIVE)
    def game(seed: int) -> Game:
        return Game(load(zlib.decompress(packed(seed)).decode()))

    return game
