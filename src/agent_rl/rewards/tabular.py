"""Which rewards change what is optimal: exact dynamic programming on small mazes.

Ng, Harada & Russell (1999, theorem 1) prove that potential-based shaping leaves every optimal
policy optimal, and that no other kind does so in general. Here both halves are computed: in every
state the *set* of greedy actions under a reward is compared with that under ``sparse``.

The rewards of :mod:`agent_rl.rewards.specs` read a whole episode. In a table they become
r(s, a, s'), see :class:`Move`; two of them divide by D, the distance at the start. So the
comparison runs once for every distance at which an episode can start, over the states that such
episodes reach. ``dense`` remembers the best distance so far, so a state is (cell, best distance).

What to expect:

* ``shaped``: the same greedy actions everywhere.
* ``dense_naive``: with gamma = 1 it puts off winning for as long as time allows. Without a time
  limit, stepping to and fro for ever is worth 0.1 gamma / (1 - gamma^2) next to the goal, and
  winning at once 1.1: from gamma = 0.956 on, it never wants to arrive.
* ``dense``: where the goal is within reach it agrees with ``sparse``; where time is too short,
  ``sparse`` has nothing to say and ``dense`` still goes closer. It pays failures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent_rl.rewards.mazes import DIRECTIONS, MAZES, Maze, Move, Setting, Table, TabularReward


def sparse(move: Move, scale: float, gamma: float) -> float:
    """[won]."""
    return float(move.won)


def shaped(move: Move, scale: float, gamma: float) -> float:
    """[won] + k (gamma Phi(s') - Phi(s)), Phi = -d / D and 0 at every end."""
    after = 0.0 if move.over else -move.after / move.start
    return move.won + scale * (gamma * after + move.before / move.start)


def dense(move: Move, scale: float, gamma: float) -> float:
    """0.5 (b - b') / D + 0.5 [won]."""
    return 0.5 * (move.best - min(move.best, move.after)) / move.start + 0.5 * move.won


def dense_naive(move: Move, scale: float, gamma: float) -> float:
    """0.1 [closer] + [won]."""
    return 0.1 * (move.after < move.before) + move.won


TABULAR: dict[str, TabularReward] = {
    "shaped": shaped,
    "dense": dense,
    "dense_naive": dense_naive,
}
"""What is compared with ``sparse``."""


SETTINGS = (Setting(1.0, 12), Setting(0.95, None), Setting(0.99, None))


@dataclass(frozen=True, slots=True)
class TabularRow:
    """One reward against ``sparse`` in one maze."""

    maze: str
    reward: str
    setting: str
    states: int
    """States compared; with a horizon, a state is a place and the turns left. Each distance at
    which an episode can start has its own."""
    differing_states: int
    """Those in which the sets of greedy actions differ."""
    example: str
    """One of them in words; empty when there is none."""


def compare(
    maze: str, name: str, reward: TabularReward, setting: Setting, *, scale: float = 0.5
) -> TabularRow:
    """Compare the greedy actions of a reward with those of ``sparse``, in every reachable state.

    Args:
        maze: one of ``MAZES``.
        name: name of the reward, for the row.
        scale: k of the shaped reward.
    """
    layout = Maze(MAZES[maze])
    states = 0
    differing: dict[tuple[int, ...], tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}
    for start in sorted({int(d) for d in layout.distance if d > 0}):
        table = Table(layout, start)
        turns = zip(
            table.greedy(sparse, setting, scale),
            table.greedy(reward, setting, scale),
            table.reached(setting),
            strict=True,
        )
        for left, (expected, found, reached) in enumerate(turns, 1):
            states += int(reached.sum())
            for state in np.flatnonzero(reached & (expected != found).any(axis=1)):
                differing[start, left, *table.states[state]] = expected[state], found[state]
    example = ""
    if differing:
        key = min(differing, key=lambda key: _rank(layout, setting, key, *differing[key]))
        example = _tell(layout, name, setting, key, *differing[key])
        example = f"{maze}, {example}"
    return TabularRow(maze, name, setting.name, states, len(differing), example)


def tabular_rows(*, scale: float = 0.5) -> list[TabularRow]:
    """Every reward in every maze and setting."""
    return [
        compare(maze, name, reward, setting, scale=scale)
        for maze in MAZES
        for name, reward in TABULAR.items()
        for setting in SETTINGS
    ]


def _rank(
    maze: Maze,
    setting: Setting,
    key: tuple[int, ...],
    expected: NDArray[np.bool_],
    found: NDArray[np.bool_],
) -> tuple[int, ...]:
    """Order of examples, most telling first: no action in common, the goal within reach, simple."""
    _, left, cell, _ = key
    distance = int(maze.distance[cell])
    beyond = setting.horizon is not None and left < distance
    return int((expected & found).any()), int(beyond), left, distance, *key


def _tell(
    maze: Maze,
    name: str,
    setting: Setting,
    key: tuple[int, ...],
    expected: NDArray[np.bool_],
    found: NDArray[np.bool_],
) -> str:
    """A difference in words; cells are (row, column) from the top left corner of the walls."""
    start, left, cell, best = key
    row, column = maze.cells[cell]
    where = f"cell ({row}, {column}), distance {maze.distance[cell]}"
    if name == "dense":
        where += f" (best {best}, start {start})"
    if setting.horizon is not None:
        where += f", {left} {'turn' if left == 1 else 'turns'} left"
    return f"{where}: sparse goes {_ways(expected)}, {name} {_ways(found)}"


def _ways(actions: NDArray[np.bool_]) -> str:
    if actions.all():
        return "anywhere"
    return " or ".join(name for name, good in zip(DIRECTIONS, actions, strict=True) if good)
