"""Credit assignment: closed forms, dead groups, crashes, and the identity of sparse and shaped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.facts import make_facts

from agent_rl.rewards import advantages, dead_groups, episode_facts, returns_to_go, rewards, spec
from agent_rl.rewards.specs import shaping_potential
from agent_rl.trajectory import EndReason, Trajectory, Turn

EPSILON = 1e-4


def facts_of(lengths, groups=None, **known):
    return make_facts(lengths, groups=groups, **known)


def last_turn(lengths, values):
    """Rewards that are paid at the last turn only."""
    earned = np.zeros((len(lengths), max(lengths)))
    for row, (length, value) in enumerate(zip(lengths, values, strict=True)):
        earned[row, length - 1] = value
    return earned


def random_groups(rng, count, members):
    """Walks that share their start inside a group; ends by success, loss or time-out."""
    size, horizon = count * members, 10
    distances = np.ones((size, horizon + 1))
    lengths, success = np.zeros(size, int), np.zeros(size, bool)
    for row in range(size):
        start = np.random.default_rng([7, row // members]).integers(1, 7)
        walk = [float(start)]
        while len(walk) <= horizon and walk[-1] > 0 and np.isfinite(walk[-1]):
            step = rng.choice([-1, -1, 0, 1])
            walk.append(np.inf if rng.random() < 0.03 else max(0.0, walk[-1] + step))
        lengths[row], success[row] = len(walk) - 1, walk[-1] == 0
        distances[row] = walk + [walk[-1]] * (horizon + 1 - len(walk))
    groups = np.repeat(np.arange(count), members)
    return facts_of(lengths, groups, success=success, distances=distances)


def both(facts, credit):
    return [
        advantages(facts, rewards(spec(name), facts), credit=credit, epsilon=EPSILON)
        for name in ("sparse", "shaped")
    ]


@pytest.fixture(scope="module")
def thousand_groups():
    return random_groups(np.random.default_rng(0), 1000, 4)


def test_p46_shaped_equals_sparse_under_trajectory_credit(thousand_groups):
    sparse, shaped = both(thousand_groups, "trajectory")
    assert np.abs(sparse - shaped).max() < 1e-9
    assert (np.abs(sparse).max(axis=1) > 0).mean() > 0.3  # most groups are alive: no empty claim


def test_p46_shaped_differs_from_sparse_under_turn_credit(thousand_groups):
    sparse, shaped = both(thousand_groups, "turn")
    apart = np.abs(sparse - shaped).max(axis=1)
    alive = ~dead_groups(thousand_groups, shaped)
    assert (apart[alive] > 0.05).mean() > 0.9


@pytest.mark.parametrize(
    ("outcomes", "spread"),
    [((1, 0, 0, 0), np.sqrt(3) / 4), ((1, 1, 1, 0), np.sqrt(3) / 4), ((1, 1, 0, 0), 0.5)],
)
def test_p32_advantages_by_hand(outcomes, spread):
    facts = facts_of([1, 2, 3, 3])
    earned = last_turn([1, 2, 3, 3], outcomes)
    result = advantages(facts, earned, credit="trajectory", epsilon=EPSILON)
    expected = (np.array(outcomes) - np.mean(outcomes)) / (spread + EPSILON)
    for row, length in enumerate([1, 2, 3, 3]):
        assert result[row, :length] == pytest.approx([expected[row]] * length, abs=1e-12)
        assert not result[row, length:].any()


def test_p32_a_tiny_spread_is_damped_by_epsilon_and_not_blown_up_to_one():
    facts = facts_of([1, 1])
    result = advantages(facts, np.array([[1e-6], [0.0]]), credit="trajectory", epsilon=EPSILON)
    assert result[0, 0] == pytest.approx(0.5e-6 / (0.5e-6 + EPSILON))
    assert result[0, 0] < 0.01


def test_turn_advantages_by_hand_with_discount():
    facts = facts_of([2, 2])
    earned = np.array([[0.0, 1.0], [0.5, 0.0]])
    result = advantages(facts, earned, credit="turn", gamma=0.5, epsilon=EPSILON)
    # Returns-to-go (0.5, 1) and (0.5, 0): nothing to choose at turn 0, half a point at turn 1.
    spread = np.sqrt(0.25 / 2)
    assert result == pytest.approx(np.array([[0, 0.5], [0, -0.5]]) / (spread + EPSILON))


@pytest.mark.parametrize("credit", ["trajectory", "turn"])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.7])
def test_p29_a_group_without_variance_has_advantages_of_exactly_0(credit, value):
    facts = facts_of([3, 3, 3])
    earned = last_turn([3, 3, 3], [value] * 3)
    result = advantages(facts, earned, credit=credit)
    assert not result.any()
    assert dead_groups(facts, result).all()


def test_p29_float_noise_does_not_bring_a_dead_group_to_life():
    facts = facts_of([3, 3])
    earned = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
    assert earned[0].sum() != earned[1].sum()
    assert not advantages(facts, earned, credit="trajectory", epsilon=0.0).any()


def test_p29_only_the_dead_group_is_dead():
    facts = facts_of([1, 1, 1, 1], [0, 0, 1, 1])
    earned = np.array([[1.0], [0.0], [1.0], [1.0]])
    dead = dead_groups(facts, advantages(facts, earned, credit="trajectory"))
    assert dead.tolist() == [False, False, True, True]


def test_a_member_alone_at_a_turn_has_no_baseline_and_gets_0_there():
    facts = facts_of([3, 1, 1])
    result = advantages(facts, last_turn([3, 1, 1], [1, 0, 0]), credit="turn")
    assert result[0, 0] > 0 and result[1, 0] < 0
    assert result[0, 1:].tolist() == [0, 0]


def test_p34_turns_without_reward_have_finite_and_correct_advantages():
    facts = facts_of([4, 4])
    result = advantages(facts, last_turn([4, 4], [1, 0]), credit="turn", epsilon=EPSILON)
    expected = 0.5 / (0.5 + EPSILON)
    assert result == pytest.approx(np.array([[expected] * 4, [-expected] * 4]))
    zero = advantages(facts, np.zeros((2, 4)), credit="turn")
    assert np.isfinite(zero).all() and not zero.any()


@pytest.mark.parametrize("credit", ["trajectory", "turn"])
def test_p31_a_group_of_one_is_refused(credit):
    facts = facts_of([1, 1, 1], [0, 0, 5])
    with pytest.raises(ValueError, match="group 5 has one member"):
        advantages(facts, np.ones((3, 1)), credit=credit)


@pytest.mark.parametrize("credit", ["trajectory", "turn"])
@pytest.mark.parametrize("normalisation", ["group", "batch", "none"])
def test_p31_a_group_that_shrank_to_one_member_gets_0_and_not_its_raw_reward(credit, normalisation):
    # The second group shows that the batch is alive; in the first all others crashed.
    facts = facts_of([2, 2, 2, 1, 1], [0, 0, 0, 1, 1], crashed=[False, True, True, False, False])
    earned = np.array([[0.0, 1.0], [0, 0], [0, 0], [1.0, 0], [0, 0]])
    result = advantages(facts, earned, credit=credit, normalisation=normalisation)
    assert not result[:3].any() and result[3:].any()


def test_p34_a_turn_without_reward_still_costs_its_discount():
    facts = facts_of([3, 3])
    earned = last_turn([3, 3], [1.0, 0.0])
    assert returns_to_go(earned, 0.5)[0].tolist() == [0.25, 0.5, 1.0]
    result = advantages(facts, earned, credit="turn", gamma=0.5, normalisation="none")
    assert result[0] == pytest.approx([0.125, 0.25, 0.5])


@pytest.mark.parametrize("credit", ["trajectory", "turn"])
@pytest.mark.parametrize("turns_before_the_crash", [0, 2])
def test_p27_a_crash_leaves_the_baseline_as_it_was_and_gets_0(credit, turns_before_the_crash):
    lengths, outcomes = [2, 3, 3], [1.0, 0.0, 0.0]
    without = advantages(facts_of(lengths), last_turn(lengths, outcomes), credit=credit)
    earned = np.vstack([last_turn(lengths, outcomes), np.zeros(3)])
    facts = facts_of([*lengths, turns_before_the_crash], crashed=[False] * 3 + [True])
    with_crash = advantages(facts, earned, credit=credit)
    assert with_crash[:3] == pytest.approx(without, abs=0)
    assert not with_crash[3].any()


def test_p27_one_survivor_of_a_crashed_group_learns_nothing():
    facts = facts_of([1, 1, 1], crashed=[False, True, True])
    assert not advantages(facts, np.array([[1.0], [0], [0]]), credit="trajectory").any()


def test_p27_a_crash_is_known_from_the_end_reason_of_the_trajectory():
    turn = Turn("o", "a", (), (), True, 1.0, 1.0)
    shared = ("t", 0, "h", 0)
    rest = ("p", "", 0, 1.0, 3)
    played = [
        Trajectory(*shared, 0, *rest, (turn,), "", EndReason.TURN_LIMIT),
        Trajectory(*shared, 1, *rest, (), "", EndReason.ERROR, "ValueError: no"),
    ]
    facts = episode_facts(played)
    assert facts.crashed.tolist() == [False, True]
    assert facts.lengths.tolist() == [1, 0]


@pytest.mark.parametrize("length", [1, 10, 100])
def test_p32_a_trajectory_counts_once_in_the_spread_however_long_it_is(length):
    lengths = [1, length, length, length]
    result = advantages(
        facts_of(lengths), last_turn(lengths, [1, 0, 0, 0]), credit="turn", epsilon=EPSILON
    )
    # Turn 0 differs by 3/4 and -1/4, later turns not at all; each failure is averaged over its
    # own turns first. Counting turns instead would give the winner 4.8 at length 10.
    spread = np.sqrt((0.75**2 + 3 * 0.25**2 / length) / 4)
    assert result[0, 0] == pytest.approx(0.75 / (spread + EPSILON))
    assert result[0, 0] <= 2


def test_normalisation_over_the_batch_and_none():
    facts = facts_of([1] * 4, [0, 0, 1, 1])
    earned = np.array([[1.0], [0.0], [3.0], [0.0]])
    differences = np.array([0.5, -0.5, 1.5, -1.5])
    none = advantages(facts, earned, credit="trajectory", normalisation="none")
    assert none[:, 0] == pytest.approx(differences)
    batch = advantages(facts, earned, credit="trajectory", normalisation="batch", epsilon=EPSILON)
    assert batch[:, 0] == pytest.approx(differences / (np.sqrt(1.25) + EPSILON))


@st.composite
def scored(draw):
    members = draw(st.integers(2, 6))
    lengths = draw(st.lists(st.integers(1, 5), min_size=members, max_size=members))
    values = st.floats(-2, 2, allow_nan=False, width=32)
    earned = np.zeros((members, max(lengths)))
    for row, length in enumerate(lengths):
        earned[row, :length] = draw(st.lists(values, min_size=length, max_size=length))
    return lengths, earned


@settings(max_examples=200, deadline=None)
@given(scored(), st.sampled_from(["trajectory", "turn"]), st.sampled_from([1.0, 0.9]))
def test_advantages_are_finite_centred_and_absent_after_the_end(case, credit, gamma):
    lengths, earned = case
    facts = facts_of(lengths)
    result = advantages(facts, earned, credit=credit, gamma=gamma)
    assert np.isfinite(result).all()
    assert not result[~facts.alive].any()
    first = result[:, 0] if credit == "trajectory" else result
    assert np.abs(first.sum(axis=0)).max() < 1e-6
    if credit == "trajectory":
        assert all((row[:n] == row[0]).all() for row, n in zip(result, lengths, strict=True))


@settings(max_examples=100, deadline=None)
@given(scored(), st.sampled_from(["trajectory", "turn"]), st.randoms(use_true_random=False))
def test_advantages_do_not_depend_on_the_order_of_the_members(case, credit, random):
    lengths, earned = case
    order = list(range(len(lengths)))
    random.shuffle(order)
    straight = advantages(facts_of(lengths), earned, credit=credit)
    shuffled = advantages(facts_of([lengths[i] for i in order]), earned[order], credit=credit)
    assert shuffled == pytest.approx(straight[order], abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(scored(), st.sampled_from(["trajectory", "turn"]), st.sampled_from(["group", "none"]))
def test_p23_a_group_is_scored_by_its_own_members_only(case, credit, normalisation):
    lengths, earned = case
    alone = advantages(facts_of(lengths), earned, credit=credit, normalisation=normalisation)
    facts = facts_of([*lengths, 1, 1], [0] * len(lengths) + [1, 1])
    other = np.zeros((2, earned.shape[1]))
    other[0, 0] = 100.0
    together = advantages(
        facts, np.vstack([earned, other]), credit=credit, normalisation=normalisation
    )
    assert together[: len(lengths)] == pytest.approx(alone, abs=0)


@pytest.mark.parametrize("credit", ["trajectory", "turn"])
@pytest.mark.parametrize("normalisation", ["group", "batch", "none"])
def test_p23_members_are_found_wherever_they_stand_in_the_batch(credit, normalisation):
    rng = np.random.default_rng(0)
    lengths, groups = rng.integers(1, 6, size=15), np.repeat([7, 3, 11, 4], [2, 5, 3, 5])
    earned = rng.normal(size=(15, 5)) * (np.arange(5) < lengths[:, None])
    order = rng.permutation(15)
    options = {"credit": credit, "normalisation": normalisation}
    straight = advantages(facts_of(lengths, groups), earned, **options)
    mixed = advantages(facts_of(lengths[order], groups[order]), earned[order], **options)
    assert mixed == pytest.approx(straight[order], abs=1e-12)
    first = advantages(facts_of(lengths[:2]), earned[:2], credit=credit, normalisation="none")
    if normalisation == "none":  # and the groups are those of the ids
        assert straight[:2] == pytest.approx(first)


def test_p34_turn_credit_by_hand_with_one_member_left():
    """Rewards at the end, lengths 1, 2 and 3: at turn 2 nobody is there to compare with."""
    facts = facts_of([1, 2, 3])
    earned = last_turn([1, 2, 3], [1.0, 0.0, 1.0])
    result = advantages(facts, earned, credit="turn", normalisation="none")
    third = 1 / 3
    by_hand = [[third, 0, 0], [-2 * third, -0.5, 0], [third, 0.5, 0]]
    assert result == pytest.approx(np.array(by_hand))
    # Mean squares per trajectory, each over its own turns: 1/9, (4/9 + 1/4) / 2, (1/9 + 1/4) / 3.
    spread = np.sqrt((1 / 9 + (4 / 9 + 1 / 4) / 2 + (1 / 9 + 1 / 4) / 3) / 3)
    scaled = advantages(facts, earned, credit="turn", epsilon=EPSILON)
    assert scaled == pytest.approx(np.array(by_hand) / (spread + EPSILON))


def test_p32_normalisations_by_hand_for_one_win_in_four():
    facts = facts_of([1] * 8, [0] * 4 + [1] * 4)
    earned = np.array([[1.0], [0], [0], [0], [1.0], [1.0], [1.0], [0]])
    centred = np.array([0.75, -0.25, -0.25, -0.25, 0.25, 0.25, 0.25, -0.75])
    spread = np.sqrt(3) / 4  # of both groups, and so of the batch
    for normalisation, scale in (("none", 1.0), ("group", spread), ("batch", spread)):
        found = advantages(
            facts, earned, credit="trajectory", normalisation=normalisation, epsilon=0.0
        )
        assert found[:, 0] == pytest.approx(centred / scale)


def test_batch_normalisation_keeps_a_group_of_failures_smaller_than_one_with_wins():
    """Under shaping a group that only failed differs by where it stood; its scale shall say so."""
    facts = facts_of([2] * 4, [0, 0, 1, 1])
    earned = np.array([[0.1, -0.1], [-0.1, 0.1], [0.0, 1.0], [0.0, 0.0]])
    sizes = {
        name: np.abs(advantages(facts, earned, credit="turn", normalisation=name))
        for name in ("group", "batch")
    }
    assert sizes["group"][:2].max() > 1.3
    assert sizes["batch"][:2].max() < 0.3 and sizes["batch"][2:].max() > 0.9


def gae(sparse, values, gamma, lam):
    """GAE by its definition, Schulman et al. 2016, eq. 16; ``values`` is V(s_0..s_T)."""
    result = np.zeros_like(sparse)
    for row in range(len(sparse)):
        for start in range(sparse.shape[1]):
            for turn in range(start, sparse.shape[1]):
                delta = sparse[row, turn] + gamma * values[row, turn + 1] - values[row, turn]
                result[row, start] += (gamma * lam) ** (turn - start) * delta
    return result


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_lambda_is_gae_with_the_potential_as_value(lam, gamma):
    facts = random_groups(np.random.default_rng(3), 50, 4)
    config = spec("shaped", scale=0.5, gamma=gamma)
    by_definition = gae(facts.won, 0.5 * shaping_potential(facts), gamma, lam)
    shaped = rewards(config, facts)
    found = returns_to_go(shaped, gamma * lam)
    assert np.abs(np.where(facts.alive, found - by_definition, 0)).max() < 1e-12
    centred = advantages(
        facts, shaped, credit="turn", gamma=gamma, gae_lambda=lam, normalisation="none"
    )
    for group in range(50):
        rows = np.flatnonzero(facts.groups == group)
        alive = facts.alive[rows]
        mean = np.where(alive, by_definition[rows], 0).sum(0) / np.maximum(alive.sum(0), 1)
        expected = np.where(alive, by_definition[rows] - mean, 0)
        spread = np.abs(expected).max()
        assert spread < 1e-9 or centred[rows] == pytest.approx(expected, abs=1e-9)


def test_lambda_moves_advantages_and_needs_turn_credit(thousand_groups):
    shaped = rewards(spec("shaped"), thousand_groups)
    whole = advantages(thousand_groups, shaped, credit="turn")
    short = advantages(thousand_groups, shaped, credit="turn", gae_lambda=0.5)
    assert np.abs(whole - short).max() > 0.1
    with pytest.raises(ValueError, match=r"gae_lambda 0\.5 needs credit 'turn'"):
        advantages(thousand_groups, shaped, credit="trajectory", gae_lambda=0.5)


def test_ten_thousand_episodes_take_no_python_step_per_group(thousand_groups):
    """Groups are handled as arrays: the calls into numpy do not grow with their number."""
    import sys

    def calls(count):
        facts = random_groups(np.random.default_rng(0), count, 2)
        earned = rewards(spec("shaped"), facts)
        seen = 0

        def count_calls(frame, event, argument):
            nonlocal seen
            seen += event in ("call", "c_call")

        sys.setprofile(count_calls)
        try:
            advantages(facts, earned, credit="turn")
        finally:
            sys.setprofile(None)
        return seen

    assert calls(500) <= calls(5) + 5
