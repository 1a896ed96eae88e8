"""Statements that a model wrote, executed where they can do no harm.

Four walls, each of which would do alone for most attacks: the database is in memory and belongs to
nobody else; SQLite asks an allow-list about everything a statement would touch, while it is being
prepared; the engine's own limits bound lengths and depths; and a budget in steps of the virtual
machine, which does not depend on the clock, ends what runs too long.

Every outcome is a list of rows or one of a few fixed messages, since the engine's wording changes
between versions.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

MAX_STATEMENT = 400
"""Characters."""
MAX_VM_STEPS = 20_000
MAX_FETCHED = 200
"""Rows; more is too much whatever is done with them."""

FUNCTIONS = frozenset(
    ("count", "min", "max", "sum", "avg", "lower", "upper", "length", "abs", "round", "like")
)

SYNTAX = "error syntax"
NO_TABLE = "error no table"
NO_COLUMN = "error no column"
ONE_TABLE = "error one table only"
FORBIDDEN = "error not allowed"
TOO_LONG = "error too long"
MESSAGES = (SYNTAX, NO_TABLE, NO_COLUMN, ONE_TABLE, FORBIDDEN, TOO_LONG)

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 4_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 4 * MAX_STATEMENT,
    sqlite3.SQLITE_LIMIT_COLUMN: 16,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 30,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 2_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 4,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 40,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 1,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
_SELECT = re.compile(r"select\b")

Cell = str | int | float | bytes | None


class Result(NamedTuple):
    """Rows, or why there are none."""

    rows: list[tuple[Cell, ...]]
    error: str = ""


class Content(NamedTuple):
    """What one table is made of."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | int]]
    """At least one; the first tells the types."""


class Sandbox:
    """An in-memory database that can be read, one table per statement, and not changed.

    A statement that joined tables would make every question one look-up deep.
    """

    def __init__(self, tables: Mapping[str, Content]) -> None:
        self._columns = {table: frozenset(content.columns) for table, content in tables.items()}
        # A cached statement keeps its step counter, so its budget would shrink with every use.
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, cached_statements=0, check_same_thread=False
        )
        self._fill({table: tables[table] for table in sorted(tables)})
        self._connection.execute("pragma query_only = on")
        for limit, most in _LIMITS.items():
            self._connection.setlimit(limit, most)
        self._selects = 0
        self._table = ""
        self._refusal = ""
        self._connection.set_progress_handler(self._out_of_steps, MAX_VM_STEPS)
        self._connection.set_authorizer(self._authorize)

    def run(self, statement: str) -> Result:
        """Execute one statement and return its rows in the engine's order."""
        if len(statement) > MAX_STATEMENT:
            return Result([], TOO_LONG)
        if not _SELECT.match(statement):
            # EXPLAIN is no action of its own to the authorizer, and its rows change with versions.
            return Result([], FORBIDDEN if statement[:1].isalpha() else SYNTAX)
        self._selects, self._table, self._refusal = 0, "", ""
        try:
            cursor = self._connection.execute(statement)
            rows = cursor.fetchmany(MAX_FETCHED + 1)
            cursor.close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            return Result([], self._refusal or _message(str(error)))
        if len(rows) > MAX_FETCHED:
            return Result([], TOO_LONG)
        return Result(rows)

    def dump(self) -> list[str]:
        """The whole database as statements, for audits."""
        self._connection.set_authorizer(None)
        self._connection.set_progress_handler(None, 0)
        for limit in _LIMITS:
            self._connection.setlimit(limit, 10**6)
        try:
            return list(self._connection.iterdump())
        finally:
            for limit, most in _LIMITS.items():
                self._connection.setlimit(limit, most)
            self._connection.set_progress_handler(self._out_of_steps, MAX_VM_STEPS)
            self._connection.set_authorizer(self._authorize)

    def close(self) -> None:
        """Free the database."""
        self._connection.close()

    def _fill(self, tables: Mapping[str, Content]) -> None:
        definitions = []
        for table, content in tables.items():
            kinds = ("integer" if isinstance(cell, int) else "text" for cell in content.rows[0])
            columns = (f"{c} {k}" for c, k in zip(content.columns, kinds, strict=True))
            definitions.append(f"create table {table} ({', '.join(columns)})")
        self._connection.deserialize(_empty(tuple(definitions)))
        self._connection.execute("begin")
        for table, content in tables.items():
            places = ", ".join("?" * len(content.columns))
            self._connection.executemany(f"insert into {table} values ({places})", content.rows)
        self._connection.execute("commit")

    def _authorize(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        _: str | None,
    ) -> int:
        if action == sqlite3.SQLITE_SELECT:
            self._selects += 1
            if self._selects == 1:
                return sqlite3.SQLITE_OK
            return self._refuse(ONE_TABLE)
        # A table that is named without any column being read, as in count(*), comes with an empty
        # column and the database only if the statement spelled it out.
        whole = action == sqlite3.SQLITE_READ and not second and database is None
        if action == sqlite3.SQLITE_READ and first in self._columns:
            if self._table not in ("", first):
                return self._refuse(ONE_TABLE)
            self._table = first
            if whole or (database == "main" and second in self._columns[first]):
                return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and second in FUNCTIONS:
            return sqlite3.SQLITE_OK
        return self._refuse(FORBIDDEN)

    def _refuse(self, message: str) -> int:
        self._refusal = self._refusal or message
        return sqlite3.SQLITE_DENY

    def _out_of_steps(self) -> int:
        self._refusal = TOO_LONG
        return 1


@lru_cache(maxsize=64)
def _empty(definitions: tuple[str, ...]) -> bytes:
    """An empty database as bytes: parsing the definitions takes longer than all the rest."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for definition in definitions:
        connection.execute(definition)
    content = connection.serialize()
    connection.close()
    return content


def _message(engine: str) -> str:
    """The fixed message for an error text of the engine."""
    if engine.startswith("no such table"):
        return NO_TABLE
    if engine.startswith("no such column"):
        return NO_COLUMN
    if engine.startswith(("interrupted", "string or blob too big", "too many", "at most")):
        return TOO_LONG
    return SYNTAX
