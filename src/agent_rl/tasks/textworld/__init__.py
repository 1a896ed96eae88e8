"""TextWorld's games as a text task with exact distances (optional: the package textworld)."""

from agent_rl.tasks.textworld.task import TextWorldTask

__all__ = ["TextWorldTask"]
