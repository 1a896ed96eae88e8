"""The speed of the tasks is measured as it says: same work for all, every run in the table."""

import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import task_speed  # noqa: E402
from benchmarks.task_speed import Case  # noqa: E402

CHAIN = Case("chain", "sqlqa", {"hops": 1}, 4)


def test_recorded_episodes_can_be_played_again_to_their_end():
    recording = task_speed.record(CHAIN, 32)
    assert len(recording) == 32 and recording == task_speed.record(CHAIN, 32)
    assert {seed for seed, _ in recording} == {task_speed.FIRST_SEED + i for i in range(4)}
    env = task_speed.make_env(CHAIN.family, CHAIN.settings, CHAIN.horizon)
    for seed, actions in recording:
        env.reset(seed=seed)
        ends = [env.step(action)[2:4] for action in actions]
        assert [any(end) for end in ends] == [False] * (len(actions) - 1) + [True]


def test_every_task_has_a_median_and_its_spread(tmp_path, monkeypatch, capsys):
    missing = Case("missing", "sqlqa", {"hops": 99}, 4)
    monkeypatch.setattr(task_speed, "CASES", (CHAIN, missing))
    out = tmp_path / "bench.csv"
    assert task_speed.main(["--runs", "2", "--episodes", "16", "--out", str(out)]) == 0
    table = pd.read_csv(out)
    assert list(table.columns) == task_speed.COLUMNS
    assert set(table.task) == {"chain"} and (table.runs == 2).all() and len(table) == 2
    assert (table.low <= table.value).all() and (table.value <= table.high).all()
    assert (table.low > 0).all()
    assert "left out: missing: hops 99" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--runs", "0"], ["--episodes", "3"]])
def test_too_little_to_measure_is_refused(words, tmp_path, capsys):
    out = tmp_path / "bench.csv"
    assert task_speed.main([*words, "--out", str(out)]) == 2
    assert not out.exists() and words[1] in capsys.readouterr().err
