"""The family keeps the contract of every task, in its own few words and in the game's prose."""

import hashlib
import math
import os
import random
import subprocess
import sys
import time
import tracemalloc
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_rl.compose import compose_config
from agent_rl.errors import UserError
from agent_rl.tasks import EpisodeOver, build_instances, goal_keys, make_task, overlap
from agent_rl.tasks.textworld import TextWorldTask, library, prose, store

pytestmark = pytest.mark.skipif(
    find_spec("textworld") is None and os.environ.get("AGENT_RL_REQUIRE_EXTRAS") != "1",
    reason="the optional package textworld is not installed",
)

ROOT = Path(__file__).parents[2]
HUNT = {"level": 8}
DOORS = {"level": 15}
MEAL = {"game": "cooking"}
PROSE = {"level": 8, "text": "prose"}
KINDS = [HUNT, DOORS, MEAL]


def play(task, seed, steps=8):
    """All that a run of random and expert actions shows."""
    rng = random.Random(seed)
    record = [task.reset(seed=seed), task.instance_hash(), task.goal_key()]
    record += [task.alternative_goals(), task.admissible_actions()]
    for _ in range(steps):
        action = rng.choice([task.expert_action(), *task.admissible_actions(), "nonsense"])
        record.append((action, task.step(action)))
        if record[-1][1][2]:
            break
    return record


@pytest.mark.parametrize("name", ["TreasureHunter-1", "TreasureHunter-8", "Cooking"])
def test_gymnasium_accepts_the_registered_games(name):
    env = gymnasium.make(f"agent_rl/{name}-v0")
    assert isinstance(env, TextWorldTask), "wrappers would cost time on every step"
    check_env(env, skip_render_check=True)


def test_a_transcript_reads_as_documented():
    task = make_task("textworld", HUNT)
    text, info = task.reset(seed=0)
    assert text == "goal take key . room chamber , exit north , latchkey . carry nothing"
    assert info == {"valid": True, "success": False, "distance": 4.0}
    assert task.admissible_actions() == ("go north", "look", "take latchkey")
    assert task.alternative_goals()[-1] == "take latchkey"
    texts = [task.step(task.expert_action())[0] for _ in range(4)]
    assert texts[0] == "room pantry , exit south , exit west . carry nothing"
    assert texts[2:] == [
        "room cookhouse , exit south , key . carry nothing",
        "room cookhouse , exit south . carry key",
    ]


def test_the_first_message_names_the_goal_and_not_the_way():
    for chosen in KINDS:
        task = make_task("textworld", chosen)
        for seed in range(4):
            text, _ = task.reset(seed=seed)
            goal = text.split(" room ")[0]
            assert goal.startswith(f"goal {task._game.world.goal} . ".rstrip())
            assert not {"go", "open", "unlock", "from"} & set(goal.split())
    task = make_task("textworld", PROSE)
    text, _ = task.reset(seed=0)
    # The banner of the game spells out every step.
    assert text.startswith("goal take key . Chamber. ") and "take the key" not in text.lower()


@pytest.mark.parametrize("chosen", [*KINDS, PROSE])
def test_p21_instances_do_not_depend_on_what_was_played_before(chosen):
    task, other = make_task("textworld", chosen), make_task("textworld", chosen)
    first = play(task, 1)
    play(task, 2)
    task.reset(seed=0)
    task.step("look")
    assert play(task, 1) == first
    assert play(other, 1) == first


def test_forgotten_games_are_generated_again_and_the_store_stays_bounded(monkeypatch):
    generated = []
    generate = store.generate
    monkeypatch.setattr(
        store, "generate", lambda chosen, seed: generated.append(seed) or generate(chosen, seed)
    )
    monkeypatch.delenv(store.CACHE, raising=False)
    monkeypatch.setattr(store, "MAX_LIVE", 2)
    monkeypatch.setattr(store, "MAX_PACKED", 3)
    store.games.cache_clear()
    task = make_task("textworld", HUNT)
    first = play(task, 0)
    for seed in range(1, 5):
        task.reset(seed=seed)
    for seed in (2, 3, 4):  # the first is unpacked, and none is generated again
        task.reset(seed=seed)
    assert task._games.cache_info()[:4] == (0, 8, 2, 2)  # hits, misses, most, kept
    assert generated == [0, 1, 2, 3, 4]
    assert play(task, 0) == first and generated[5:] == [0]
    store.games.cache_clear()


def test_a_cache_folder_keeps_games_whole_and_changes_none(monkeypatch, tmp_path):
    monkeypatch.delenv(store.CACHE, raising=False)
    plain = play(make_task("textworld", PROSE), 3)
    monkeypatch.setenv(store.CACHE, str(tmp_path))
    for _ in range(2):
        store.games.cache_clear()
        prose.compiled.cache_clear()
        assert play(make_task("textworld", PROSE), 3) == plain
    kept = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert kept == ["3.json", "3.z8"]
    monkeypatch.setattr(library, "generate", None)
    store.games.cache_clear()
    prose.compiled.cache_clear()
    assert play(make_task("textworld", PROSE), 3) == plain, "the folder was not read"
    store.games.cache_clear()
    next(tmp_path.rglob("3.json")).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=r"3\.json is damaged; delete it"):
        make_task("textworld", PROSE).reset(seed=3)
    store.games.cache_clear()


def test_reset_without_a_seed_continues_the_seeded_stream():
    task = make_task("textworld", HUNT)
    task.reset(seed=5)
    first = [task.reset()[0] for _ in range(2)]
    task.reset(seed=5)
    assert [task.reset()[0] for _ in range(2)] == first
    assert len(set(first)) == 2


SCRIPT = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from test_textworld import HUNT, MEAL, PROSE, play
from agent_rl.tasks import make_task
digest = hashlib.sha256()
for settings, seeds in ((HUNT, 4), ({"level": 12}, 1), (MEAL, 1), (PROSE, 1)):
    task = make_task("textworld", settings)
    for seed in range(seeds):
        digest.update(repr(play(task, seed)).encode())
print(digest.hexdigest())
"""


def test_transcripts_are_equal_in_two_processes_with_different_hash_seeds():
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    digests = [run.communicate()[0].strip() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert len(digests[0]) == hashlib.sha256().digest_size * 2
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("chosen", "seeds", "size"),
    [(HUNT, 150, 225), ({"level": 1}, 20, 225), (DOORS, 5, 520), (MEAL, 8, 130)],
)
def test_the_vocabulary_covers_every_word_of_observations_and_commands(chosen, seeds, size):
    task = make_task("textworld", chosen)
    known = set(task.vocabulary)
    assert len(known) == len(task.vocabulary) < size
    lengths, hashes = [], set()
    for seed in range(seeds):
        rng = random.Random(seed)
        text, _ = task.reset(seed=seed)
        hashes.add(task.instance_hash())
        assert set(task.goal_key().split(" or ")) <= set(goal_keys("textworld"))
        for _ in range(12):
            actions = task.admissible_actions()
            assert known.issuperset(f"{text} {' '.join(actions)}".split())
            text, _, terminated, *_ = task.step(rng.choice(actions))
            lengths.append(len(text.split()))
            if terminated:
                break
        assert known.issuperset(text.split())
    assert known.issuperset(task.step("?")[0].split() if not terminated else ())
    assert len(hashes) > 0.9 * seeds
    if chosen is HUNT:
        assert sum(lengths) / len(lengths) < 16 and max(lengths) < 26


TASK = {}


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.text() | st.sampled_from(["go north", " LOOK ", "take key. look"]), max_size=6),
    st.integers(0, 8),
)
def test_only_admissible_commands_reach_the_game_whatever_is_written(actions, seed):
    task = TASK.setdefault("hunt", make_task("textworld", HUNT))
    task.reset(seed=seed)
    for action in actions:
        before, state = task.goal_distance(""), task._state
        known = " ".join(action.lower().split()) in task.admissible_actions()
        text, success, terminated, truncated, after = task.step(action)
        assert after["valid"] == known and not truncated
        if not known:
            assert (text, success, terminated) == ("not possible", 0.0, False)
            assert (after["distance"], task._state) == (before, state)
        if terminated:
            break


def test_several_commands_at_once_never_reach_the_compiled_game(monkeypatch):
    task = make_task("textworld", PROSE)
    heard = []
    tell = prose.Teller.tell
    monkeypatch.setattr(
        prose.Teller, "tell", lambda self, one: heard.append(one) or tell(self, one)
    )
    task.reset(seed=0)
    for action in ("look. look", "go north then look", "take all", "", "restart", "quit", " LOOK"):
        assert task.step(action)[4]["valid"] == (action == " LOOK")
    assert heard == ["look"]


@pytest.mark.parametrize("chosen", [{**HUNT, "text": "prose"}, {**MEAL, "text": "prose"}])
def test_prose_tells_the_same_story_without_banner_status_or_score(chosen):
    task = make_task("textworld", chosen)
    own = make_task("textworld", {**chosen, "text": "own"})
    wins = 0
    for seed in range(2):
        rng = random.Random(seed)
        text, info = task.reset(seed=seed)
        assert own.reset(seed=seed)[1] == info
        assert own.instance_hash() == task.instance_hash()
        for _ in range(20):
            assert not any(mark in text for mark in ("-=", "=-", "$$", "***", "\n", "score", ">"))
            room = next(r.name for r in task._game.world.rooms if task._state & r.here)
            tried = rng.choice(task.admissible_actions())
            action = task.expert_action() if rng.random() < 0.7 else tried
            # The task itself raises when the game's verdict differs from that of the logic.
            text, success, terminated, _, info = task.step(action)
            if action in own.admissible_actions():
                assert own.step(action)[1:] == (success, terminated, False, info)
            now = next(r.name for r in task._game.world.rooms if task._state & r.here)
            assert now == room or now in text.lower()
            wins += success > 0
            if terminated:
                break
    assert wins and task.vocabulary == ()


def test_a_verdict_of_the_game_that_contradicts_the_logic_is_a_fault(monkeypatch):
    task = make_task("textworld", PROSE)
    task.reset(seed=0)
    monkeypatch.setattr(prose.Teller, "tell", lambda self, one: ("", "won"))
    with pytest.raises(RuntimeError, match="the logic differs"):
        task.step("look")


@pytest.mark.parametrize("chosen", KINDS)
def test_goals_idling_and_distances_keep_the_contract(chosen):
    task = make_task("textworld", chosen)
    for seed in range(3):
        _, info = task.reset(seed=seed)
        goals = task.alternative_goals()
        assert len(goals) > 3 and task._game.world.goal not in goals
        assert task.goal_distance("") == task.goal_distance(task._game.world.goal)
        assert all(0 < task.goal_distance(goal) < math.inf for goal in goals)
        before, text = task._state, task._text()
        assert task.step(task.idle_action()) == (text, 0.0, False, False, info)
        assert task._state == before and task.idle_action() in task.admissible_actions()
        with pytest.raises(ValueError, match="no goal of this game"):
            task.goal_distance("take the moon")


def test_a_house_of_one_room_offers_things_to_take_and_nowhere_to_go():
    task = make_task("textworld", {**MEAL, "rooms": 1, "open": False, "cut": False})
    text, info = task.reset(seed=0)
    assert " room kitchen , " in text and " exit " not in text and info["distance"] >= 4
    goals = task.alternative_goals()
    assert goals and all(goal.startswith("take ") for goal in goals)
    assert all(task.goal_distance(goal) > 0 for goal in goals)


def test_taking_the_wrong_thing_loses_and_reaches_the_goal_of_taking_it():
    task = make_task("textworld", HUNT)
    task.reset(seed=0)
    assert task.expert_action("take latchkey") == "take latchkey"
    text, success, terminated, _, info = task.step("take latchkey")
    assert (success, terminated) == (0.0, True) and "carry latchkey" in text
    assert info == {"valid": True, "success": False, "distance": math.inf}
    assert (task.goal_distance("take latchkey"), task.goal_distance("")) == (0.0, math.inf)
    assert task.goal_distance("go to pantry") == math.inf and task.expert_action() == "look"


def test_playing_before_the_first_reset_raises():
    task = make_task("textworld", HUNT)
    calls = ("expert_action", "alternative_goals", "instance_hash", "goal_key")
    for call in (*calls, "admissible_actions"):
        with pytest.raises(EpisodeOver):
            getattr(make_task("textworld", HUNT), call)()
    with pytest.raises(EpisodeOver):
        task.step("look")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"game": "chess"}, ["game 'chess'", "treasure, cooking"]),
        ({"text": "verse"}, ["text 'verse'", "own, prose"]),
        ({"level": 31}, ["level 31", "from 1 to 30"]),
        ({"level": "8"}, ["level '8'", "integer"]),
        ({"ingredients": 4}, ["ingredients 4", "1 to 3"]),
        ({"rooms": 7}, ["rooms 7", "1, 6, 9, 12"]),
        ({"cook": "no"}, ["cook 'no'", "true or false"]),
        ({"drop": True}, ["'drop'", "game, level"]),
    ],
)
def test_wrong_settings_name_the_value_and_what_is_allowed(given, told):
    with pytest.raises(UserError) as caught:
        make_task("textworld", given)
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in told)


def test_memory_stays_flat_over_a_thousand_resets():
    task = make_task("textworld", HUNT)

    def rounds(count):
        for number in range(count):
            play(task, number % 20, steps=4)

    rounds(100)
    tracemalloc.start()
    rounds(20)
    before = tracemalloc.get_traced_memory()[0]
    rounds(1000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc on this system")
def test_memory_of_the_compiled_games_is_given_back():
    task = make_task("textworld", PROSE)

    def resident():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def rounds(count):
        for number in range(count):
            task.reset(seed=number % 3)
            task.step("look")

    rounds(20)
    before = resident()
    rounds(100)
    # Without closing the game before the next one is loaded, 40 MB.
    assert resident() - before < 8_000_000


def test_a_process_plays_thousands_of_steps_per_second():
    task = make_task("textworld", HUNT)
    for seed in range(20):
        task.reset(seed=seed)
    rng, steps = random.Random(0), 0
    start = time.process_time()
    for number in range(300):
        task.reset(seed=number % 20)
        for _ in range(16):
            steps += 1
            if task.step(rng.choice(task.admissible_actions()))[2]:
                break
    # Some 75,000 were measured; the study asks for 1,000.
    assert steps / (time.process_time() - start) > 5_000


def test_the_configuration_builds_splits_that_share_no_start_and_hold_the_keys_out():
    added = ["+task@tasks.textworld=textworld"]
    content = compose_config("study", added, ROOT / "configs")
    task = content["tasks"]["textworld"]
    sizes = {"train": 40, "val": 5, "test": 10, "shifted": 5}
    assert sizes.keys() == task["instances"].keys()
    shares = {k: v for k, v in task["demonstrations"].items() if k not in ("episodes", "noise")}
    assert sum(shares.values()) == pytest.approx(1.0)
    instances, skipped = build_instances(
        task["family"], task["settings"], sizes, task["held_out"], task["horizon"]
    )
    assert overlap(instances) == 0 and len(instances) == 60
    for one in instances:
        assert (one.goal_key in task["held_out"]) == (one.split == "shifted")
        assert 0 < one.distance <= task["horizon"]
    assert skipped["train"]["goal"] and not skipped["train"]["too_far"]
    longest = max(len(key.split()) for key in goal_keys("textworld")) + len(("take", "<end>"))
    assert task["max_action_tokens"] >= longest
