"""What every task promises, as functions that take ``make``: a call that gives a fresh task.

Each check raises AssertionError (or lets the task's own exception through) when the promise is
broken. ``test_contract.py`` runs them on every family; ``broken_tasks.py`` shows that they bite.
"""

import gc
import hashlib
import itertools
import math
import tracemalloc

import numpy as np
import pytest
from gymnasium.utils import env_checker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_rl.tasks import EpisodeOver, Horizon, TextTask

MOST = 400
"""Steps after which an expert is given up."""


def starts(task, count, first=0):
    """Seeds and infos of ``count`` starts that a split would keep: unsolved and winnable."""
    found = []
    for seed in range(first, first + 20 * count):
        _, info = task.reset(seed=seed)
        if not info["success"] and info["distance"] < math.inf:
            found.append((seed, info))
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} of {20 * count} seeds give an instance")


def draw(task, rng):
    """A random action: admissible, or where actions are free text towards a random goal."""
    actions = task.admissible_actions()
    if actions is not None:
        return actions[rng.integers(len(actions))]
    goals = (None, *task.alternative_goals())
    return (task.idle_action(), task.expert_action(goals[rng.integers(len(goals))]))[
        rng.integers(2)
    ]


def wander(task, rng, most):
    """Up to ``most`` steps, half of them random and half the expert's: (action, outcome) pairs."""
    record = []
    for _ in range(rng.integers(1, most + 1)):
        action = task.expert_action() if rng.random() < 0.5 else draw(task, rng)
        record.append((action, task.step(action)))
        if record[-1][1][2]:
            break
    return record


def finish(task):
    """The expert's steps until the end, one outcome at a time."""
    for _ in range(MOST):
        outcome = task.step(task.expert_action())
        yield outcome
        if outcome[2]:
            return
    raise AssertionError(f"the expert does not finish in {MOST} steps")


def state(task):
    """Everything that a task tells without being stepped."""
    goals = task.alternative_goals()
    return (
        task.goal_distance(""),
        task.expert_action(),
        task.admissible_actions(),
        [(goal, task.goal_distance(goal), task.expert_action(goal)) for goal in goals],
        task.instance_hash(),
        task.goal_key(),
    )


def transcript(make, seeds=20):
    """SHA-256 of what random and expert policies see, in this process."""
    task, rng, digest = make(), np.random.default_rng(0), hashlib.sha256()
    for seed in range(seeds):
        record = [task.reset(seed=seed), state(task), wander(task, rng, 8)]
        record += [task.reset(seed=seed), task.step(draw(task, rng))]
        digest.update(repr(record).encode())
    return digest.hexdigest()


def check_gymnasium(make):
    """gymnasium's own checker finds nothing."""
    assert isinstance(make(), TextTask)
    env_checker.check_env(make(), skip_render_check=True)


def check_expert(make):
    """The expert wins, and every step of it brings the goal one step nearer."""
    task = make()
    for seed, _ in starts(task, 40):
        _, info = task.reset(seed=seed)
        left = info["distance"]
        assert task.goal_distance("") == left
        for *_, info in finish(task):
            left -= 1
            assert info["valid"] and info["distance"] == left
            assert left == 0 or task.goal_distance("") == left
        assert info["success"] and left == 0


def check_distance(make):
    """After random moves the distance is what the expert still needs, and never fell by leaps."""
    task, rng = make(), np.random.default_rng(1)
    moved = 0
    for seed, start in starts(task, 40):
        task.reset(seed=seed)
        outcomes = [outcome for _, outcome in wander(task, rng, 6)]
        distances = [start["distance"], *(info["distance"] for *_, info in outcomes)]
        assert all(before - after <= 1 for before, after in itertools.pairwise(distances))
        if not outcomes[-1][2] and distances[-1] < math.inf:
            moved += 1
            assert len(list(finish(task))) == distances[-1]
    assert moved, "no walk stopped half-way"


def check_shortest(make, budget=700, count=2):
    """No sequence of admissible actions wins in fewer steps, found by trying them all.

    Skipped where the starts are too far for that: take smaller settings.
    """
    task, checked = make(), 0
    for seed, info in starts(task, 60):
        task.reset(seed=seed)
        actions = task.admissible_actions()
        if actions is None:
            pytest.skip("actions are free text")
        if info["distance"] < 2 or len(actions) ** (info["distance"] - 1) > budget:
            continue
        level = [()]
        for _ in range(int(info["distance"]) - 1):
            if len(level) * len(actions) > budget:  # there are more actions than at the start
                break
            level = [longer for played in level for longer in _longer(task, seed, played)]
        else:
            checked += 1
        if checked == count:
            return
    if not checked:
        pytest.skip("every start is one step, or too many sequences, from its goal")


def _longer(task, seed, played):
    """Sequences one action longer that do not end the episode; none of them may win."""
    found = []
    _replay(task, seed, played)
    for action in task.admissible_actions():
        _replay(task, seed, played)
        _, success, terminated, *_ = task.step(action)
        assert not success, f"seed {seed}: {(*played, action)} is shorter than the distance says"
        if not terminated:
            found.append((*played, action))
    return found


def _replay(task, seed, played):
    task.reset(seed=seed)
    for action in played:
        task.step(action)


def check_facts(make):
    """The second value is success alone; info has exactly its keys; 0 means won, inf lost."""
    task, rng = make(), np.random.default_rng(2)
    kinds = {"valid": bool, "success": bool, "distance": float}
    for seed, info in starts(task, 40):
        task.reset(seed=seed)
        assert {key: type(value) for key, value in info.items()} == kinds and info["valid"]
        lost, outcomes = False, [outcome for _, outcome in wander(task, rng, 12)]
        for text, success, terminated, truncated, info in outcomes:
            assert {key: type(value) for key, value in info.items()} == kinds
            assert isinstance(text, str) and truncated is False and type(terminated) is bool
            distance, won = info["distance"], info["success"]
            assert type(success) is float and success == won, "the reward is success, no more"
            assert distance >= 0 and (distance == math.inf or distance == int(distance))
            assert (distance == 0) == won and terminated >= won, "0 if and only if won"
            assert not lost or distance == math.inf, "what is lost stays lost"
            lost = distance == math.inf
            assert terminated <= (won or lost), "an episode ends won or lost"


def check_p21_resets(make):
    """Nothing is left of other episodes; without a seed the generator of the last one goes on."""
    task, other = make(), make()

    def play(env, seed):
        return env.reset(seed=seed), state(env), wander(env, np.random.default_rng(seed), 8)

    for one, two in ((0, 1), (2, 3), (4, 5)):
        first = play(task, one)
        play(task, two)
        play(other, two)
        assert play(task, one) == first == play(other, one)
    task.reset(seed=5)
    drawn = [task.reset()[0] for _ in range(6)]
    other.reset(seed=5)
    assert [other.reset()[0] for _ in range(6)] == drawn, "unseeded resets draw from elsewhere"
    assert len(set(drawn)) > 1


def check_p20_order(make):
    """Stepping before the first reset and after the end raises, and success is paid once.

    Both under the horizon as well, which counts what is not understood.
    """
    for env in (make(), Horizon(make(), MOST)):
        task = env.unwrapped
        with pytest.raises(EpisodeOver):
            env.step("")
        (seed, _), *_ = starts(task, 1)
        env.reset(seed=seed)
        idle, paid, terminated = task.idle_action(), 0.0, False
        while not terminated:
            last = task.expert_action()
            _, success, terminated, *_ = env.step(last)
            paid += success
        assert paid == 1.0, f"success is paid {paid} times"
        for action in (idle, last, "no such action"):
            with pytest.raises(EpisodeOver):
                env.step(action)
    env = Horizon(make(), 2)
    (seed, _), *_ = starts(env.task, 1)
    env.reset(seed=seed)
    actions = ("no such action", env.task.idle_action())
    assert [env.step(action)[3] for action in actions] == [False, True]
    with pytest.raises(EpisodeOver):
        env.step(env.task.idle_action())


def check_p22_hashes(make):
    """Members of a group start alike, and equal hashes mean equal first observations."""
    members, seen = [make() for _ in range(3)], {}
    for seed in range(150):
        texts = {member.reset(seed=seed)[0] for member in members[: 3 if seed < 10 else 1]}
        hashes = {member.instance_hash() for member in members[: 3 if seed < 10 else 1]}
        assert len(texts) == len(hashes) == 1, "members of one group differ"
        text, digest = texts.pop(), hashes.pop()
        assert len(digest) >= 16 and int(digest, 16) >= 0
        assert seen.setdefault(digest, text) == text, "one hash for two different starts"
        members[0].step(members[0].expert_action())
        assert members[0].instance_hash() == digest, "the hash is that of the start"
    assert len(seen) > 1


def check_memory(make, resets=1000, allowance=100_000):
    """A thousand episodes leave no more than ``allowance`` bytes behind; seeds recur."""
    task, rng = make(), np.random.default_rng(3)

    def play(count):
        for number in range(count):
            task.reset(seed=number % 25)
            task.step(task.expert_action() if number % 2 else draw(task, rng))

    tracemalloc.start()
    try:
        play(250)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        play(resets)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < allowance, f"{after - before} bytes more after {resets} resets"


HOSTILE = (
    "",
    " ",
    "\n\t",
    "\0",
    "\ud800",
    "<end>",
    "\u202e\u0301",
    "9" * 5000,
    "a " * 50_000,
    "'\"",
)


def check_any_text(make):
    """Any text is taken; what is not understood costs a step and changes nothing."""
    task = make()
    rules = settings(
        max_examples=60,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    words = st.lists(st.sampled_from(task.vocabulary), max_size=6).map(" ".join)
    texts = st.lists(st.text() | st.sampled_from(HOSTILE) | words, min_size=4, max_size=8)

    @rules
    @given(texts, st.integers(0, 20))
    def attack(actions, seed):
        task.reset(seed=seed)
        for action in actions:
            before = state(task)
            text, success, terminated, truncated, info = task.step(action)
            assert text in task.observation_space and not truncated
            if not info["valid"]:
                assert not success and not terminated and state(task) == before
            if terminated:
                break

    attack()


def check_words(make):
    """Texts fit the spaces, and every word of them is in the vocabulary."""
    task, rng = make(), np.random.default_rng(4)
    known = set(task.vocabulary)
    for seed, _ in starts(task, 30):
        text, _ = task.reset(seed=seed)
        seen, said = [text], [task.idle_action()]
        while True:
            said += [*(task.admissible_actions() or ()), task.expert_action()]
            action = said[-1] if rng.random() < 0.6 else draw(task, rng)
            text, _, terminated, *_ = task.step(action)
            seen.append(text)
            if terminated or len(seen) > 40:
                break
        assert all(text in task.observation_space for text in seen)
        assert all(action in task.action_space for action in said)
        missing = {word for text in (*seen, *said) for word in text.split()} - known
        assert not missing, f"not in the vocabulary: {sorted(missing)[:5]}"


def check_other_goals(make):
    """The expert reaches every alternative goal in exactly its distance, then stays there."""
    task = make()
    for seed, _ in starts(task, 12):
        text, _ = task.reset(seed=seed)
        goals = task.alternative_goals()
        assert len(set(goals)) == len(goals) and all(goals)
        for goal in goals:
            assert f"goal {goal} ." not in text, f"{goal!r} is the own goal"
            task.reset(seed=seed)
            left, over = task.goal_distance(goal), False
            while left > 0 and not over:
                assert left < MOST and not task.step("")[2]
                assert task.goal_distance(goal) == left
                _, success, over, *_ = task.step(task.expert_action(goal))
                left -= 1
                assert success or task.goal_distance(goal) == left
            if not over:
                assert task.step(task.expert_action(goal))[4]["valid"]
                assert task.goal_distance(goal) == 0


def check_idle(make):
    """The idle action is understood and changes nothing, wherever it is taken."""
    task, rng = make(), np.random.default_rng(5)
    for seed, _ in starts(task, 30):
        task.reset(seed=seed)
        if rng.random() < 0.7 and wander(task, rng, 5)[-1][1][2]:
            continue
        before = state(task)
        _, success, terminated, _, info = task.step(task.idle_action())
        assert info["valid"] and not success and not terminated and state(task) == before


CHECKS = tuple(check for name, check in sorted(globals().items()) if name.startswith("check_"))
