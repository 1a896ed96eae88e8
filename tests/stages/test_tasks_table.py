"""The table of tasks states what the configs and the instances say."""

from pathlib import Path

import pytest

from agent_rl.__main__ import main
from agent_rl.errors import UserError
from agent_rl.stages import tasks
from agent_rl.stages.params import task_names
from agent_rl.stages.task_settings import load_task_study
from agent_rl.tasks.instances import build_instances

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def cells(text, name):
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    header = [part for part in text.splitlines()[0].split("  ") if part]
    return dict(zip([part.strip() for part in header], line.split(), strict=True))


def test_every_config_has_a_row_and_its_numbers_are_those_of_the_test_split(capsys):
    assert main(["tasks", "--seeds", "12"]) == 0
    text = capsys.readouterr().out
    for name in task_names():
        assert f"\n{name} " in text
    task = load_task_study("sqlqa").task("sqlqa")
    found, _ = build_instances("sqlqa", task.settings, {"test": 12}, task.held_out, task.horizon)
    row = cells(text, "sqlqa")
    assert row["mean steps"] == f"{sum(i.distance for i in found) / 12:.2f}" and row["from"] == "12"
    assert (row["horizon"], row["train"]) == (str(task.horizon), str(task.instances.train))
    assert int(row["longest action"]) > 1 and cells(text, "babyai")["longest action"] == "1"
    assert "    settings: level=GoToLocal room_size=6 num_dists=3\n" in text
    assert f"({len(task.held_out)} of " in text


def test_without_seeds_nothing_is_measured(capsys):
    assert main(["tasks", "--seeds", "0"]) == 0
    row = cells(capsys.readouterr().out, "babyai")
    assert (row["mean steps"], row["from"], row["longest action"]) == ("-", "-", "-")
    assert int(row["words"]) > 10
    assert main(["tasks", "--seeds", "-1"]) == 2
    assert capsys.readouterr().err.startswith("error: --seeds -1")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module named 'engine'"), "needs pip install '.[sqlqa]'"),
        (UserError("games need pip install '.[games]'; then"), "needs pip install '.[games]'"),
        (UserError("mode 'search' needs FTS5"), "cannot be made: mode 'search' needs FTS5"),
    ],
)
def test_a_task_that_cannot_be_made_is_listed_with_what_it_needs(monkeypatch, capsys, error, told):
    make = tasks.make_task

    def broken(family, settings):
        if family == "sqlqa":
            raise error
        return make(family, settings)

    monkeypatch.setattr(tasks, "make_task", broken)
    assert main(["tasks", "--seeds", "3"]) == 0
    text = capsys.readouterr().out
    assert f"    {told}\n" in text and cells(text, "sqlqa")["words"] == "-"
    assert cells(text, "babyai")["from"] == "3"
