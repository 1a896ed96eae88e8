"""Words in and out: what actions mean, how results read, when two answers are the same."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_rl.tasks.sqlqa.sandbox import MESSAGES, Cell
from agent_rl.tasks.sqlqa.schema import POOLS, TABLES

MAX_ROWS = 4
"""Rows a result shows; every table that questions are about has more."""
MAX_CELLS = 12

NOTHING = "none"
MORE = "more"
HIGHER, WHICH, AMONG = "higher", "which", "among"
"""Words of comparisons and searches."""
UNKNOWN = "?"
"""Stands for whatever is no word of the task, so that nothing can be said through the database."""
RIGHT, WRONG = "right", "wrong"
NO_TOOL = "error no tool"
NO_MAIL = "error no mail"

_QUOTED = re.compile(r"""(['"])(.*?)\1""")
_OPERATOR = re.compile(r"([<>!=])\s+(?=[=>])")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{0,15})?")
_WORD = re.compile(r"[a-z0-9]+")

VOCABULARY = tuple(
    dict.fromkeys(
        (
            *("goal", "of", "is", HIGHER, WHICH, AMONG, ".", ",", ";", "'", "=", "*"),
            *("tables", "schema", "sql", "search", "read", "answer"),
            *("select", "from", "where", "and"),
            *(NOTHING, MORE, UNKNOWN, RIGHT, WRONG),
            *(word for message in (*MESSAGES, NO_TOOL, NO_MAIL) for word in message.split()),
            *TABLES,
            *(table.key for table in TABLES.values()),
            *(column for table in TABLES.values() for column in table.columns),
            *(word for pool in POOLS.values() for value in pool for word in str(value).split()),
            *(str(number) for number in range(100)),
        )
    )
)
"""Every word of goals, observations and sensible actions."""

_SHOWN = frozenset(VOCABULARY)


def plain(action: str) -> str:
    """Lower case, single blanks."""
    return " ".join(action.lower().split())


def statement(text: str) -> str:
    """SQL as the engine wants it from text whose marks stand apart.

    ``name = ' kai '`` means ``name = 'kai'``, ``> =`` means ``>=``. Double quotes are read as
    single ones: SQLite takes them for names or for text, depending on how it was built.
    """
    parts, end = [], 0
    for match in _QUOTED.finditer(text):
        parts.append(_OPERATOR.sub(r"\1", text[end : match.start()]))
        inner = match[2].strip()
        parts.append("'" + (inner.replace("'", "''") if match[1] == '"' else inner) + "'")
        end = match.end()
    parts.append(_OPERATOR.sub(r"\1", text[end:]))
    return "".join(parts).removesuffix(";").rstrip()


def words(text: str) -> list[str]:
    """Words to search for."""
    return _WORD.findall(text)


def render_rows(rows: Sequence[tuple[Cell, ...]]) -> tuple[str, bool]:
    """A result in few words, rows sorted so that no engine version can change their order.

    Returns: the text, and whether all of the result is in it.
    """
    shown = sorted([_cell(cell) for cell in row] for row in rows)
    width = len(shown[0]) if shown else 1
    kept = shown[: min(MAX_ROWS, max(1, MAX_CELLS // width))]
    whole = len(kept) == len(shown) and width <= MAX_CELLS
    lines = [" , ".join(row[:MAX_CELLS]) for row in kept]
    if not whole:
        lines.append(MORE)
    return " ; ".join(lines) or NOTHING, whole


def normalise(answer: str) -> str:
    """The same text for the same answer: case, blanks, quotes and the form of numbers."""
    text = " ".join(answer.lower().split()).strip("'\" ")
    if _NUMBER.fullmatch(text):
        number = float(text)
        return str(int(number)) if number.is_integer() else str(number)
    return text


def _cell(cell: Cell) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    text = str(cell).lower() if isinstance(cell, str | int) else UNKNOWN
    known = _SHOWN.issuperset(text.split()) and text.strip()
    return text if known and len(text) <= 40 else UNKNOWN
