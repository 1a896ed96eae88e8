"""The report on rewards: what can be farmed is said, drawn and on its card; cards are complete."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from tests.reporting.texts import lines_of

from agent_rl.reporting import build_report, cards, report, style, summary
from agent_rl.reporting.document import Card, Cards, Missing
from agent_rl.reporting.figures import Gap
from agent_rl.reporting.figures_audit import CAP, audit_shares, reward_audit
from agent_rl.reporting.figures_dead_groups import dead_groups
from agent_rl.reporting.sections import build_document
from agent_rl.reporting.sections_rewards import lucky_scripts
from agent_rl.reporting.tables import load_results

AUDIT = "Reward audit: can a reward be farmed?"
BASE = "Rewards on the base's episodes"
TITLES = ("Reward against success", AUDIT, BASE, "Reward cards")


class AnyGap(dict):
    """Stands for the figures: every one of them is left out."""

    def __missing__(self, name):
        return Gap(name, "not drawn in this test")


@pytest.fixture
def rewarded(results, make_reward_files):
    return make_reward_files(results)


@pytest.fixture(autouse=True)
def looks():
    with style.drawing_style():
        yield


@pytest.fixture(autouse=True)
def _short_bootstrap(monkeypatch):
    monkeypatch.setattr(summary, "BOOTSTRAP_REPS", 10)  # the main table is not what is tested


def all_blocks(results):
    document = build_document(load_results(results), AnyGap())
    return {section.title: section.blocks for section in document.sections}


def blocks_of(results, title):
    return all_blocks(results)[title]


def card_of(results, name) -> Card:
    block = next(b for b in blocks_of(results, "Reward cards") if isinstance(b, Cards))
    return next(card for card in block.cards if card.name == name)


def change(where, column, value):
    def apply(frame):
        rows = pd.Series(True, index=frame.index)
        for key, wanted in where.items():
            rows &= frame[key] == wanted
        assert rows.any()
        frame.loc[rows, column] = value

    return apply


def test_farmable_reward_is_named_with_its_exploit(rewarded):
    text = lines_of(blocks_of(rewarded, AUDIT))
    assert (
        "**babyai**: **farmable**: `dense_naive` (`oscillate` earns 1.900, the oracle 1.400); "
        "pays failures: `dense`; tight: `sparse` and `shaped`." in text
    )
    row = "babyai | `dense_naive` | **farmable** | `oscillate` | 1.900 | 1.400 | 0.000 | 100% |"
    assert row in text
    assert "| **1.900** | 1.400" in text and "| 1.500 | 1.500" in text


def test_farmed_mark_lies_beyond_the_oracle_and_is_named_in_the_picture(rewarded):
    plot = reward_audit(load_results(rewarded))
    data = plot.data.set_index(["reward", "policy"])
    assert data.loc[("dense_naive", "oscillate"), "share"] == pytest.approx(1.9 / 1.4)
    assert data.loc[("shaped", "stall"), "share"] == pytest.approx(0.0)
    beyond = data.index[data["beats_oracle"]].tolist()
    assert beyond == [("dense_naive", "oscillate")]
    assert (data.xs("oracle", level="policy")["share"] == 1.0).all()
    (axes,) = plot.figure.axes
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if "oscillate" in text] == ["oscillate 1.36"]
    assert texts.count("farmable") == 1 and texts.count("tight") == 2
    assert axes.get_xlim()[1] > 1.9 / 1.4
    assert "dense_naive farmable (oscillate 1.36)" in plot.alt


def test_huge_return_stands_at_the_edge_with_its_number(rewarded, edit_results):
    where = {"reward": "dense_naive", "policy": "oscillate"}
    edit_results(rewarded, "reward_audit", change(where, "mean_return", "140"))
    (axes,) = reward_audit(load_results(rewarded)).figure.axes
    assert axes.get_xlim()[1] < CAP + 0.2
    assert any(text.get_text() == "oscillate 100.00 \u2192" for text in axes.texts)


def test_rounding_is_not_farming(rewarded, edit_results):
    where = {"reward": "dense", "policy": "stall"}
    edit_results(rewarded, "reward_audit", change(where, "mean_return", "1.000001"))
    data = audit_shares(load_results(rewarded))
    assert data.loc[data["reward"] == "dense", "beats_oracle"].sum() == 0


@pytest.mark.parametrize("floor", ["", "1.0", "2.0"])
def test_reward_without_a_range_says_so_in_the_picture(rewarded, edit_results, floor):
    where = {"reward": "dense"}
    edit_results(rewarded, "reward_verdicts", change(where, "floor_return", floor))
    (axes,) = reward_audit(load_results(rewarded)).figure.axes
    assert any(text.get_text().startswith("no range") for text in axes.texts)


def test_policy_and_reward_unknown_to_this_code_are_drawn(rewarded, edit_results):
    def rename(frame):
        return frame.replace({"stall": "a_new_exploit", "dense": "own:REWARD"})

    for name in ("reward_audit", "reward_verdicts", "dead_groups"):
        edit_results(rewarded, name, rename)
    loaded = load_results(rewarded)
    figure = reward_audit(loaded).figure
    assert "a_new_exploit" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert "own:REWARD" in [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "own:REWARD" in dead_groups(loaded).alt


def test_exact_check_names_what_keeps_the_policy_and_what_changes_it(rewarded):
    text = lines_of(blocks_of(rewarded, AUDIT))
    assert "Kept everywhere: `shaped`. Changed somewhere: `dense_naive`." in text
    assert "`dense_naive` | gamma 0.9 | at 2,3: right, not up | 2 of 2 | 114 | **18**" in text
    assert "`shaped` | gamma 0.9 | – | 0 of 2 | 114 | 0" in text


def test_judge_is_shown_when_it_was_asked(rewarded):
    text = lines_of(blocks_of(rewarded, AUDIT))
    assert "babyai | `judge` | 40 | 3 | 91 | 5 | 0.810 | 310 | -0.040 | 0.110" in text


def test_dead_groups_are_measured_beside_their_prediction(rewarded):
    plot = dead_groups(load_results(rewarded))
    titles = [axes.get_title(loc="left") for axes in plot.figure.axes]
    assert titles == ["babyai: trajectory credit", "babyai: turn credit"]
    trajectory, turn = plot.figure.axes
    for axes in plot.figure.axes:
        assert axes.get_xscale() == "log" and axes.get_ylim() == (-0.02, 1.02)
        drawn = [line for line in axes.lines if line.get_linestyle() == "--"]
        expected = [0.3**size + 0.7**size for size in (2, 4, 8, 16)]
        assert drawn[0].get_ydata() == pytest.approx(expected, abs=1e-6)
        assert list(drawn[0].get_xdata()) == [2, 4, 8, 16]
    # Lines that lie on each other are one line with both names.
    assert {text.get_text() for text in trajectory.texts} == {
        "sparse, shaped", "dense, dense_naive",
    }  # fmt: skip
    assert {text.get_text() for text in turn.texts} == {"sparse", "shaped", "dense, dense_naive"}
    first = next(iter(trajectory.containers))
    assert first.lines[0].get_ydata()[0] == pytest.approx(0.95 * 0.58)


def test_one_instance_has_no_interval_and_is_drawn(rewarded, edit_results):
    def forget(frame):
        frame[["measured_low", "measured_high"]] = ""

    edit_results(rewarded, "dead_groups", forget)
    plot = dead_groups(load_results(rewarded))
    plot.figure.draw_without_rendering()
    assert len(plot.data) == 32


def test_numbers_of_the_base_come_from_their_files(rewarded):
    text = lines_of(blocks_of(rewarded, BASE))
    assert "babyai | `shaped` | 4,000 | 0.810 | 0.298 | 0.089 | 0.97" in text
    assert "babyai | `rubric` | every action is valid | 0.2 | 1.000 | –" in text


@pytest.mark.parametrize(
    "name",
    [
        "reward_audit.csv",
        "reward_verdicts.csv",
        "tabular_check.csv",
        "dead_groups.csv",
        "reward_stats.csv",
        "rubric_criteria.csv",
        "reward_cards.json",
    ],
)
def test_absent_file_is_a_visible_line(rewarded, name):
    def missing():
        by_title = all_blocks(rewarded)
        blocks = [block for title in TITLES for block in by_title[title]]
        return [block.text for block in blocks if isinstance(block, Missing)]

    assert not any(f"`results/{name}` is absent" in text for text in missing())
    (rewarded / name).unlink()
    assert any(f"`results/{name}` is absent" in text for text in missing())
    plots = [make(load_results(rewarded)) for make in (reward_audit, dead_groups)]
    expected = {"reward_audit.csv": 0, "reward_verdicts.csv": 0, "dead_groups.csv": 1}
    assert [plot is None for plot in plots] == [expected.get(name) == place for place in (0, 1)]


def test_without_a_judge_the_report_says_that_it_is_off(rewarded):
    (rewarded / "judge.csv").unlink()
    text = lines_of(blocks_of(rewarded, AUDIT))
    assert "No judge was asked" in text and "Gap" not in text


def test_what_luck_alone_achieves_is_told(rewarded, edit_results):
    def lucky(frame):
        rates = {"random": 0.02, "answer_at_once": 0.51, "dawdle": 1.0}
        frame["success_rate"] = [
            rates.get(policy, rate)
            for policy, rate in zip(frame["policy"], frame["success_rate"], strict=True)
        ]

    edit_results(rewarded, "reward_audit", lucky)
    assert lucky_scripts(load_results(rewarded), "babyai")[0] == "`answer_at_once` 0.510"
    text = lines_of(blocks_of(rewarded, AUDIT))
    assert "babyai: `answer_at_once` 0.510" in text and "`random` 0.020" not in text
    assert "`dawdle` 1.000" not in text
    # Above the base, so the answer says so too; a script below it is no warning.
    warning = "Luck goes far on babyai**: the script `answer_at_once` of the reward audit"
    assert warning in lines_of(blocks_of(rewarded, "The answer"))
    edit_results(rewarded, "reward_audit", lambda frame: frame.assign(success_rate="0.01"))
    assert "Luck goes far" not in lines_of(blocks_of(rewarded, "The answer"))


def test_failures_that_earn_more_than_the_oracle_are_no_damaged_file(rewarded, edit_results):
    def farmed(frame):
        frame.loc[frame["reward"] == "dense_naive", "paid_failures"] = "1.6"

    edit_results(rewarded, "reward_verdicts", farmed)
    assert "160%" in lines_of(blocks_of(rewarded, AUDIT))


def test_files_of_another_study_are_a_visible_line(results, make_reward_files):
    make_reward_files(results, tasks=("elsewhere",))
    text = "\n".join(lines_of(blocks_of(results, title)) for title in (AUDIT, BASE))
    assert text.count("has no row of this study's tasks (babyai)") == 5
    assert "No results file speaks of a reward" in lines_of(blocks_of(results, "Reward cards"))


def test_card_says_what_the_code_says_and_what_the_audit_found(rewarded):
    text = lines_of(card_of(rewarded, "shaped").blocks)
    for line in (
        "formula | `r_t = [won at t] * 1 + k * shaped_t`",
        "target behaviour | reach the goal",
        "signal | exact distance",
        "encoding | one number for each turn",
        "source | Ng et al. 1999, section 3",
        "settings | `gamma = 1.0`, `scale = 0.5`",
        "tasks | babyai",
        "babyai | tight | `random` | 0.680 (1.500) | 0.500 | 0.500 | 0%",
        "babyai | 4,000 | 0.810 | 0.298 | 0.089 | 0.97",
    ):
        assert line in text.splitlines()
    farmed = card_of(rewarded, "dense_naive")
    assert farmed.summary == "babyai: **farmable**"
    row = (
        "babyai | **farmable** | `oscillate` | 1.900 (1.400) | 1.900 by `oscillate` | 0.000 | 100%"
    )
    assert row in lines_of(farmed.blocks)
    assert "source | not stated" in lines_of(farmed.blocks)
    dead = pd.read_csv(rewarded / "dead_groups.csv")
    dead = dead[(dead.reward == "dense") & (dead.group_size == 8) & (dead.credit == "turn")].iloc[0]
    numbers = f"{dead.measured:.3f} [{dead.measured_low:.3f}, {dead.measured_high:.3f}]"
    expected = f"babyai | turn | {numbers} | {dead.predicted:.3f} | 1,000"
    assert expected in lines_of(card_of(rewarded, "dense").blocks)


def test_reward_that_only_the_audit_knows_has_a_card(rewarded):
    path = rewarded / "reward_cards.json"
    content = json.loads(path.read_text())
    del content["dense"]
    path.write_text(json.dumps(content))
    text = lines_of(card_of(rewarded, "dense").blocks)
    assert "formula | not stated" in text and "| pays failures |" in text


def test_reward_that_only_the_code_knows_says_what_is_missing(rewarded, edit_results):
    for name in ("reward_audit", "reward_verdicts", "reward_stats", "dead_groups"):
        edit_results(rewarded, name, lambda frame: frame[frame["reward"] != "dense"])
    card = card_of(rewarded, "dense")
    text = lines_of(card.blocks)
    assert card.summary == "not audited" and "formula | `r_t" in text
    assert "The audit did not score this reward." in text
    assert "The base's episodes were not scored with this reward." in text
    assert "Dead groups at G = 8 were not measured with this reward." in text


def test_file_names_are_safe_and_no_two_cards_share_one():
    names = [
        "own.module:REWARD",
        "own.module-REWARD",
        "OWN.module:reward",
        "../x",
        "é",
        "",
        "plain",
    ]
    files = cards.file_names(names)
    assert files["plain"] == "plain" and files["../x"] == "x"
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", file) for file in files.values())
    assert len({file.lower() for file in files.values()}) == len(names)
    assert cards.file_names(["own.module:REWARD"]) == {"own.module:REWARD": "own.module-REWARD"}
    assert len(cards.file_names(["a" * 400])["a" * 400]) <= 100


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(report, "draw_all", lambda *_: AnyGap())  # the pages are tested here


def test_pages_are_written_linked_and_the_stale_ones_removed(rewarded, tmp_path, undrawn):
    path = rewarded / "reward_cards.json"
    content = json.loads(path.read_text())
    content["own:REWARD"] = content["dense"] | {"formula": "a < b | c * d", "target": "<b>x</b>"}
    path.write_text(json.dumps(content))
    folder = tmp_path / "reports" / "rewards"
    folder.mkdir(parents=True)
    (folder / "old_reward.md").write_text("old")
    text = build_report(rewarded, tmp_path / "reports").read_text()
    pages = {page.name for page in folder.iterdir()}
    assert pages == {f"{n}.md" for n in ("sparse", "dense", "shaped", "dense_naive", "own-REWARD")}
    assert set(re.findall(r"\]\(rewards/([^)]+)\)", text)) == pages
    assert "- [`own:REWARD`](rewards/own-REWARD.md): not audited" in text
    page = (folder / "own-REWARD.md").read_text()
    assert page.startswith("# Reward `own:REWARD`\n")
    assert "| formula | `a < b \\| c * d` |" in page
    assert "| target behaviour | &lt;b&gt;x&lt;/b&gt; |" in page
    assert "> Gap: The audit did not score this reward." in page
    html = (tmp_path / "reports" / "report.html").read_text()
    assert html.count("<details") == 5 and '<details id="reward-own-REWARD">' in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html and "<b>x</b>" not in html
    first = {page.name: page.read_bytes() for page in folder.iterdir()}
    build_report(rewarded, tmp_path / "reports")
    assert {page.name: page.read_bytes() for page in folder.iterdir()} == first


def test_folder_of_cards_is_there_without_any_card(results, tmp_path, undrawn):
    text = build_report(results, tmp_path / "reports").read_text()
    assert list((tmp_path / "reports" / "rewards").iterdir()) == []
    assert "> Gap: `results/reward_cards.json` is absent" in text
