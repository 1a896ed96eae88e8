"""What the database holds: tables, their columns, and the words their cells are drawn from.

References point one way (mails to items and people, items to makers and people, makers to people,
people to teams), so a chain of look-ups never comes back to a table it has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# fmt: off
POOLS: dict[str, tuple[str | int, ...]] = {
    "people": (
        "ada", "ben", "cleo", "dan", "eva", "finn", "gina", "hugo", "iris", "jon", "kai", "lena",
        "max", "nora", "otto", "pia",
    ),
    "teams": (
        "atlas", "bravo", "delta", "ember", "falcon", "harbor", "lotus", "maple", "orbit",
        "quartz",
    ),
    "items": (
        "anchor", "basket", "candle", "drum", "easel", "flask", "guitar", "hammer", "inkwell",
        "kettle",
    ),
    "makers": (
        "arden", "birch", "corvo", "dunlin", "elmet", "farrow", "gorse", "hollis", "ivory",
        "juniper",
    ),
    "mails": tuple(
        f"{adjective} {noun}"
        for adjective in ("amber", "calm", "early", "hidden", "silver", "tall", "warm", "young")
        for noun in ("bridge", "cloud", "forest", "garden", "island", "lantern", "mirror", "river")
    ),
    "city": (
        "bern", "cairo", "delhi", "hanoi", "lagos", "lima", "lyon", "oslo", "perth", "quito",
        "riga", "seoul",
    ),
    "age": tuple(range(20, 70, 5)),
    "floor": tuple(range(1, 10)),
    "price": tuple(range(10, 100, 10)),
    "day": tuple(range(3, 29, 3)),
    "year": tuple(range(1990, 2010, 2)),
}
# fmt: on
"""Words by kind. Names of the five core tables are told apart by their word alone. Numbers come in
nine or ten steps each, so that a small model can learn which of two is the higher one."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: a key that names its rows, and what is known about each."""

    key: str
    """Column that names a row."""
    names: str
    """Whose names those are: the table itself, or the one a distractor speaks about."""
    size: int
    columns: Mapping[str, str]
    """Column -> pool of its values; the name of a core table makes it a reference."""


CORE: dict[str, Table] = {
    "people": Table("name", "people", 8, {"team": "teams", "city": "city", "age": "age"}),
    "teams": Table("name", "teams", 5, {"city": "city", "floor": "floor"}),
    "items": Table(
        "name",
        "items",
        6,
        {"maker": "makers", "owner": "people", "year": "year", "price": "price"},
    ),
    "makers": Table("name", "makers", 5, {"agent": "people", "city": "city", "year": "year"}),
    "mails": Table("subject", "mails", 6, {"sender": "people", "item": "items", "day": "day"}),
}

DISTRACTORS: dict[str, Table] = {
    "trips": Table("name", "people", 5, {"city": "city", "day": "day"}),
    "leases": Table("name", "teams", 5, {"city": "city", "year": "year"}),
    "desks": Table("name", "people", 5, {"floor": "floor", "year": "year"}),
    "sales": Table("name", "items", 5, {"price": "price", "day": "day"}),
    "fairs": Table("name", "makers", 5, {"city": "city", "price": "price"}),
}
"""Tables about the same names and with the same columns, which no question is about."""

TABLES: dict[str, Table] = {**CORE, **DISTRACTORS}
MIN_TABLES, MAX_TABLES = len(CORE), len(TABLES)
MAX_HOPS = 4

Path = tuple[str, tuple[str, ...]]
"""First table and the columns to follow from there."""


def paths(hops: int, starts: tuple[str, ...] = tuple(CORE), open_end: bool = False) -> list[Path]:
    """Every chain of exactly ``hops`` look-ups, in the order of the schema.

    Args:
        hops: number of look-ups.
        starts: tables in which a chain may begin.
        open_end: whether a chain may end with a reference, not only with a plain value.
    """
    found: list[Path] = []

    def follow(start: str, table: str, columns: tuple[str, ...]) -> None:
        for column, pool in CORE[table].columns.items():
            chain = (*columns, column)
            if len(chain) < hops and pool in CORE:
                follow(start, pool, chain)
            elif len(chain) == hops and (open_end or pool not in CORE):
                found.append((start, chain))

    for start in starts:
        follow(start, start, ())
    return found


def goal_key(path: Path) -> str:
    """What a chain asks for in the end and of what: ``floor of team``."""
    start, columns = path
    return f"{columns[-1]} of {columns[-2] if len(columns) > 1 else start}"


def goal_keys() -> tuple[str, ...]:
    """Every goal key of questions with 1 to ``MAX_HOPS`` look-ups."""
    keys = (goal_key(path) for hops in range(1, MAX_HOPS + 1) for path in paths(hops))
    return tuple(dict.fromkeys(keys))
