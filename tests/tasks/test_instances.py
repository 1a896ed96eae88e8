"""Splits share no initial state, keep held-out goals apart and do not depend on each other."""

import dataclasses
import itertools

import pytest

from agent_rl.errors import UserError
from agent_rl.tasks import Instance, build_instances, make_task, overlap
from agent_rl.tasks.babyai import LEVELS
from agent_rl.tasks.instances import SEED_START, _look

SETTINGS = {"level": "GoToLocal", "room_size": 6, "num_dists": 3}
HELD_OUT = ("grey ball", "red key")
SIZES = {"train": 120, "val": 30, "test": 40, "shifted": 25}


@pytest.fixture(scope="module")
def built():
    return build_instances("babyai", SETTINGS, SIZES, HELD_OUT, max_distance=8)


def _of(instances, split):
    return [one for one in instances if one.split == split]


def test_p51_no_two_instances_share_a_hash_and_repeats_were_met(built):
    instances, skipped = built
    assert {split: len(_of(instances, split)) for split in SIZES} == SIZES
    assert len({one.hash for one in instances}) == len(instances)
    assert overlap(instances) == 0
    # A cramped room repeats itself, so that the check above is not empty.
    cramped = {"level": "GoToRedBall", "room_size": 5, "num_dists": 0}
    few, skipped = build_instances("babyai", cramped, {"train": 15, "test": 15})
    assert skipped["train"]["duplicate"] > 0
    assert overlap(few) == 0


def test_p50_a_planted_duplicate_is_detected(built):
    instances, _ = built
    planted = dataclasses.replace(_of(instances, "train")[0], split="test")
    assert overlap([*instances, planted]) == 1
    assert overlap([*instances, _of(instances, "train")[0]]) == 0, "same split, no leak"


def test_p50_seeds_of_the_splits_come_from_disjoint_ranges(built):
    starts = sorted(SEED_START.values())
    for one in built[0]:
        below = [start for start in starts if start <= one.instance_id]
        assert SEED_START[one.split] == below[-1]


def test_p50_no_two_splits_walk_through_the_same_seeds(built):
    ids = [{one.instance_id for one in _of(built[0], split)} for split in SIZES]
    assert len(set().union(*ids)) == sum(len(found) for found in ids) == sum(SIZES.values())
    starts = sorted(SEED_START.values())
    assert min(b - a for a, b in itertools.pairwise(starts)) >= 1_000_000


def test_p50_a_split_stops_before_the_seeds_of_the_next():
    near = {"train": 0, "val": 40}
    with pytest.raises(UserError, match=r"split train .* in 40 seeds"):
        build_instances("babyai", SETTINGS, {"train": 60}, seed_start=near)
    built, _ = build_instances("babyai", SETTINGS, {"train": 20, "val": 20}, seed_start=near)
    assert max(one.instance_id for one in _of(built, "train")) < 40
    assert min(one.instance_id for one in _of(built, "val")) >= 40


def test_held_out_goals_are_only_in_the_shifted_split(built):
    for one in built[0]:
        assert (one.goal_key in HELD_OUT) == (one.split == "shifted")
    assert {one.goal_key for one in _of(built[0], "shifted")} == set(HELD_OUT)
    assert built[1]["train"]["goal"] > 0


def test_a_goal_on_both_sides_of_the_line_is_in_no_split():
    task = make_task("babyai", {"level": "PickupLoc", "room_size": 7, "num_dists": 6})
    seed = next(seed for seed in range(500) if " or " in _key(task, seed))
    part = _key(task, seed).split(" or ")[0]
    for split in ("train", "shifted"):
        assert _look(task, split, seed, frozenset({part}), None, set()) == (None, "goal")
    assert _look(task, "train", seed, frozenset(), None, set())[0] is not None


def _key(task, seed):
    task.reset(seed=seed)
    return task.goal_key()


def test_evaluation_splits_do_not_depend_on_the_size_of_train(built):
    fewer, _ = build_instances("babyai", SETTINGS, {**SIZES, "train": 5}, HELD_OUT, max_distance=8)
    for split in ("val", "test", "shifted"):
        assert _of(fewer, split) == _of(built[0], split)
    assert _of(fewer, "train") == _of(built[0], "train")[:5]


def test_instances_can_be_made_again_from_their_seed(built):
    task = make_task("babyai", SETTINGS)
    for one in built[0][::10]:
        _, info = task.reset(seed=one.instance_id)
        again = Instance(
            one.split, one.instance_id, task.instance_hash(), int(info["distance"]), task.goal_key()
        )
        assert again == one
        assert 1 <= one.distance <= 8


def test_starts_beyond_the_horizon_are_passed_over(built):
    instances, skipped = build_instances("babyai", SETTINGS, {"train": 30}, max_distance=3)
    assert max(one.distance for one in instances) == 3
    assert skipped["train"]["too_far"] > 0


def test_a_shifted_split_can_differ_by_settings_and_seen_goals_stay():
    sizes = {"train": 20, "test": 10, "shifted": 10}
    longer = {"hops": 3, "tables": 6}
    plain, _ = build_instances("sqlqa", {"hops": 2, "tables": 6}, {**sizes, "shifted": 0})
    built, _ = build_instances(
        "sqlqa", {"hops": 2, "tables": 6}, sizes, shifted_settings={"hops": 3}
    )
    assert [one for one in built if one.split != "shifted"] == plain
    task = make_task("sqlqa", longer)
    for one in _of(built, "shifted"):
        _, info = task.reset(seed=one.instance_id)
        assert (task.instance_hash(), info["distance"]) == (one.hash, one.distance) == (one.hash, 4)
    held = ("city of team",)
    both, _ = build_instances(
        "sqlqa", {"hops": 1, "tables": 6}, sizes, held, shifted_settings={"hops": 2}
    )
    assert {one.goal_key in held for one in _of(both, "shifted")} == {True}
    assert {one.distance for one in _of(both, "shifted")} == {3}
    with pytest.raises(UserError, match="hops 9"):
        build_instances("sqlqa", {"hops": 2}, sizes, shifted_settings={"hops": 9})
    with pytest.raises(UserError, match=r"split shifted .*'num_dists': 0.* only \d+ of 90"):
        bare = {"level": "GoToRedBall", "room_size": 5}
        build_instances("babyai", bare, {"shifted": 90}, shifted_settings={"num_dists": 0})


def test_solved_starts_are_passed_over():
    class Solved(type(make_task("babyai", SETTINGS))):
        def reset(self, *, seed=None, options=None):
            text, info = super().reset(seed=seed, options=options)
            return text, {**info, "success": True}

    assert _look(Solved(), "train", 0, frozenset(), None, set()) == (None, "solved")


def test_running_out_of_distinct_starts_names_level_split_and_count():
    bare = {"level": "GoToRedBall", "room_size": 5, "num_dists": 0}
    with pytest.raises(
        UserError, match=r"split train .*GoToRedBall.* only \d+ of 90 distinct.* more starts differ"
    ):
        build_instances("babyai", bare, {"train": 90})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (({"dev": 3},), "'dev'.*train, val, test, shifted"),
        (({"train": -1},), "size -1 of split train"),
        (({"train": 3}, ("pink ball",)), "'pink ball'.*red ball"),
        (({"shifted": 3},), "held_out.* shifted_settings"),
    ],
)
def test_wrong_requests_name_the_value_and_what_is_allowed(arguments, told):
    with pytest.raises(UserError, match=told):
        build_instances("babyai", SETTINGS, *arguments)


def test_progress_is_reported_for_every_instance():
    calls = []
    build_instances(
        "babyai", SETTINGS, {"train": 3, "test": 2}, progress=lambda *call: calls.append(call)
    )
    assert calls == [("test", 1, 2), ("test", 2, 2), *(("train", n, 3) for n in (1, 2, 3))]


def _rotated(scene):
    size = scene.room.size

    def turned(cell):
        x, y = cell % size, cell // size
        return x * size + (size - 1 - y)

    objects = tuple((color, kind, turned(cell)) for color, kind, cell in scene.objects)
    agent, direction = divmod(scene.pose, 4)
    return dataclasses.replace(scene, objects=objects, pose=turned(agent) * 4 + (direction + 1) % 4)


@pytest.mark.parametrize("level", LEVELS)
def test_p51_rotated_worlds_share_a_hash_and_a_text_and_others_do_not(level):
    task = make_task("babyai", {"level": level})
    task.reset(seed=3)
    scene = task._scene
    text = task._sight.text(scene.pose, scene.names, scene.cells)
    hashes = {scene.hash()}
    turned = scene
    for _ in range(3):
        turned = _rotated(turned)
        assert turned.pose != scene.pose
        assert task._sight.text(turned.pose, turned.names, turned.cells) == text
        hashes.add(turned.hash())
    assert len(hashes) == 1
    size = scene.room.size
    mirrored = tuple(
        (color, kind, cell // size * size + size - 1 - cell % size)
        for color, kind, cell in scene.objects
    )
    other_color = tuple(("blue", kind, cell) for _, kind, cell in scene.objects)
    changed = [
        dataclasses.replace(scene, pose=scene.pose ^ 1),
        dataclasses.replace(scene, mission="go to the blue box"),
        dataclasses.replace(scene, objects=mirrored),
        dataclasses.replace(scene, objects=other_color),
    ]
    hashes.update(other.hash() for other in changed)
    assert len(hashes) == 5
