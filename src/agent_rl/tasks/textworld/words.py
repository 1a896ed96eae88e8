"""Names that games can use, from the data files of TextWorld: vocabulary and goal keys."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from agent_rl.tasks.textworld import library, view

MOVES = ("look", "go", "north", "south", "east", "west", "take")
HANDLING = (
    *("from", "drop", "put", "on", "insert", "into", "in", "open", "close", "closed", "by"),
    *("lock", "unlock", "locked", "with", "eat"),
)
COOKING = (
    *("recipe", "drink", "cook", "chop", "slice", "dice", "prepare", "meal"),
    *("burned", "chopped", "sliced", "diced", "fried", "roasted", "grilled"),
)
LAST_EASY = 10
"""Up to this level a treasure hunt has no doors, no furniture and no adjectives."""

_TAG = re.compile(r"#([^#]*)#")
_ROOM_TYPES = ("clean", "cook", "rest", "work", "storage")
_PORTABLE = ("o", "f", "k")


@lru_cache(maxsize=1)
def grammar() -> dict[str, tuple[str, ...]]:
    """Alternatives of every symbol of the grammar that names the things of a treasure hunt.

    A rule is a line ``symbol:alternative;alternative``. TextWorld's own parser reads the same, but
    takes seconds in every process.
    """
    found: dict[str, tuple[str, ...]] = {}
    folder = Path(library.part("generator.data").TEXT_GRAMMARS_PATH)
    for path in sorted(folder.glob("house*.twg")):
        for line in path.read_text(encoding="utf-8").splitlines():
            symbol, colon, told = line.partition(":")
            if colon and not line.startswith("#"):
                texts = (one.strip() for one in told.split(";"))
                found[symbol.strip()] = tuple(text for text in texts if text)
    return found


@cache
def _expansions(symbol: str) -> tuple[str, ...]:
    """Every text of a symbol, adjective and noun still parted by ``|``."""
    return tuple(
        dict.fromkeys(text for one in grammar().get(symbol, ()) for text in _expanded(one))
    )


def _expanded(text: str) -> list[str]:
    pieces = _TAG.split(text)
    choices = [_expansions(one) if number % 2 else (one,) for number, one in enumerate(pieces)]
    return ["".join(chosen) for chosen in product(*choices)]


@cache
def _words(symbol: str) -> frozenset[str]:
    """Every word of a symbol's texts; most have far more texts than words."""
    found: set[str] = set()
    for alternative in grammar().get(symbol, ()):
        for part in alternative.replace("|", " ").replace("<->", " ").split(" "):
            whole = _TAG.fullmatch(part)
            found |= _words(whole[1]) if whole else {w for t in _expanded(part) for w in t.split()}
    return frozenset(word.lower() for word in found)


def _symbols(kind: str) -> tuple[str, ...]:
    return f"({kind})", *(f"{room}_({kind})" for room in _ROOM_TYPES)


@cache
def _nouns(kind: str) -> tuple[str, ...]:
    """Every name of a kind of thing, without its adjective."""
    texts = (text for symbol in _symbols(kind) for text in _expansions(symbol))
    names = (" ".join(text.split("|")[-1].lower().split()) for text in texts)
    return tuple(sorted(set(names) - {""}))


@lru_cache(maxsize=1)
def treasures() -> tuple[str, ...]:
    """Every thing that a treasure hunt can be about, without its adjective."""
    return tuple(sorted({name for kind in _PORTABLE for name in _nouns(kind)}))


@lru_cache(maxsize=1)
def foods() -> tuple[str, ...]:
    """Every ingredient of the cooking game."""
    return tuple(sorted(map(str, library.part("challenges.tw_cooking.cooking").FOODS)))


@lru_cache(maxsize=1)
def goal_keys() -> tuple[str, ...]:
    """Everything that a goal can be about: the treasure or the ingredients."""
    return tuple(sorted({*treasures(), *foods()}))


def noun(goal: str) -> str:
    """The thing that ``take …`` is about, without its adjective."""
    return max((name for name in treasures() if goal.endswith(f" {name}")), key=len)


@cache
def vocabulary(game: str, level: int) -> tuple[str, ...]:
    """Every word of observations and commands."""
    found = [*view.WORDS, *view.NOT_POSSIBLE.split(), *MOVES]
    if game == "cooking":
        found += [*HANDLING, *COOKING, *_cooking_words()]
    elif level <= LAST_EASY:
        kinds = ("r", *_PORTABLE)
        found += ["drop", "eat"]
        found += sorted({w for kind in kinds for name in _nouns(kind) for w in name.split()})
    else:
        symbols = [one for kind in ("r", "d", "c", "s", *_PORTABLE) for one in _symbols(kind)]
        symbols += ["(k<->d)_match", "(k<->c)_match"]
        found += [*HANDLING, *sorted({word for one in symbols for word in _words(one)})]
    return tuple(dict.fromkeys(found))


def _cooking_words() -> list[str]:
    cooking: Any = library.part("challenges.tw_cooking.cooking")
    doors = [name for door in cooking.DOORS for name in door["names"]]
    rooms = [name for group in cooking.ROOMS for name in group]
    names = [*foods(), *cooking.ENTITIES, *doors, *rooms]
    return sorted({word for name in names for word in name.lower().split()})
