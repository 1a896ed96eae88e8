"""Nothing that a model writes as SQL makes a file, changes a row, hangs or crashes."""

import sqlite3
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_rl.tasks import make_task
from agent_rl.tasks.sqlqa import sandbox
from agent_rl.tasks.sqlqa.database import DATABASES
from agent_rl.tasks.sqlqa.sandbox import MESSAGES, Content, Sandbox
from agent_rl.tasks.sqlqa.text import statement
from agent_rl.tasks.sqlqa.world import generate

TEAMS = {
    "teams": Content(("name", "floor"), [("atlas", 3), ("bravo", 5), ("delta", 3)]),
    "leases": Content(("name", "city"), [("atlas", "oslo")]),
}


@pytest.fixture
def box():
    made = Sandbox(TEAMS)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select floor from teams where name = 'atlas'", [(3,)]),
        ("select name from teams where floor = '3' order by name desc", [("delta",), ("atlas",)]),
        ("select count(*), max(floor) from teams", [(3, 5)]),
        ("select count(*) from teams", [(3,)]),
        ("select upper(name) from teams where name like 'br%'", [("BRAVO",)]),
        ("select distinct a.floor from teams a, teams b where a.floor < b.floor", [(3,)]),
        ("select floor from teams where name = 'nobody'", []),
    ],
)
def test_plain_reading_works(box, query, rows):
    assert box.run(query) == (rows, "")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("attach 'owned' as y", sandbox.FORBIDDEN),
        ("vacuum into 'owned'", sandbox.FORBIDDEN),
        ("pragma query_only = off", sandbox.FORBIDDEN),
        ("insert into teams values ('x', 1)", sandbox.FORBIDDEN),
        ("create temp table x (y)", sandbox.FORBIDDEN),
        ("explain select floor from teams", sandbox.FORBIDDEN),
        ("with a as (select 1) select * from a", sandbox.FORBIDDEN),
        ("select load_extension('x')", sandbox.FORBIDDEN),
        ("select zeroblob(100000000)", sandbox.FORBIDDEN),
        ("select group_concat(name) from teams", sandbox.FORBIDDEN),
        ("select rowid from teams", sandbox.FORBIDDEN),
        ("select sql from sqlite_master", sandbox.FORBIDDEN),
        ("select count(*) from sqlite_master", sandbox.FORBIDDEN),
        ("select * from pragma_table_info('teams')", sandbox.FORBIDDEN),
        ("select name from teams union select name from leases", sandbox.ONE_TABLE),
        ("select floor from (select * from teams)", sandbox.ONE_TABLE),
        ("select teams.name from teams, leases", sandbox.ONE_TABLE),
        ("select 1 from teams, leases", sandbox.ONE_TABLE),
        ("select floor from rooms", sandbox.NO_TABLE),
        ("select height from teams", sandbox.NO_COLUMN),
        ("select floor from teams where", sandbox.SYNTAX),
        ("select 1; select 2", sandbox.SYNTAX),
        ("select ?", sandbox.SYNTAX),
        ("select '\0'", sandbox.SYNTAX),
        ("select '\ud800'", sandbox.SYNTAX),
        ("", sandbox.SYNTAX),
        ("-- select 1", sandbox.SYNTAX),
        ("select " + "1," * 300 + "1", sandbox.TOO_LONG),
        ("select count(*) from " + ",".join(f"teams t{n}" for n in range(15)), sandbox.TOO_LONG),
    ],
)
def test_everything_else_is_answered_with_a_fixed_message(box, query, message):
    before = box.dump()
    assert box.run(query) == ([], message)
    assert box.dump() == before


def test_each_wall_alone_keeps_writes_out(box):
    write = "insert into teams values ('x', 1)"
    connection = box._connection
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        connection.execute(write)
    connection.set_authorizer(None)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute(write)
    with pytest.raises(sqlite3.OperationalError, match="too many attached"):
        connection.execute("attach 'owned' as y")


def test_recursion_is_refused_and_would_be_ended_by_the_step_budget(box):
    endless = "with recursive a(x) as (select 1 union all select x + 1 from a) select max(x) from a"
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
        box._connection.execute(endless)
    box._connection.set_authorizer(None)
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        box._connection.execute(endless)


def test_the_step_budget_does_not_shrink_with_use(box):
    costly = "select count(*) from teams a, teams b, teams c, teams d, teams e, teams f"
    first = box.run(costly)
    assert first == ([(729,)], "")
    assert all(box.run(costly) == first for _ in range(50))


TABLE = st.sampled_from(
    ("people", "teams", "items", "makers", "mails", "sqlite_master", "sqlite_schema", "temp.people",
     "main.teams", "x", "pragma_table_info('people')", "pragma_database_list", "json_each('[1]')",
     "generate_series(1, 1000000000)", "dbstat", "sqlite_temp_master", "people a, people b",
     "people a, people b, people c, people d, people e, people f, people g, people h",
     "people natural join teams", "people left join items on 1", "(people)", "( select 1 )")
)  # fmt: skip
COLUMN = st.sampled_from(
    ("*", "name", "team", "rowid", "oid", "_rowid_", "count(*)", "sum(age)", "name || name", "1/0",
     "x'ff'", "cast(x'ff' as text)", "9223372036854775807 + 1", "-9223372036854775808", "1e999",
     "randomblob(1000000000)", "zeroblob(2147483647)", "hex(zeroblob(1000000))", "random()",
     "printf('%2147483647d', 1)", "load_extension('owned')", "readfile('/etc/passwd')",
     "writefile('owned', 'x')", "edit('x')", "fts3_tokenizer('simple')", "sqlite_version()",
     "group_concat(name)", "row_number() over ()", "replace(name, 'a', 'aaaaaaaaaaaaaaaa')",
     "char(60, 101, 110, 100, 62)", "( select name from people )", "exists ( select 1 )",
     "name collate evil", "case when 1 then name end", "max(1, 2, 3, 4, 5)", "?1", ":a", "@b", "$c",
     "name -> '$'", "abs(-9223372036854775808)", "'<end>'", "total_changes()", "'\x00'", "'\ud800'",
     "json('{')", "raise(abort, 'x')", "likelihood(1, 0.5)", "(((((((((((((1)))))))))))))")
)  # fmt: skip
CONDITION = st.sampled_from(
    (f" where '{150 * 'a'}' || name like '{12 * '%a_'}%b'",
     "", " where 1", " where name = ' kai '", " where name like '%%%%%%%%%%%%%%%%%%%a%_%_%_%_b'",
     " where name glob '*[a-z]*'", " where name regexp '(a+)+$'", " where name match 'x'",
     " where name in ( select name from teams )", " where ( select 1 from people ) = 1",
     " limit -1",
     " order by random()", " order by 99", " group by 1 having 1", " limit 1 offset 1e9",
     " where 'a' = 'a' or 1", " where name = 'kai", ' where "name" = "kai"',
     " where [name] = `kai`",
     " where 1 = 1" + " and 1" * 60, " where " + "(" * 60 + "1" + ")" * 60,
     " where not" * 40 + " 1",
     " union all select * from people", " intersect select 1", " window w as ()", " indexed by x")
)  # fmt: skip
COMMAND = st.sampled_from(
    ("attach 'owned' as y", "attach database 'file:owned?mode=rwc' as y", "attach ':memory:' as y",
     "detach main", "vacuum", "vacuum into 'owned'", "pragma query_only = off",
     "pragma writable_schema = 1",
     "pragma journal_mode = wal", "pragma temp_store_directory = '.'", "pragma max_page_count = 1",
     "pragma recursive_triggers = on", "pragma case_sensitive_like = 1", "pragma foreign_keys = on",
     "create table owned (x)", "create temp table people (name)", "create view v as select 1",
     "create trigger t after insert on people begin select 1; end",
     "create index i on people (name)",
     "create virtual table owned using fts5(x)", "drop table people", "delete from people",
     "insert into people values (1, 2, 3, 4)", "insert or replace into people select * from people",
     "update people set team = 'x'", "replace into teams values (1, 2, 3)",
     "alter table people rename to x",
     "alter table people drop column team", "reindex", "analyze", "begin", "begin exclusive",
     "commit",
     "rollback", "savepoint s", "release s", "explain select 1", "explain query plan select 1",
     "values (1), (2)", ".shell touch owned", ".output owned", "copy people to 'owned'", "select",
     "with recursive a(x) as (select 1 union all select x + 1 from a) select count(*) from a",
     "with a as (select 1), b as (select * from a) select * from b", "", ";", ";;;", "--", "/*",
     "'", '"')
)  # fmt: skip
SELECT = st.builds("select {} from {}{}".format, COLUMN, TABLE, CONDITION)
START = st.sampled_from(
    ("",) * 6 + ("/**/", "--\n", ";", "explain ", "( ", "\x00", "\ufeff", "SELECT ")
)
END = st.sampled_from(
    ("",) * 6
    + (";", " ; drop table people", "; attach 'owned' as y", " --", " /*", "\x00", " )", "'")
)
STATEMENT = st.builds(
    "{}{}{}".format, START, SELECT | SELECT | SELECT | COMMAND | st.text(max_size=30), END
)


def test_hostile_statements_make_no_file_change_nothing_and_always_get_a_message(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    world = generate(seed=1, hops=2, tables=10, mode="sql")
    database = DATABASES[world]
    before = {kind: database.sandbox(kind).dump() for kind in ("real", "tagged")}
    task = make_task("sqlqa", {"tables": 10})
    known = set(task.vocabulary)
    assert len(before["real"]) > 50
    seen, slowest = [], 0.0

    @settings(
        max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(STATEMENT, min_size=40, max_size=40))
    def attack(statements):
        nonlocal slowest
        for one in statements:
            began = time.perf_counter()
            outcome = database.look_up(statement(one))
            slowest = max(slowest, time.perf_counter() - began)
            assert outcome.valid != (outcome.text in MESSAGES)
            assert set(outcome.text.split()) <= known and len(outcome.text.split()) <= 60
            assert outcome.answer is None and not outcome.found
            seen.append(outcome.text)
        assert not [path for path in tmp_path.iterdir() if path.name != ".hypothesis"]

    attack()
    assert len(seen) >= 10_000
    assert set(MESSAGES) <= set(seen), "every kind of refusal was met"
    assert sum(text not in MESSAGES for text in seen) > 300, "and some statements got through"
    assert slowest < 1.0
    assert {kind: database.sandbox(kind).dump() for kind in before} == before


def test_what_an_agent_does_to_one_instance_is_not_seen_by_another_agent():
    one, other = make_task("sqlqa", {}), make_task("sqlqa", {})
    other.reset(seed=9)
    queries = ("sql select * from people where age > 30", "sql select count ( * ) from teams")
    expected = [other.step(query) for query in queries]
    one.reset(seed=9)
    for hostile in ("delete from people", "drop table teams", "begin", "pragma query_only = 0"):
        assert not one.step(f"sql {hostile}")[4]["valid"]
    other._world.outcomes.clear()
    other.reset(seed=9)
    assert [other.step(query) for query in queries] == expected
