"""Episodes for a judge, and one call to a judge behind a server."""

import numpy as np
from tests.rewards.judge_server import JudgeServer

from agent_rl.config import JudgeConfig
from agent_rl.rewards.judge import judge
from agent_rl.trajectory import EndReason, Trajectory, Turn

SEED = np.random.SeedSequence(5)
QUALITY = [[0.1, 0.9, 0.4], [0.8, 0.2], [0.3, 0.6, 0.0, 1.0]]
GROUPS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
FLAT = np.concatenate(QUALITY)


def settings(url, **changed):
    values = {
        "url": url,
        "model": "referee",
        "key_variable": "",
        "orders": 2,
        "attempts": 2,
        "timeout": 30.0,
        "concurrency": 4,
        "max_answer_tokens": 64,
    }
    return JudgeConfig(**(values | changed))


def episode(group, final, *, actions=("look",), end=EndReason.TURN_LIMIT, member=0, distance=3.0):
    reads = [f"You are in room {group}. Find the key.", *("You see a wall." for _ in actions[1:])]
    turns = tuple(
        Turn(read, action, (), (), True, distance, distance - 1)
        for read, action in zip(reads, actions, strict=True)
    )
    return Trajectory(
        task="rooms",
        instance_id=90210,
        instance_hash=f"{group}",
        group_id=group,
        member=member,
        policy="wanderer",
        weights="f00dcafe",
        seed=31337,
        temperature=0.7,
        horizon=8080,
        turns=turns,
        final_observation=final,
        end=end,
    )


def batch():
    return [
        episode(group, f"The light shows {quality}", member=member)
        for group, members in enumerate(QUALITY)
        for member, quality in enumerate(members)
    ]


def ask(behave, trajectories=None, seed=SEED, **changed):
    """Judgement and the requests that it took."""
    with JudgeServer(behave) as server:
        said = judge(
            batch() if trajectories is None else trajectories, settings(server.url, **changed), seed
        )
    return said, server.requests
