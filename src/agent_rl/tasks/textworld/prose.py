"""The text of the compiled game itself, for language models that read English.

The game runs beside the logic and only lends its words: what is true and how far the goal is says
``World``. It hears nothing but commands of the logic that are possible now, so neither several
commands in one line nor questions of its parser can come up.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import warnings
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_rl.files import atomic_file
from agent_rl.tasks.textworld import library, store
from agent_rl.tasks.textworld.settings import Settings

MAX_FILES = 256
"""Compiled games that a process keeps outside a cache folder (0.4 MB each)."""
MAX_LENGTH = 3000
"""Longest text, in characters; ordinary rooms take a few hundred."""
SEED = 1
"""Some replies are drawn at random; jericho takes 0 for a seed that changes with time."""

_STATUS = re.compile(r"\n>\s*-=.*\Z", re.DOTALL)
_HEADING = re.compile(r"-= (.*?) =-")
_SCORE = re.compile(r"Your score has just gone \w+ by [^.]*\.")
_END = re.compile(r"\*\*\* (?:The End|You lost!) \*\*\*")


def clean(raw: str) -> str:
    """A reply without status bar, score and blank lines; headings as plain names."""
    told = _STATUS.sub("", raw)
    told = _END.split(told)[0]
    # Progress is told by the distance alone, so that no text rewards.
    told = _HEADING.sub(r"\1.", _SCORE.sub("", told))
    lines = (" ".join(line.split()) for line in told.splitlines())
    return " ".join(line for line in lines if line and line != ">")[:MAX_LENGTH]


def ended(raw: str) -> str:
    """``won``, ``lost`` or nothing, as the game itself announces it."""
    return "won" if "*** The End ***" in raw else "lost" if "*** You lost! ***" in raw else ""


class Teller:
    """A running game that is told every command and whose replies are read."""

    def __init__(self, settings: Settings) -> None:
        jericho = library.part("envs.zmachine.jericho").JerichoEnv
        self._settings = settings
        self._env: Any = jericho()

    def start(self, seed: int) -> str:
        """The first sight of instance ``seed``, without the banner and the walkthrough in it."""
        # Loading over a running game leaks its memory: 0.4 MB each time.
        self._env.close()
        self._env.seed(SEED)
        with warnings.catch_warnings():
            # Jericho misses its score and move detection, which nothing here uses.
            warnings.simplefilter("ignore")
            self._env.load(str(compiled(self._settings)[seed]))
        raw = str(self._env.reset().feedback)
        return clean(raw[raw.index("-= ") :])

    def tell(self, command: str) -> tuple[str, str]:
        """The reply to a command, and how the game ended with it, if it did."""
        raw = str(self._env.step(command)[0].feedback)
        return clean(raw), ended(raw)


class _Compiled:
    """Compiled games by seed, as files."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._own: Any = None
        self._kept: OrderedDict[int, Path] = OrderedDict()

    def __getitem__(self, seed: int) -> Path:
        folder = store.folder(self._settings)
        if folder is not None:
            path = folder / f"{seed}.z8"
            return path if path.exists() else self._compile(seed, path)
        if self._own is None:
            self._own = tempfile.TemporaryDirectory(prefix="agent_rl_textworld_")
        path = self._kept.get(seed) or self._compile(seed, Path(self._own.name) / f"{seed}.z8")
        self._kept[seed] = path
        self._kept.move_to_end(seed)
        if len(self._kept) > MAX_FILES:
            self._kept.popitem(last=False)[1].unlink()
        return path

    def _compile(self, seed: int, path: Path) -> Path:
        attempt, _ = store.sub_game(self._settings, seed)
        game = library.generate(self._settings, seed, attempt)
        generator = library.part("generator")
        options = generator.GameOptions()
        with tempfile.TemporaryDirectory() as work, atomic_file(path) as temporary:
            # The compiler leaves its source beside what it makes.
            options.path = os.path.join(work, "game.z8")  # noqa: PTH118 (a string is wanted)
            shutil.copyfile(generator.compile_game(game, options), temporary)
        return path


@lru_cache(maxsize=16)
def compiled(settings: Settings) -> _Compiled:
    """The compiled games of these settings, shared by all environments of this process."""
    return _Compiled(settings)
