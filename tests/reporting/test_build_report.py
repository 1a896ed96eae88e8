"""The report as a whole: it repeats, it is complete, and it says no more than the data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tests.reporting.planted_bench import write_bench

from agent_rl.errors import UserError
from agent_rl.reporting import build_report, headline, report
from agent_rl.reporting.figures import Gap

FIGURES = [
    "pipeline",
    "main_results",
    "learning_curves",
    "reward_vs_success",
    "reward_audit",
    "dead_groups",
    "success_by_distance",
    "end_reasons",
    "cost",
    "training_health",
    "speed",
]


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory, make_results, make_reward_files):
    """One report of two tasks, shared by the tests that only read it."""
    root = tmp_path_factory.mktemp("built")
    tasks = ("babyai", "sqlqa")
    results = make_reward_files(make_results(root / "results", tasks=tasks), tasks=tasks)
    write_bench(results)
    stale = root / "reports" / "figures" / "old_idea.svg"
    stale.parent.mkdir(parents=True)
    stale.write_text("<svg/>")
    build_report(results, root / "reports")
    return root


def test_rebuild_elsewhere_is_byte_identical_and_loads_no_torch(built, tmp_path):
    # another process, hash seed, working directory, matplotlibrc and output path
    (tmp_path / "matplotlibrc").write_text("font.size: 17\nlines.linewidth: 9\n")
    code = (
        "import sys; from pathlib import Path; import agent_rl.reporting as r; "
        f"r.build_report(Path({str(built / 'results')!r}), Path('elsewhere')); "
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules), 'torch was imported'"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77", "MPLCONFIGDIR": str(tmp_path / "mpl")}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    first, second = tree(built / "reports"), tree(tmp_path / "elsewhere")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_figures_are_complete_and_stale_ones_are_gone(built):
    names = {path.name for path in (built / "reports" / "figures").iterdir()}
    assert names == {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png", "csv")}


def test_every_link_of_the_markdown_resolves(built):
    text = (built / "reports" / "index.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    cards = [link for link in links if link.startswith("rewards/")]
    assert len(cards) == 4 and len(links) == 3 * len(FIGURES) + len(cards)
    assert all((built / "reports" / link).is_file() for link in links)
    assert all(alt.strip() for alt in re.findall(r"!\[([^\]]*)\]", text))


def test_html_is_one_file_without_any_outside_address(built):
    path = built / "reports" / "report.html"
    text = path.read_text()
    assert path.stat().st_size < 5_000_000
    sources = re.findall(r"""(?:src|href|srcset)\s*=\s*["']([^"']*)""", text)
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "<script" not in text and "@import" not in text and "url(" not in text
    assert text.count("<img") == len(FIGURES) == text.count('<img alt="') - text.count('alt=""')
    assert "prefers-color-scheme: dark" in text


def test_no_path_of_this_machine_is_in_the_report(built):
    for name, content in tree(built / "reports").items():
        assert str(built).encode() not in content, name


def test_answer_is_computed_from_the_runs(built):
    runs = pd.read_csv(built / "results" / "runs.csv")
    runs = runs[(runs.task == "sqlqa") & (runs.split == "test") & (runs.decoding == "greedy")]
    by_arm = {arm: part.sort_values("seed") for arm, part in runs.groupby("method")}
    left, right = (by_arm[arm].success_rate.to_numpy() for arm in ("grpo_shaped", "dpo"))
    interval = stats.ttest_rel(left, right).confidence_interval(0.95)
    expected = f"{np.mean(left - right):+.3f} [{interval.low:+.3f}, {interval.high:+.3f}], n = 8"
    text = (built / "reports" / "index.md").read_text()
    assert f"GRPO shaped is **higher** than DPO: {expected}." in text
    assert expected in headline(built / "results")


def test_plotted_numbers_are_the_numbers_of_the_table(built):
    figure = pd.read_csv(built / "reports" / "figures" / "main_results.csv")
    text = (built / "reports" / "index.md").read_text()
    cells = re.findall(r"^\| RFT \| (\S+) \[(\S+), (\S+)\]", text, flags=re.M)
    means = figure[(figure.kind == "mean") & (figure.method == "rft") & (figure.split == "test")]
    drawn = means[["value", "low", "high"]].to_numpy()
    assert np.array(cells, dtype=float) == pytest.approx(drawn, abs=6e-4)
    assert len(cells) == 2


def test_five_seeds_are_descriptive_and_nothing_more(tmp_path, make_results, monkeypatch):
    gaps = {name: Gap(name, "not drawn in this test") for name in FIGURES}
    monkeypatch.setattr(report, "draw_all", lambda *_: gaps)  # the words are what is tested here
    results = make_results(tmp_path / "results", seeds=5)
    index = build_report(results, tmp_path / "reports")
    for text in (index.read_text(), (tmp_path / "reports" / "report.html").read_text()):
        assert "descriptive: fewer than 8 seeds" in text
        assert "significan" not in text.lower()
        # neither verdict is given to any contrast; the note alone explains the words
        assert not re.search(r"is (\*\*|<strong>)(higher|lower|inconclusive)", text)
        assert not re.search(r"\|\s*(higher|lower|inconclusive)\s*\|", text)


def test_missing_arms_leave_a_gap(results, tmp_path, edit_results):
    gone = ["dpo", "grpo_sparse", "grpo_dense", "grpo_shaped", "sft_grpo", "oracle", "base"]
    for name in ("runs", "curves", "by_distance"):
        edit_results(results, name, lambda frame: frame[~frame.method.isin(gone)])
    text = build_report(results, tmp_path / "reports").read_text()
    assert "There is no finished run of an RL arm." in text
    assert "not compared (no finished run of GRPO shaped and DPO)" in text
    assert "> Gap: Figure `reward_vs_success` is not shown" in text
    assert not (tmp_path / "reports" / "figures" / "reward_vs_success.svg").exists()
    assert "> Gap: `results/reward_audit.csv` is absent" in text


def test_wrong_results_leave_the_old_report_alone(results, tmp_path):
    reports = tmp_path / "reports"
    (reports / "figures").mkdir(parents=True)
    (reports / "index.md").write_text("old")
    path = results / "runs.csv"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="truncated"):
        build_report(results, reports)
    assert (reports / "index.md").read_text() == "old"
    assert list((reports / "figures").iterdir()) == []
