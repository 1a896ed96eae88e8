"""A reward of one's own: one short file, used by its name everywhere."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.rewards.facts import make_facts

from agent_rl.errors import UserError
from agent_rl.rewards import find_reward, reward, rewards, spec
from agent_rl.rewards.cards import LABELS, card
from agent_rl.rewards.specs import REWARDS

ROOT = Path(__file__).parents[2]
NAME = "examples.brisk:brisk"
BUILT_IN = [n for n, r in REWARDS.items() if r.function.__module__.startswith("agent_rl.")]


def test_the_example_is_short_and_pays_what_it_says():
    code = (ROOT / "examples" / "brisk.py").read_text(encoding="utf-8")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    facts = make_facts([2, 4], success=[True, False], horizon=8)
    earned = rewards(spec(NAME, scale=0.5), facts)
    assert earned == pytest.approx(np.array([[0, 0.875, 0, 0], [0, 0, 0, 0]]))
    assert find_reward(NAME).maximum(8, spec(NAME)) == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("brsk", "unknown reward 'brsk'; known: "),
        ("examples.brisk:brsk", "module examples.brisk has no 'brsk'"),
        ("examples.jugs:FAMILY", "FAMILY is of type Family, not a Reward"),
        ("examples.nowhere:it", "there is no module 'examples.nowhere'"),
        (":", "expected module:ATTRIBUTE, e.g. examples.brisk:brisk"),
    ],
)
def test_a_wrong_name_is_one_line(name, told):
    with pytest.raises(UserError) as refusal:
        rewards(spec(name), make_facts([1]))
    assert told in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["sparse", "judge"])
def test_a_name_that_is_taken_is_refused(name):
    with pytest.raises(UserError, match="exists already"):
        reward(name, maximum=1.0)(lambda facts, config: facts.won)


def test_a_reward_of_the_wrong_shape_or_without_a_number_raises():
    facts = make_facts([2, 2])
    for function, told in (
        (lambda facts, config: facts.won.sum(axis=1), "gave shape"),
        (lambda facts, config: facts.won / 0, "not finite"),
    ):
        reward("planted", maximum=1.0)(function)
        try:
            with pytest.raises(ValueError, match=told), np.errstate(invalid="ignore"):
                rewards(spec("planted"), facts)
        finally:
            del REWARDS["planted"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_reward_states_all_parts_of_its_card(name):
    criteria = {"answered": 1.0} if name == "rubric" else {}
    found = card(spec(name, criteria=criteria))
    assert found["formula"].startswith("r_t = ")
    for label in LABELS:
        assert len(found[label.lower()]) > 20 and "\n" not in found[label.lower()]
    # A part ends where the next begins.
    assert not any(
        f"{label}:" in found[part] for label in LABELS for part in found if part != "settings"
    )
    json.dumps(found)


def test_a_part_that_is_not_stated_is_empty():
    found = card(spec(NAME))
    assert found["target"] == "solve the task, and soon." and found["source"] == ""
    assert found["encoding"].endswith("0 at all others.")
