"""Transcripts: the rule chooses, whatever the episodes say; the numbers are the rewards' own."""

import dataclasses
import json
import math
from itertools import pairwise

import pytest

from agent_rl.evaluation.episode_text import Column, episode_text, reward_settings, turn_rewards
from agent_rl.evaluation.transcripts import episode_record, select, transcripts
from agent_rl.tasks.instances import Instance
from agent_rl.trajectory import EndReason, Trajectory, Turn

ARMS = ("sft", "dpo", "grpo_shaped", "grpo_dense")
INSTANCES = [
    *(Instance("shifted", i, f"h{i}", 3, "") for i in (1, 2)),
    *(Instance("test", i, f"h{i}", 3, "") for i in (10, 11, 12)),
]


def played(policy, instance, end="success", seed=0, temperature=0.0, distances=(2, 1)):
    last = 0 if end == "success" else distances[-1]
    steps = [*distances, last]
    turns = tuple(
        Turn(f"sees {i}", f"does {i}", (), (), True, float(before), float(after))
        for i, (before, after) in enumerate(pairwise(steps))
    )
    return Trajectory(
        "task", instance, f"h{instance}", 0, 0, policy, "", seed, temperature, 6, turns, "over",
        EndReason(end),
    )  # fmt: skip


def chosen(samples):
    return {
        role: (t.policy, t.seed, t.instance_id)
        for role, t in select(samples, INSTANCES, ARMS).items()
    }


ORACLE = [played("oracle", i) for i in (2, 12, 11, 10, 1)]


def test_the_preferred_arm_comes_first_by_seed_and_instance():
    samples = [
        *ORACLE,
        played("sft", 10, "failure"),
        played("grpo_shaped", 12, "turn_limit", seed=1),
        played("grpo_shaped", 11, "turn_limit", seed=1),
        played("grpo_shaped", 11, seed=0),
        played("grpo_shaped", 10, seed=0),
        played("grpo_shaped", 10, seed=2),
    ]
    expected = {
        "oracle_first": ("oracle", 0, 10),
        "failed": ("grpo_shaped", 1, 11),
        "oracle_same_instance": ("oracle", 0, 11),
        "successful": ("grpo_shaped", 0, 10),
    }
    assert chosen(samples) == expected == chosen(samples[::-1])
    assert list(chosen(samples)) == list(expected)


def test_sampled_shifted_crashed_and_untrained_episodes_are_not_chosen():
    samples = [
        *ORACLE,
        played("grpo_shaped", 10, "turn_limit", temperature=1.0),
        played("grpo_shaped", 1, "turn_limit"),
        played("grpo_shaped", 10, "error"),
        played("base", 10, "turn_limit"),
        played("random", 10, "turn_limit"),
        played("dpo", 10, "failure", seed=4),
        played("sft", 12, "failure", seed=7),
    ]
    assert chosen(samples) == {
        "oracle_first": ("oracle", 0, 10),
        "failed": ("sft", 7, 12),  # the other arms in the order of the study
        "oracle_same_instance": ("oracle", 0, 12),
    }


def test_the_oracle_is_shown_once_when_the_failure_is_on_its_instance():
    samples = [*ORACLE, played("grpo_shaped", 10, "failure"), played("dpo", 11)]
    assert list(chosen(samples)) == ["oracle_first", "failed"]  # dpo is another arm


def test_without_a_failure_the_first_success_is_shown():
    samples = [*ORACLE, played("dpo", 10), played("grpo_shaped", 12, seed=3)]
    assert chosen(samples) == {
        "oracle_first": ("oracle", 0, 10),
        "successful": ("grpo_shaped", 3, 12),
    }
    assert select([], INSTANCES, ARMS) == {}


def test_a_record_holds_the_turns_and_what_they_are_paid(study):
    lost = played("sft", 10, "failure", seed=5, distances=(4, 3, math.inf))
    record = episode_record(study, lost)
    assert (record["policy"], record["seed"], record["decoding"]) == ("sft", 5, "greedy")
    assert (record["distance"], record["end"]) == (4.0, "failure")
    assert [t["distance_after"] for t in record["turns"]] == [3.0, None, None]
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    for setting in reward_settings(study, ["sparse", "dense", "shaped"]):
        paid = [turn["rewards"][setting.name] for turn in record["turns"]]
        assert paid == pytest.approx(turn_rewards([lost], setting)[0], abs=1e-6)
    assert "-0.0" not in json.dumps(record)
    assert episode_record(study, played("oracle", 10))["seed"] is None
    content = transcripts(study, {"b": {"failed": lost}, "a": {}})
    assert [(e["task"], e["role"]) for e in content["episodes"]] == [("b", "failed")]
    assert "first failed greedy episode" in content["selection"]


def test_rewards_are_those_that_the_arms_are_paid(study):
    arm = study.arm("grpo_shaped")
    doubled = dataclasses.replace(arm, reward=dataclasses.replace(arm.reward, scale=1.0))
    changed = dataclasses.replace(study, arms={"grpo_shaped": doubled})
    (setting,) = reward_settings(changed, ["shaped"])
    assert sum(turn_rewards([played("sft", 10)], setting)[0]) == pytest.approx(2.0)
    assert reward_settings(changed, ["dense_naive"])[0].name == "dense_naive"


def test_an_episode_as_text_hides_nothing():
    trajectory = played("sft", 10, "failure", distances=(2, math.inf))
    first = dataclasses.replace(
        trajectory.turns[0], valid=False, action="", observation="word " * 60
    )
    trajectory = dataclasses.replace(trajectory, turns=(first, *trajectory.turns[1:]))
    text = episode_text(trajectory, [Column("paid", (0.25, math.nan), summed=True)])
    lines = text.splitlines()
    assert "   1     NO  2 > lost   0.250  (nothing)" in lines
    assert any(line.startswith("   2    yes  lost > lost       -  does 1") for line in lines)
    assert text.count("word") == 60 and max(map(len, lines)) <= 100
    assert lines[-1] == "end: failure: the task ended the episode after 2 turns"


def test_an_episode_that_crashed_before_its_first_turn_can_be_shown(study):
    crashed = dataclasses.replace(
        played("sft", 10, "error"), turns=(), final_observation="", error="ZeroDivisionError: x"
    )
    assert "error in the task (ZeroDivisionError: x) after 0 turns" in episode_text(crashed, [])
    assert episode_record(study, crashed)["distance"] is None
