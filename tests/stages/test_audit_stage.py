"""The stage writes every reward of the study, exactly, and the same again."""

import dataclasses
import json

import pytest

from agent_rl.config import RewardConfig
from agent_rl.errors import UserError
from agent_rl.stages import audit, instances
from agent_rl.stages.common import Artifacts


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
    assert {"oracle", "random", "dawdle"} <= policies
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


def test_a_judge_is_left_out_and_an_unknown_reward_is_refused(study, made):
    judge = RewardConfig("judge", 0.5, 1.0, {}, judge=None)
    with_judge = dataclasses.replace(study, rewards={**study.rewards, "judge": judge})
    before = made.audit.read_text()
    audit.build(with_judge, "babyai", made)
    assert made.audit.read_text() == before
    unknown = RewardConfig("sprase", 0.5, 1.0, {}, judge=None)
    with pytest.raises(UserError, match="'sprase'"):
        audit.build(dataclasses.replace(study, rewards={"x": unknown}), "babyai", made)
    assert made.audit.read_text() == before
