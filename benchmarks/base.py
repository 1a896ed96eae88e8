"""The model that all engines run: the study's, with just enough training to keep to the format.

Its tokenizer has a template for tool calls in which a call of the only tool, ``act``, is written as
its argument alone. So the tool calls that TRL's stock path needs and the plain answers that the
other engines read are the same tokens: two for an action, and not one more in any engine.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agent_rl.config import ModelConfig, StudyConfig, WarmstartConfig
from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.models import build_model, build_tokenizer, load_policy, save_policy
from agent_rl.tasks.babyai.render import VOCABULARY
from benchmarks.cases import Sizes
from benchmarks.room import TASK, Turner, groups, make_room, study

TOOL = "act"
ARGUMENT = "command"
DEMONSTRATIONS = 512
WARMING = 99
"""Stream of the demonstrations."""
MAX_TOKENS = 2048
"""Longest episode that the models are built for."""

_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}<act>"
    "{%- for call in message.get('tool_calls') or [] -%}"
    "{%- if call['function']['name'] == 'act' -%}"
    "{{ call['function']['arguments'].get('command', '') }}"
    "{%- else -%}"
    "{{ call['function']['name'] }}"
    "{%- for name, value in call['function']['arguments'].items() -%}"
    "{{ ' ' + name + ' ' + value }}"
    "{%- endfor -%}{%- endif -%}{%- endfor -%}"
    "{{ message['content'] }}<end>"
    "{%- else -%}{{ message['content'] + ' ' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<act>{%- endif -%}"
)
_RESPONSE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<act>",
    "fields": {
        "tool_calls": {
            "close_pattern": r"\s*<end>",
            "repeats": True,
            "content": "text",
            "transform": {
                "type": "function",
                "function": {"name": TOOL, "arguments": {ARGUMENT: "{content}"}},
            },
        },
    },
}
"""Reads what the template writes: whatever stands before the end is the argument of a call."""


def make_tokenizer() -> PreTrainedTokenizerBase:
    """The study's tokenizer for the room, with a template for calls of ``act``."""
    tokenizer = build_tokenizer(VOCABULARY)
    tokenizer.chat_template = _TEMPLATE
    tokenizer.response_template = _RESPONSE
    return tokenizer


def sized(config: ModelConfig, width: int, layers: int) -> ModelConfig:
    """The study's model at another size: heads of at most 32 numbers, gates three times as wide."""
    heads = max(4, width // 32)
    return replace(
        config, hidden_size=width, layers=layers, heads=heads, intermediate_size=3 * width
    )


def fresh_model(
    config: StudyConfig, tokenizer: PreTrainedTokenizerBase, width: int, layers: int
) -> PreTrainedModel:
    """A model of a size with fresh weights."""
    return build_model(sized(config.model, width, layers), tokenizer, MAX_TOKENS, seed=0)


def prepare_base(sizes: Sizes, folder: Path) -> None:
    """Train the model that all engines share and save it in ``folder``."""
    # Not at the top: engines that do not need TRL start without it.
    from agent_rl.training.supervised import written_tokens
    from agent_rl.training.warmstart import train_base

    config = study()
    task = config.task(TASK)
    tokenizer = make_tokenizer()
    chat = Chat(tokenizer)
    model = build_model(config.model, tokenizer, MAX_TOKENS, seed=0)
    engine = RolloutEngine(TASK, lambda: make_room(task, sizes.horizon), batch_size=DEMONSTRATIONS)
    played = engine.play(Turner(), groups(task, DEMONSTRATIONS, WARMING))
    train_base(
        model,
        tokenizer,
        [written_tokens(trajectory, chat) for trajectory in played],
        warmstart=WarmstartConfig(
            steps=sizes.warm_steps, batch_size=16, learning_rate=3e-3, weight_decay=0.0
        ),
        config=config.train,
        seed=0,
        report=lambda steps: None,
    )
    card = {"task": TASK, "method": "base", "seed": 0}
    save_policy(folder / "base", model, tokenizer, card)


def load_base(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model that :func:`prepare_base` left."""
    model, tokenizer, _ = load_policy(folder / "base", "make bench")
    assert isinstance(model, PreTrainedModel)
    tokenizer.response_template = _RESPONSE
    return model, tokenizer


def sampler(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_action_tokens: int,
    weights: str = "",
) -> ModelPolicy:
    """Our policy at temperature 1; ``weights`` is their fingerprint, where turns shall carry it."""
    return ModelPolicy(
        "bench",
        model,
        Chat(tokenizer),
        temperature=1.0,
        max_action_tokens=max_action_tokens,
        max_tokens=MAX_TOKENS,
        weights=weights,
    )


def described(model: PreTrainedModel) -> str:
    """Name of a model by its size, e.g. ``Llama d=64, 2 layers, 0.11 M``."""
    config = model.config
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    return f"Llama d={config.hidden_size}, {config.num_hidden_layers} layers, {millions:.2f} M"
