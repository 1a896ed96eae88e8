"""A person can play a task, by hand or by pipe, and nothing they write ends in a traceback."""

import builtins
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.__main__ import main
from agent_rl.stages.play import play
from agent_rl.stages.task_settings import load_task_study, playable, split_instances

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def typed(monkeypatch, capsys):
    """Runs the command with these lines typed; returns exit code and what was shown."""

    def run(words, *lines):
        left = iter(lines)

        def read(prompt=""):
            line = next(left, EOFError)
            if isinstance(line, type):
                raise line
            return line

        monkeypatch.setattr(builtins, "input", read)
        code = main(["play", *words.split()])
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize("name", ["babyai", "sqlqa"])
def test_who_follows_the_hints_wins_in_as_many_turns_as_the_expert(name):
    task = load_task_study(name).task(name)
    instance = split_instances(name, task, "test", 3)[-1]
    shown = []

    def follow():
        mark = "the expert would write: "
        return shown[-1].removeprefix(mark) if shown[-1].startswith(mark) else ":expert"

    assert play(playable(name, task), instance, follow, shown.append)
    assert f"success after {instance.distance} turns" in shown[-1]
    assert f"the expert needs {instance.distance}" in shown[-1]


def test_a_pipe_is_played_to_its_end_and_leaves_cleanly():
    done = subprocess.run(
        [sys.executable, "-m", "agent_rl", "play", "babyai", "--seed", "2"],
        input="hello\n\n:actions\nleft",
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "> hello\n[not understood: the turn is spent | " in done.stdout
    assert done.stdout.count("11 turns left") == done.stdout.count("10 turns left") == 1
    assert "\nforward\n" in done.stdout
    assert done.stdout.rstrip().endswith("left after 2 turns")


def test_commands_and_empty_lines_cost_no_turn(typed):
    code, text = typed("babyai", ":help", "", ":hint", ":expert", ":actions", "left", ":quit")
    assert code == 0 and "You walk through a small room" in text
    assert "no command :hint; commands are :help, :actions, :expert, :quit" in text
    assert text.count("turns left]") == 1 and "11 turns left]" in text
    assert "left after 1 turn\n" in text


def test_the_end_says_whether_time_ran_out_or_the_answer_was_wrong(typed):
    code, text = typed("babyai --set horizon=2", "drop", "drop")
    assert code == 0 and "0 turns left]" in text and "turn limit: no success within 2" in text
    code, text = typed("sqlqa", "answer nonsense")
    assert code == 0 and "[valid | the goal is out of reach | 7 turns left]" in text
    assert "failure: the task ended after 1 turn without success" in text


def test_ctrl_c_leaves_cleanly(typed):
    code, text = typed("babyai", "left", KeyboardInterrupt)
    assert code == 0 and text.endswith("\nleft\n")


def test_settings_and_instances_are_those_asked_for(typed):
    _, by_number = typed("babyai --seed 4 --set level=PickupLoc --set settings.room_size=7")
    assert "goal pick up" in by_number
    number = by_number.split()[1].rstrip(":")
    words = f"babyai --instance {number} --set level=PickupLoc --set settings.room_size=7"
    assert typed(words)[1] == by_number
    assert typed("babyai --seed 4")[1] != by_number
    held_out = typed("babyai --split shifted")[1]
    assert "instance 300000" in held_out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("chess", "unknown task 'chess'; configs/task/ has: babyai, "),
        ("babyai --set level=GoToMars", "level 'GoToMars' does not exist"),
        ("babyai --set rooms=3", "setting 'rooms' of task babyai does not exist"),
        ("babyai --set horizon=x", "horizon: expected int, got 'x'"),
        ("babyai --set horizon", "--set horizon: expected key=value"),
        ("babyai --set =3", "--set =3: expected key=value"),
        ("babyai --seed 400", "has the instances 0 to 399, number 400"),
        ("babyai --seed -1", "number -1"),
        ("babyai --instance -5", "--instance -5: task babyai has ids from 0 to 2147483647"),
    ],
)
def test_bad_words_are_one_line_and_exit_code_2(words, told, capsys):
    assert main(["play", *words.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and told in printed.err


def test_elsewhere_than_at_the_root_it_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["play", "babyai"]) == 2
    assert "run from the root of the repository" in capsys.readouterr().err


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, capsys):
    def missing(*_):
        raise ModuleNotFoundError("No module named 'engine'")

    monkeypatch.setattr("agent_rl.stages.task_settings.make_env", missing)
    assert main(["play", "babyai"]) == 2
    told = capsys.readouterr().err
    assert "No module named 'engine'; install it with pip install '.[babyai]'" in told
