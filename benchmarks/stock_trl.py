"""TRL's stock multi-turn path: ``GRPOTrainer(environment_factory=...)`` with its own generation.

Nothing of TRL is replaced: the trainer resets the environments, renders the prompts, generates
with transformers, reads the tool calls with the response template, calls the tool, appends the
result and generates again from the whole history. Only the wish for a comparison sets arguments:

* ``max_tool_calling_iterations`` is the horizon less one: TRL generates once before the loop, so
  every episode has exactly as many turns as in the other engines. (The last call is not carried
  out: TRL steps its environments once less.)
* ``generation_kwargs`` cuts a turn after as many tokens as in the other engines.
* loss, optimiser, micro-batches and batch are those of the study's arm.

Timed are rollouts (resets and ``_generate``) and the whole optimiser step with them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOTrainer

from agent_rl.training.grpo import grpo_arguments
from benchmarks.base import MAX_TOKENS, described, load_base
from benchmarks.cases import Measure, Sizes
from benchmarks.engines import MAX_ACTION_TOKENS, measure, speeds
from benchmarks.processes import peak_memory, settle
from benchmarks.room import TASK, make_room, rooms, study
from benchmarks.updates import UPDATES, update_arm


def environment(horizon: int) -> Any:
    """The room as an environment of TRL: a class whose public methods are the tools."""
    task = study().task(TASK)

    class Room:
        """One room, made once and reset for every episode."""

        seconds_resetting = 0.0

        def __init__(self) -> None:
            self._room = make_room(task, horizon)
            self._distance = 0.0

        def reset(self, seed: int, **_: Any) -> str:
            start = time.perf_counter()
            text, info = self._room.reset(seed=seed)
            self._distance = info["distance"]
            Room.seconds_resetting += time.perf_counter() - start
            return text

        def act(self, command: str) -> str:
            """
            Act once in the room.

            Args:
                command: the action.

            Returns:
                What the agent sees then.
            """
            text, _, _, _, info = self._room.step(command)
            self._distance = info["distance"]
            return text

        def get_reward(self) -> float:
            """How far the agent turned to its goal: it differs within a group."""
            return -float(self._distance)

    return Room


class Stopwatch(TrainerCallback):
    """Seconds of every whole step."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self._start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.steps.append(time.perf_counter() - self._start)


class TimedTrainer(GRPOTrainer):
    """The stock trainer, which notes what its rollouts took."""

    rollouts: list[tuple[float, int, int, float]]
    """Seconds, turns, sampled tokens and the process's peak memory of every batch."""

    def _generate(self, prompts: list[Any]) -> Any:
        start = time.perf_counter()
        result = super()._generate(prompts)
        seconds = time.perf_counter() - start
        masks = result[2]
        turns = sum(_runs(mask) for mask in masks)
        self.rollouts.append((seconds, turns, sum(map(sum, masks)), peak_memory()))
        return result


def _runs(mask: list[int]) -> int:
    """Turns of an episode: unbroken runs of sampled tokens."""
    return sum(1 for i, sampled in enumerate(mask) if sampled and (i == 0 or not mask[i - 1]))


def trl(sizes: Sizes, folder: Path) -> list[Measure]:
    """The stock path: rollouts and whole updates."""
    model, tokenizer = load_base(folder)
    config = study()
    arm = update_arm(config, sizes.batch)
    instances = rooms(config.task(TASK), 4 * sizes.batch // arm.group_size)
    arguments = grpo_arguments(arm, config.train, MAX_TOKENS, seed=0)
    arguments.max_steps = UPDATES
    arguments.learning_rate = arm.learning_rate
    arguments.scale_rewards = "group"
    arguments.max_tool_calling_iterations = sizes.horizon - 1
    arguments.generation_kwargs = {"max_new_tokens": MAX_ACTION_TOKENS}
    room, watch = environment(sizes.horizon), Stopwatch()
    trainer = TimedTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(
            {
                "prompt": [[{"role": "user", "content": ""}] for _ in instances],
                "seed": [instance.instance_id for instance in instances],
            }
        ),
        processing_class=tokenizer,
        environment_factory=room,
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.rollouts = []
    name = described(model)
    before = peak_memory()
    settle()
    trainer.train()
    assert len(trainer.rollouts) == len(watch.steps) == UPDATES
    seconds, turns, tokens, _ = trainer.rollouts[-1]
    found = speeds(
        "trl",
        name,
        sizes.batch,
        sizes.horizon,
        seconds=seconds + room.seconds_resetting / UPDATES,
        turns=turns,
        tokens=tokens,
        memory=(before, trainer.rollouts[0][-1]),  # the first: nothing was trained yet
    )
    rest = {"updates/s": 1 / watch.steps[-1], "peak memory of updates, MiB": peak_memory()}
    return found + [measure("trl", name, sizes.batch, key, value) for key, value in rest.items()]
