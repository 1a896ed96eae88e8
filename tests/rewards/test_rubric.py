"""The rubric: each criterion by hand, the weighted sum, and where it is paid."""

import numpy as np
import pytest
from tests.rewards.facts import make_facts

from agent_rl.errors import UserError
from agent_rl.rewards import CRITERIA, criterion, episode_facts, rewards, spec
from agent_rl.rewards.rubric import judged_criteria
from agent_rl.trajectory import EndReason, Trajectory, Turn

WEIGHTS = {"right_answer": 0.7, "answered": 0.1, "valid_calls": 0.1, "no_repeats": 0.1}


def played(end, turns, final="done", member=0):
    """An episode from (observation, action, valid) triples."""
    distance = 0.0 if end is EndReason.SUCCESS else 1.0
    record = tuple(Turn(o, a, (), (), valid, 1.0, 1.0) for o, a, valid in turns[:-1])
    o, a, valid = turns[-1]
    record += (Turn(o, a, (), (), valid, 1.0, distance),)
    return Trajectory("t", 0, "h", 0, member, "p", "", 0, 1.0, 9, record, final, end)


EPISODES = [
    (EndReason.SUCCESS, [("q", "look", True), ("a", "answer 1", True)], [1, 1, 1, 1]),
    (EndReason.FAILURE, [("q", "answer 7", True)], [0, 1, 1, 1]),
    (EndReason.TURN_LIMIT, [("q", "l", True), ("a", "l", True), ("a", "x", True)], [0, 0, 1, 0]),
    (EndReason.TURN_LIMIT, [("q", "huh", False), ("a", "look", True)], [0, 0, 0, 1]),
    (EndReason.ERROR, [("q", "look", True)], [0, 0, 1, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("end", "turns", "expected"), EPISODES)
def test_criteria_by_hand(end, turns, expected):
    facts = episode_facts([played(end, turns)])
    verdicts = judged_criteria(facts, spec("rubric", criteria=WEIGHTS))
    assert [int(verdict[0]) for verdict in verdicts.values()] == expected
    earned = rewards(spec("rubric", criteria=WEIGHTS), facts)[0]
    assert earned[-1] == pytest.approx(np.dot(expected, list(WEIGHTS.values())))
    assert not earned[:-1].any()


def test_the_same_action_is_no_repeat_when_something_else_came_back():
    walk = [("a wall", "forward", True), ("a ball 2 away", "forward", True)]
    facts = episode_facts([played(EndReason.TURN_LIMIT, walk, "a ball 1 away")])
    assert not facts.repeated.any()
    facts = episode_facts([played(EndReason.TURN_LIMIT, walk, "a ball 2 away")])
    assert facts.repeated.tolist() == [[False, True]]


def test_a_look_up_that_is_asked_again_later_is_a_repeat():
    turns = [("q", "sql A", True), ("1", "sql B", True), ("2", "sql A", True)]
    facts = episode_facts([played(EndReason.TURN_LIMIT, turns, "1")])
    assert facts.repeated.tolist() == [[False, False, True]]


def test_an_episode_without_a_turn_meets_no_criterion():
    crashed = Trajectory("t", 0, "h", 0, 0, "p", "", 0, 1.0, 9, (), "", EndReason.ERROR, "E: no")
    facts = episode_facts([crashed, played(EndReason.SUCCESS, [("q", "a", True)], member=1)])
    earned = rewards(spec("rubric", criteria=WEIGHTS), facts)
    assert earned == pytest.approx(np.array([[0.0], [1.0]]))


def test_a_criterion_of_ones_own_and_an_unknown_one():
    @criterion
    def one_turn_only(facts):
        return facts.lengths == 1

    try:
        facts = make_facts([1, 3])
        assert rewards(spec("rubric", criteria={"one_turn_only": 1.0}), facts).sum() == 1
        with pytest.raises(UserError, match="'one_turn_only' exists already"):
            criterion(one_turn_only)
    finally:
        del CRITERIA["one_turn_only"]
    with pytest.raises(UserError, match=r"'one_turn_only' of the rubric; known: right_answer"):
        rewards(spec("rubric", criteria={"one_turn_only": 1.0}), make_facts([1]))
