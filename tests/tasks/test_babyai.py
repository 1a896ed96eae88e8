"""The task keeps the contract of every task, and minigrid's verdicts."""

import dataclasses
import random

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_rl.tasks  # noqa: F401 - registers the levels
from agent_rl.errors import UserError
from agent_rl.tasks import EpisodeOver, make_env, make_task
from agent_rl.tasks.babyai import LEVELS, scenes
from agent_rl.tasks.babyai.task import BabyAITask

ACTIONS = ("left", "right", "forward", "pickup", "drop")
SMALL = {"GoToRedBall": 2, "GoToLocal": 3, "PickupLoc": 4, "PutNextLocal": 3}


@pytest.mark.parametrize("level", LEVELS)
def test_gymnasium_accepts_every_registered_level(level):
    env = gymnasium.make(f"agent_rl/BabyAI-{level}-v0")
    assert isinstance(env, BabyAITask), "wrappers would cost time on every step"
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize("level", LEVELS)
def test_every_transition_and_verdict_is_minigrids_own(level, make, reference):
    size, count = 6, SMALL[level]
    task, original = make(level, size, count), reference(level, size, count)
    wins = 0
    for seed in range(40):
        rng = random.Random(seed)
        original.env.reset(seed=seed)
        text, _ = task.reset(seed=seed)
        assert text.startswith(f"goal {original.env.mission} . ")
        for _ in range(25):
            # Expert and chance mixed: both wins and wrong moves have to occur.
            action = task.expert_action() if rng.random() < 0.5 else rng.choice(ACTIONS)
            _, success, terminated, truncated, info = task.step(action)
            _, reward, ended, *_ = original.env.step(ACTIONS.index(action))
            x, y = original.env.agent_pos
            assert task._stage.env.grid.encode().tolist() == original.state()[0]
            assert task._pose == (y * size + x) * 4 + original.env.agent_dir
            assert (success, terminated) == (float(reward > 0), ended)
            assert info["success"] == bool(success) and not truncated
            if terminated:
                wins += 1
                break
    assert wins > 20


@pytest.mark.parametrize("level", LEVELS)
def test_p21_a_b_a_gives_identical_records(level, make, play):
    task, other = make(level, 6, SMALL[level]), make(level, 6, SMALL[level])
    first = play(task, 7)
    play(task, 8)
    # A carried object, a half-played episode and another environment must leave no trace.
    play(other, 7, stream=1)
    task.reset(seed=7)
    for action in ("forward", "pickup", "left", "drop"):
        if not task._over:
            task.step(action)
    assert play(task, 7) == first
    assert play(other, 7) == first


@pytest.mark.parametrize("level", LEVELS)
def test_fast_reset_equals_a_fresh_generation(level, make, play):
    task = make(level, 6, SMALL[level])
    kept = [play(task, seed) for seed in range(20)]
    assert [play(task, seed) for seed in range(20)] == kept
    scenes.scenes.cache_clear()
    fresh = make(level, 6, SMALL[level])
    assert fresh._scenes is not task._scenes
    assert [play(fresh, seed) for seed in reversed(range(20))] == kept[::-1]


def test_forgotten_scenes_are_generated_again_and_the_store_stays_bounded(monkeypatch, make):
    monkeypatch.setattr(scenes, "MAX_SCENES", 3)
    scenes.scenes.cache_clear()
    task = make("GoToLocal", 6, 3)
    first = task.reset(seed=0)
    for seed in range(1, 6):
        task.reset(seed=seed)
    for seed in (3, 4, 5):
        task.reset(seed=seed)
    assert task._scenes.cache_info()[:4] == (3, 6, 3, 3)  # hits, misses, most, kept
    assert task.reset(seed=0) == first and task._scenes.cache_info().misses == 7
    scenes.scenes.cache_clear()


def test_generation_prints_nothing_where_the_library_does(capfd, make, reference):
    task = make("PutNextLocal", 5, 4)
    for seed in range(300):
        task.reset(seed=seed)
    assert capfd.readouterr().out == ""
    original = reference("PutNextLocal", 5, 4)
    for seed in range(20):
        original.env.reset(seed=seed)
    assert "rejected" in capfd.readouterr().out


TASK = make_task("babyai", {"level": "PickupLoc", "room_size": 5, "num_dists": 3})


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text() | st.sampled_from(ACTIONS), max_size=8), st.integers(0, 20))
def test_arbitrary_text_never_crashes_and_changes_nothing(actions, seed):
    before, info = TASK.reset(seed=seed)
    before = before.split(" . ")[1]
    for action in actions:
        text, success, terminated, _, after = TASK.step(action)
        assert after["valid"] == (action.strip().lower() in ACTIONS)
        if not after["valid"]:
            assert (text, success, terminated) == (before, 0.0, False)
            assert after["distance"] == info["distance"]
        if terminated:
            break
        before, info = text, after


def test_case_and_surrounding_space_do_not_matter(make):
    task = make("GoToLocal")
    task.reset(seed=1)
    plain = [task.step(action)[0] for action in ("left", "forward")]
    task.reset(seed=1)
    assert [task.step(action)[0] for action in (" LEFT\n", "\tForward ")] == plain


def test_p20_the_horizon_ends_an_episode_once_and_before_minigrid_would():
    env = make_env("babyai", {"level": "GoToLocal"}, horizon=3)
    env.reset(seed=0)
    ends = [env.step("nothing")[3] for _ in range(3)]
    assert ends == [False, False, True]
    with pytest.raises(EpisodeOver):
        env.step("left")
    # Minigrid's own limit for this room is 49 steps, beyond which its reward turns negative.
    task = env.task
    task.reset(seed=0)
    for _ in range(100):
        assert task.step("left")[2:4] == (False, False)
    while not (last := task.step(task.expert_action()))[2]:
        pass
    assert last[1] == 1.0


def test_playing_before_the_first_reset_raises(make):
    for call in ("expert_action", "alternative_goals", "instance_hash", "goal_key"):
        with pytest.raises(EpisodeOver):
            getattr(make(), call)()
    with pytest.raises(EpisodeOver):
        make().step("left")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"level": "GoToMoon"}, ["GoToMoon", "GoToRedBall", "PutNextLocal"]),
        ({"room_size": 99}, ["room_size 99", "from 4 to 8"]),
        ({"room_size": "6"}, ["room_size '6'", "integer"]),
        ({"num_dists": 0}, ["num_dists 0", "from 1 to"]),
        ({"room_size": 5, "num_dists": 5}, ["num_dists 5", "to 4"]),
    ],
)
def test_wrong_settings_name_the_value_and_what_is_allowed(given, told):
    with pytest.raises(UserError) as caught:
        make_task("babyai", given)
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in told)


def test_a_room_that_cannot_be_generated_is_reported_instead_of_looping(make, monkeypatch):
    monkeypatch.setattr("agent_rl.tasks.babyai.levels.MAX_REJECTIONS", 5)
    with pytest.raises(UserError, match="room_size 4"):
        make("PutNextLocal", 4, 2).reset(seed=0)


def test_a_start_that_faces_the_target_needs_one_action_for_the_verdict(make):
    task = make("GoToLocal", 6, 1)
    _, info = task.reset(seed=0)
    while info["distance"] > 0:
        _, _, _, _, info = task.step(task.expert_action())
    scene = dataclasses.replace(task._scene, pose=task._pose)
    task._scenes = {0: scene}.__getitem__
    _, info = task.reset(seed=0)
    assert info == {"valid": True, "success": True, "distance": 1.0}
    assert task.step("unknown words")[4]["distance"] == 1.0
    _, success, terminated, _, info = task.step(task.expert_action())
    assert (success, terminated, info["distance"]) == (1.0, True, 0.0)
