"""Look-ups in the database of an instance, and which facts they establish.

A look-up establishes a fact when it returns one row, and that row was picked by its key. Neither is
guessed from the text, since values repeat and picks can be lucky; the statement is run again where
every value is replaced by a mark of its own:

1. In the *tagged* twin the mark tells which cell was read.
2. With another key for that row, which sorts where the old one did, no mark may come back: whatever
   does was picked by position or order.
3. With rows and marks in reverse order it must still be the same cell, or one of several rows that
   were named was picked by position or order.
"""

from __future__ import annotations

import re
import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

from agent_rl.tasks.sqlqa.sandbox import Cell, Content, Sandbox
from agent_rl.tasks.sqlqa.schema import TABLES
from agent_rl.tasks.sqlqa.text import MAX_ROWS, MORE, NO_MAIL, NOTHING, render_rows
from agent_rl.tasks.sqlqa.world import Fact, Outcome, World

MAX_DATABASES = 256
"""Databases open at a time per process."""

_PLAIN = re.compile(
    r"select (?P<column>\w+) from (?P<table>\w+) where (?P<key>\w+) = '(?P<name>[a-z ]+)'"
)


class Database:
    """The sandbox of one instance and its twin, made when they are first needed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._marks = {fact: f"#{number:05d}" for number, fact in enumerate(world.cells)}
        self._marked: dict[Cell, Fact] = {mark: fact for fact, mark in self._marks.items()}
        self._open: dict[str, Sandbox] = {}

    def look_up(self, statement: str) -> Outcome:
        """Run a statement that an agent wrote."""
        result = self.sandbox("real").run(statement)
        if result.error:
            return Outcome(result.error, valid=False)
        text, whole = render_rows(result.rows)
        if not whole or len(result.rows) != 1:
            return Outcome(text)
        fact = self._plain_look_up(statement)
        if fact is not None:
            return Outcome(text, read=frozenset((fact,)))
        return Outcome(text, read=self.established(statement, result.rows[0]))

    def sandbox(self, kind: str) -> Sandbox:
        """The ``real`` database, or its ``tagged`` twin."""
        found = self._open.get(kind)
        if found is None:
            columns = {t: (TABLES[t].key, *TABLES[t].columns) for t in self._world.rows}
            content = {t: Content(columns[t], self._rows(t, kind)) for t in columns}
            found = self._open[kind] = Sandbox(content)
        return found

    def close(self) -> None:
        """Free all of it."""
        for sandbox in self._open.values():
            sandbox.close()
        self._open.clear()

    def established(self, statement: str, row: tuple[Cell, ...]) -> frozenset[Fact]:
        """Facts that a statement whose result is one ``row`` establishes, by means of the twin."""
        tagged = self.sandbox("tagged").run(statement).rows
        if len(tagged) != 1:
            return frozenset()
        facts = set()
        for value, mark in zip(row, tagged[0], strict=True):
            fact = self._marked.get(mark)
            if fact is not None and self._world.cells[fact] == value:
                facts.add(fact)
        return frozenset(fact for fact in facts if self._by_key(statement, fact))

    def _by_key(self, statement: str, fact: Fact) -> bool:
        """Whether the statement picks the row of a fact by its key."""
        rows = self._rows(fact.table, "tagged")
        names = sorted(str(row[0]) for row in rows)
        place = names.index(fact.name)
        near = (names[place - 1] if place else "") + "!"
        renamed = [(near if row[0] == fact.name else row[0], *row[1:]) for row in rows]
        if any(_is_mark(cell) for cell in self._run_on(fact.table, renamed, statement)):
            return False
        order = {
            mark: f"#{number:05d}" for number, mark in enumerate(reversed(self._marks.values()))
        }
        turned = [(row[0], *(order[str(mark)] for mark in row[1:])) for row in reversed(rows)]
        return order[self._marks[fact]] in self._run_on(fact.table, turned, statement)

    def _run_on(self, table: str, rows: list[tuple[str | int, ...]], statement: str) -> list[Cell]:
        """Cells that a statement returns from a table with other rows."""
        columns = (TABLES[table].key, *TABLES[table].columns)
        sandbox = Sandbox({table: Content(columns, rows)})
        cells = [cell for row in sandbox.run(statement).rows for cell in row]
        sandbox.close()
        return cells

    def _plain_look_up(self, statement: str) -> Fact | None:
        """The fact that a look-up of the usual form is about: no twin is needed to tell."""
        match = _PLAIN.fullmatch(statement)
        if match is None or match["table"] not in self._world.rows:
            return None
        if match["key"] != TABLES[match["table"]].key:
            return None
        fact = Fact(match["table"], match["name"], match["column"])
        return fact if fact in self._world.cells else None

    def _rows(self, table: str, kind: str) -> list[tuple[str | int, ...]]:
        rows = self._world.rows[table]
        if kind == "real":
            return list(rows)
        columns = TABLES[table].columns
        return [
            (row[0], *(self._marks[Fact(table, str(row[0]), column)] for column in columns))
            for row in rows
        ]


def _is_mark(cell: Cell) -> bool:
    return isinstance(cell, str) and cell.startswith("#")


class Mailbox:
    """The messages of one instance in a full-text index.

    What an agent writes reaches the engine as bound words only, never as a statement.
    """

    def __init__(self, world: World) -> None:
        self._mails = world.mails
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        self._connection.execute("create virtual table mails using fts5(subject, body)")
        self._connection.execute("begin")
        self._connection.executemany(
            "insert into mails (rowid, subject, body) values (?, ?, ?)",
            ((number, mail.subject, mail.body) for number, mail in enumerate(self._mails, 1)),
        )
        self._connection.execute("commit")
        self._connection.execute("pragma query_only = on")

    def search(self, words: list[str]) -> Outcome:
        """Messages that hold all the words, lowest number first; finds are credited if all fit."""
        match = " ".join(f'"{word}"' for word in words)
        rows = self._connection.execute(
            "select rowid from mails where mails match ? order by rowid limit ?",
            (match, MAX_ROWS + 1),
        ).fetchall()
        found = [number for (number,) in rows]
        hits = [(number, self._mails[number - 1]) for number in found[:MAX_ROWS]]
        text = " ; ".join(f"{number} {mail.subject}" for number, mail in hits) or NOTHING
        if len(found) > MAX_ROWS:
            return Outcome(f"{text} ; {MORE}")
        return Outcome(text, found=frozenset(mail.fact for _, mail in hits))

    def read(self, number: int) -> Outcome:
        """One message."""
        if not 1 <= number <= len(self._mails):
            return Outcome(NO_MAIL, valid=False)
        mail = self._mails[number - 1]
        return Outcome(mail.body, read=frozenset((mail.fact,)))

    def close(self) -> None:
        """Free the index."""
        self._connection.close()


@lru_cache(maxsize=1)
def has_full_text() -> bool:
    """Whether this SQLite was built with FTS5, which a mailbox needs."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("create virtual table mails using fts5(subject)")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


Kind = TypeVar("Kind", bound=Database | Mailbox)


class Store(Generic[Kind]):
    """Open databases by instance; those not used for longest are closed and made again on need.

    Memory is the engine's, about 0.1 MB each, so there can be fewer of them than instances.
    """

    def __init__(self, make: Callable[[World], Kind]) -> None:
        self._make = make
        self._open: OrderedDict[int, tuple[World, Kind]] = OrderedDict()

    def __getitem__(self, world: World) -> Kind:
        # The world is kept beside its database, so its id cannot be given to another meanwhile.
        number = id(world)
        kept = self._open.get(number)
        if kept is None:
            kept = self._open[number] = (world, self._make(world))
            if len(self._open) > MAX_DATABASES:
                self._open.popitem(last=False)[1][1].close()
        else:
            self._open.move_to_end(number)
        return kept[1]


DATABASES: Store[Database] = Store(Database)
MAILBOXES: Store[Mailbox] = Store(Mailbox)
