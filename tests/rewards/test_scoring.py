"""Scoring a batch: what the learner is given, what is logged apart, what a silent judge costs."""

import json

import numpy as np
import pytest
from tests.rewards.judge_cases import FLAT, batch, episode, settings
from tests.rewards.judge_server import (
    JudgeServer,
    answer,
    hang_up,
    honest,
    honest_scores,
    in_group,
    say,
    sending,
)

from agent_rl.config import RewardConfig
from agent_rl.errors import UserError
from agent_rl.rewards import advantages, dead_groups, episode_facts, rewards, spec
from agent_rl.rewards.cards import card
from agent_rl.rewards.scoring import check_reward, score
from agent_rl.trajectory import EndReason

SEED = np.random.SeedSequence(3)


def judged(behave, trajectories, **changed):
    with JudgeServer(behave) as server:
        config = RewardConfig("judge", 0.5, 1.0, {}, settings(server.url, **changed))
        return score(config, trajectories, SEED)


@pytest.mark.parametrize("name", ["sparse", "dense", "shaped"])
def test_a_reward_of_facts_is_what_the_function_gives(name):
    scored = score(spec(name), batch(), SEED)
    assert np.array_equal(scored.rewards, rewards(spec(name), episode_facts(batch())))
    assert scored.parts == {}


def test_every_criterion_of_a_rubric_is_logged_apart():
    weights = {"right_answer": 0.5, "answered": 0.5}
    episodes = [
        episode(0, "yes", end=EndReason.FAILURE),
        episode(0, "no", member=1),
        episode(0, "no", member=2),
        episode(0, "no", member=3),
    ]
    parts = score(spec("rubric", criteria=weights), episodes, SEED).parts
    assert parts == {"rubric_right_answer": 0.0, "rubric_answered": 0.25}


def test_a_judge_pays_its_score_at_the_last_turn():
    episodes = [episode(0, "0.2", actions=("a", "b", "c")), episode(0, "0.8", member=1)]
    scored = judged(honest, episodes)
    assert scored.rewards == pytest.approx(np.array([[0, 0, 0.2], [0.8, 0, 0]]))
    assert scored.parts["judge_requests"] == 2 and scored.parts["judge_invalid_share"] == 0


def test_a_group_without_a_valid_answer_teaches_nothing_and_the_others_learn_as_before():
    whole = judged(honest, batch())
    broken = judged(in_group("room 1", hang_up), batch(), attempts=2)
    outside = np.array([t.group_id != 1 for t in batch()])
    values = {}
    for name, scored in (("whole", whole), ("broken", broken)):
        values[name] = advantages(scored.facts, scored.rewards, credit="trajectory")
    assert np.array_equal(values["broken"][outside], values["whole"][outside])
    assert not values["broken"][~outside].any() and values["whole"][~outside].all()
    assert dead_groups(broken.facts, values["broken"]).tolist() == (~outside).tolist()
    assert broken.parts["judge_invalid_share"] == pytest.approx(2 / 9)
    assert broken.parts["judge_retries"] == 2
    # The record of what happened is not touched by a judge that says nothing.
    assert np.array_equal(broken.facts.success, episode_facts(batch()).success)


def test_agreement_with_the_true_outcome_and_the_effect_of_the_order_are_measured():
    won = [
        episode(
            t.group_id, t.final_observation, member=t.member, end=EndReason.SUCCESS, distance=1.0
        )
        if quality > 0.5
        else t
        for t, quality in zip(batch(), FLAT, strict=True)
    ]
    parts = judged(honest, won).parts
    assert parts["judge_pair_agreement"] == 1 and parts["judge_pairs"] == 7

    def upside_down(handler, request):
        say(handler, answer({name: 1 - s for name, s in honest_scores(request).items()}))

    assert judged(upside_down, won).parts["judge_pair_agreement"] == 0

    def last_is_best(handler, request):
        ids = request.ids
        say(handler, answer({name: i / (len(ids) - 1) for i, name in enumerate(ids)}))

    parts = judged(last_is_best, won).parts
    assert parts["judge_order_effect"] == pytest.approx(1)
    assert parts["judge_pair_agreement"] == 0.5  # two orders, one the reverse of the other
    assert parts["judge_order_disagreement"] > 0.5


def test_a_server_that_refuses_the_key_is_one_line():
    with pytest.raises(UserError) as refusal:
        judged(sending(b"no", status=401), batch())
    assert "\n" not in str(refusal.value) and "401" in str(refusal.value)


def test_names_are_checked_without_asking_a_server():
    closed = settings("http://127.0.0.1:9/v1")
    check_reward(RewardConfig("judge", 0.5, 1.0, {}, closed))
    with pytest.raises(UserError, match="'sprase'"):
        check_reward(spec("sprase"))


def test_the_card_of_the_judge_is_complete_and_holds_no_address():
    found = card(RewardConfig("judge", 0.5, 1.0, {}, settings("http://10.0.0.7:8000/v1")))
    assert all(found[part] for part in ("formula", "target", "signal", "encoding", "source"))
    assert "10.0.0.7" not in json.dumps(found)
