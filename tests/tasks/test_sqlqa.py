"""The questions keep the contract of every task, and progress cannot be had on the cheap."""

import itertools
import math
import os
import random
import re
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_rl.errors import UserError
from agent_rl.tasks import EpisodeOver, build_instances, goal_keys, make_task, overlap
from agent_rl.tasks.sqlqa import SqlQATask, database, schema, world
from agent_rl.tasks.sqlqa.task import KINDS
from agent_rl.tasks.sqlqa.text import normalise, render_rows, statement

SETTINGS = [
    *({"hops": hops, "tables": 6} for hops in (1, 2, 3, 4)),
    {"hops": 2, "tables": 10},
    *({"hops": hops, "question": "compare"} for hops in (1, 2)),
    {"hops": 2, "question": "compare", "mode": "search"},
    *({"hops": hops, "question": "find"} for hops in (1, 2)),
    {"hops": 2, "question": "find", "mode": "search"},
    *({"hops": hops, "tables": 10, "mode": "search"} for hops in (1, 2, 4)),
]
HOSTILE = (
    "tables",
    "sql select * from people",
    "sql select * from teams order by floor limit 1",
    "sql drop table people",
    "search city",
    "read 0",
    "schema sqlite_master",
    "what is the floor ?",
)


def each_setting(test):
    return pytest.mark.parametrize("given", SETTINGS, ids=str)(test)


def make(**given):
    return make_task("sqlqa", given)


def play(task, seed, length=10, stream=0):
    rng = random.Random(1000 * seed + stream)
    record = [task.reset(seed=seed)]
    for _ in range(length):
        # Expert and chance mixed, so that episodes get somewhere.
        drawn = rng.choice((*task.admissible_actions(), *HOSTILE))
        record.append(task.step(task.expert_action() if rng.random() < 0.5 else drawn))
        if record[-1][2]:
            break
    return record


def chain(task):
    """(value looked up, action) of every look-up of the own question, from the start."""
    cells = task._world.cells
    return [
        (
            str(cells[fact]),
            f"sql select {fact.column} from {fact.table} "
            f"where {schema.TABLES[fact.table].key} = ' {fact.name} '",
        )
        for fact in task._world.question.chains[0]
    ]


@pytest.mark.parametrize("name", ["SqlQA-1Hop", "SqlQA-2Hop", "SqlQA-4Hop", "MailQA-2Hop"])
def test_gymnasium_accepts_what_is_registered(name):
    env = gymnasium.make(f"agent_rl/{name}-v0")
    assert isinstance(env, SqlQATask), "wrappers would cost time on every step"
    check_env(env, skip_render_check=True)


@each_setting
def test_the_expert_wins_and_the_distance_falls_by_one_each_time(given):
    task = make(**given)
    per_look_up = 2 if given.get("mode") == "search" else 1
    for seed in range(150):
        text, info = task.reset(seed=seed)
        question = task._world.question
        chains = {"chain": {1}, "compare": {2}, "find": {1, 2, 3}}[given.get("question", "chain")]
        assert len(question.chains) in chains
        assert {len(chain) for chain in question.chains} == {given["hops"]}
        assert text == f"goal {question.text} ."
        assert info == {
            "valid": True, "success": False,
            "distance": question.look_ups * per_look_up + 1.0,
        }  # fmt: skip
        left, terminated = info["distance"], False
        while not terminated:
            text, success, terminated, truncated, info = task.step(task.expert_action())
            left -= 1
            assert info["valid"] and not truncated and info["distance"] == left
        assert (text, success, info["success"], left) == ("right", 1.0, True, 0.0)


@each_setting
def test_the_distance_is_right_after_random_and_hostile_actions(given):
    task = make(**given)
    ended = progressed = 0
    for seed in range(60):
        record = play(task, seed, length=random.Random(seed).randrange(1, 16))
        distances = [info["distance"] for *_, info in record]
        if record[-1][2]:
            ended += 1
            assert distances[-1] == (0.0 if record[-1][1] else math.inf)
            continue
        falls = [before - after for before, after in itertools.pairwise(distances)]
        # Reading the right mail without having searched for it saves a step.
        assert set(falls) <= ({0.0, 1.0, 2.0} if given.get("mode") == "search" else {0.0, 1.0})
        progressed += 0 < distances[-1] < distances[0]
        steps = 0
        while not task._over:
            *_, info = task.step(task.expert_action())
            steps += 1
        assert info["success"] and steps == distances[-1]
    assert ended and progressed


@each_setting
def test_when_only_the_answer_is_missing_it_has_been_shown(given):
    task = make(**given)
    reached = 0
    for seed in range(60):
        shown = set()
        for text, _, _, _, info in play(task, seed, length=25)[1:]:
            shown.update(text.split())
            if info["distance"] == 1:
                reached += 1
                for chain in task._world.question.chains:
                    assert str(task._world.cells[chain[-1]]) in shown
    assert reached


@each_setting
def test_other_goals_are_pursued_to_their_own_wrong_answer(given):
    task = make(**given)
    for seed in range(40):
        task.reset(seed=seed)
        goals = task.alternative_goals()
        assert 0 < len(set(goals)) == len(goals) <= world.MAX_OTHERS
        assert task._world.question.text not in goals
        for goal in goals:
            task.reset(seed=seed)
            left = task.goal_distance(goal)
            while not task._over:
                assert task.goal_distance(goal) == left > 0
                last = task.step(task.expert_action(goal))
                left -= 1
            assert (last[0], last[1], last[4]["distance"]) == ("wrong", 0.0, math.inf)
            assert task.goal_distance(goal) == 0 and task.goal_distance("") == math.inf
            assert task.expert_action(goal) == task.idle_action()
        with pytest.raises(ValueError, match="no goal here"):
            task.goal_distance("no such goal")


@each_setting
def test_a_b_a_gives_identical_records(given):
    task, other = make(**given), make(**given)
    first = play(task, 7)
    play(task, 8)
    play(other, 7, stream=1)
    assert play(task, 7) == first
    assert play(other, 7) == first
    world.worlds.cache_clear()
    fresh = make(**given)
    assert fresh._worlds is not task._worlds
    assert play(fresh, 7) == first


def test_the_hash_knows_no_order_but_all_content():
    task = make()
    task.reset(seed=1)
    one = task._world
    other = world.generate(1, 2, 6, "sql")
    other.rows = {table: rows[::-1] for table, rows in reversed(other.rows.items())}
    assert other.hash() == one.hash()
    changed = world.generate(1, 2, 6, "sql")
    name, team, city, age = changed.rows["people"][0]
    changed.rows["people"] = ((name, team, city, age + 1), *changed.rows["people"][1:])
    asked = world.generate(1, 2, 6, "sql")
    asked.question = next(iter(asked.others.values()))
    assert len({one.hash(), changed.hash(), asked.hash()}) == 3


TASKS = [make(tables=10), make(mode="search")]
PIECES = ("sql", "select", "from", "people", "*", "'", '"', "(", ";", "read 1", "answer", "schema")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text() | st.lists(st.sampled_from(PIECES)).map(" ".join), max_size=8),
    st.integers(0, 20),
    st.sampled_from(TASKS),
)
def test_arbitrary_text_never_crashes_and_what_is_not_understood_changes_nothing(
    actions, seed, task
):
    _, before = task.reset(seed=seed)
    for action in actions:
        text, _, terminated, truncated, info = task.step(action)
        assert set(text.split()) <= set(task.vocabulary) and not truncated
        if terminated:
            assert action.lower().split()[0] == "answer"
            break
        assert info["distance"] == before["distance"] or info["valid"]
        before = info


@pytest.mark.parametrize("told", [SqlQATask.instructions, SqlQATask.tool_instructions])
def test_the_instructions_show_a_question_of_every_kind_as_it_is_asked(told):
    kind_of = {str(value): pool for pool, values in schema.POOLS.items() for value in values}

    def form(question):
        return [kind_of.get(word, word) for word in question.split()]

    shown = [quoted for quoted in re.findall("'([^']+)'", told) if " of " in quoted]
    for kind, question in zip(KINDS, shown, strict=True):
        task = make(hops=2, question=kind)
        asked = [form(task.reset(seed=seed)[0]) for seed in range(200)]
        assert ["goal", *form(question), "."] in asked


def test_playing_before_the_first_reset_raises():
    for call in ("expert_action", "alternative_goals", "instance_hash", "goal_key"):
        with pytest.raises(EpisodeOver):
            getattr(make(), call)()
    with pytest.raises(EpisodeOver):
        make().step("tables")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"hops": 0}, ["hops 0", "1 to 4"]),
        ({"hops": "2"}, ["hops '2'", "integer"]),
        ({"tables": 4}, ["tables 4", "5 to 10"]),
        ({"mode": "duck"}, ["'duck'", "sql, search"]),
    ],
)
def test_wrong_settings_name_the_value_and_what_is_allowed(given, told):
    with pytest.raises(UserError) as caught:
        make(**given)
    assert "\n" not in str(caught.value) and all(part in str(caught.value) for part in told)


def test_an_engine_without_full_text_search_is_named(monkeypatch):
    monkeypatch.setattr("agent_rl.tasks.sqlqa.task.has_full_text", lambda: False)
    assert make(mode="sql")
    with pytest.raises(UserError, match="FTS5"):
        make(mode="search")


@each_setting
def test_every_word_of_texts_and_sensible_actions_is_in_the_vocabulary(given):
    task = make(**given)
    known = set(task.vocabulary)
    assert len(known) == len(task.vocabulary) < 300
    seen, longest = set(), 0
    for seed in range(80):
        for text, *_ in play(task, seed):
            seen.update(text.split())
        task.reset(seed=seed)
        while not task._over:
            actions = (*task.admissible_actions(), task.expert_action())
            seen.update(word for action in actions for word in action.split())
            longest = max(longest, *(len(action.split()) for action in actions))
            text, *_ = task.step(task.expert_action())
            seen.update(text.split())
    assert seen <= known
    assert longest <= 13, "with the end of the turn an action takes at most 14 tokens"


def test_the_sensible_actions_are_understood():
    for task in TASKS:
        for seed in range(10):
            task.reset(seed=seed)
            for _ in range(3):
                for action in task.admissible_actions():
                    assert task._outcome(task._world, action).valid
                task.step(task.expert_action())


def test_splits_do_not_overlap_and_held_out_keys_are_kept_apart():
    held = ("city of team", "age of owner")
    sizes = {"train": 150, "val": 30, "test": 40, "shifted": 25}
    instances, skipped = build_instances("sqlqa", {"hops": 2}, sizes, held, max_distance=8)
    assert overlap(instances) == 0 and len({one.hash for one in instances}) == sum(sizes.values())
    for one in instances:
        assert (one.goal_key in held) == (one.split == "shifted") and one.distance == 3
    assert {one.goal_key for one in instances} <= set(goal_keys("sqlqa"))
    assert skipped["train"]["goal"] > 0


def test_the_keys_of_all_questions_are_goal_keys():
    keys = set()
    for one in SETTINGS:
        task = make(**one)
        for seed in range(100):
            task.reset(seed=seed)
            keys.add(task.goal_key())
    assert keys == set(goal_keys("sqlqa"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's own count")
@pytest.mark.parametrize("task", TASKS, ids=("sql", "search"))
def test_memory_is_flat_over_1000_resets(task, monkeypatch):
    monkeypatch.setattr(world, "MAX_WORLDS", 30)
    monkeypatch.setattr(database, "MAX_DATABASES", 10)
    world.worlds.cache_clear()
    task = make(tables=task.tables, mode=task.mode)

    def megabytes(seeds):
        for seed in seeds:
            play(task, seed, length=3)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    before = megabytes(range(300))
    assert megabytes(range(300, 1300)) - before < 6
    assert task._worlds.cache_info().currsize == 30
    world.worlds.cache_clear()


def test_a_dump_of_a_table_is_cut_and_earns_nothing():
    task = make(hops=2)
    for seed in range(30):
        _, start = task.reset(seed=seed)
        for table in schema.CORE:
            for columns in ("*", ", ".join(schema.CORE[table].columns)):
                text, *_, info = task.step(f"sql select {columns} from {table}")
                assert text.endswith("; more") and info["valid"]
                assert info["distance"] == start["distance"]
        fact = task._world.question.chains[0][0]
        key = schema.TABLES[fact.table].key
        # Below the cap a list is still no look-up.
        names = [row[0] for row in task._world.rows[fact.table] if row[0] != fact.name][:2]
        listed = " , ".join(f"' {name} '" for name in (fact.name, *names))
        query = f"sql select {key} , {fact.column} from {fact.table} where {key} in ( {listed} )"
        text, *_, info = task.step(query)
        assert text.count(";") == 2 and info["distance"] == start["distance"]


def test_rows_picked_by_place_or_order_earn_nothing():
    task = make(hops=1)
    for seed in range(30):
        _, start = task.reset(seed=seed)
        fact = task._world.question.chains[0][0]
        key = schema.TABLES[fact.table].key
        shown = set()
        names = [row[0] for row in task._world.rows[fact.table]]
        listed = f"where {key} in ( {' , '.join(map(repr, names))} )"
        other = next(name for name in names if name != fact.name)
        for rest in (
            "",
            f"order by {key}",
            f"order by {fact.column} desc",
            f"where {key} < 'zz'",
            f"where {key} <> '' order by {fact.column}",
            listed,
            f"{listed} order by {fact.column}",
            f"where {key} in ( {other!r} , {fact.name!r} )",
            f"where {key} in ( {other!r} , {fact.name!r} ) order by {fact.column} desc",
        ):
            for place in range(len(names)):
                query = f"sql select {fact.column} from {fact.table} {rest} limit 1 offset {place}"
                text, *_, info = task.step(query)
                shown.add(text)
                assert info["valid"] and info["distance"] == start["distance"], query
            for pick in ("min", "max"):
                *_, info = task.step(f"sql select {pick}({fact.column}) from {fact.table} {rest}")
                assert info["distance"] == start["distance"], (pick, rest)
        assert task._world.question.answer in shown, "the right cell was read, by luck"


def test_values_that_are_equal_by_chance_earn_nothing():
    task, met = make(hops=1), 0
    for seed in range(200):
        _, start = task.reset(seed=seed)
        fact = task._world.question.chains[0][0]
        for other, value in task._world.cells.items():
            if str(value) != task._world.question.answer or other == fact:
                continue
            met += 1
            key = schema.TABLES[other.table].key
            query = f"sql select {other.column} from {other.table} where {key} = ' {other.name} '"
            text, *_, info = task.step(query)
            assert text == task._world.question.answer
            assert info["distance"] == start["distance"]
        key = schema.TABLES[fact.table].key
        other = "max" if task._world.question.answer.isdigit() else "min"
        for query in (
            f"select {task._world.question.answer!r} from {fact.table} limit 1",
            f"select {task._world.question.answer!r} from {fact.table} where {key} = '{fact.name}'",
            f"select {fact.column} from {fact.table} "
            f"where {fact.column} = {task._world.question.answer!r}",
            # The cell is read, but something else is shown.
            f"select {other} ( {fact.column}, 5000 ) from {fact.table} where {key} = '{fact.name}'",
        ):
            *_, info = task.step(f"sql {query}")
            assert info["distance"] == start["distance"]
    assert met > 50


def test_repeats_and_look_ups_out_of_order_earn_nothing():
    task = make(hops=3)
    for seed in range(30):
        task.reset(seed=seed)
        look_ups = [action for _, action in chain(task)]
        distances = [
            task.step(look_ups[number])[4]["distance"] for number in (2, 1, 0, 0, 2, 0, 1, 1, 2, 2)
        ]
        assert distances == [4, 4, 3, 3, 3, 3, 2, 2, 1, 1]


def test_one_statement_cannot_make_two_look_ups():
    task = make(hops=2)
    task.reset(seed=0)
    (_, first), _ = chain(task)
    start, then = task._world.question.chains[0]
    key = schema.TABLES[start.table].key
    inner = first.removeprefix("sql ")
    for query in (
        f"select {then.column} from {then.table} where name = ( {inner} )",
        f"select b.{then.column} from {start.table} a join {then.table} b "
        f"on a.{start.column} = b.name where a.{key} = '{start.name}'",
        f"with a as ( {inner} ) select * from a",
    ):
        text, *_, info = task.step(f"sql {query}")
        assert text.startswith("error") and not info["valid"] and info["distance"] == 3


def test_look_ups_count_however_they_are_written():
    task = make(hops=1)
    for seed in range(30):
        task.reset(seed=seed)
        fact = task._world.question.chains[0][0]
        key, name = schema.TABLES[fact.table].key, fact.name
        for query in (
            f"select {fact.column} from {fact.table} where {key} = '{name}'",
            f'SELECT  {fact.column.upper()} FROM {fact.table} WHERE {key} = " {name.upper()} " ;',
            f"select * from {fact.table} where {key} like '{name[:-1]}_' and {key} > = '{name}'",
            f"select max ( {fact.column} ) from {fact.table} where {key} in ( ' {name} ' )",
        ):
            task.reset(seed=seed)
            text, *_, info = task.step(f"sql {query}")
            assert info["distance"] == 1, query
            assert task._world.question.answer in text.split()


def test_the_twin_agrees_with_the_short_cut_for_plain_look_ups():
    task = make(tables=10)
    for seed in range(4):
        task.reset(seed=seed)
        files = database.DATABASES[task._world]
        for fact, value in task._world.cells.items():
            key = schema.TABLES[fact.table].key
            query = f"select {fact.column} from {fact.table} where {key} = '{fact.name}'"
            assert files.look_up(query).read == {fact} == files.established(query, (value,))
            assert not files.look_up(query.replace(f"{key} =", f"{key} <>")).read


def test_searches_that_are_cut_and_wrong_mails_earn_nothing():
    task = make(hops=2, mode="search")
    for seed in range(30):
        _, start = task.reset(seed=seed)
        fact, then = task._world.question.chains[0]
        for action in ("search city", "search of", f"search {then.column} {then.name}"):
            assert task.step(action)[4]["distance"] == start["distance"]
        for number, mail in enumerate(task._world.mails, 1):
            if mail.fact not in (fact, then):
                assert task.step(f"read {number}")[4]["distance"] == start["distance"]
        search = f"search {fact.column} {fact.name}"
        assert [task.step(search)[4]["distance"] for _ in range(2)] == [4, 4]


def test_a_right_guess_wins_and_a_wrong_one_ends_the_episode():
    task = make()
    task.reset(seed=4)
    *_, info = task.step(f"answer  {task._world.question.answer.upper()} ")
    assert info == {"valid": True, "success": True, "distance": 0.0}
    task.reset(seed=4)
    text, success, terminated, _, info = task.step("answer nowhere")
    assert (text, success, terminated) == ("wrong", 0.0, True)
    assert info == {"valid": True, "success": False, "distance": math.inf}
    task.reset(seed=4)
    for action in ("answer", "answer  ' ' "):
        assert task.step(action)[2:4] == (False, False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (" Oslo ", "oslo"),
        ("silver   garden", "SILVER garden"),
        ("6", "6.0"),
        ("06", "6"),
        ("' 6 '", "6"),
    ],
)
def test_equal_answers_are_normalised_to_the_same_text(one, other):
    assert normalise(one) == normalise(other)


def test_answers_that_look_like_numbers_but_are_not_stay_text():
    for text in ("1e5", "nan", "inf", "٣", "9" * 400, "1_0"):
        assert normalise(text) == text
    assert normalise("6") != normalise("6.5")


def test_marks_that_stand_apart_are_joined_outside_quotes_only():
    assert statement("select a where b = ' x > = y '") == "select a where b = 'x > = y'"
    assert statement("a > = 3 and b < > 4 ;") == "a >= 3 and b <> 4"
    assert statement('name = " o\'hara "') == "name = 'o''hara'"


def test_results_are_sorted_capped_and_say_nothing_of_their_own():
    assert render_rows([("kai", 3), ("ada", 9)]) == ("ada , 9 ; kai , 3", True)
    assert render_rows([]) == ("none", True)
    assert render_rows([(n,) for n in range(9)]) == ("0 ; 1 ; 2 ; 3 ; more", False)
    assert render_rows([(1,) * 13]) == (" , ".join("1" * 12) + " ; more", False)
    odd = [("<end>", b"kai", None, 2.5, 4.0, "kai " * 20, "")]
    assert render_rows(odd) == ("? , ? , none , ? , 4 , ? , ?", True)
