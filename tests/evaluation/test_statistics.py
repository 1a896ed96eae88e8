"""Statistics: golden numbers, coverage, and the ways in which a study fools itself."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
from scipy import stats

from agent_rl.evaluation import statistics as st

RATES = [0.52, 0.61, 0.47, 0.66, 0.58, 0.55, 0.49, 0.63]


def test_t_interval_equals_scipy():
    estimate = st.t_interval(RATES)
    low, high = stats.t.interval(0.95, 7, loc=np.mean(RATES), scale=stats.sem(RATES))
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(
        (np.mean(RATES), low, high), abs=1e-12
    )
    assert estimate.n == 8


def test_t_interval_by_hand():
    # mean 2, s = 1, half width = 4.302653 / sqrt(3)
    estimate = st.t_interval([1.0, 2.0, 3.0])
    assert estimate.high - estimate.value == pytest.approx(2.484138, abs=1e-6)


@pytest.mark.parametrize("x", [[], [0.4]])
def test_fewer_than_two_seeds_have_no_bounds(x):
    estimate = st.t_interval(x)
    assert math.isnan(estimate.low) and math.isnan(estimate.high)
    assert estimate.n == len(x)
    assert not estimate.excludes(0.0)


def test_t_interval_covers_95_percent_at_eight_seeds():
    rng = np.random.default_rng(0)
    draws = rng.normal(0.4, 0.1, size=(4000, 8))
    covered = [not st.t_interval(row).excludes(0.4) for row in draws]
    assert 0.93 <= np.mean(covered) <= 0.97


def test_a_run_that_failed_cannot_be_averaged_in_silence():
    with pytest.raises(ValueError, match="not finite"):
        st.t_interval([0.3, math.nan])


def test_episodes_cannot_enter_in_place_of_seeds():
    # a matrix seeds x episodes is refused, and a contrast is keyed by seed: ten copies of every
    # episode leave the rate of a seed, and with it the interval, as they were
    episodes = np.random.default_rng(1).random((8, 50)) < 0.4
    with pytest.raises(ValueError, match="one value per seed"):
        st.t_interval(episodes)
    once = {seed: float(row.mean()) for seed, row in enumerate(episodes)}
    ten_times = {seed: float(np.tile(row, 10).mean()) for seed, row in enumerate(episodes)}
    zero = dict.fromkeys(range(8), 0.0)
    assert st.paired_difference(once, zero) == st.paired_difference(ten_times, zero)
    for function in (st.t_interval, st.paired_difference, st.stratified_bootstrap_iqm):
        assert "episodes" not in inspect.signature(function).parameters


def test_iqm_cuts_a_quarter_at_each_end():
    assert st.iqm([0, 0, 1, 2, 3, 4, 100, 100]) == pytest.approx(2.5)
    assert st.iqm([0.0, 0.3, 0.9]) == pytest.approx(0.4)  # nothing to cut below four
    assert math.isnan(st.iqm([]))


def test_bootstrap_repeats_with_its_generator_and_leaves_the_global_one_alone():
    np.random.seed(5)  # noqa: NPY002 - the global generator is what is being checked
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = st.stratified_bootstrap_iqm([RATES], np.random.default_rng(3), reps=500)
    again = st.stratified_bootstrap_iqm([RATES], np.random.default_rng(3), reps=500)
    assert first == again
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert first.low < first.value < first.high


def test_bootstrap_resamples_inside_the_task():
    # two tasks without any spread: a draw that mixed tasks would move the mean
    estimate = st.stratified_bootstrap_iqm([[0.1] * 4, [0.9] * 4], np.random.default_rng(0), 200)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.5, 0.5, 0.5))


def test_bootstrap_takes_tasks_with_different_numbers_of_runs():
    estimate = st.stratified_bootstrap_iqm([RATES, RATES[:5]], np.random.default_rng(0), 200)
    assert estimate.n == 5
    empty = st.stratified_bootstrap_iqm([RATES, []], np.random.default_rng(0), 200)
    assert math.isnan(empty.value)


def test_paired_difference_equals_the_paired_t_test_of_scipy():
    right = [0.40, 0.52, 0.45, 0.50, 0.50, 0.41, 0.47, 0.49]
    estimate = st.paired_difference(dict(enumerate(RATES)), dict(enumerate(right)))
    interval = stats.ttest_rel(RATES, right).confidence_interval(0.95)
    assert (estimate.low, estimate.high) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_p68_pairs_are_made_by_seed_not_by_position():
    left = {0: 0.5, 1: 0.6, 2: 0.9}
    right = {2: 0.8, 0: 0.4, 7: 0.0}
    estimate = st.paired_difference(left, right)
    assert estimate.n == 2
    assert estimate.value == pytest.approx(0.1)


def test_smallest_sign_flip_p_at_eight_seeds():
    assert st.sign_flip_p([0.1, 0.2, 0.05, 0.3, 0.1, 0.2, 0.1, 0.4]) == 2 / 256
    assert st.sign_flip_p([0.1]) == 1.0


def test_sign_flip_equals_scipy_permutation_test():
    d = np.array([0.12, -0.03, 0.08, 0.15, -0.06, 0.02, 0.09, 0.04])
    result = stats.permutation_test(
        (d,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert st.sign_flip_p(d) == pytest.approx(result.pvalue, abs=1e-12)


def test_sign_flip_edge_cases():
    assert st.sign_flip_p(np.zeros(8)) == 1.0
    assert st.sign_flip_p([0.1] * 4 + [-0.1] * 4) == 1.0
    assert math.isnan(st.sign_flip_p([]))
    assert st.sign_flip_p([1.0] * 20) == 2 / 2**20
    with pytest.raises(ValueError, match="limited to 20"):
        st.sign_flip_p([1.0] * 21)


def test_holm_by_hand_and_in_the_order_given():
    assert st.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert st.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_holm_is_monotone_and_never_below_the_raw_value():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random(7)
        adjusted = st.holm(p)
        order = np.argsort(p)
        assert (np.diff(adjusted[order]) >= 0).all()
        assert (adjusted >= p).all() and (adjusted <= 1).all()


def test_a_lost_test_does_not_make_the_others_easier():
    adjusted = st.holm([0.01, math.nan, 0.02])
    assert adjusted[0] == pytest.approx(0.03)
    assert math.isnan(adjusted[1])
    with pytest.raises(ValueError, match="outside"):
        st.holm([1.2])


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (3, 10), (10, 10), (120, 400)])
def test_wilson_equals_scipy(successes, n):
    estimate = st.wilson(successes, n)
    interval = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    assert (estimate.low, estimate.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_wilson_refuses_impossible_counts():
    with pytest.raises(ValueError, match="successes"):
        st.wilson(5, 4)
    assert math.isnan(st.wilson(0, 0).value)
