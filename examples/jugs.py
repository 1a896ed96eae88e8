"""Two jugs, a tap and a sink: measure an amount of water. A complete task of one's own."""

from functools import lru_cache
from hashlib import sha256
from math import gcd

import numpy as np

from agent_rl.errors import UserError
from agent_rl.tasks.base import EpisodeOver, TextTask
from agent_rl.tasks.registry import Family


def moves(sizes, state):
    """Litres in both jugs after every action; "pour left" pours the left jug into the right."""
    (left, right), (a, b) = state, sizes
    over, back = min(left, b - right), min(right, a - left)
    fill = {"fill left": (a, right), "fill right": (left, b)}
    empty = {"empty left": (0, right), "empty right": (left, 0)}
    pour = {"pour left": (left - over, right + over), "pour right": (left + back, right - back)}
    return {**fill, **empty, **pour, "wait": state}


ACTIONS = tuple(moves((1, 1), (0, 0)))


@lru_cache(maxsize=4096)
def plan(sizes, start, amount):
    """Shortest actions that bring ``amount`` litres into a jug, by breadth-first search."""
    found, queue = {start: ()}, [start]
    for state in queue:
        if amount in state:
            return found[state]
        for action, after in moves(sizes, state).items():
            if after not in found:
                found[after] = (*found[state], action)
                queue.append(after)
    raise ValueError(f"{amount} litres cannot be measured with jugs of {sizes}")


class Jugs(TextTask):
    """Get the litres that the goal names into a jug; ``largest``: litres that a jug may hold."""

    instructions = f"Get the litres of the goal into one jug. Actions: {', '.join(ACTIONS)}."
    vocabulary = (*" ".join(ACTIONS).split(), "goal", "litres", ".", "of", *map(str, range(13)))

    def __init__(self, largest=9):
        super().__init__()
        if type(largest) is not int or not 3 <= largest <= 12:
            raise UserError(f"largest {largest!r}: must be an integer from 3 to 12")
        self.largest, self.over = largest, True

    def reset(self, *, seed=None, options=None):
        rng, self.over = np.random.default_rng(self.instance_seed(seed)), False
        steps = 0
        while steps < 2:  # sizes without a common divisor: every amount can always be measured
            self.sizes = a, b = tuple(rng.integers(2, self.largest + 1, size=2).tolist())
            self.state = tuple(rng.integers(0, (a + 1, b + 1)).tolist())
            self.goal = f"{rng.integers(1, max(a, b) + 1)} litres"
            steps = self.goal_distance("") if gcd(a, b) == 1 else 0
        self.others = [f"{n} litres" for n in range(1, max(a, b) + 1) if n not in self.state]
        self.hash = sha256(repr((self.sizes, self.state, self.goal)).encode()).hexdigest()
        return f"goal {self.goal} . {self.text()}", self.facts()

    def step(self, action):
        if self.over:
            raise EpisodeOver("the episode is over: call reset before step")
        self.state = moves(self.sizes, self.state).get(action, self.state)
        info = self.facts(valid=action in ACTIONS)
        self.over = info["success"]
        return self.text(), float(self.over), self.over, False, info

    def text(self):
        (left, right), (a, b) = self.state, self.sizes
        return f"left {left} of {a} right {right} of {b}"

    def plan(self, goal):
        return plan(self.sizes, self.state, int((goal or self.goal).split()[0]))

    def goal_distance(self, goal):
        return len(self.plan(goal))

    def expert_action(self, goal=None):
        return (*self.plan(goal), "wait")[0]

    def idle_action(self):
        return "wait"

    def instance_hash(self):
        return self.hash

    def admissible_actions(self):  # this and what follows may be left out
        return ACTIONS

    def alternative_goals(self):
        return tuple(goal for goal in self.others if goal != self.goal)

    def goal_key(self):
        return self.goal


FAMILY = Family(Jugs, ("largest",), lambda: tuple(f"{n} litres" for n in range(1, 13)))
