"""Minigrid's own environments, untouched, as the reference for everything ours says."""

import copy
import random

import pytest
from minigrid.envs.babyai.goto import GoToLocal, GoToRedBall
from minigrid.envs.babyai.pickup import PickupLoc
from minigrid.envs.babyai.putnext import PutNextLocal

from agent_rl.tasks.registry import make_task

ACTIONS = ("left", "right", "forward", "pickup", "drop")


class Reference:
    """A minigrid environment that shares no code with ours."""

    def __init__(self, level, room_size, num_dists):
        if level == "PutNextLocal":
            self.env = PutNextLocal(room_size=room_size, num_objs=num_dists)
        elif level == "PickupLoc":
            self.env = PickupLoc(room_size=room_size)
            self.env.num_dists = num_dists
        else:
            chosen = {"GoToLocal": GoToLocal, "GoToRedBall": GoToRedBall}[level]
            self.env = chosen(room_size=room_size, num_dists=num_dists)

    def state(self):
        env = self.env
        x, y = env.agent_pos
        carried = None if env.carrying is None else (env.carrying.color, env.carrying.type)
        return env.grid.encode().tolist(), int(x), int(y), int(env.agent_dir), carried

    def shortest(self, most):
        """Length of the shortest winning sequence of the five actions, by stepping copies."""
        self.env.gen_obs = dict
        frontier, seen, depth = [self.env], {str(self.state())}, 0
        while frontier and depth < most:
            depth += 1
            following = []
            for env in frontier:
                for action in range(5):
                    branch = _branch(env)
                    _, reward, *_ = branch.step(action)
                    if reward > 0:
                        return depth
                    self.env, kept = branch, self.env
                    key = str(self.state())
                    self.env = kept
                    if key not in seen:
                        seen.add(key)
                        following.append(branch)
            frontier = following
        return None


def _branch(env):
    twin = copy.copy(env)
    memo = {id(env): twin, **{id(item): item for item in env.grid.grid if _is_wall(item)}}
    twin.grid = copy.copy(env.grid)
    parts = (env.grid.grid, env.carrying, env.instrs)
    twin.grid.grid, twin.carrying, twin.instrs = copy.deepcopy(parts, memo)
    return twin


def _is_wall(item):
    return item is not None and item.type == "wall"


@pytest.fixture
def reference():
    return Reference


@pytest.fixture
def make():
    def build(level="GoToLocal", room_size=None, num_dists=None):
        settings = {"level": level, "room_size": room_size, "num_dists": num_dists}
        return make_task("babyai", settings)

    return build


@pytest.fixture
def play():
    """Plays random actions until the end or ``length``; returns the whole record."""

    def run(task, seed, length=12, stream=0):
        rng = random.Random(1000 * seed + stream)
        record = [task.reset(seed=seed)]
        for _ in range(length):
            record.append(task.step(rng.choice(ACTIONS)))
            if record[-1][2]:
                break
        return record

    return run
