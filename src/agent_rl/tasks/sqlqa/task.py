"""Questions over a database, played as tool calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from agent_rl.errors import UserError
from agent_rl.tasks.base import MAX_TEXT, EpisodeOver, TextTask
from agent_rl.tasks.sqlqa import schema
from agent_rl.tasks.sqlqa.database import DATABASES, MAILBOXES, has_full_text
from agent_rl.tasks.sqlqa.sandbox import NO_TABLE, TOO_LONG
from agent_rl.tasks.sqlqa.text import (
    AMONG,
    HIGHER,
    NO_TOOL,
    NOTHING,
    RIGHT,
    VOCABULARY,
    WHICH,
    WRONG,
    normalise,
    plain,
    statement,
    words,
)
from agent_rl.tasks.sqlqa.tools import TOOLS
from agent_rl.tasks.sqlqa.world import Fact, Outcome, Question, World, worlds

MODES = ("sql", "search")
MAX_WORDS = 8
"""Words of one search."""

KINDS = ("chain", "compare", "find")

_QUESTIONS = (
    "There are three kinds of questions. "
    "'city of team of people kai' asks for a value: look up the team of kai, then the city of that "
    "team, and answer with the city. "
    f"'{HIGHER} age of owner of items drum , flask' asks which name leads to the higher number: "
    "look up both numbers and answer with the name. "
    f"'{WHICH} city of team of people oslo {AMONG} kai , eva , ben' asks which name leads to oslo: "
    "look up one name after the other until you find oslo and answer with that name. "
)
"""The kinds of questions, for chat models."""

Progress = tuple[tuple[int, bool], ...]
"""Of every chain the facts established in order, and whether the mail of the next one was found."""


class SqlQATask(TextTask):
    """Find one value by a chain of look-ups, or check several chains against it, and answer.

    The distance counts the look-ups of every chain that are still to be made, in order and each
    once, and one more for the answer. In ``search`` mode a look-up takes two actions, finding the
    message and reading it. What counts as a look-up is defined in ``database``: a single row,
    picked by its key. Whole tables, repeats, lucky picks and values that are equal by chance bring
    the goal no nearer. A wrong answer ends the episode.

    Args:
        hops: look-ups that a question takes, 1 to 4.
        tables: tables of the database, from 5 (those that questions are about) to 10.
        mode: ``sql`` (tools ``tables``, ``schema T``, ``sql Q``) or ``search`` (tools ``search
            WORDS``, ``read ID`` over messages that state the facts).
        question: ``chain`` (what stands at the end of ``hops`` look-ups), ``compare`` (which of
            two names leads to the higher number, each by ``hops`` look-ups) or ``find`` (which of
            three names leads to a given value; the expert checks them in the order named).

    Raises: UserError when a setting does not exist or does not fit.
    """

    instructions: ClassVar[str] = (
        "You answer the question in the first message by looking things up, one action per "
        f"message. {_QUESTIONS}"
        "With a database the actions are 'tables' (list the tables), 'schema T' (list the "
        "columns of table T) and 'sql Q' (run a query on one table, for example: sql select team "
        "from people where name = ' kai '). With a mailbox they are 'search WORDS' (numbers and "
        "subjects of the mails that hold all the words) and 'read ID' (one mail). "
        "When you know the answer, write 'answer X'; a wrong answer ends the episode. "
        "Write the action and nothing else."
    )
    tool_instructions: ClassVar[str] = (
        "You answer the question in the first message by looking things up with the tools, one "
        f"call per message. {_QUESTIONS}"
        "When you know the answer, call 'answer' with it; a wrong answer ends the episode."
    )
    vocabulary: ClassVar[tuple[str, ...]] = VOCABULARY

    def __init__(
        self, hops: int = 2, tables: int = 6, mode: str = "sql", question: str = "chain"
    ) -> None:
        super().__init__()
        if type(hops) is not int or not 1 <= hops <= schema.MAX_HOPS:
            raise UserError(f"hops {hops!r}: must be an integer from 1 to {schema.MAX_HOPS}")
        least, most = schema.MIN_TABLES, schema.MAX_TABLES
        if type(tables) is not int or not least <= tables <= most:
            raise UserError(f"tables {tables!r}: must be an integer from {least} to {most}")
        if mode not in MODES:
            raise UserError(f"mode {mode!r} does not exist: choose one of {', '.join(MODES)}")
        if question not in KINDS:
            kinds = ", ".join(KINDS)
            raise UserError(f"question {question!r} does not exist: choose one of {kinds}")
        if mode == "search" and not has_full_text():
            raise UserError("mode 'search' needs an SQLite with FTS5; this Python's has none")
        self.hops, self.tables, self.mode = hops, tables, mode
        self.tools = TOOLS[mode]
        self._worlds = worlds(hops, tables, mode, question)
        self._cost = 1 if mode == "sql" else 2
        self._world: World | None = None
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start instance ``seed``; without a seed, the next one of the generator."""
        world = self._world = self._worlds(self.instance_seed(seed, options))
        self._history: list[Outcome] = []
        self._progress: Progress = ((0, False),) * len(world.question.chains)
        self._answer: str | None = None
        self._over = False
        info = {"valid": True, "success": False, "distance": self._distance()}
        return f"goal {world.question.text} .", info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EpisodeOver("the episode is over: call reset before step")
        world = self._started()
        outcome = world.outcomes.get(action) or self._outcome(world, action)
        if outcome.answer is not None:
            return self._finish(world, outcome.answer)
        if outcome.read or outcome.found:
            self._history.append(outcome)
            self._progress = _advance(world.question.chains, self._progress, outcome)
        info = {"valid": outcome.valid, "success": False, "distance": self._distance()}
        return outcome.text, 0.0, False, False, info

    def expert_action(self, goal: str | None = None) -> str:
        """The next look-up of the first unfinished chain, or the answer. After the end, a no-op.

        Raises: ValueError for a goal that is neither the own one nor an alternative.
        """
        question = self._question(goal or "")
        if self._over:
            return self.idle_action()
        progress = zip(question.chains, self._progress_to(question), strict=True)
        left = [(chain[n], found) for chain, (n, found) in progress if n < len(chain)]
        if not left:
            return f"answer {question.answer}"
        fact, found = left[0]
        if self.mode == "sql":
            return _look_up(fact.table, fact.column, fact.name)
        if not found:
            return f"search {fact.column} {fact.name}"
        return f"read {self._number(fact)}"

    def idle_action(self) -> str:
        """Listing the tables, or a search for a word that no mail holds."""
        return "tables" if self.mode == "sql" else f"search {NOTHING}"

    def goal_distance(self, goal: str) -> float:
        """Steps to an alternative goal, or to the own one. Raises: ValueError for another.

        A goal is reached by ending the episode with its answer.
        """
        question = self._question(goal)
        if self._over:
            return 0.0 if self._answer == question.answer else math.inf
        return self._steps(question, self._progress_to(question))

    def alternative_goals(self) -> tuple[str, ...]:
        """Other questions about the same start, and the same about other starts (at most 12).

        None of them has the right answer.
        """
        return tuple(self._started().others)

    def admissible_actions(self) -> tuple[str, ...]:
        """Actions that make sense now; many more are understood.

        Listings, all look-ups about names that are known by now, and as an answer every value that
        a look-up has brought; where it is one of some names, those once all that is needed is
        known.
        """
        question = self._started().question
        values = list(dict.fromkeys(self._values()))
        if self.mode == "sql":
            listings = ["tables", *(f"schema {table}" for table in self._started().rows)]
        else:
            listings = [self.idle_action(), *(f"read {number}" for number in self._listed())]
        found = [value for _, value in values]
        if question.names:
            found = list(question.names) if self._distance() == 1 else []
        return (*listings, *self._look_ups(values), *(f"answer {value}" for value in found))

    def exploits(self) -> dict[str, tuple[str, ...]]:
        """A guess of the right kind without a look-up, and reading everything without answering.

        The guess is drawn by the instance's hash, so it is right now and then.
        """
        world = self._started()
        last = world.question.chains[0][-1]
        kind = schema.TABLES[last.table].columns[last.column]
        guesses = world.question.names or schema.POOLS[kind]
        guess = guesses[int(self.instance_hash(), 16) % len(guesses)]
        if self.mode == "sql":
            pages = [(f"schema {table}", f"sql select * from {table}") for table in world.rows]
            dump = ("tables", *(action for page in pages for action in page))
        else:
            columns = dict.fromkeys(column for t in schema.CORE.values() for column in t.columns)
            dump = (
                *(f"search {column}" for column in columns),
                *(f"read {number}" for number in range(1, len(world.mails) + 1)),
            )
        return {"answer_at_once": (f"answer {guess}",), "dump": dump}

    def instance_hash(self) -> str:
        """SHA-256 of the content, whatever the order of tables and rows, and of the question."""
        return self._started().hash()

    def goal_key(self) -> str:
        """What is asked for in the end and of what, e.g. ``floor of team``.

        For a shifted split by depth instead of by key, the same family with ``hops`` + 1 has the
        same vocabulary and keys.
        """
        return self._started().question.key

    @staticmethod
    def goal_keys() -> tuple[str, ...]:
        """Every goal key of 1 to 4 hops."""
        return schema.goal_keys()

    def _started(self) -> World:
        if self._world is None:
            raise EpisodeOver("no episode has started: call reset first")
        return self._world

    def _outcome(self, world: World, action: str) -> Outcome:
        if len(action) > MAX_TEXT:
            return Outcome(TOO_LONG, valid=False)
        return world.remember(action, self._call(world, plain(action)))

    def _call(self, world: World, action: str) -> Outcome:
        tool, _, rest = action.partition(" ")
        if tool == "answer" and normalise(rest):
            return Outcome("", answer=normalise(rest))
        if self.mode == "search":
            if tool == "search" and 0 < len(words(rest)) <= MAX_WORDS:
                return MAILBOXES[world].search(words(rest))
            if tool == "read" and rest.isascii() and rest.isdigit() and len(rest) < 9:
                return MAILBOXES[world].read(int(rest))
        elif action == "tables":
            return Outcome(" ".join(world.rows))
        elif tool == "schema" and rest:
            if rest not in world.rows:
                return Outcome(NO_TABLE, valid=False)
            return Outcome(" ".join((schema.TABLES[rest].key, *schema.TABLES[rest].columns)))
        elif tool == "sql" and rest:
            return DATABASES[world].look_up(statement(rest))
        return Outcome(NO_TOOL, valid=False)

    def _finish(self, world: World, answer: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._over, self._answer = True, answer
        success = answer == world.question.answer
        info = {"valid": True, "success": success, "distance": 0.0 if success else math.inf}
        return RIGHT if success else WRONG, float(success), True, False, info

    def _distance(self) -> float:
        return self._steps(self._started().question, self._progress)

    def _steps(self, question: Question, progress: Progress) -> float:
        left = question.look_ups * self._cost + 1
        return float(left - sum(done * self._cost + found for done, found in progress))

    def _question(self, goal: str) -> Question:
        world = self._started()
        if not goal or goal == world.question.text:
            return world.question
        if goal not in world.others:
            raise ValueError(f"{goal!r} is no goal here: {', '.join(world.others)}")
        return world.others[goal]

    def _progress_to(self, question: Question) -> Progress:
        progress: Progress = ((0, False),) * len(question.chains)
        for outcome in self._history:
            progress = _advance(question.chains, progress, outcome)
        return progress

    def _values(self) -> Iterator[tuple[Fact, str]]:
        """Facts established so far with their values, oldest first."""
        cells = self._started().cells
        for outcome in self._history:
            for fact in sorted(outcome.read):
                yield fact, str(cells[fact])

    def _listed(self) -> list[int]:
        """Numbers of the mails that searches have listed."""
        facts = {fact for outcome in self._history for fact in outcome.found}
        return sorted(self._number(fact) for fact in facts)

    def _number(self, fact: Fact) -> int:
        numbers = (n for n, mail in enumerate(self._started().mails, 1) if mail.fact == fact)
        return next(numbers)

    def _look_ups(self, values: list[tuple[Fact, str]]) -> list[str]:
        world = self._started()
        table = world.question.chains[0][0].table
        names = world.question.names or (world.question.chains[0][0].name,)
        known = dict.fromkeys(names, table)
        for fact, value in values:
            pool = schema.TABLES[fact.table].columns[fact.column]
            if pool in schema.CORE:
                known[value] = pool
        found = []
        for name, kind in known.items():
            for table in world.rows:
                if schema.TABLES[table].names != kind:
                    continue
                for column in schema.TABLES[table].columns:
                    if self.mode == "sql":
                        found.append(_look_up(table, column, name))
                    elif table in schema.CORE:
                        found.append(f"search {column} {name}")
        return found


def _look_up(table: str, column: str, name: str) -> str:
    return f"sql select {column} from {table} where {schema.TABLES[table].key} = ' {name} '"


def _advance(
    chains: tuple[tuple[Fact, ...], ...], progress: Progress, outcome: Outcome
) -> Progress:
    """Progress after one more action: at most one chain moves, and only by its next fact."""
    for index, (chain, (resolved, found)) in enumerate(zip(chains, progress, strict=True)):
        if resolved == len(chain):
            continue
        if chain[resolved] in outcome.read:
            moved = (resolved + 1, False)
        elif not found and chain[resolved] in outcome.found:
            moved = (resolved, True)
        else:
            continue
        return (*progress[:index], moved, *progress[index + 1 :])
    return progress
