"""Small mazes as decision problems, solved exactly under any reward r(s, a, s').

With a horizon the turns left belong to the state, and value iteration ends after as many steps;
without one, policy iteration (Howard 1960) is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAZES: dict[str, str] = {
    "corridor": """
        #########
        #......G#
        #########""",
    "open room": """
        #######
        #.....#
        #.....#
        #..G..#
        #.....#
        #######""",
    "dead ends": """
        #######
        #..#..#
        #.##.##
        #....G#
        #.#.###
        #.#...#
        #######""",
    "two ways": """
        #######
        #.....#
        #.###.#
        #.#G..#
        #.###.#
        #.....#
        #######""",
    "winding": """
        #######
        #...#G#
        ###.#.#
        #...#.#
        #.###.#
        #.....#
        #######""",
}
"""Mazes by name: walls ``#``, floor ``.``, the goal ``G``. Every floor cell is a start."""

DIRECTIONS = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}

TIE = 1e-9
"""Actions whose values differ by less are equally good."""

_IMPROVES = 1e-12
"""A policy is improved where that gains more; above rounding, below a tie."""

_NOTHING = 1e-16
"""Weight below which later turns no longer count."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step in a maze, as a reward sees it."""

    before: int
    """Distance to the goal before the step."""
    after: int
    """Distance after it; 0 is the goal."""
    best: int
    """Least distance of the episode before the step."""
    start: int
    """D, the distance at the start of the episode."""
    over: bool
    """Whether the episode ends here: the goal is reached, or time is up."""

    @property
    def won(self) -> bool:
        return self.after == 0


TabularReward = Callable[[Move, float, float], float]
"""(move, k, gamma) -> reward."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How long an episode may take, and what the future is worth."""

    gamma: float
    horizon: int | None
    """Turns allowed; None: episodes go on until the goal is reached."""

    @property
    def name(self) -> str:
        discount = f"gamma {self.gamma:g}"
        return discount if self.horizon is None else f"horizon {self.horizon}, {discount}"


class Maze:
    """A maze as tables: cells by number, where each action leads, how far the goal is.

    Args:
        text: rows of ``#``, ``.`` and one ``G``; every floor cell must reach the goal.
    """

    def __init__(self, text: str) -> None:
        rows = text.split()
        self.cells = [
            (y, x) for y, row in enumerate(rows) for x, kind in enumerate(row) if kind != "#"
        ]
        number = {cell: index for index, cell in enumerate(self.cells)}
        self.goal = next(n for (y, x), n in number.items() if rows[y][x] == "G")
        self.next = np.array(
            [
                [number.get((y + dy, x + dx), n) for dy, dx in DIRECTIONS.values()]
                for (y, x), n in number.items()
            ]
        )
        """(cells, 4) cell after each action; a wall leaves the agent where it is."""
        self.distance = np.full(len(self.cells), -1)
        """(cells,) steps to the goal."""
        queue = [self.goal]
        self.distance[self.goal] = 0
        for cell in queue:
            for neighbour in self.next[cell]:
                if self.distance[neighbour] < 0:
                    self.distance[neighbour] = self.distance[cell] + 1
                    queue.append(int(neighbour))
        if (self.distance < 0).any():
            raise ValueError(f"cell {self.cells[int(self.distance.argmin())]} cannot reach G")


class Table:
    """The decision problem of all episodes that start ``start`` steps from the goal of a maze.

    States are (cell, best distance so far), the goal left out.
    """

    def __init__(self, maze: Maze, start: int) -> None:
        self.maze, self.start = maze, start
        d = maze.distance
        self.states = [
            (cell, best)
            for cell in range(len(maze.cells))
            for best in range(1, min(int(d[cell]), start) + 1)
        ]
        number = {state: index for index, state in enumerate(self.states)}
        after = [[int(n) for n in maze.next[cell]] for cell, _ in self.states]
        self.won = np.array([[n == maze.goal for n in row] for row in after])
        """(states, 4) whether an action reaches the goal."""
        self.next = np.array(
            [
                [number.get((n, min(best, int(d[n]))), 0) for n in row]
                for row, (_, best) in zip(after, self.states, strict=True)
            ]
        )
        """(states, 4) state after an action; 0 and without meaning where it reaches the goal."""
        self.starts = np.array([d[cell] == best == start for cell, best in self.states])
        self._after = after

    def reward(
        self, reward: TabularReward, setting: Setting, scale: float, last: bool
    ) -> NDArray[np.float64]:
        """(states, 4) rewards, at the last turn of the horizon or before it."""
        d = self.maze.distance
        return np.array(
            [
                [
                    reward(
                        Move(
                            int(d[cell]), int(d[n]), best, self.start, last or n == self.maze.goal
                        ),
                        scale,
                        setting.gamma,
                    )
                    for n in row
                ]
                for row, (cell, best) in zip(self._after, self.states, strict=True)
            ]
        )

    def greedy(
        self, reward: TabularReward, setting: Setting, scale: float
    ) -> Iterator[NDArray[np.bool_]]:
        """(states, 4) the best actions: with 1, 2, ... turns left, or once without a limit."""
        middle = self.reward(reward, setting, scale, last=False)
        if setting.horizon is None:
            yield _best(self._optimal(middle, setting.gamma))
            return
        values = self.reward(reward, setting, scale, last=True)
        yield _best(values)
        for _ in range(setting.horizon - 1):
            values = self._values(middle, values.max(axis=1), setting.gamma)
            yield _best(values)

    def reached(self, setting: Setting) -> list[NDArray[np.bool_]]:
        """(states,) what episodes reach, in the order of :meth:`greedy`."""
        steps = [self.starts]
        while setting.horizon is None or len(steps) < setting.horizon:
            found = steps[-1] & False
            found[self.next[steps[-1]][~self.won[steps[-1]]]] = True
            if setting.horizon is None:
                found |= steps[-1]
                if (found == steps[-1]).all():
                    return [found]
            steps.append(found)
        return steps[::-1]

    def _optimal(self, reward: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
        """(states, 4) values of actions under an optimal policy without a time limit."""
        every = np.arange(len(self.states))
        policy = np.zeros(len(self.states), dtype=np.int64)
        while True:
            value = self._worth(policy, reward[every, policy], gamma)
            values = self._values(reward, value, gamma)
            better = values.max(axis=1) > value + _IMPROVES
            if not better.any():
                return values
            policy = np.where(better, values.argmax(axis=1), policy)

    def _worth(
        self, policy: NDArray[np.int64], reward: NDArray[np.float64], gamma: float
    ) -> NDArray[np.float64]:
        """(states,) value of a policy: sums over 1, 2, 4, ... turns until the rest is nothing."""
        every = np.arange(len(self.states))
        after, weight = self.next[every, policy], gamma * ~self.won[every, policy]
        value = reward
        while weight.max() > _NOTHING:
            value = value + weight * value[after]
            weight, after = weight * weight[after], after[after]
        return value

    def _values(
        self, reward: NDArray[np.float64], value: NDArray[np.float64], gamma: float
    ) -> NDArray[np.float64]:
        return reward + gamma * np.where(self.won, 0.0, value[self.next])


def _best(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return values >= values.max(axis=1, keepdims=True) - TIE
