"""The text tells exactly what minigrid's partial view shows, in the words of the vocabulary."""

import random

import pytest
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

from agent_rl.tasks.babyai import LEVELS
from agent_rl.tasks.babyai.levels import COLORS, TYPES
from agent_rl.tasks.babyai.render import VOCABULARY

ACTIONS = ("left", "right", "forward", "pickup", "drop")


def _told(text):
    """Objects with their offsets, the wall's distance and what is carried."""
    objects, wall, carried = [], None, None
    words = text.split()
    while words:
        first, second = words.pop(0), words.pop(0)
        if first == "wall":
            wall = int(second[1:])
            continue
        if first == "carry":
            carried = (second, words.pop(0))
            continue
        ahead = right = 0
        while words and words[0][0] in "flr" and words[0][1:].isdigit():
            word = words.pop(0)
            steps = int(word[1:])
            ahead = steps if word[0] == "f" else ahead
            right = {"l": -steps, "r": steps}.get(word[0], right)
        objects.append((first, second, ahead, right))
    return objects, wall, carried


def _shown(original):
    """The same from the image that minigrid gives its agents."""
    image = original.env.gen_obs()["image"]
    objects, walls, carried = [], [], None
    for column in range(7):
        for row in range(7):
            kind = IDX_TO_OBJECT[int(image[column, row, 0])]
            color = IDX_TO_COLOR[int(image[column, row, 1])]
            ahead, right = 6 - row, column - 3
            if kind == "wall" and right == 0:
                walls.append(ahead)
            elif kind in TYPES and (ahead, right) == (0, 0):
                carried = (color, kind)
            elif kind in TYPES:
                objects.append((color, kind, ahead, right))
    return objects, min(walls), carried


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [5, 8])
def test_hidden_objects_are_never_told_and_visible_ones_always(level, size, make, reference):
    count = 3 if size == 5 else 7
    task, original = make(level, size, count), reference(level, size, count)
    hidden = carried_once = 0
    for seed in range(25):
        rng = random.Random(seed)
        text, _ = task.reset(seed=seed)
        text = text.split(" . ")[1]
        original.env.reset(seed=seed)
        for _ in range(15):
            objects, wall, carried = _told(text)
            assert (sorted(objects), wall, carried) == (
                sorted(_shown(original)[0]),
                *_shown(original)[1:],
            )
            distances = [ahead + abs(right) for *_, ahead, right in objects]
            assert distances == sorted(distances), "nearest first"
            hidden += len(objects) + (carried is not None) < len(task._stage.items)
            carried_once += carried is not None
            action = rng.choice((*ACTIONS, "forward", "pickup"))
            text, _, terminated, *_ = task.step(action)
            original.env.step(ACTIONS.index(action))
            if terminated:
                break
    assert hidden > 50
    assert carried_once > 0


@pytest.mark.parametrize("level", LEVELS)
def test_every_word_of_300_random_episodes_is_in_the_vocabulary(level, make, play):
    task = make(level)
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    assert task.vocabulary == VOCABULARY and set(task.admissible_actions()) <= set(VOCABULARY)
    seen = set()
    for seed in range(300):
        for text, *_ in play(task, seed, length=6):
            seen.update(text.split())
    assert seen <= set(VOCABULARY)
    assert {"goal", ".", "wall", "f1", "l1", "r1"} <= seen
    if level != "GoToRedBall":
        assert seen.issuperset((*COLORS, *TYPES))


def test_only_the_first_text_tells_the_goal(make):
    task = make("GoToLocal")
    text, _ = task.reset(seed=0)
    assert text.split().count("goal") == 1
    assert "goal" not in task.step("left")[0].split()


def test_the_instructions_name_every_action():
    from agent_rl.tasks.babyai import BabyAITask

    assert all(action in BabyAITask.instructions for action in ACTIONS)
    assert 3 <= BabyAITask.instructions.count(". ") + 1 <= 5
