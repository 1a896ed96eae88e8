"""One instance: the content of its database, its question, and what else could be asked."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from agent_rl.tasks.sqlqa.schema import (
    CORE,
    DISTRACTORS,
    MIN_TABLES,
    POOLS,
    TABLES,
    Path,
    Table,
    goal_key,
    paths,
)
from agent_rl.tasks.sqlqa.text import AMONG, HIGHER, WHICH

MAX_WORLDS = 4096
"""Instances kept per settings."""
MAX_OUTCOMES = 32
"""Outcomes kept per instance."""
MAX_REMEMBERED = 200
"""Longest action, in characters, whose outcome is kept."""
CANDIDATES = 3
"""Names of which a question of kind ``find`` asks for one."""
MAX_OTHERS = 12
"""Most alternative goals of one instance."""

Value = str | int
Row = tuple[Value, ...]


class Fact(NamedTuple):
    """One cell of the database, named by what identifies it."""

    table: str
    name: str
    """Key of the row."""
    column: str


Cells = dict[Fact, Value]


class Mail(NamedTuple):
    """A message that states one fact (search mode)."""

    subject: str
    body: str
    fact: Fact


class Outcome(NamedTuple):
    """What one action brings about; the same every time, since nothing ever changes."""

    text: str
    valid: bool = True
    read: frozenset[Fact] = frozenset()
    """Facts that a look-up pinned down."""
    found: frozenset[Fact] = frozenset()
    """Facts whose mail a search listed."""
    answer: str | None = None
    """The answer that was given, normalised."""


@dataclass(frozen=True, slots=True)
class Question:
    """Chains of look-ups and the answer that they give together."""

    text: str
    chains: tuple[tuple[Fact, ...], ...]
    """One chain; the two whose last values are compared; or those of the candidates up to the
    right one."""
    answer: str
    key: str
    names: tuple[str, ...] = ()
    """Names among which the answer is chosen; empty when it is a value that is looked up."""

    @property
    def look_ups(self) -> int:
        """Facts that must be established."""
        return sum(len(chain) for chain in self.chains)


@dataclass(slots=True)
class World:
    """Database content and questions of one seed, shared by all environments of its settings."""

    mode: str
    rows: dict[str, tuple[Row, ...]]
    """Rows of every table, both in the order in which the database gets them."""
    question: Question
    others: dict[str, Question]
    cells: Cells
    mails: tuple[Mail, ...]
    """Messages by number, from 1 (search mode)."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """Outcome of every action tried so far."""
    _hash: str = ""

    def remember(self, action: str, outcome: Outcome) -> Outcome:
        """Keep an outcome; when there are too many, start afresh."""
        if len(self.outcomes) >= MAX_OUTCOMES:
            self.outcomes.clear()
        if len(action) <= MAX_REMEMBERED:
            self.outcomes[action] = outcome
        return outcome

    def hash(self) -> str:
        """SHA-256 of the content in canonical order, and of the question."""
        if not self._hash:
            content = [[table, sorted(rows, key=repr)] for table, rows in sorted(self.rows.items())]
            state = json.dumps([self.mode, content, self.question.text])
            self._hash = hashlib.sha256(state.encode()).hexdigest()
        return self._hash


def _draw_rows(rng: random.Random, chosen: dict[str, Table]) -> dict[str, tuple[Row, ...]]:
    names = {table: rng.sample(POOLS[table], spec.size) for table, spec in CORE.items()}
    rows: dict[str, tuple[Row, ...]] = {}
    for table, spec in chosen.items():
        keys = names[table] if table in names else rng.sample(names[spec.names], spec.size)
        pools = [names.get(pool) or POOLS[pool] for pool in spec.columns.values()]
        rows[table] = tuple((key, *(rng.choice(pool) for pool in pools)) for key in keys)
    return rows


def _chain(path: Path, name: str, cells: Cells) -> tuple[Fact, ...]:
    """The look-ups along a path from the row ``name``."""
    table, columns = path
    at, facts = name, []
    for column in columns:
        fact = Fact(table, at, column)
        facts.append(fact)
        table, at = CORE[table].columns[column], str(cells[fact])
    return tuple(facts)


def _words(path: Path) -> str:
    start, columns = path
    return f"{' of '.join(reversed(columns))} of {start}"


def _question(path: Path, name: str, cells: Cells) -> Question:
    """What stands at the end of the chain from the row ``name``."""
    chain = _chain(path, name, cells)
    return Question(f"{_words(path)} {name}", (chain,), str(cells[chain[-1]]), goal_key(path))


def _comparison(path: Path, pair: tuple[str, str], cells: Cells) -> Question | None:
    """Which of two rows leads to the higher number; None where the numbers are equal."""
    chains = tuple(_chain(path, name, cells) for name in pair)
    first, second = (int(cells[chain[-1]]) for chain in chains)
    if first == second:
        return None
    text = f"{HIGHER} {_words(path)} {pair[0]} , {pair[1]}"
    return Question(text, chains, pair[0] if first > second else pair[1], goal_key(path), pair)


def _find(path: Path, names: Sequence[str], right: int, cells: Cells) -> Question | None:
    """Which of some rows leads to a given value; None where it is not exactly one.

    They are checked in the order in which they are named, and the first that fits is the answer.
    """
    chains = [_chain(path, name, cells) for name in names]
    ends = [cells[chain[-1]] for chain in chains]
    if ends.count(ends[right]) > 1:
        return None
    text = f"{WHICH} {_words(path)} {ends[right]} {AMONG} {' , '.join(names)}"
    needed = tuple(chains[: right + 1])
    return Question(text, needed, names[right], goal_key(path), tuple(names))


def _other_questions(
    own: Question, path: Path, names: Sequence[str], cells: Cells
) -> dict[str, Question]:
    """Chains of at most the same length from the same row, and the same chain from other rows; of
    a comparison also the same two rows compared by other numbers.

    Those with the right answer are left out: answering them would win.
    """
    start, columns = path
    first = own.chains[0][0].name
    found = [
        _question(other, first, cells)
        for hops in range(1, len(columns) + 1)
        for other in paths(hops, (start,), open_end=True)
    ]
    found += [_question(path, name, cells) for name in names if name != first][:2]
    if own.text.startswith(HIGHER):
        pair = (own.names[0], own.names[1])
        compared = (_comparison(other, pair, cells) for other in numeric_paths(len(columns), start))
        found += [one for one in compared if one is not None]
    elif own.names:
        sought = (_find(path, own.names, right, cells) for right in range(len(own.names)))
        found += [one for one in sought if one is not None]
    wrong = sorted((one for one in found if one.answer != own.answer), key=lambda one: one.text)
    # Evenly spaced, so that the bound does not favour the beginning of the alphabet.
    stride = max(1, -(-len(wrong) // MAX_OTHERS))
    return {one.text: one for one in wrong[::stride]}


def _mails(rng: random.Random, cells: Cells) -> tuple[Mail, ...]:
    """One message per fact; of a distractor, one per row, so that numbers stay below 100."""
    mails = []
    for fact, value in cells.items():
        about = f"{fact.column} {fact.name}"
        if fact.table in DISTRACTORS:
            if fact.column != next(iter(DISTRACTORS[fact.table].columns)):
                continue
            about = f"{fact.table} {about}"
        words = " of ".join(about.rsplit(" ", 1))
        mails.append(Mail(about, f"{words} is {value}", fact))
    rng.shuffle(mails)
    return tuple(mails)


def numeric_paths(hops: int, *starts: str) -> list[Path]:
    """Chains of look-ups that end with a number."""
    return [path for path in paths(hops, starts) if isinstance(POOLS[_end(path)][0], int)]


def _end(path: Path) -> str:
    """Pool of the values at the end of a path."""
    table, columns = path
    for column in columns:
        table = CORE[table].columns[column]
    return table


def _draw_question(
    rng: random.Random, hops: int, kind: str, rows: dict[str, tuple[Row, ...]], cells: Cells
) -> tuple[Path, Question]:
    starts = [table for table in CORE if table in rows]
    if kind == "chain":
        path = rng.choice(paths(hops, tuple(starts)))
        return path, _question(path, rng.choice([str(row[0]) for row in rows[path[0]]]), cells)
    question = None
    while question is None:
        choices = numeric_paths(hops, *starts) if kind == "compare" else paths(hops, tuple(starts))
        path = rng.choice(choices)
        names = [str(row[0]) for row in rows[path[0]]]
        if kind == "compare":
            first, second = rng.sample(names, 2)
            question = _comparison(path, (first, second), cells)
        else:
            question = _find(path, rng.sample(names, CANDIDATES), rng.randrange(CANDIDATES), cells)
    return path, question


def generate(seed: int, hops: int, tables: int, mode: str, kind: str = "chain") -> World:
    """The instance of a seed."""
    rng = random.Random(seed)
    extra = rng.sample(list(DISTRACTORS), tables - MIN_TABLES)
    drawn = _draw_rows(rng, {table: TABLES[table] for table in (*CORE, *extra)})
    if mode == "search":
        # There the messages themselves are what is read; a table of messages would be a riddle.
        del drawn["mails"]
    cells = {
        Fact(table, str(row[0]), column): value
        for table, rows in drawn.items()
        for row in rows
        for column, value in zip(TABLES[table].columns, row[1:], strict=True)
    }
    path, own = _draw_question(rng, hops, kind, drawn, cells)
    names = [str(row[0]) for row in drawn[path[0]]]
    order = rng.sample(list(drawn), len(drawn))
    return World(
        mode=mode,
        rows={table: drawn[table] for table in order},
        question=own,
        others=_other_questions(own, path, names, cells),
        cells=cells,
        mails=_mails(rng, cells) if mode == "search" else (),
    )


@lru_cache(maxsize=16)
def worlds(hops: int, tables: int, mode: str, kind: str) -> Callable[[int], World]:
    """The instances of these settings by seed, shared by all environments of this process.

    They are generated on first use; the least recently used ones are forgotten.
    """

    @lru_cache(maxsize=MAX_WORLDS)
    def world(seed: int) -> World:
        return generate(seed, hops, tables, mode, kind)

    return world
