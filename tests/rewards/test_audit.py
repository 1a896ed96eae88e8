"""P44: no exploit out-earns the expert, a reward that lets one is told apart."""

from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from tests.tasks.played import first_episodes

from agent_rl.rewards import REWARDS, episode_facts, find_reward, returns, reward, spec
from agent_rl.rewards.audit import audit
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.rollouts.exploits import GreedyPolicy, exploit_policies
from agent_rl.rollouts.policies import RandomPolicy
from agent_rl.tasks.registry import make_env, make_task
from agent_rl.trajectory import EndReason, Trajectory, Turn

TASKS = {
    "babyai": ("babyai", {"level": "GoToLocal", "room_size": 6, "num_dists": 3}, 12),
    "sqlqa": ("sqlqa", {"hops": 2}, 8),
    "jugs": ("examples.jugs:FAMILY", {}, 12),
}
COUNT = 60
CRITERIA_WEIGHTS = {"right_answer": 0.7, "answered": 0.1, "valid_calls": 0.1, "no_repeats": 0.1}
SOUND = {
    "sparse": spec("sparse"),
    "dense": spec("dense"),
    "shaped": spec("shaped"),
    "shaped discounted": spec("shaped", gamma=0.97, scale=0.3),
    "rubric": spec("rubric", criteria=CRITERIA_WEIGHTS),
}
NAIVE = {"dense_naive": spec("dense_naive")}


@lru_cache
def episodes(name):
    return first_episodes(*TASKS[name], COUNT)


def play(name, policy, rounds=1):
    family, settings, horizon = TASKS[name]
    engine = RolloutEngine(name, lambda: make_env(family, settings, horizon))
    return engine.play(policy, episodes(name) * rounds)


@lru_cache
def played(name):
    family, settings, _ = TASKS[name]
    policies = exploit_policies(lambda: make_task(family, settings), episodes(name)[0].instance_id)
    return {n: play(name, policy) for n, policy in policies.items()}


def with_greedy(name, config):
    """What was played, and the greedy policy under this reward."""
    family, settings, _ = TASKS[name]
    policy = GreedyPolicy(
        lambda: make_task(family, settings), lambda found: returns(config, episode_facts(found))
    )
    return {**played(name), "greedy": play(name, policy)}


def verdict(name, reward):
    _, (found,) = audit(name, with_greedy(name, reward), {"r": reward})
    return found


@pytest.fixture
def planted():
    """Registers a reward for one test."""
    before = dict(REWARDS)

    def plant(function, maximum):
        reward("planted", maximum=maximum)(function)
        return spec("planted")

    yield plant
    REWARDS.clear()
    REWARDS.update(before)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("reward", SOUND)
def test_p44_no_exploit_out_earns_the_oracle(name, reward):
    rows, (found,) = audit(name, with_greedy(name, SOUND[reward]), {reward: SOUND[reward]})
    assert {row.policy for row in rows} == {*played(name), "greedy"}
    assert not found.farmable and found.verdict != "farmable"
    oracle = next(row for row in rows if row.policy == "oracle")
    assert oracle.success_rate == 1 and oracle.mean_return_failed is None
    assert all(row.mean_return <= oracle.mean_return + 1e-9 for row in rows)
    # Under a discount a lucky guess earns more than the expert, who looks things up first.
    lucky = SOUND[reward].gamma < 1 and name == "sqlqa"
    beating = {row.policy for row in rows if row.beats_oracle_share > 0}
    assert beating <= ({"answer_at_once", "random"} if lucky else set())


@pytest.mark.parametrize("name", ["babyai", "jugs"])
def test_p44_under_the_naive_dense_reward_one_does(name):
    found = verdict(name, NAIVE["dense_naive"])
    assert found.farmable and found.verdict == "farmable" and found.best_exploit == "dawdle"
    assert found.best_exploit_return > found.oracle_return + 0.1


def test_p48_failures_are_paid_by_dense_and_by_form_and_never_by_sparse_and_shaped():
    for name in TASKS:
        for sound in ("sparse", "shaped", "shaped discounted"):
            found = verdict(name, SOUND[sound])
            assert (found.verdict, found.paid_failures) == ("tight", pytest.approx(0, abs=1e-9))
        found = verdict(name, SOUND["dense"])
        assert found.verdict == "pays failures" and 0.2 < found.paid_failures < 0.5
        assert verdict(name, SOUND["rubric"]).verdict == "pays failures"


def test_p48_the_floor_is_what_every_failure_gets():
    # k of the shaped reward comes back at any end, so it is no pay for failing.
    found = verdict("babyai", spec("shaped", scale=0.5))
    assert found.floor_return == pytest.approx(0.5)
    assert found.oracle_return == pytest.approx(1.5)


@pytest.mark.parametrize("name", TASKS)
def test_p20_no_random_episode_earns_more_than_the_declared_maximum(name):
    found = play(name, RandomPolicy(), rounds=5)
    for config in {**SOUND, **NAIVE}.values():
        most = find_reward(config.name).maximum(TASKS[name][2], config)
        assert returns(config, episode_facts(found)).max() <= most + 1e-9


def test_p20_a_reward_that_pays_more_than_it_declares_is_refused(planted):
    config = planted(lambda facts, config: 2.0 * facts.won, 1.0)
    with pytest.raises(ValueError, match=r"r paid 2 for an episode of jugs.* maximum of 1"):
        verdict("jugs", config)


@pytest.mark.parametrize("name", TASKS)
def test_a_planted_bonus_for_activity_is_flagged(planted, name):
    config = planted(
        lambda facts, config: 0.2 * facts.valid + facts.won, lambda horizon, _: 1 + 0.2 * horizon
    )
    found = verdict(name, config)
    assert found.farmable and found.verdict == "farmable"
    assert found.paid_failures > 0.5


def test_a_reward_that_pays_everybody_the_same_pays_failures(planted):
    config = planted(lambda facts, config: facts.last.astype(float), 1.0)
    found = verdict("babyai", config)
    assert (found.verdict, found.paid_failures) == ("pays failures", 1.0)


def episode(instance, policy, end, distances, horizon=4):
    turns = tuple(Turn("o", "a", (), (), True, a, b) for a, b in pairwise(distances))
    return Trajectory(
        "t", instance, f"h{instance}", 0, 0, policy, "", 0, 0.0, horizon, turns, "", end
    )


def by_hand():
    won, late, lost = EndReason.SUCCESS, EndReason.TURN_LIMIT, EndReason.FAILURE
    crash = EndReason.ERROR
    return {
        "oracle": [episode(0, "oracle", won, [2, 1, 0]), episode(1, "oracle", won, [1, 0])],
        "loiter": [
            episode(0, "loiter", won, [2, 1, 2, 1, 0]),
            episode(1, "loiter", late, [1, 2, 1, 2, 1]),
        ],
        "spoil": [episode(0, "spoil", lost, [2, np.inf]), episode(1, "spoil", crash, [])],
    }


def test_rows_and_verdict_by_hand():
    rows, (found,) = audit("t", by_hand(), NAIVE)
    oracle, loiter, spoil = rows
    assert (oracle.task, oracle.reward, oracle.policy) == ("t", "dense_naive", "oracle")
    assert oracle.mean_return == pytest.approx(1.15) and oracle.max_return == pytest.approx(1.2)
    assert oracle.mean_return_failed is None and oracle.beats_oracle_share == 0
    assert loiter.mean_return == pytest.approx((1.3 + 0.2) / 2)
    assert (loiter.success_rate, loiter.episodes, loiter.beats_oracle_share) == (0.5, 2, 0.5)
    assert loiter.mean_return_failed == pytest.approx(0.2)
    # A crashed episode is a failed one.
    assert (spoil.success_rate, spoil.mean_return_failed) == (0, 0)
    assert (found.best_exploit, found.farmable) == ("loiter", False)
    assert found.floor_return == 0
    assert found.paid_failures == pytest.approx(0.2 / 1.15)
    assert found.declared_maximum == pytest.approx(1.4)
    assert found.highest_return == pytest.approx(1.3)
    assert found.verdict == "pays failures"


def test_a_policy_played_for_one_reward_is_scored_under_that_one_only():
    found = by_hand()
    tailored = {"sparse": {"spoil": found.pop("spoil")}}
    both = {"sparse": SOUND["sparse"], **NAIVE}
    rows, _ = audit("t", found, both, tailored)
    assert [(row.reward, row.policy) for row in rows] == [
        *(("sparse", name) for name in ("oracle", "loiter", "spoil")),
        *(("dense_naive", name) for name in ("oracle", "loiter")),
    ]
    with pytest.raises(ValueError, match="spoil played other instances"):
        audit("t", found, both, {"sparse": {"spoil": tailored["sparse"]["spoil"][:1]}})


def test_without_a_failure_nothing_is_paid_to_failures():
    found = by_hand()
    found["loiter"] = found["oracle"]
    del found["spoil"]
    _, (row,) = audit("t", found, NAIVE)
    assert (row.floor_return, row.paid_failures, row.verdict) == (None, 0.0, "tight")


@pytest.mark.parametrize("name", ["oracle", "loiter"])
def test_other_instances_or_a_missing_oracle_are_refused(name):
    found = by_hand()
    found["loiter"] = found["loiter"][::-1]
    with pytest.raises(ValueError, match="loiter played other instances"):
        audit("t", found, NAIVE)
    with pytest.raises(ValueError, match="needs the oracle and another policy"):
        audit("t", {name: found[name]}, NAIVE)
    with pytest.raises(ValueError, match="needs episodes"):
        audit("t", {"oracle": [], "loiter": []}, NAIVE)
