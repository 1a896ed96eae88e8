"""The speed of the tasks is measured as it says: same work for all, every run in the table."""

import dataclasses

from benchmarks.cases import QUICK
from benchmarks.task_speed import TimedTask

from benchmarks import rounds, task_speed

CHAIN = TimedTask("chain", "sqlqa", {"hops": 1}, 4)


def test_recorded_episodes_can_be_played_again_to_their_end():
    recording = task_speed.record(CHAIN, 32)
    assert len(recording) == 32 and recording == task_speed.record(CHAIN, 32)
    assert {seed for seed, _ in recording} == {task_speed.FIRST_SEED + i for i in range(4)}
    env = task_speed.make_env(CHAIN.family, CHAIN.settings, CHAIN.horizon)
    for seed, actions in recording:
        env.reset(seed=seed)
        ends = [env.step(action)[2:4] for action in actions]
        assert [any(end) for end in ends] == [False] * (len(actions) - 1) + [True]


def test_every_task_has_a_median_and_its_spread(monkeypatch, capsys):
    missing = TimedTask("missing", "sqlqa", {"hops": 99}, 4)
    monkeypatch.setattr(task_speed, "TASKS", (CHAIN, missing))
    sizes = dataclasses.replace(QUICK, runs=2)
    table = rounds.measure_all(task_speed.cases(), sizes)
    assert list(table.columns) == rounds.COLUMNS
    assert set(table.task) == {"chain"} and (table.runs == 2).all() and len(table) == 2
    assert (table.low <= table.value).all() and (table.value <= table.high).all()
    assert (table.low > 0).all()
    assert "left out: task speed: hops 99" in capsys.readouterr().err
