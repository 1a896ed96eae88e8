"""Dead groups: the prediction is unbiased, the measurement counts what training drops."""

from itertools import combinations

import numpy as np
import pytest
from tests.rewards.facts import make_facts

from agent_rl.rewards import advantages, dead_groups, rewards, spec
from agent_rl.rewards.dead_share import half, measured_dead_share, predicted_dead_share


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("successes", [0, 1, 3, 6])
def test_the_prediction_is_the_share_of_all_subsets(successes, size):
    outcomes = [1] * successes + [0] * (6 - successes)
    subsets = list(combinations(outcomes, size))
    share = np.mean([len(set(subset)) == 1 for subset in subsets])
    assert predicted_dead_share(np.array([successes]), 6, size)[0] == pytest.approx(share)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_prediction_is_unbiased_and_the_plug_in_is_not(p, size):
    successes = np.random.default_rng(0).binomial(16, p, size=40_000)
    true = p**size + (1 - p) ** size
    found = predicted_dead_share(successes, 16, size)
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - true) < 4 * error + 1e-12
    rate = successes / 16
    plug_in = (rate**size + (1 - rate) ** size).mean()
    assert plug_in - true > 10 * error or true > 0.95 or (size == 2 and plug_in > true)


def test_p60_groups_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="groups of 32 cannot be drawn from 16"):
        predicted_dead_share(np.array([3]), 16, 32)
    with pytest.raises(ValueError, match="do not make groups of 4"):
        measured_dead_share(
            make_facts([1] * 6, groups=[0] * 6), spec("sparse"), credit="trajectory", size=4
        )


def test_p60_measured_agrees_with_predicted_under_the_sparse_reward():
    rng = np.random.default_rng(1)
    rates = rng.beta(0.6, 0.8, size=3000)
    wins = rng.random((3000, 32)) < rates[:, None]
    facts = make_facts([2] * 96_000, groups=np.repeat(np.arange(3000), 32), success=wins.ravel())
    first, second = half(facts, 32, second=False), half(facts, 32, second=True)
    successes = first.success.reshape(3000, 16).sum(axis=1)
    for size in (2, 4, 8, 16):
        predicted = predicted_dead_share(successes, 16, size).mean()
        measured = measured_dead_share(second, spec("sparse"), credit="trajectory", size=size)
        assert measured.mean() == pytest.approx(predicted, abs=0.02)
        turn = measured_dead_share(second, spec("sparse"), credit="turn", size=size)
        assert turn == pytest.approx(measured)


def test_turn_credit_brings_groups_of_failures_to_life_under_the_shaped_reward():
    distances = np.array([[3.0, 2, 2], [3, 4, 4], [3, 3, 3], [3, 3, 3]])
    facts = make_facts([2] * 4, groups=[0, 0, 1, 1], distances=distances)
    shares = {
        credit: measured_dead_share(facts, spec("shaped"), credit=credit, size=2).tolist()
        for credit in ("trajectory", "turn")
    }
    assert shares == {"trajectory": [1, 1], "turn": [0, 1]}
    values = advantages(facts, rewards(spec("shaped"), facts), credit="turn")
    assert dead_groups(facts, values).tolist() == [False, False, True, True]


def test_halves_share_no_episode_and_keep_the_starts():
    facts = make_facts(range(1, 13), groups=np.repeat([5, 9, 11], 4))
    first, second = half(facts, 4, second=False), half(facts, 4, second=True)
    assert first.lengths.tolist() == [1, 2, 5, 6, 9, 10]
    assert second.lengths.tolist() == [3, 4, 7, 8, 11, 12]
    assert first.groups.tolist() == second.groups.tolist() == [5, 5, 9, 9, 11, 11]
