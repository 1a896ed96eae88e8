"""Runs take turns and their medians, lowest and highest end up in the table."""

from pathlib import Path

import pytest
from benchmarks.cases import QUICK, Case, Measure

from benchmarks import __main__ as command
from benchmarks import rounds


def test_a_row_is_the_median_the_lowest_and_the_highest_of_its_runs():
    runs = [Measure("c", "e", "t", "m", 8, "turns/s", v) for v in (5.0, 1.0, 4.0)]
    other = Measure("c", "e", "t", "m", 16, "turns/s", 7.0)
    table = rounds.summarised([*runs, other])
    assert list(table.columns) == rounds.COLUMNS
    assert table.iloc[0][["value", "low", "high", "runs"]].tolist() == [4.0, 1.0, 5.0, 3]
    assert table.iloc[1][["batch", "value", "runs"]].tolist() == [16, 7.0, 1]


def test_cases_take_turns_and_what_they_share_is_prepared_once(monkeypatch):
    done = []

    def here(work, *arguments, torch):
        done.append((work.__name__, torch))
        return work(*arguments) or []

    def ready(sizes, folder):
        (Path(folder) / "ready").touch()

    def first(sizes, folder):
        assert (folder / "ready").exists()
        return [Measure("a", "e", "t", "m", 1, "x", len(done))]

    def second(sizes, folder):
        return [Measure("b", "e", "t", "m", 1, "x", len(done))]

    def never(sizes, folder):
        raise AssertionError

    monkeypatch.setattr(rounds, "in_a_new_process", here)
    cases = [
        Case("a", first, ready),
        Case("b", second, ready, torch=False),
        Case("c", never, never, missing=lambda: "not here"),
    ]
    sizes = QUICK.__class__(**{**{f: getattr(QUICK, f) for f in QUICK.__slots__}, "runs": 2})
    table = rounds.measure_all(cases, sizes)
    names = [name for name, _ in done]
    assert names == ["ready", "first", "second", "first", "second"]
    assert dict(done) == {"ready": True, "first": True, "second": False}
    assert table["runs"].tolist() == [2, 2]


@pytest.mark.parametrize("words", [["--runs", "0"], ["--only", "nothing"]])
def test_wrong_options_are_one_line(words, tmp_path, capsys):
    assert command.main([*words, "--out", str(tmp_path)]) == 2
    assert not list(tmp_path.iterdir()) and words[1] in capsys.readouterr().err


def test_a_part_is_never_written_over_the_whole_table(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "measure_all", lambda cases, sizes: rounds.summarised([]))
    assert command.main(["--only", "agent_rl"]) == 0
    assert command.main(["--quick"]) == 0
    assert not (tmp_path / "results").exists() and (tmp_path / ".work/bench/bench.csv").exists()
    assert command.main([]) == 0
    assert (tmp_path / "results" / "bench.csv").exists()
