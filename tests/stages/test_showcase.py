"""The showcase is the run that it says it is, its file repeats, and bad words are one line."""

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from agent_rl.config import study_from
from agent_rl.evaluation.transcripts import FIRST_ARM, SELECTION
from agent_rl.reporting.transcripts import load_showcases
from agent_rl.stages.evaluate import KEPT
from agent_rl.stages.params import compose_study
from agent_rl.stages.run import ARM
from agent_rl.stages.showcase import main, planned_run

ROOT = Path(__file__).parents[2]
TINY = (
    "profile=smoke",
    "tasks.jugs.instances={train: 30, val: 2, test: 8, shifted: 2}",
    "tasks.jugs.demonstrations.episodes=60",
    "warmstart.steps=12",
    "warmstart.batch_size=16",
    "collect.instances=4",
    "train.budget_tokens=3000",
    "train.validation_instances=2",
    "horizon=8",
)


def made(folder):
    """The stage on tiny sizes in a folder of its own; returns the folder."""
    (folder / "configs").symlink_to(ROOT / "configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["--task", "jugs", "--seed", "4", *TINY]) == 0
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return made(tmp_path_factory.mktemp("showcase"))


@pytest.fixture(scope="module")
def content(finished):
    return json.loads((finished / "results" / "showcase" / "jugs.json").read_text())


def test_the_header_tells_the_numbers_of_the_run(finished, content):
    header = content["header"]
    (folder,) = (finished / ".work" / "runs").iterdir()
    episodes = pd.read_parquet(folder / "episodes.parquet")
    greedy = episodes[(episodes["split"] == "test") & (episodes["decoding"] == "greedy")]
    assert header["test_episodes"] == len(greedy) == 8
    won = (greedy["end"] == "success").mean()
    assert header["success"][FIRST_ARM] == pytest.approx(won, abs=1e-6)
    assert header["success"]["oracle"] == 1 and set(header["success"]) == {
        *("oracle", "base", FIRST_ARM)
    }
    record = json.loads((folder / "policy" / "run.json").read_text())
    assert header["total_tokens"] == record["ledger"]["total_tokens"] > 0
    assert (header["run_digest"], header["seed"]) == (record["digest"], 4)
    assert (header["horizon"], header["settings"]) == (8, {"largest": 9})
    assert header["budget_tokens"] == 3000


def test_the_episodes_are_those_of_the_transcript_rule(finished, content):
    assert content["selection"] == SELECTION
    by_role = {episode["role"]: episode for episode in content["episodes"]}
    assert by_role["oracle_first"]["policy"] == "oracle"
    (folder,) = (finished / ".work" / "runs").iterdir()
    episodes = pd.read_parquet(folder / "episodes.parquet")
    kept = episodes[(episodes["split"] == "test") & (episodes["decoding"] == "greedy")][:KEPT]
    for role, success in (("failed", False), ("successful", True)):
        fitting = kept[(kept["end"] == "success") == success]
        assert (role in by_role) == (len(fitting) > 0)
        if role in by_role:
            shown = by_role[role]
            assert shown["instance_id"] == fitting["instance_id"].min()
            assert (shown["policy"], shown["seed"], shown["horizon"]) == (FIRST_ARM, 4, 8)


def test_the_file_is_read_by_the_report_and_names_no_place(finished):
    (read,) = load_showcases(finished / "results" / "showcase")
    assert (read.task, read.arm, len(read.shown.episodes) >= 2) == ("jugs", FIRST_ARM, True)
    text = (finished / "results" / "showcase" / "jugs.json").read_text()
    for place in (str(finished), str(ROOT), os.uname().nodename, ".work"):
        assert place not in text
    assert [path.name for path in (finished / "results" / "showcase").iterdir()] == ["jugs.json"]


def test_p56_another_folder_gives_the_same_bytes(finished, tmp_path):
    place = Path("results", "showcase", "jugs.json")
    assert (made(tmp_path) / place).read_bytes() == (finished / place).read_bytes()


@pytest.mark.parametrize("task", ["babyai", "sqlqa"])
def test_the_arm_is_that_of_the_study(task, monkeypatch):
    monkeypatch.chdir(ROOT)
    study = study_from(compose_study([f"tasks={task}"]), "test")
    shown = planned_run(task, "0", [])
    assert shown.trained.arm_on(ARM, task) == study.arm_on(FIRST_ARM, task)
    assert shown.trained.train_on(task) == study.train_on(task)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--task juggs", "unknown task 'juggs'"),
        ("--task jugs method=sft", "method="),
        ("--task jugs seed=1", "say --seed"),
        ("--task jugs --seed x", "seed=x"),
        ("--task jugs horizon", "'horizon' is not key=value"),
        ("--task jugs evaluation.decodings=[t1]", "greedy"),
        ("--task jugs tasks.jugs.settings.largest=no", "largest"),
    ],
)
def test_bad_words_are_one_line_and_exit_code_2(words, told, monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(ROOT)
    assert main([*words.split(), "--results", str(tmp_path)]) == 2
    printed = capfd.readouterr().err
    assert printed.count("\n") == 1 and told in printed
    assert not list(tmp_path.iterdir())
