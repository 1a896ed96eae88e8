"""Play a task in the terminal: a person takes the place of the agent.

Run it:  python -m agent_rl play babyai
"""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections.abc import Callable, Sequence

from agent_rl.stages.common import guarded
from agent_rl.stages.task_settings import (
    instance_arguments,
    load_task_study,
    named_instance,
    playable,
    split_instances,
)
from agent_rl.tasks.horizon import Horizon
from agent_rl.tasks.instances import Instance

WIDTH = 100
COMMANDS = {
    ":help": "what the task is and what you may write",
    ":actions": "actions that make sense now",
    ":expert": "what the expert would do now",
    ":quit": "leave",
}

Read = Callable[[], str]
Write = Callable[[str], None]


def play(env: Horizon, instance: Instance, read: Read, write: Write) -> bool:
    """One episode; lines that begin with a colon are commands and cost no turn.

    Args:
        env: the task with its horizon.
        instance: which start to play.
        read: gives the next line; raises EOFError at the end of the input.
        write: shows a text.

    Returns: whether the goal was reached.
    """
    observation, info = env.reset(seed=instance.instance_id)
    distance, turns = float(info["distance"]), 0
    write(f"instance {instance.instance_id}: {_steps(distance)}, {env.horizon} turns allowed")
    write(f"write an action, or one of {', '.join(COMMANDS)}\n")
    write(_wrapped(observation))
    while True:
        try:
            line = read().strip()
        except EOFError:
            line = ":quit"
        if line == ":quit":
            write(f"left after {_count(turns, 'turn')}")
            return False
        if line.startswith(":"):
            write(_answer(line, env))
        elif line:
            observation, success, terminated, truncated, info = env.step(line)
            turns += 1
            distance = float(info["distance"])
            left = _count(env.horizon - turns, "turn")
            valid = "valid" if info["valid"] else "not understood: the turn is spent"
            write(f"[{valid} | {_steps(distance)} | {left} left]")
            if observation:
                write(_wrapped(observation))
            if terminated or truncated:
                return _over(bool(success), terminated, turns, instance, write)


def _over(success: bool, terminated: bool, turns: int, instance: Instance, write: Write) -> bool:
    if success:
        least = f"the expert needs {instance.distance:g}"
        write(f"success after {_count(turns, 'turn')}; {least}")
    elif terminated:
        write(f"failure: the task ended after {_count(turns, 'turn')} without success")
    else:
        write(f"turn limit: no success within {_count(turns, 'turn')}")
    return success


def _answer(command: str, env: Horizon) -> str:
    task = env.task
    if command == ":help":
        lines = [f"{name:9s} {text}" for name, text in COMMANDS.items()]
        return "\n".join([_wrapped(task.instructions or "(this task has no instructions)"), *lines])
    if command == ":actions":
        actions = task.admissible_actions()
        return "any text is an action" if actions is None else "\n".join(actions)
    if command == ":expert":
        return f"the expert would write: {task.expert_action()}"
    return f"no command {command}; commands are {', '.join(COMMANDS)}"


def _steps(distance: float) -> str:
    if math.isinf(distance):
        return "the goal is out of reach"
    return f"{_count(int(distance), 'expert step')} to the goal"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _wrapped(text: str) -> str:
    """Lines of at most WIDTH characters; the text's own line ends are kept."""
    return "\n".join(
        textwrap.fill(line, WIDTH, break_long_words=False) for line in text.splitlines()
    )


def read_line() -> str:
    """The next line of the terminal, or of a pipe, whose lines are shown as if typed."""
    line = input("> ")
    if not sys.stdin.isatty():
        print(line)
    return line


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m agent_rl play", description="Play a task in the terminal."
    )
    instance_arguments(parser)
    options = parser.parse_args(argv)

    def run() -> None:
        task = load_task_study(options.task, options.set).task(options.task)
        env = playable(options.task, task.on(options.split))
        if options.instance is not None:
            chosen = named_instance(options.task, task, options.instance)
        else:
            chosen = split_instances(options.task, task, options.split, options.seed + 1)[-1]
        try:
            play(env, chosen, read_line, print)
        except KeyboardInterrupt:
            print("\nleft")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
