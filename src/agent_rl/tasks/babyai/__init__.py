"""BabyAI levels of minigrid as a text task with exact distances."""

from agent_rl.tasks.babyai.levels import LEVELS
from agent_rl.tasks.babyai.task import BabyAITask

__all__ = ["LEVELS", "BabyAITask"]
