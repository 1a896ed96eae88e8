"""Chats and engines as the settings ask for them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from agent_rl.config import ModelConfig, TaskConfig
from agent_rl.files import digest
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.tasks.registry import make_env

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agent_rl.rollouts.chat import Chat


_CHATS: dict[str, Chat] = {}


def make_chat(tokenizer: PreTrainedTokenizerBase, task: TaskConfig, model: ModelConfig) -> Chat:
    """Chat of a task, with its instructions as system message and its tools where the model wants
    them. A task without tools is played in free text.

    Equal tokenizers share one chat in a process, and with it the texts that were rendered before:
    the seeds of an arm read the same instances.
    """
    own = str(tokenizer.chat_template), repr(tokenizer), tokenizer.backend_tokenizer.to_str()
    key = digest([*own, asdict(task), model.instructions, model.tools])
    if key not in _CHATS:
        _CHATS[key] = _new_chat(tokenizer, task, model)
    return _CHATS[key]


def _new_chat(tokenizer: PreTrainedTokenizerBase, task: TaskConfig, model: ModelConfig) -> Chat:
    from agent_rl.rollouts.chat import Chat  # not needed by stages that only script policies

    if not model.instructions and not model.tools:
        return Chat(tokenizer)
    rules = make_env(task.family, task.settings, task.horizon).task
    tools = rules.tools if model.tools else ()
    told = rules.tool_instructions if tools else rules.instructions
    return Chat(tokenizer, told if model.instructions else "", tools)


def make_engine(name: str, task: TaskConfig, *, seed: int, batch_size: int = 256) -> RolloutEngine:
    """Engine that plays a task of the study."""
    return RolloutEngine(
        name,
        lambda: make_env(task.family, task.settings, task.horizon),
        batch_size=batch_size,
        seed=seed,
    )
