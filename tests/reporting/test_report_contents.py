"""What the report states: failed runs, refused comparisons, wording, and safe text."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from tests.reporting.texts import lines_of

from agent_rl.reporting import prose, sections, style, summary
from agent_rl.reporting.document import html_text, markdown_cell
from agent_rl.reporting.drawing import mean_curve, spread
from agent_rl.reporting.figures import Gap
from agent_rl.reporting.figures_pipeline import STAGES
from agent_rl.reporting.tables import load_results

NUMBERS = [
    "episodes",
    "successes",
    "success_rate",
    "mean_turns",
    "invalid_action_rate",
    "end_success",
    "end_failure",
    "end_turn_limit",
    "end_token_limit",
    "end_error",
]


class AnyGap(dict):
    """Stands for the figures: every one of them is left out."""

    def __missing__(self, name):
        return Gap(name, "not drawn in this test")


def section_text(results, title) -> str:
    document = sections.build_document(load_results(results), AnyGap())
    section = next(section for section in document.sections if section.title == title)
    return lines_of(section.blocks)


def fail_run(frame):
    rows = (frame.method == "dpo") & (frame.seed == "3")
    frame.loc[rows, NUMBERS] = ""
    frame.loc[rows, "status"] = "failed"
    frame.loc[rows, "reason"] = "loss was nan | update 12"


def test_failed_run_is_a_row_and_lowers_n(results, edit_results):
    edit_results(results, "runs", fail_run)
    text = section_text(results, "Failed and collapsed runs")
    assert "babyai | DPO | 3 | failed | loss was nan | update 12 | –" in text
    assert text.count("failed |") == 1  # once per run, not once per split and decoding
    answer = section_text(results, "The answer")
    assert "Failed runs, which are in no mean: 1" in answer
    assert "GRPO shaped minus DPO is" in answer and "n = 7 (descriptive" in answer


def test_no_failed_run_says_none(results):
    assert section_text(results, "Failed and collapsed runs").startswith("None")


def test_collapsed_run_stays_in_the_mean(results, edit_results):
    def collapse(frame):
        rows = (frame.method == "rft") & (frame.seed == "0")
        frame.loc[rows, "status"] = "collapsed"
        frame.loc[rows, ["successes", "success_rate"]] = ["0", "0.0"]

    before = summary.cell(load_results(results), "babyai", "rft")
    edit_results(results, "runs", collapse)
    after = summary.cell(load_results(results), "babyai", "rft")
    assert after.n == before.n == 8 and after.value < before.value
    assert "RFT | 0 | collapsed" in section_text(results, "Failed and collapsed runs")


def test_unequal_budget_is_flagged_and_its_comparisons_are_refused(results, edit_results):
    def overspend(frame):
        frame.loc[(frame.method == "sft") & (frame.seed == "2"), "total_tokens"] = "2120000"

    edit_results(results, "runs", overspend)
    assert "**NO (+6.0%)**" in section_text(results, "Cost")
    answer = section_text(results, "The answer")
    refused = "GRPO shaped against SFT: the comparison is refused, because SFT is +6.0% off"
    assert refused in answer
    assert "SFT + GRPO against SFT: the comparison is refused" in answer
    assert "GRPO shaped is **higher** than DPO" in answer  # the others stand
    table = section_text(results, "Contrasts paired by seed (exploratory)")
    row = next(line for line in table.splitlines() if line.startswith("GRPO shaped | SFT"))
    assert row == "GRPO shaped | SFT | – | refused | 8 | – | – | refused"


def test_budget_within_the_tolerance_is_not_flagged(results, edit_results):
    def nearly(frame):
        frame.loc[frame.method == "sft", "total_tokens"] = "2099000"

    edit_results(results, "runs", nearly)
    assert "yes (+5.0%)" in section_text(results, "Cost")


def test_unrecorded_tokens_are_refused_not_assumed_equal(results, edit_results):
    drop = ["total_tokens", "train_context_tokens"]
    edit_results(results, "runs", lambda frame: frame.drop(columns=drop))
    assert "total tokens of GRPO shaped are not recorded" in section_text(results, "The answer")


@pytest.mark.parametrize(("shift", "word"), [(40, "higher"), (-40, "lower"), (0, "inconclusive")])
def test_words_follow_the_interval(results, edit_results, shift, word):
    def set_rates(frame):
        for seed in range(8):
            for arm, extra in (("dpo", 0), ("grpo_shaped", shift + (-1) ** seed * 3)):
                rows = (frame.method == arm) & (frame.seed == str(seed))
                frame.loc[rows, "successes"] = str(160 + extra)
                frame.loc[rows, "success_rate"] = str((160 + extra) / 400)

    edit_results(results, "runs", set_rates)
    contrast = summary.contrast(load_results(results), "babyai", "grpo_shaped", "dpo")
    assert contrast.word == word
    assert contrast.estimate.value == pytest.approx(shift / 400)
    assert contrast.p_value == (1.0 if shift == 0 else 2 / 256)


def test_best_arm_is_chosen_on_validation_not_on_test(results, edit_results):
    def favour_sparse(frame):
        frame.loc[(frame.method == "grpo_sparse") & (frame.val_success_rate != ""), [
            "val_success_rate"]] = "0.99"  # fmt: skip

    edit_results(results, "curves", favour_sparse)
    assert summary.best_rl(load_results(results), "babyai") == ("grpo_sparse", "validation")
    edit_results(results, "curves", lambda frame: frame.drop(columns="val_success_rate"))
    assert summary.best_rl(load_results(results), "babyai") == ("grpo_shaped", "test")
    assert "which flatters it" in section_text(results, "The answer")


def test_untrained_policies_have_a_binomial_interval(results):
    estimate = summary.cell(load_results(results), "babyai", "base")
    assert estimate.n == 400 and "Wilson" in estimate.method


def test_registered_contrasts_are_shown_when_they_exist(results):
    title = "Registered hypotheses"
    assert "`results/contrasts.csv` is absent" in section_text(results, title)
    (results / "contrasts.csv").write_text("hypothesis,verdict\nH1,inconclusive\nH2,\n")
    text = section_text(results, title)
    assert "H1 | inconclusive" in text and "H2 | –" in text


def test_overlap_between_splits_is_called_by_its_name(results, edit_results):
    assert "no instance is in two splits" in section_text(results, "Instances and overlap")

    def set_overlap(value):
        def change(frame):
            frame.loc[2, "overlap"] = value

        edit_results(results, "instances", change)
        return section_text(results, "Instances and overlap")

    assert "3 in total, so **splits share some**" in set_overlap("3")
    assert "**not known for every split**" in set_overlap("")


def test_mean_curve_does_not_extrapolate(results):
    curves = load_results(results).curves
    frame = curves[curves.method == "grpo_dense"]
    mean = mean_curve(frame, "env_steps", "val_success_rate")
    measured = frame.dropna(subset=["val_success_rate"])
    last = measured.groupby("seed")["env_steps"].max()
    assert last.min() < last.max()
    assert mean["x"].iloc[-1] == last.min()
    assert (mean["n"] == 8).all()


def test_labels_keep_their_distance_and_their_order():
    placed = spread([0.5, 0.51, 0.52, 0.98, 0.99, 0.1], 0.06, 0.0, 1.0)
    ordered = sorted(placed)
    assert min(b - a for a, b in pairwise(ordered)) >= 0.06 - 1e-9
    assert placed[0] < placed[1] < placed[2] < placed[3] < placed[4] <= 1.0
    assert placed[5] == pytest.approx(0.1)


def test_every_arm_has_a_look_of_its_own():
    looks = [(arm.color, arm.marker, str(arm.line)) for arm in style.ARMS.values()]
    assert len(set(looks)) == len(looks)
    assert len({arm.color for arm in style.ARMS.values()}) == len(looks)


def test_foreign_text_is_shown_and_not_interpreted():
    assert markdown_cell("a|b <img src=x>\n") == "a\\|b &lt;img src=x&gt;"
    assert html_text("<b> `x` **y**") == "&lt;b&gt; <code>x</code> <strong>y</strong>"


def test_stages_are_those_of_the_design():
    order = "instances demos warmstart collect reward audit train evaluate publish report"
    assert order.split() == list(STAGES)


def test_ceiling_is_unknown_without_an_oracle(results, edit_results):
    edit_results(results, "runs", lambda frame: frame[frame.method != "oracle"])
    assert math.isnan(summary.ceiling_fraction(load_results(results), "babyai", "sft"))


def test_p54_a_run_is_judged_by_its_end_and_not_by_its_best_moment(results, edit_results):
    def peak(frame):
        own = (frame.method == "grpo_sparse") & (frame.val_success_rate != "")
        frame.loc[own, "val_success_rate"] = "0.1"
        frame.loc[own & (frame["update"] == "5"), "val_success_rate"] = "1.0"

    edit_results(results, "curves", peak)
    loaded = load_results(results)
    assert summary.final_validation(loaded, "babyai", "grpo_sparse") == pytest.approx(0.1)
    assert summary.best_rl(loaded, "babyai") == ("grpo_shaped", "validation")


def test_p54_the_arm_that_is_best_on_test_is_not_chosen_for_that(results, edit_results):
    def lucky(frame):
        frame.loc[frame.method == "grpo_dense", "successes"] = "400"
        frame.loc[frame.method == "grpo_dense", "success_rate"] = "1.0"

    edit_results(results, "runs", lucky)
    assert summary.best_rl(load_results(results), "babyai") == ("grpo_shaped", "validation")


def few_groups(shift, noise):
    """Rates of two arms whose difference is small beside its spread, or not."""

    def set_rates(frame):
        for seed in range(8):
            wins = {"dpo": 160, "grpo_shaped": 160 + shift + (-1) ** seed * noise}
            for arm, count in wins.items():
                rows = (frame.method == arm) & (frame.seed == str(seed))
                frame.loc[rows, "successes"] = str(count)
                frame.loc[rows, "success_rate"] = str(count / 400)

    return set_rates


def test_p60_no_difference_is_claimed_where_the_interval_holds_both_signs(results, edit_results):
    edit_results(results, "runs", few_groups(4, 40))
    flat = summary.contrast(load_results(results), "babyai", "grpo_shaped", "dpo")
    assert flat.estimate.low < 0 < flat.estimate.high and flat.word == "inconclusive"
    assert "no effect" not in prose.claim(flat) and "inconclusive" in prose.claim(flat)


def test_p60_too_few_seeds_decide_nothing_however_large_the_difference(
    tmp_path, make_results, edit_results
):
    few = make_results(tmp_path / "few", seeds=5)
    edit_results(few, "runs", few_groups(200, 1))
    found = summary.contrast(load_results(few), "babyai", "grpo_shaped", "dpo")
    assert found.estimate.low > 0.4 and found.word == "descriptive" and math.isnan(found.p_value)


def test_p68_a_failed_run_takes_its_pair_along_and_moves_no_other(results, edit_results):
    def ladder(frame):
        for seed in range(8):
            for arm, wins in (("dpo", 100 + 20 * seed), ("grpo_shaped", 140 + 20 * seed)):
                rows = (frame.method == arm) & (frame.seed == str(seed))
                frame.loc[rows, "successes"] = str(wins)
                frame.loc[rows, "success_rate"] = str(wins / 400)
        gone = (frame.method == "dpo") & (frame.seed == "0")
        frame.loc[gone, "status"] = "failed"

    edit_results(results, "runs", ladder)
    found = summary.contrast(load_results(results), "babyai", "grpo_shaped", "dpo")
    assert found.estimate.n == 7
    assert found.estimate.value == pytest.approx(0.1) == found.estimate.low
