"""Families are found by name, and what does not exist is refused with a list of what does."""

import pytest

from agent_rl.errors import UserError
from agent_rl.tasks import Horizon, family_names, goal_keys, make_env, make_task


def test_settings_reach_the_task():
    task = make_task("babyai", {"level": "PickupLoc", "room_size": 5, "num_dists": 2})
    assert (task.level, task.room_size, task.num_dists) == ("PickupLoc", 5, 2)
    task.reset(seed=0)
    assert len(task._stage.items) == 2


def test_every_family_has_goal_keys_that_its_goals_use():
    for family in family_names():
        task = make_task(family, {})
        task.reset(seed=0)
        assert set(task.goal_key().split(" or ")) <= set(goal_keys(family))


def test_make_env_applies_the_horizon():
    env = make_env("babyai", {}, 2)
    assert isinstance(env, Horizon) and env.horizon == 2
    env.reset(seed=0)
    assert [env.step("?")[3], env.step("?")[3]] == [False, True]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: make_task("chess", {}), "'chess'.*babyai"),
        (lambda: goal_keys("chess"), "'chess'.*babyai"),
        (lambda: make_task("babyai", {"rooms": 3}), "'rooms'.*level, room_size, num_dists"),
        (lambda: make_env("babyai", {}, 0), "horizon 0"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(call, told):
    with pytest.raises(UserError, match=told):
        call()
