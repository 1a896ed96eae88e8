"""The task that all engines play: the study's room, in which every episode lasts to the horizon.

The agent may only turn; all other actions change nothing. The goal is out of reach of turning
alone, so no engine can end an episode early and all of them play the same number of turns over
texts of the same length. (TRL's stock path could not end an episode on success anyway.)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from agent_rl.config import StudyConfig, TaskConfig, study_from
from agent_rl.rollouts.engine import Episode
from agent_rl.rollouts.policies import ScriptedPolicy
from agent_rl.seeding import Stream, sequence
from agent_rl.stages.params import compose_study
from agent_rl.tasks.babyai import BabyAITask
from agent_rl.tasks.base import TextTask
from agent_rl.tasks.horizon import Horizon
from agent_rl.tasks.instances import Instance
from agent_rl.tasks.registry import Family, make_env

TURNS = ("left", "right")
FIRST_SEED = 50_000_000
"""Seeds that no split of the study uses."""
FARTHEST_BY_TURNING = 2
"""Steps to the goal that turning on the spot can cover: half a turn."""
GROUP = 8
TASK = "babyai"


class TurningRoom(BabyAITask):
    """A BabyAI room in which the agent can only turn."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return super().step(action if action.strip().lower() in TURNS else "")


FAMILY = Family(TurningRoom, ("level", "room_size", "num_dists"), TurningRoom.goal_keys)


class Turner(ScriptedPolicy):
    """Turns at random: the demonstrations that teach a model the format."""

    name = "turner"

    def choose(self, slot: int, observation: str, task: TextTask) -> str:
        return TURNS[int(self.generators[slot].integers(len(TURNS)))]


def study() -> StudyConfig:
    """The study's settings as composed from ``configs/``."""
    return study_from(compose_study(), "configs/study.yaml")


def settings(task: TaskConfig) -> dict[str, Any]:
    """Arguments of the room: those of the study's task."""
    return dict(task.settings)


def make_room(task: TaskConfig, horizon: int) -> Horizon:
    """The study's room with the goal out of reach."""
    return make_env(f"{__name__}:FAMILY", settings(task), horizon)


def rooms(task: TaskConfig, count: int, first: int = FIRST_SEED) -> list[Instance]:
    """The first ``count`` instances from seed ``first`` on that turning cannot solve."""
    env = make_room(task, 1)
    found: list[Instance] = []
    for seed in itertools.count(first):
        if len(found) == count:
            break
        _, info = env.reset(seed=seed)
        if info["distance"] > FARTHEST_BY_TURNING:
            rules = env.task
            found.append(Instance("bench", seed, rules.instance_hash(), int(info["distance"]), ""))
    return found


def episodes(instances: Sequence[Instance], members: int, stream: int) -> list[Episode]:
    """``members`` episodes of every instance; ``stream`` names their random numbers."""
    return [
        Episode(
            instance.instance_id,
            instance.hash,
            group_id=group,
            member=member,
            seed=sequence(0, stream, Stream.SAMPLING, group, member),
        )
        for group, instance in enumerate(instances)
        for member in range(members)
    ]


def groups(task: TaskConfig, batch: int, stream: int) -> list[Episode]:
    """A batch as an update of GRPO plays it; every stream has instances of its own."""
    members = min(GROUP, batch)
    first = FIRST_SEED + 10_000 * stream
    return episodes(rooms(task, batch // members, first), members, stream)
