"""Distances are exact: checked against minigrid itself, its bot and hand-made rooms."""

import math
import random

import pytest
from minigrid.utils.baby_ai_bot import BabyAIBot

from agent_rl.errors import UserError
from agent_rl.tasks.babyai import LEVELS, planner
from agent_rl.tasks.babyai.goals import MAX_PAIRS, Goal, Kind
from agent_rl.tasks.babyai.planner import DROP, FORWARD, PICKUP, Planner
from agent_rl.tasks.babyai.room import room

ACTIONS = ("left", "right", "forward", "pickup", "drop")
TINY = {
    "GoToRedBall": [(5, 2), (6, 5)],
    "GoToLocal": [(4, 1), (5, 4), (6, 6)],
    "PickupLoc": [(4, 1), (5, 4), (6, 5)],
    "PutNextLocal": [(5, 2), (5, 3), (5, 4)],
}


@pytest.mark.parametrize("level", LEVELS)
def test_distance_equals_breadth_first_search_in_minigrid_itself(level, make, reference):
    disturbed = 0
    for size, count in TINY[level]:
        task, original = make(level, size, count), reference(level, size, count)
        for seed in range(10):
            for length in (0, 9):
                rng = random.Random(seed + length)
                _, info = task.reset(seed=seed)
                original.env.reset(seed=seed)
                for _ in range(length):
                    action = rng.choice(("left", "forward", "pickup", "drop", "forward"))
                    _, _, terminated, _, info = task.step(action)
                    original.env.step(ACTIONS.index(action))
                    if terminated:
                        break
                else:
                    disturbed += task._carried is not None
                    assert original.shortest(most=14) == info["distance"], (size, count, seed)
                    continue
    assert disturbed > 0, "full hands have to be among the cases"


@pytest.mark.parametrize("level", LEVELS)
def test_the_expert_wins_and_the_distance_falls_by_one_from_everywhere(level, make):
    for size, count in (*TINY[level][-1:], (LEVELS[level].room_size, LEVELS[level].num_dists)):
        task = make(level, size, count)
        for seed in range(60):
            rng = random.Random(seed)
            _, info = task.reset(seed=seed)
            for _ in range(seed % 15):
                distance = info["distance"]
                _, _, terminated, _, info = task.step(rng.choice(ACTIONS))
                assert info["distance"] >= distance - 1, "no action can gain more than one"
                if terminated:
                    break
            else:
                success = 0.0
                while not success:
                    distance = info["distance"]
                    assert math.isfinite(distance)
                    _, success, _, _, info = task.step(task.expert_action())
                    assert info["distance"] == distance - 1
                assert info["distance"] == 0


@pytest.mark.parametrize("level", ["GoToRedBall", "GoToLocal"])
def test_plans_are_never_longer_than_those_of_the_bundled_bot(level, make, reference):
    task, original = make(level, 7, 6), reference(level, 7, 6)
    shorter = 0
    for seed in range(60):
        _, info = task.reset(seed=seed)
        original.env.reset(seed=seed)
        bot, action, steps, terminated = BabyAIBot(original.env), None, 0, False
        while not terminated:
            action = bot.replan(action)
            _, reward, terminated, *_ = original.env.step(action)
            steps += 1
        assert reward > 0
        assert info["distance"] <= steps
        shorter += info["distance"] < steps
    assert shorter > 0, "the bot explores and detours, so some plans must be shorter"


def _planner(kind, size, cells, movers, fixed=()):
    goal = Goal(kind, "goal", frozenset(movers), frozenset(fixed))
    found = Planner(room(size), goal, len(cells))
    return found, found.layout(cells)


def _pose(size, x, y, direction):
    return (y * size + x) * 4 + direction


def _exhaustive(found, state):
    """Breadth-first search over all states, without any bound."""
    frontier, seen, depth = [state], {state}, 0
    while frontier:
        depth += 1
        following = []
        for one in frontier:
            for action in range(5):
                after = found._after(one, action)
                if after is not None and found._wins(one, action, after):
                    return depth
                if after is not None and after not in seen:
                    seen.add(after)
                    following.append(after)
        frontier = following
    return math.inf


@pytest.mark.parametrize("kind", Kind)
def test_no_bound_cuts_a_shortest_plan_off_in_crowded_rooms(kind):
    rng = random.Random(5)
    compared = lost = searched = 0
    for _ in range(600):
        size = rng.choice((4, 5, 5, 6))
        count = rng.randint(2, min(7, (size - 2) ** 2 - 2))
        *cells, agent = rng.sample(room(size).floor, count + 1)
        if rng.random() < 0.5:
            cells[rng.randrange(min(3, count))] = planner.CARRIED
        fixed = {1} if kind is Kind.PUT_NEXT else ()
        found, layout = _planner(kind, size, cells, movers={0}, fixed=fixed)
        pose = agent * 4 + rng.randrange(4)
        if kind is Kind.PUT_NEXT or not found.holds(layout, pose):
            distance = found.distance(layout, pose)
            assert distance == _exhaustive(found, (pose, layout.hand, *layout.masks))
            compared += 1
            lost += distance == math.inf
            searched += layout.walk[pose] != distance
    assert compared > 400 and lost > 0 and searched > 20


def test_taking_a_blocker_out_of_the_way_beats_the_detour():
    # Eastwards: agent, blocker, two free cells, target. Through: pickup and three steps. Around: a
    # step aside and back, and three more turns.
    found, layout = _planner(Kind.GO_TO, 8, [8 + 2, 8 + 5], movers={1})
    pose = _pose(8, 1, 1, 0)
    assert layout.walk[pose] == 8
    assert found.distance(layout, pose) == 4
    assert found.action(layout, pose) == PICKUP


def test_the_same_state_can_be_passed_before_it_is_the_winning_one():
    # The fixed object is carried, so it is laid next to the mover, and then the mover is lifted
    # and put back: the state after the win has been seen before, without the win.
    found, layout = _planner(Kind.PUT_NEXT, 5, [18, planner.CARRIED], movers={0}, fixed={1})
    assert found.distance(layout, _pose(5, 1, 2, 1)) == 8


def test_a_full_hand_in_a_corner_between_two_objects_is_lost():
    cells = [6 + 2, 12 + 1, planner.CARRIED]
    found, layout = _planner(Kind.PICK_UP, 6, cells, movers={0})
    for direction in range(4):
        pose = _pose(6, 1, 1, direction)
        assert found.distance(layout, pose) == math.inf
        assert found.action(layout, pose) is None


def test_equal_plans_go_by_the_order_of_the_actions():
    # Straight behind: two turns either way, and left comes first.
    found, layout = _planner(Kind.GO_TO, 7, [3 * 7 + 1], movers={0})
    pose = _pose(7, 4, 3, 0)
    assert found.distance(layout, pose) == 4
    assert ACTIONS[found.action(layout, pose)] == "left"
    assert found.action(layout, _pose(7, 4, 3, 2)) == FORWARD


def test_a_target_that_is_carried_is_laid_down_for_an_alternative_go_to():
    found, layout = _planner(Kind.GO_TO, 6, [planner.CARRIED], movers={0})
    assert found.distance(layout, _pose(6, 2, 2, 0)) == 1
    assert found.action(layout, _pose(6, 2, 2, 0)) == DROP
    assert found.distance(layout, _pose(6, 1, 1, 2)) == 2


def test_a_search_beyond_its_bound_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(planner, "MAX_STATES", 3)
    found, layout = _planner(Kind.GO_TO, 8, [8 + 2, 8 + 5], movers={1})
    with pytest.raises(UserError, match="num_dists"):
        found.distance(layout, _pose(8, 1, 1, 0))


def test_forgetting_arrangements_does_not_change_plans(make, monkeypatch):
    task = make("PutNextLocal", 6, 4)

    def plans():
        record = []
        for seed in range(15):
            record.append(task.reset(seed=seed)[1])
            for action in ("forward", "pickup", "right", "drop", "left"):
                record.append((task.expert_action(), task.step(action)[4]))
                if task._over:
                    break
            task._scene._planners.clear()
        return record

    expected = plans()
    monkeypatch.setattr(planner, "MAX_LAYOUTS", 1)
    assert plans() == expected


@pytest.mark.parametrize("level", LEVELS)
def test_alternative_goals_are_other_goals_and_the_expert_reaches_them(level, make):
    task = make(level)
    pursued = 0
    for seed in range(40):
        task.reset(seed=seed)
        own, goals = task._scene.goal, task.alternative_goals()
        assert own.text not in goals
        assert len(set(goals)) == len(goals) <= MAX_PAIRS
        for other in task._scene.others.values():
            goal_planner = task._scene.planner(other)
            assert not goal_planner.holds(goal_planner.layout(task._cells), task._pose)
        for goal in goals:
            task.reset(seed=seed)
            other = task._scene.others[goal]
            goal_planner = task._scene.planner(other)
            if own.kind is not Kind.PUT_NEXT:
                assert not other.movers & own.movers
            for _ in range(40):
                layout = goal_planner.layout(task._cells)
                if goal_planner.holds(layout, task._pose):
                    # Reached: the expert stays, and staying wins nothing.
                    before = (task._pose, task._cells)
                    _, success, *_ = task.step(task.expert_action(goal))
                    assert (task._pose, task._cells) == before and not success
                    pursued += 1
                    break
                left = goal_planner.distance(layout, task._pose)
                _, _, terminated, *_ = task.step(task.expert_action(goal))
                if terminated:
                    break  # the own goal lay on the way
                layout = goal_planner.layout(task._cells)
                if not goal_planner.holds(layout, task._pose):
                    assert goal_planner.distance(layout, task._pose) == left - 1
            else:
                raise AssertionError(f"{goal} was not reached from seed {seed}")
    assert pursued > 60


def test_a_goal_that_the_room_does_not_have_is_refused(make):
    task = make("GoToLocal")
    task.reset(seed=0)
    with pytest.raises(ValueError, match="go to the pink piano"):
        task.expert_action("go to the pink piano")
