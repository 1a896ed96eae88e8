"""The textworld package, imported on first use, and its generators made quick and repeatable."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from agent_rl.errors import UserError
from agent_rl.tasks.textworld.settings import Settings

MAX_ATTEMPTS = 100
"""Sub-seeds that are tried for one seed."""


class Refused(Exception):
    """The generator finds no game for this sub-seed."""


@lru_cache(maxsize=1)
def require() -> Any:
    """The module ``textworld``. Raises: UserError when it is not installed."""
    try:
        return importlib.import_module("textworld")
    except ImportError as error:
        raise UserError(
            "task textworld needs the package textworld, which is not installed: "
            "pip install '.[textworld]'"
        ) from error


def part(name: str) -> Any:
    """A submodule of ``textworld``."""
    require()
    return importlib.import_module(f"textworld.{name}")


def generate(settings: Settings, seed: int, attempt: int, walkthrough: bool = False) -> Any:
    """TextWorld's own game for the sub-seed ``attempt`` of a seed.

    Args:
        walkthrough: let the cooking generator compile and play the game in order to store a
            walkthrough, which nothing here needs (it takes most of the time).

    Raises: Refused when the generator finds none.
    """
    options = part("generator").GameOptions()
    options.seeds = _sub_seed(seed, attempt)
    with _quick(walkthrough), warnings.catch_warnings():
        # "Not enough variation" only means that a name gets an adjective.
        warnings.simplefilter("ignore")
        try:
            return _make(settings, options)
        except part("generator").QuestGenerationError as error:
            raise Refused from error


def _make(settings: Settings, options: Any) -> Any:
    if settings.game == "treasure":
        hunter = part("challenges.tw_treasure_hunter.treasure_hunter")
        return hunter.make({"level": settings.level}, options)
    chosen = {
        "recipe": settings.ingredients,
        "take": settings.ingredients,
        "go": settings.rooms,
        "open": settings.open,
        "cook": settings.cook,
        "cut": settings.cut,
        "drop": False,
        "recipe_seed": 0,
        "split": None,
    }
    return part("challenges.tw_cooking.cooking").make(chosen, options)


def _sub_seed(seed: int, attempt: int) -> int:
    stream = np.random.SeedSequence(seed, spawn_key=(attempt,))
    return int(stream.generate_state(1)[0])


@lru_cache(maxsize=8)
def _knowledge(**where: str) -> Any:
    return part("generator.data").KnowledgeBase._read(**where)


@contextmanager
def _quick(walkthrough: bool) -> Iterator[None]:
    """Parse the rules once per process; leave the walkthrough out."""
    bases, maker = part("generator.data").KnowledgeBase, part("generator.maker").GameMaker
    read, play = bases.__dict__["load"], maker.set_walkthrough
    bases._read = read.__get__(None, bases)

    def load(cls: Any, target_dir: str = "", logic_path: str = "", grammar_path: str = "") -> Any:
        where = {"target_dir": target_dir, "logic_path": logic_path, "grammar_path": grammar_path}
        return _knowledge(**{name: path for name, path in where.items() if path})

    bases.load = classmethod(load)
    if not walkthrough:
        maker.set_walkthrough = _skip
    try:
        yield
    finally:
        bases.load, maker.set_walkthrough = read, play
        del bases._read


def _skip(maker: Any, commands: list[str]) -> None:
    """Stands in for ``GameMaker.set_walkthrough``."""
