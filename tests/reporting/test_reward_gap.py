"""The gap between reward and success: planted gaps are found, and nothing else is claimed."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from agent_rl.reporting import reward_gap
from agent_rl.reporting.document import Bullets, Missing, Table
from agent_rl.reporting.sections_gap import gap_blocks
from agent_rl.reporting.tables import load_results

GREW = "**reward rose faster than success**"


def plant(drift, arm="grpo_dense", wobble=0.01):
    """Success as it is, reward ahead of it by ``drift`` at the end, a little more or less."""

    def apply(frame):
        rows = frame[(frame.method == arm) & (frame.reward_mean != "")]
        for seed, run in rows.groupby("seed"):
            success = run.success_rate.astype(float)
            own = drift + wobble * (-1) ** int(seed)
            ahead = own * np.linspace(0, 1, len(run))
            frame.loc[run.index, "reward_mean"] = (success + ahead).round(6).astype(str)

    return apply


@pytest.fixture
def rewarded(results, make_reward_files):
    return make_reward_files(results)


def sentences(results) -> list[str]:
    return next(b for b in gap_blocks(load_results(results)) if isinstance(b, Bullets)).lines


def gap_of(results, arm):
    gaps = reward_gap.gaps(load_results(results), "babyai")
    return next(gap for gap in gaps if gap.method == arm)


def test_an_arm_whose_gap_grows_is_named_and_no_other(rewarded, edit_results):
    assert sentences(rewarded) == ["**babyai**: no arm's gap grew with an interval above 0."]
    edit_results(rewarded, "curves", plant(0.2))
    (line,) = sentences(rewarded)
    assert line.startswith(f"**babyai**: {GREW}: GRPO dense (+0.1")
    assert line.endswith("n = 8).") and line.count("GRPO") == 1
    gap = gap_of(rewarded, "grpo_dense")
    assert gap.word == "grew" and gap.gap[1] - gap.gap[0] == pytest.approx(gap.change.value)


def test_change_is_the_paired_t_interval_of_the_fifths(rewarded, edit_results):
    edit_results(rewarded, "curves", plant(0.2))
    curves = pd.read_csv(rewarded / "curves.csv")
    curves = curves[(curves.method == "grpo_dense") & curves.success_rate.notna()]
    changes, firsts = [], []
    for _, run in curves.groupby("seed"):
        gap = (run.reward_mean - run.success_rate).to_numpy()  # floor 0 and oracle 1: as it is
        size = math.ceil(len(gap) / 5)
        firsts.append(gap[:size].mean())
        changes.append(gap[-size:].mean() - gap[:size].mean())
    expected = stats.ttest_1samp(changes, 0).confidence_interval(0.95)
    gap = gap_of(rewarded, "grpo_dense")
    assert (gap.change.low, gap.change.high) == pytest.approx(tuple(expected), abs=1e-9)
    assert gap.gap[0] == pytest.approx(np.mean(firsts), abs=1e-9)


def test_range_of_the_reward_is_taken_out(rewarded):
    shaped = gap_of(rewarded, "grpo_shaped")  # reward = success + 0.5, floor 0.5, oracle 1.5
    assert shaped.normalised == pytest.approx(shaped.success, abs=1e-6)
    assert shaped.word == "unchanged"


def test_rounding_of_the_files_is_no_growth(rewarded, edit_results):
    edit_results(rewarded, "curves", plant(2e-6, wobble=0.0))
    assert gap_of(rewarded, "grpo_dense").word == "unchanged"
    assert GREW not in sentences(rewarded)[0]


@pytest.mark.parametrize(("drift", "word"), [(-0.1, "shrank"), (0.0, "inconclusive")])
def test_other_words_follow_the_interval(rewarded, edit_results, drift, word):
    edit_results(rewarded, "curves", plant(drift, wobble=0.02))
    assert gap_of(rewarded, "grpo_dense").word == word
    assert GREW not in sentences(rewarded)[0]


def test_fewer_than_eight_seeds_claim_nothing(
    tmp_path, make_results, make_reward_files, edit_results
):
    results = make_reward_files(make_results(tmp_path / "few", seeds=7))
    edit_results(results, "curves", plant(0.3))
    (line,) = sentences(results)
    assert "descriptive, fewer than 8 seeds" in line and "faster" not in line
    table = next(b for b in gap_blocks(load_results(results)) if isinstance(b, Table))
    assert {row[-2] for row in table.rows} == {"descriptive"}


def test_failed_run_is_in_no_gap(rewarded, edit_results):
    def fail(frame):
        rows = (frame.method == "grpo_dense") & (frame.seed == "3")
        frame.loc[rows, "status"] = "failed"

    edit_results(rewarded, "runs", fail)
    assert gap_of(rewarded, "grpo_dense").change.n == 7


def test_run_of_one_update_says_nothing_about_a_change(rewarded, edit_results):
    def cut(frame):
        rows = frame[(frame.method == "grpo_dense") & (frame.seed == "0")].index
        return frame.drop(rows[1:])

    edit_results(rewarded, "curves", cut)
    assert gap_of(rewarded, "grpo_dense").change.n == 7


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("reward", "another", "has no range for `dense`"),
        ("floor_return", "", "the oracle earns no more than failures"),
        ("floor_return", "1.0", "the oracle earns no more than failures"),
    ],
)
def test_reward_without_a_range_is_a_visible_gap(rewarded, edit_results, column, value, reason):
    edit_results(rewarded, "curves", plant(0.3))

    def spoil(frame):
        frame.loc[frame.reward == "dense", column] = value

    edit_results(rewarded, "reward_verdicts", spoil)
    blocks = gap_blocks(load_results(rewarded))
    (missing,) = [b.text for b in blocks if isinstance(b, Missing)]
    assert missing.startswith("No gap for babyai, GRPO dense: ") and reason in missing
    assert GREW not in sentences(rewarded)[0]
    row = next(r for b in blocks if isinstance(b, Table) for r in b.rows if r[0] == "GRPO dense")
    assert row[3] == "– → –" and row[-2] == "unknown" and row[2] != "– → –"


@pytest.mark.parametrize("arms", [None, {}, {"grpo_dense": {"reward": "dense"}}, [1]])
def test_unstated_reward_is_a_visible_gap(rewarded, arms):
    path = rewarded / "provenance.json"
    content = json.loads(path.read_text())
    content["arms"] = arms
    path.write_text(json.dumps(content))
    blocks = gap_blocks(load_results(rewarded))
    missing = [block.text for block in blocks if isinstance(block, Missing)]
    assert len(missing) == 4 and all("is not stated" in text for text in missing)


def set_cards(results, settings):
    cards = json.loads((results / "reward_cards.json").read_text())
    entry = cards.pop("dense")
    cards |= {name: entry | {"settings": own} for name, own in settings.items()}
    (results / "reward_cards.json").write_text(json.dumps(cards))
    path = results / "provenance.json"
    content = json.loads(path.read_text())
    content["arms"]["grpo_dense"]["reward"] = {"name": "dense", "scale": 0.5, "judge": {"url": ""}}
    path.write_text(json.dumps(content))


def test_range_is_that_of_the_arms_own_settings(rewarded, edit_results):
    def twice(frame):
        own = frame[frame.reward == "dense"].assign(reward="dense_half", oracle_return="0.5")
        return pd.concat([frame, own])

    edit_results(rewarded, "reward_verdicts", twice)
    half = {"name": "dense", "scale": 0.5, "judge": None}
    set_cards(rewarded, {"dense": {"name": "dense", "scale": 1.0}, "dense_half": half})
    gap = gap_of(rewarded, "grpo_dense")
    curves = pd.read_csv(rewarded / "curves.csv")
    curves = curves[(curves.method == "grpo_dense") & curves.reward_mean.notna()]
    last = curves.groupby("seed").reward_mean.apply(
        lambda r: r.iloc[-math.ceil(len(r) / 5) :].mean()
    )
    assert gap.normalised[1] == pytest.approx(last.mean() / 0.5)


def test_range_of_other_settings_is_not_used(rewarded):
    set_cards(rewarded, {"dense": {"name": "dense", "scale": 1.0}})
    gap = gap_of(rewarded, "grpo_dense")
    assert gap.word == "unknown" and gap.reason == "`dense` was audited with other settings"


def test_absent_verdicts_are_a_visible_gap(rewarded):
    (rewarded / "reward_verdicts.csv").unlink()
    (block,) = gap_blocks(load_results(rewarded))
    assert isinstance(block, Missing) and "`results/reward_verdicts.csv` is absent" in block.text
