"""The files on rewards: absent is visible, foreign is left out, damaged is one line."""

from __future__ import annotations

import json

import pytest
from tests.reporting.damage import change, failure

from agent_rl.reporting.reward_files import RewardFiles, reward_order
from agent_rl.reporting.reward_styles import POLICIES, policy_looks, reward_looks
from agent_rl.reporting.tables import load_results

NAMES = (
    "reward_audit",
    "reward_verdicts",
    "tabular_check",
    "dead_groups",
    "reward_stats",
    "rubric_criteria",
    "judge",
)


@pytest.fixture
def rewarded(results, make_reward_files):
    return make_reward_files(results)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_file_is_one_line_that_names_it(rewarded, name, edit_results):
    path = rewarded / f"{name}.csv"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert f"{name}.csv" in failure(rewarded) and "truncated" in failure(rewarded)
    path.write_bytes(b"")
    assert f"{name}.csv: file is empty" in failure(rewarded)
    path.write_bytes(whole)
    edit_results(rewarded, name, lambda frame: frame.drop(columns=frame.columns[1]))
    assert "is missing; run the publish stage again" in failure(rewarded)
    path.write_bytes(whole)
    edit_results(rewarded, name, lambda frame: frame.iloc[[0, 0]])
    assert f"{name}.csv, line 3: a second row for" in failure(rewarded)


@pytest.mark.parametrize(
    ("name", "column", "value", "part"),
    [
        ("reward_audit", "mean_return", "much", "line 2, column mean_return: 'much' is not a fin"),
        ("reward_audit", "success_rate", "1.2", "column success_rate: 1.2 is not in [0, 1]"),
        ("reward_verdicts", "paid_failures", "-0.1", "column paid_failures: -0.1 is not in"),
        ("reward_verdicts", "verdict", "fine", "'fine' is not one of farmable, pays failures"),
        ("reward_verdicts", "farmable", "yes", "'yes' is not one of true, false"),
        ("reward_verdicts", "farmable", "True", "farmable is true, but the verdict is 'tight'"),
        ("tabular_check", "states", "1.5", "'1.5' is not a whole number"),
        ("dead_groups", "credit", "token", "'token' is not one of trajectory, turn"),
        ("dead_groups", "measured", "1.01", "column measured: 1.01 is not in [0, 1]"),
        ("dead_groups", "group_size", "0", "column group_size: 0 is not in [1, inf]"),
        ("reward_stats", "correlation_with_success", "-2", "-2 is not in [-1, 1]"),
        ("rubric_criteria", "rate", "nan", "'nan' is not a finite number"),
        ("judge", "pair_agreement", "81", "column pair_agreement: 81 is not in [0, 1]"),
    ],
)
def test_wrong_value_is_named(rewarded, edit_results, name, column, value, part):
    edit_results(rewarded, name, change(column, value))
    message = failure(rewarded)
    assert f"{name}.csv, line 2" in message and part in message


def test_what_may_be_empty_is_empty(rewarded, edit_results):
    for name, column in (
        ("reward_audit", "mean_return_failed"),
        ("reward_verdicts", "floor_return"),
        ("reward_verdicts", "best_exploit"),
        ("reward_stats", "correlation_with_success"),
        ("rubric_criteria", "correlation_with_success"),
        ("dead_groups", "measured_low"),
        ("judge", "order_effect"),
    ):
        edit_results(rewarded, name, change(column, ""))
    rewards = load_results(rewarded).rewards
    assert rewards.rows("reward_verdicts")["floor_return"].isna().tolist()[:2] == [True, False]


def change_cards(results, apply):
    path = results / "reward_cards.json"
    content = json.loads(path.read_text())
    apply(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("apply", "part"),
    [
        (lambda cards: cards["dense"].pop("source"), "dense: key source is missing"),
        (lambda cards: cards["dense"].update(target=3), "dense, key target: 3 is not a text"),
        (lambda cards: cards["dense"].update(settings=[]), "key settings: [] is not an object"),
        (lambda cards: cards["dense"].update(tasks=[[1]]), "[[1]] is not a list of texts"),
        (lambda cards: cards.update(dense="r"), "dense: must be one JSON object"),
    ],
)
def test_wrong_card_is_named(rewarded, apply, part):
    change_cards(rewarded, apply)
    message = failure(rewarded)
    assert "reward_cards.json, dense" in message and part in message


def test_damaged_cards_are_one_line(rewarded):
    path = rewarded / "reward_cards.json"
    path.write_text(path.read_text()[:-9])
    assert "reward_cards.json, line 1: not valid JSON" in failure(rewarded)
    path.write_text("[]")
    assert "reward_cards.json: must hold one JSON object" in failure(rewarded)


def test_rows_of_other_tasks_are_left_out(results, make_reward_files):
    rewards = load_results(make_reward_files(results, tasks=("babyai", "elsewhere"))).rewards
    for name in NAMES:
        frame = rewards.rows(name)
        assert len(frame) and ("task" not in frame or set(frame["task"]) == {"babyai"})
    assert {card.tasks for card in rewards.cards.values()} == {("babyai",)}
    change_cards(results, lambda cards: cards["dense"].update(tasks=["elsewhere"]))
    assert "dense" not in load_results(results).rewards.cards
    change_cards(results, lambda cards: cards["dense"].update(tasks=[]))
    assert "dense" in load_results(results).rewards.cards


def test_absent_files_are_no_rows(results):
    rewards = load_results(results).rewards
    assert rewards.frames == {} and rewards.cards is None and rewards.names == []
    assert all(rewards.rows(name).empty for name in NAMES)
    assert RewardFiles().rows("dead_groups", task="x", group_size=8).empty


def test_order_and_looks_do_not_depend_on_what_else_is_there():
    assert reward_order({"zeta", "shaped", "alpha", "sparse"}) == [
        "sparse", "shaped", "alpha", "zeta",
    ]  # fmt: skip
    many = {f"reward_{index:02}" for index in range(20)}
    looks = reward_looks(many | {"sparse", "shaped"})
    assert len({(look.color, look.marker) for look in looks.values()}) == len(looks)
    assert looks["sparse"] == reward_looks({"sparse"})["sparse"]
    policies = policy_looks({*POLICIES, "a_new_exploit"})
    assert next(iter(policies)) == "oracle" and list(policies)[-1] == "a_new_exploit"
    assert len({look.color for look in policies.values()}) == len(policies)
