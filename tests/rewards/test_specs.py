"""Reward specifications: what each pays, and what it cannot be made to pay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.facts import make_facts

from agent_rl.errors import UserError
from agent_rl.rewards import REWARDS, Reward, find_reward, returns, rewards, spec
from agent_rl.rewards.credit import returns_to_go
from agent_rl.rewards.specs import shaping_potential


def facts_of(walks, horizon):
    """Facts of walks, each a list of distances d_0..d_n; a walk that ends at 0 has won."""
    width = max(len(walk) for walk in walks)
    return make_facts(
        distances=np.array([walk + [walk[-1]] * (width - len(walk)) for walk in walks], float),
        lengths=[len(walk) - 1 for walk in walks],
        success=[walk[-1] == 0 for walk in walks],
        horizon=horizon,
    )


BUILT_IN = sorted(n for n, r in REWARDS.items() if r.function.__module__.startswith("agent_rl."))


def total(name, walk, horizon=12):
    return float(rewards(spec(name), facts_of([walk], horizon)).sum())


@st.composite
def walk(draw):
    """Distances of one episode: wins, losses (inf at the end) and time-outs."""
    distances = [float(draw(st.integers(1, 9)))]
    for _ in range(draw(st.integers(1, 12))):
        distances.append(max(0.0, distances[-1] + draw(st.sampled_from([-1, -1, 0, 1, 2]))))
        if distances[-1] == 0:
            return distances
    if draw(st.booleans()):
        distances[-1] = np.inf
    return distances


def test_rewards_of_a_win_by_hand():
    facts = facts_of([[2, 3, 2, 1, 0]], 12)
    assert rewards(spec("sparse"), facts).tolist() == [[0, 0, 0, 1]]
    assert rewards(spec("dense"), facts)[0] == pytest.approx([0, 0, 0.25, 0.75])
    assert rewards(spec("dense_naive"), facts)[0] == pytest.approx([0, 0.1, 0.1, 1.1])
    assert rewards(spec("shaped"), facts)[0] == pytest.approx([-0.25, 0.25, 0.25, 1.25])


def test_p45_a_time_out_leaves_no_potential_behind():
    facts = facts_of([[4, 3, 2], [4, 3, 2, 1]], 2)
    assert shaping_potential(facts)[0].tolist() == [-1, -0.75, 0, 0]
    # Running out of time near the goal must not be worth more than running out of time far away.
    assert total("shaped", [4, 3, 2, 1]) == pytest.approx(total("shaped", [4, 5, 6, 7]))


def test_p45_a_lost_state_has_a_finite_potential_below_every_live_one():
    earned = rewards(spec("shaped"), facts_of([[2, 1, np.inf], [2, np.inf, np.inf]], 12))
    assert np.isfinite(earned).all()
    assert shaping_potential(facts_of([[2, np.inf, np.inf]], 12))[0, 1] < -12 / 2


@settings(max_examples=300, deadline=None)
@given(st.lists(walk(), min_size=1, max_size=4), st.sampled_from([1.0, 0.97, 0.5]))
def test_p45_shaping_telescopes_to_the_potential_of_the_start(walks, gamma):
    facts = facts_of(walks, 12)
    difference = rewards(spec("shaped", gamma=gamma), facts) - rewards(spec("sparse"), facts)
    summed = returns_to_go(difference, gamma)[:, 0]
    start = -0.5 * shaping_potential(facts)[:, 0]
    assert np.abs(summed - start).max() < 1e-12


@settings(max_examples=200, deadline=None)
@given(walk())
def test_dense_lies_between_0_and_1_and_equals_best_progress(distances):
    expected = 0.5 * (distances[0] - min(distances)) / distances[0] + 0.5 * (distances[-1] == 0)
    earned = total("dense", distances)
    assert earned == pytest.approx(expected)
    assert 0 <= earned <= 1 + 1e-12
    assert (earned > 1 - 1e-12) == (distances[-1] == 0)


@settings(max_examples=200, deadline=None)
@given(walk(), st.integers(0, 11), st.integers(1, 5))
def test_p44_dense_pays_nothing_for_coming_back_to_a_place(distances, where, times):
    where = min(where, len(distances) - 2)
    here = distances[where]
    loop = [here + 1, here] * times
    longer = [*distances[: where + 1], *loop, *distances[where + 1 :]]
    assert total("dense", longer, 30) == pytest.approx(total("dense", distances, 30))


@pytest.mark.parametrize("start", [1, 2, 5])
def test_p44_oscillating_out_earns_the_oracle_under_dense_naive_only(start):
    oracle = list(range(start, -1, -1))
    forever = [start, *[start + 1, start] * 12]
    late_win = [*[start, start + 1] * 12, *oracle]
    for name in ("sparse", "dense", "shaped"):
        assert total(name, forever, 40) < total(name, oracle, 40)
        assert total(name, late_win, 40) <= total(name, oracle, 40) + 1e-12
    assert total("dense_naive", late_win, 40) > total("dense_naive", oracle, 40) + 1
    if start == 1:  # never winning pays 12 x 0.1, winning at once 1 + 0.1
        assert total("dense_naive", forever, 40) > total("dense_naive", oracle, 40)


@settings(max_examples=100, deadline=None)
@given(st.lists(walk(), min_size=2, max_size=5), st.sampled_from(BUILT_IN))
def test_p66_what_an_episode_earns_does_not_depend_on_the_padding_by_its_neighbours(walks, name):
    together = rewards(spec(name), facts_of(walks, 12))
    for row, distances in enumerate(walks):
        turns = len(distances) - 1
        alone = rewards(spec(name), facts_of([distances], 12))[0]
        assert together[row, :turns] == pytest.approx(alone)
        assert not together[row, turns:].any()


def test_an_unknown_reward_is_refused_by_name():
    with pytest.raises(UserError, match=r"'sprase'.*sparse"):
        rewards(spec("sprase"), facts_of([[1, 0]], 2))


WEIGHTS = {"right_answer": 0.6, "answered": 0.2, "valid_calls": 0.1, "no_repeats": 0.1}


@settings(max_examples=400, deadline=None)
@given(walk(), st.sampled_from(BUILT_IN), st.sampled_from([0.5, 1.0]), st.sampled_from([1.0, 0.9]))
def test_p20_no_episode_earns_more_than_the_declared_maximum(distances, name, scale, gamma):
    config = spec(name, scale=scale, gamma=gamma, criteria=WEIGHTS if name == "rubric" else {})
    earned = returns(config, facts_of([distances], 12))[0]
    assert earned <= find_reward(name).maximum(12, config) + 1e-12


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_declared_maximum_is_reached_or_nearly(name):
    """A bound that nothing comes near would say nothing."""
    config = spec(name, criteria=WEIGHTS if name == "rubric" else {})
    walks = [[1, 0], [1, *[2, 1] * 5, 0]]
    best = returns(config, facts_of(walks, 12)).max()
    assert best >= 0.7 * find_reward(name).maximum(12, config)


@settings(max_examples=200, deadline=None)
@given(walk(), st.integers(1, 6))
def test_p44_dense_and_sparse_cannot_grow_by_going_round_in_circles(distances, times):
    loop = [distances[0] + 1, distances[0]] * times
    for name in ("sparse", "dense", "shaped"):
        longer, plain = (
            total(name, [distances[0], *loop, *distances[1:]], 40),
            total(name, distances, 40),
        )
        assert longer <= plain + 1e-12


@settings(max_examples=100, deadline=None)
@given(st.lists(walk(), min_size=2, max_size=5))
def test_p66_no_episode_is_paid_for_the_padding_that_a_longer_neighbour_gives_it(walks):
    def generous(facts, config):
        return np.ones(facts.alive.shape)

    REWARDS["generous"] = Reward(generous, lambda horizon, config: float(horizon))
    try:
        earned = returns(spec("generous"), facts_of(walks, 12))
    finally:
        del REWARDS["generous"]
    assert earned.tolist() == [len(distances) - 1 for distances in walks]


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.5])
def test_p46_shaping_and_the_summed_return_share_their_gamma(gamma):
    facts = facts_of([[3, 2, 1, 0], [3, 4, 5, 5], [3, 2, np.inf]], 12)
    apart = returns(spec("shaped", gamma=gamma), facts) - returns(
        spec("sparse", gamma=gamma), facts
    )
    assert apart == pytest.approx([0.5] * 3, abs=1e-12)  # k, whatever the agent did
