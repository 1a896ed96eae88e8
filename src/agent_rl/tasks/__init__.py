"""Tasks: text environments that state exact facts, their splits and their horizon."""

from agent_rl.tasks.base import EpisodeOver, TaskInfo, TextTask
from agent_rl.tasks.horizon import Horizon
from agent_rl.tasks.instances import Instance, build_instances, overlap
from agent_rl.tasks.registry import (
    Family,
    family_names,
    goal_keys,
    make_env,
    make_task,
    register_family,
    register_levels,
)

register_levels()

__all__ = [
    "EpisodeOver",
    "Family",
    "Horizon",
    "Instance",
    "TaskInfo",
    "TextTask",
    "build_instances",
    "family_names",
    "goal_keys",
    "make_env",
    "make_task",
    "overlap",
    "register_family",
]
