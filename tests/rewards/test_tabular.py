"""P45: shaping leaves the optimal policies alone, pay for steps towards the goal does not."""

import numpy as np
import pytest

from agent_rl.rewards import EpisodeFacts, rewards, spec
from agent_rl.rewards.mazes import DIRECTIONS, MAZES, Maze, Move, Setting, Table
from agent_rl.rewards.tabular import (
    SETTINGS,
    TABULAR,
    compare,
    dense,
    dense_naive,
    shaped,
    sparse,
    tabular_rows,
)

TIMED, *ENDLESS = SETTINGS
EVERY = {"sparse": sparse, **TABULAR}

every_maze = pytest.mark.parametrize("maze", MAZES)
every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)


def facts_of(walk, horizon):
    turns = len(walk) - 1
    return EpisodeFacts(
        distances=np.array([walk], float),
        lengths=np.array([turns]),
        success=np.array([walk[-1] == 0]),
        crashed=np.zeros(1, bool),
        groups=np.zeros(1, int),
        horizon=np.array([horizon]),
        valid=np.ones((1, turns), bool),
        repeated=np.zeros((1, turns), bool),
        answered=np.array([walk[-1] == 0]),
    )


@every_maze
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("scale", "gamma"), [(0.5, 1.0), (0.3, 0.95)])
def test_in_a_maze_the_table_pays_what_the_reward_pays_an_episode(maze, name, scale, gamma):
    layout, rng, horizon = Maze(MAZES[maze]), np.random.default_rng(7), 12
    ends = set()
    for _ in range(200):
        cell = int(rng.choice(np.flatnonzero(layout.distance > 0)))
        walk = [int(layout.distance[cell])]
        paid = []
        while walk[-1] > 0 and len(paid) < horizon:
            cell = int(layout.next[cell, rng.integers(4)])
            after = int(layout.distance[cell])
            over = after == 0 or len(paid) == horizon - 1
            move = Move(walk[-1], after, min(walk), walk[0], over)
            paid.append(EVERY[name](move, scale, gamma))
            walk.append(after)
        expected = rewards(spec(name, scale=scale, gamma=gamma), facts_of(walk, horizon))
        assert paid == pytest.approx(expected[0].tolist(), abs=1e-12)
        ends.add(walk[-1] == 0)
    assert False in ends and (maze == "winding" or True in ends)


@every_maze
@every_setting
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_p45_shaping_leaves_the_greedy_actions_of_every_state_as_they_were(maze, setting, scale):
    row = compare(maze, "shaped", shaped, setting, scale=scale)
    assert row.states > 50
    assert (row.differing_states, row.example) == (0, "")


@every_maze
@pytest.mark.parametrize("setting", [TIMED, ENDLESS[1]], ids=lambda s: s.name)
def test_p45_pay_for_every_step_closer_changes_them(maze, setting):
    row = compare(maze, "dense_naive", dense_naive, setting)
    assert row.differing_states > 0
    assert row.example.startswith(f"{maze}, cell (") and ": sparse goes " in row.example


def test_the_example_tells_of_walking_away_from_the_goal():
    timed = compare("corridor", "dense_naive", dense_naive, TIMED)
    assert timed.example == (
        "corridor, cell (1, 6), distance 1, 3 turns left: sparse goes anywhere, dense_naive west"
    )
    endless = compare("corridor", "dense_naive", dense_naive, ENDLESS[1])
    assert endless.example == (
        "corridor, cell (1, 6), distance 1: sparse goes east, dense_naive west"
    )


@every_maze
@pytest.mark.parametrize(("gamma", "hacked"), [(0.955, False), (0.956, True)])
def test_the_discount_from_which_the_naive_reward_never_wants_to_arrive(maze, gamma, hacked):
    # 0.1 gamma / (1 - gamma^2) against 1.1 for winning at once, as the module says.
    assert (0.1 * gamma / (1 - gamma**2) > 1.1) == hacked
    row = compare(maze, "dense_naive", dense_naive, Setting(gamma, None))
    assert (row.differing_states > 0) == hacked


@every_maze
def test_dense_agrees_wherever_the_goal_is_within_reach_and_pays_failures_beyond(maze):
    for setting in ENDLESS:
        assert compare(maze, "dense", dense, setting).differing_states == 0
    layout, beyond = Maze(MAZES[maze]), 0
    for start in range(1, int(layout.distance.max()) + 1):
        table = Table(layout, start)
        both = zip(
            table.greedy(sparse, TIMED, 0.5),
            table.greedy(dense, TIMED, 0.5),
            table.reached(TIMED),
            strict=True,
        )
        distance = np.array([layout.distance[cell] for cell, _ in table.states])
        for left, (expected, found, reached) in enumerate(both, 1):
            assert (found <= expected).all()
            differs = reached & (expected != found).any(axis=1)
            assert not (differs & (distance <= left)).any()
            beyond += differs.sum()
    assert compare(maze, "dense", dense, TIMED).differing_states == beyond > 0


def kept_at_time_out(move, scale, gamma):
    """Wrong: what is left of the potential when time runs out is not taken back."""
    return move.won + scale * (gamma * -move.after / move.start + move.before / move.start)


def rising(move, scale, gamma):
    """Sound: another potential, Phi = 1 - d / D, that is 0 at every end."""
    after = 0.0 if move.over else 1 - move.after / move.start
    return move.won + scale * (gamma * after - (1 - move.before / move.start))


def without_discount(move, scale, gamma):
    """Wrong under a discount: k (Phi(s') - Phi(s))."""
    return rising(move, scale, 1.0)


def closer_only(move, scale, gamma):
    """Wrong: steps away are not charged."""
    return move.won + scale * max(0, move.before - move.after) / move.start


@every_maze
def test_p45_wrong_shaping_is_caught(maze):
    assert compare(maze, "wrong", kept_at_time_out, TIMED).differing_states > 0
    assert compare(maze, "wrong", closer_only, TIMED).differing_states > 0
    # The discount makes staying cost what is gained on the way; without it, staying is free and
    # arriving gives the potential back.
    for setting in ENDLESS:
        assert compare(maze, "right", rising, setting, scale=3.0).differing_states == 0
        assert compare(maze, "wrong", without_discount, setting, scale=3.0).differing_states > 0


@every_maze
def test_values_are_those_of_plain_value_iteration(maze):
    setting, layout = Setting(0.9, None), Maze(MAZES[maze])
    table = Table(layout, int(layout.distance.max()))
    for reward in EVERY.values():
        pay = table.reward(reward, setting, 0.5, last=False)
        value = np.zeros(len(table.states))
        for _ in range(400):
            values = pay + setting.gamma * np.where(table.won, 0.0, value[table.next])
            value = values.max(axis=1)
        (found,) = table.greedy(reward, setting, 0.5)
        best = values >= values.max(axis=1, keepdims=True) - 1e-9
        assert (found == best).all()


def test_mazes_are_what_their_names_say():
    for text in MAZES.values():
        maze = Maze(text)
        assert (np.abs(maze.distance[maze.next] - maze.distance[:, None]) <= 1).all()
        assert (maze.distance == 0).sum() == 1
    corridor, winding = Maze(MAZES["corridor"]), Maze(MAZES["winding"])
    assert sorted(corridor.distance) == list(range(7))
    # Sixteen steps for a place that is two columns away; time may be too short from there.
    assert winding.distance.max() == 16 > TIMED.horizon
    north = list(DIRECTIONS).index("north")
    assert corridor.next[0, north] == 0, "a wall leaves the agent where it is"
    forks = Maze(MAZES["two ways"])
    assert any(
        (forks.distance[forks.next[cell]] < forks.distance[cell]).sum() > 1
        for cell in range(len(forks.cells))
    )
    with pytest.raises(ValueError, match=r"cell \(1, 1\) cannot reach G"):
        Maze("##### #.#G# #####")


def test_rows_cover_every_maze_reward_and_setting_once():
    rows = tabular_rows()
    keys = {(row.maze, row.reward, row.setting) for row in rows}
    assert len(keys) == len(rows) == len(MAZES) * len(TABULAR) * len(SETTINGS)
    assert {row.setting for row in rows} == {"horizon 12, gamma 1", "gamma 0.95", "gamma 0.99"}
