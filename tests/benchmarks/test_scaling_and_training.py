"""The fit and the count of operations, against numbers that can be worked out by hand."""

import dataclasses

import numpy as np
import pytest
from benchmarks.cases import QUICK

from benchmarks import scaling


@pytest.mark.parametrize("slope", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_of_planted_data_is_found(slope):
    turns = np.array([8, 16, 32, 64])
    assert scaling.exponent(turns, 0.3 * turns**slope) == pytest.approx(slope, abs=1e-9)


def test_noise_moves_the_exponent_little():
    turns = np.array([8, 16, 32, 64])
    noise = 1 + 0.02 * np.random.default_rng(0).standard_normal(4)
    assert scaling.exponent(turns, turns**1.2 * noise) == pytest.approx(1.2, abs=0.05)


@pytest.mark.parametrize(
    ("turns", "seconds"), [([8], [1.0]), ([8, 8], [1.0, 2.0]), ([8, 16], [1.0, 0.0])]
)
def test_no_slope_goes_through_too_little(turns, seconds):
    with pytest.raises(ValueError, match="no slope"):
        scaling.exponent(turns, seconds)


def test_the_exponent_is_fitted_from_eight_turns_on(monkeypatch, tmp_path):
    seconds = {2: 50.0, 8: 8.0, 16: 32.0, 32: 128.0}
    monkeypatch.setattr(scaling, "load_base", lambda folder: (None, None))
    monkeypatch.setattr(scaling, "described", lambda model: "model")
    monkeypatch.setattr(
        scaling, "seconds_to_play", lambda m, t, batch, turns, stream: seconds[turns]
    )
    sizes = dataclasses.replace(QUICK, turns=tuple(seconds), turns_batch=4)
    *curve, fit = scaling.over_turns(sizes, tmp_path)
    assert fit.metric == "exponent" and fit.value == pytest.approx(2.0)
    assert fit.task == "babyai, 8 to 32 turns"
    assert {m.task: m.value for m in curve}["babyai, 8 turns"] == 8.0 / 4 * 1000


def test_operations_of_a_step_match_a_count_by_hand():
    from benchmarks.training import step_operations

    # 1 sequence of 3 tokens, 1 layer of width 4 with matrices of 10 weights, 5 words. Forward:
    # 2 per weight and token: 60; logits 2 * 4 * 5 per token: 120; attention: queries times keys
    # 2 * 3 * 3 * 4 = 72 and weights times values as much: 144. Backward is twice the forward.
    by_hand = 3 * (60 + 120 + 144)
    counted = step_operations(matrices=10, layers=1, width=4, vocabulary=5, batch=1, length=3)
    assert counted == by_hand


def test_only_the_matrices_of_the_layers_count_as_weights():
    from benchmarks.base import fresh_model, make_tokenizer
    from benchmarks.room import study
    from benchmarks.training import matrix_weights

    model = fresh_model(study(), make_tokenizer(), 16, 2)
    # Four square projections and three of the gated layer, three times as wide.
    assert matrix_weights(model) == 2 * (4 * 16 * 16 + 3 * 16 * 48)


def test_the_share_is_of_the_peak_that_the_table_states(monkeypatch, tmp_path):
    from benchmarks import training

    peaks = iter([80.0, 100.0, 300.0])
    monkeypatch.setattr(training, "peak", lambda side, dtype: next(peaks))
    monkeypatch.setattr(training, "step_rate", lambda model, batch, length: 25.0)
    found = {m.metric: m.value for m in training.training(QUICK, tmp_path)}
    assert found["peak GFLOP/s, fp32"] == 100.0 and found["peak GFLOP/s, bf16"] == 300.0
    assert found["share of fp32 peak"] == 0.25
