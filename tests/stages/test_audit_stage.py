"""The stage writes every reward of the study, exactly, and the same again."""

import dataclasses
import json

import pytest
from tests.rewards.judge_cases import settings
from tests.rewards.judge_server import JudgeServer, answer, say

from agent_rl.config import RewardConfig
from agent_rl.errors import UserError
from agent_rl.stages import audit, instances
from agent_rl.stages.common import Artifacts, load_instances


@pytest.fixture(scope="module")
def made(study, tmp_path_factory):
    """Artifacts with instances only: the audit needs no model."""
    made = Artifacts(tmp_path_factory.mktemp("audit") / "babyai")
    instances.build(study, "babyai", made)
    audit.build(study, "babyai", made)
    return made


def test_the_file_holds_a_row_per_reward_and_policy_and_a_verdict_per_reward(study, made):
    content = json.loads(made.audit.read_text())
    assert set(content) == {"audit", "verdicts", "tabular", "judge"}
    rewards = {row["reward"] for row in content["audit"]}
    assert rewards == {name for name, c in study.rewards.items() if c.name != "judge"}
    policies = {row["policy"] for row in content["audit"]}
    assert {"oracle", "random", "dawdle", "greedy"} <= policies
    assert len(content["audit"]) == len(rewards) * len(policies)
    assert sorted(row["reward"] for row in content["verdicts"]) == sorted(rewards)
    assert {row["episodes"] for row in content["audit"]} == {study.audit.instances}
    by_reward = {row["reward"]: row for row in content["verdicts"]}
    assert by_reward["dense_naive"]["verdict"] == "farmable"
    assert by_reward["sparse"]["verdict"] == by_reward["shaped"]["verdict"] == "tight"
    assert by_reward["sparse"]["oracle_return"] == 1


def test_numbers_are_free_of_rounding_noise_and_come_out_the_same_again(study, made):
    path = made.audit
    before = path.read_text()
    for row in json.loads(before)["audit"]:
        assert all(v == round(v, 9) for v in row.values() if isinstance(v, float))
    audit.build(study, "babyai", made)
    assert path.read_text() == before


def test_an_unknown_reward_is_refused_and_the_file_stays(study, made):
    before = made.audit.read_text()
    unknown = RewardConfig("sprase", 0.5, 1.0, {}, judge=None)
    with pytest.raises(UserError, match="'sprase'"):
        audit.build(dataclasses.replace(study, rewards={"x": unknown}), "babyai", made)
    assert made.audit.read_text() == before


def audited(study, made, behave, instances=6):
    """The audit with a judge beside the sparse reward."""
    train = [i for i in load_instances(made.instances) if i.split == "train"][:instances]
    with JudgeServer(behave) as server:
        judge = RewardConfig("judge", 0.5, 1.0, {}, settings(server.url, attempts=1))
        chosen = {"sparse": study.rewards["sparse"], "judge": judge}
        changed = dataclasses.replace(study, rewards=chosen)
        return audit.audit_task(changed, "babyai", train), server.requests


def shortest_is_best(handler, request):
    """Scores an attempt by how few steps it took: what a lazy judge would like."""
    steps = {attempt["id"]: len(attempt["steps"]) for attempt in request.question["attempts"]}
    say(handler, answer({name: 1 / count for name, count in steps.items()}))


def test_a_judge_compares_all_policies_on_one_instance(study, made):
    content, requests = audited(study, made, shortest_is_best)
    # The greedy policy is played for one reward, by trying it out: the judge is no such reward.
    policies = {row["policy"] for row in content["audit"] if row["reward"] == "judge"}
    assert "greedy" not in policies
    assert len(requests) == 6 * 2 and len(requests[0].ids) == len(policies)
    (row,) = content["judge"]
    assert (row["groups"], row["invalid_groups"], row["requests"]) == (6, 0, 12)
    assert row["order_effect"] == pytest.approx(0, abs=1e-9) and row["order_disagreement"] == 0
    by_policy = {r["policy"]: r for r in content["audit"] if r["reward"] == "judge"}
    assert by_policy["oracle"]["mean_return"] > by_policy["stall"]["mean_return"]
    assert by_policy["dawdle"]["success_rate"] == 1
    assert row["pair_agreement"] > 0.7 and row["pairs"] > 0
    assert {v["reward"] for v in content["verdicts"]} == {"sparse", "judge"}


def test_instances_that_a_judge_cannot_score_are_counted_and_left_out(study, made):
    content, _ = audited(study, made, lambda handler, request: say(handler, "no idea"))
    (row,) = content["judge"]
    assert row["invalid_groups"] == row["groups"] == 6
    assert {v["reward"] for v in content["verdicts"]} == {"sparse"}
    assert {r["reward"] for r in content["audit"]} == {"sparse"}
    json.dumps(content, allow_nan=False)
