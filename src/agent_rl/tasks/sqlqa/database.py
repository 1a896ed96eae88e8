"""Look-ups in the database of an instance, and which facts they establish.

A look-up establishes a fact when it returns one row, and that row was picked by its key. Whether a
value in it really comes from that cell is not guessed from the text, since values repeat; it is
traced by running the statement on two twins of the database as well. In the *tagged* twin every
value is replaced by a mark of its own, so the mark tells which cell was read. In the *renamed*
twin the keys are replaced, too, by opaque names in the same order and place: what still comes back
there was picked by position or order, a lucky hit, and establishes nothing.
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
    """The sandbox of one instance and its twins, made when they are first needed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._facts = list(world.cells)
        self._marks = {fact: f"#{number}" for number, fact in enumerate(self._facts)}
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
        """The ``real`` database, or the ``tagged`` or ``renamed`` twin."""
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
        """Facts that a statement whose result is one ``row`` establishes, by means of the twins."""
        tagged = self.sandbox("tagged").run(statement).rows
        if len(tagged) != 1:
            return frozenset()
        facts = set()
        for value, mark in zip(row, tagged[0], strict=True):
            if isinstance(mark, str) and mark[:1] == "#" and mark[1:].isdigit():
                fact = self._facts[int(mark[1:])]
                if self._world.cells[fact] == value:
                    facts.add(fact)
        if not facts:
            return frozenset()
        lucky = {mark for row in self.sandbox("renamed").run(statement).rows for mark in row}
        return frozenset(fact for fact in facts if self._marks[fact] not in lucky)

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
        columns = tuple(TABLES[table].columns)
        rank = {name: number for number, name in enumerate(sorted(str(row[0]) for row in rows))}
        made: list[tuple[str | int, ...]] = []
        for row in rows:
            name = str(row[0])
            key = name if kind == "tagged" else f"~{rank[name]:03d}"
            made.append((key, *(self._marks[Fact(table, name, column)] for column in columns)))
        return made


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
