"""Speed in report and README: read strictly, ratios of one run, a gap where none was measured."""

import pandas as pd
import pytest
from tests.reporting.planted_bench import write_bench
from tests.reporting.texts import lines_of

from agent_rl.errors import UserError
from agent_rl.reporting import bench, build_report, performance
from agent_rl.reporting.document import Missing, Paragraph
from agent_rl.reporting.sections_bench import speed_blocks
from agent_rl.stages.report import PERFORMANCE, write_performance

FIGURE = Paragraph("the figure")


@pytest.fixture
def table(tmp_path):
    return bench.load_bench(write_bench(tmp_path) / "bench.csv")


def test_a_ratio_pairs_the_worst_with_the_best():
    found = bench.ratio(bench.Cell(40, 30, 50, 5), bench.Cell(10, 8, 12, 3))
    assert found == bench.Cell(4.0, 2.5, 6.25, 3)


def test_the_readme_states_ratios_of_the_planted_run(tmp_path):
    text = performance(write_bench(tmp_path))
    assert "**4,000 [3,600 to 4,400] turns per second**" in text
    assert "; 4 [3.3 to 4.9] times `generate` per turn, 5 [4.1 to 6.1] times continuous" in text
    assert ", 8 [6.5 to 9.8] times TRL's stock loop." in text
    assert "takes 1 s: 4 [3.3 to 4.9] times TRL's stock loop" in text
    assert "power 1.5 [1.35 to 1.65] (8 to 64 turns" in text
    assert "Two processes play 1.8 [1.5 to 2.2] times" in text
    assert "the 100 GFLOP/s" in text and "40% with Llama d=64" in text
    assert "Medians of 5 runs" in text


def test_a_single_run_is_called_one(tmp_path):
    text = performance(write_bench(tmp_path, lambda frame: frame.assign(runs=1)))
    assert "no spread is known" in text and "Medians" not in text


def test_engines_whose_runs_overlap_are_not_ranked(tmp_path):
    def close(frame):
        frame.loc[(frame.engine == "trl") & (frame.metric == "turns/s"), "high"] = 3700
        return frame

    text = performance(write_bench(tmp_path, close))
    assert "not told apart from TRL's stock loop (500 [450 to 3,700])" in text


def test_without_engines_the_readme_says_so(tmp_path):
    absent = performance(tmp_path)
    assert "No engines were compared" in absent
    write_bench(tmp_path, lambda frame: frame[frame.case == "task speed"])
    assert performance(tmp_path) == absent


def test_the_section_shows_every_row_and_the_command(table):
    text = lines_of(speed_blocks(table, FIGURE))
    assert "the figure" in text
    assert "this repository | 4,000 [3,600 to 4,400]" in text
    assert "babyai, 64 turns | Llama d=64, 2 layers, 0.11 M | 128 | ms per episode | 512" in text
    assert "chain | – | 1 | environment steps/s, new instances | 9,000" in text


def test_an_absent_file_is_a_visible_gap():
    (block,) = speed_blocks(None, FIGURE)
    assert isinstance(block, Missing) and "`results/bench.csv` is absent" in block.text


def test_the_report_draws_the_numbers_of_the_file(results, tmp_path):
    write_bench(results)
    build_report(results, tmp_path / "reports")
    drawn = pd.read_csv(tmp_path / "reports" / "figures" / "speed.csv")
    assert drawn[drawn.panel == "turns"]["x"].tolist() == [4, 8, 16, 32, 64]
    assert drawn[drawn.panel == "model"]["x"].tolist() == [0.11, 0.48, 10.3]
    rates = drawn[(drawn.panel == "engines") & (drawn.metric == "turns/s")]
    assert dict(zip(rates.engine, rates.value, strict=True)) == {
        "agent_rl": 4000, "generate": 1000, "continuous": 800, "trl": 500,
    }  # fmt: skip


def test_a_table_of_task_speed_alone_still_makes_a_report(results, tmp_path):
    write_bench(results, lambda frame: frame[frame.case == "task speed"])
    text = build_report(results, tmp_path / "reports").read_text(encoding="utf-8")
    assert "> Gap: Figure `speed` is not shown" in text and "environment steps/s" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="low"), "column low is missing; run `make bench` again"),
        (lambda f: f.assign(low=f.value + 1), "line 2: value 4000 is not between low 4001"),
        (lambda f: f.assign(runs=0), "line 2, column runs: 0 is less than 1"),
        (lambda f: pd.concat([f, f.iloc[[0]]]), "a second row for case=engines, engine=agent_rl"),
    ],
)
def test_a_wrong_table_is_one_line(change, message, tmp_path):
    with pytest.raises(UserError, match=r"bench\.csv") as raised:
        bench.load_bench(write_bench(tmp_path, change) / "bench.csv")
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_names_that_tell_no_number_are_refused():
    assert bench.turns_of("babyai, 16 turns") == 16
    assert bench.millions_of("Llama d=64, 2 layers, 0.11 M") == 0.11
    for read, name in ((bench.turns_of, "babyai"), (bench.millions_of, "none")):
        with pytest.raises(UserError, match=name):
            read(name)


def test_only_what_stands_between_the_marks_changes(tmp_path):
    readme = tmp_path / "README.md"
    begin, end = PERFORMANCE
    readme.write_text(f"a\n{begin}\nold\n{end}\nb\n", encoding="utf-8")
    write_performance(readme, "new\n")
    assert readme.read_text(encoding="utf-8") == f"a\n{begin}\nnew\n{end}\nb\n"
    readme.write_text("no marks\n", encoding="utf-8")
    write_performance(readme, "new")
    assert readme.read_text(encoding="utf-8") == "no marks\n"
    readme.write_text(f"{begin}\n", encoding="utf-8")
    with pytest.raises(UserError, match="are missing; put them back"):
        write_performance(readme, "new")
