"""Watch a policy play: every turn, what it was paid and how sure the model was.

With ``--seed N`` on a split that is evaluated, episodes have the random streams of the study's own
evaluation: the first of every instance is the one that was counted.

Run it:  python -m agent_rl watch babyai --policy artifacts/babyai/train/grpo_shaped/seed-0
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_rl.config import StudyConfig
from agent_rl.errors import UserError
from agent_rl.evaluation.episode_text import (
    Column,
    episode_text,
    logprob_column,
    reward_settings,
    turn_rewards,
)
from agent_rl.rewards import advantages, episode_facts
from agent_rl.rollouts.engine import Episode
from agent_rl.rollouts.setup import make_engine
from agent_rl.seeding import Stream
from agent_rl.stages.common import ARTIFACTS, Artifacts, episodes_of, guarded
from agent_rl.stages.policy_folder import make_policy
from agent_rl.stages.task_settings import (
    instance_arguments,
    load_task_study,
    named_instance,
    playable,
    split_instances,
)
from agent_rl.trajectory import Trajectory

STREAMS = ("test", "shifted", "val", "train")
"""Number of each split's random streams; the first two as in stage ``evaluate``."""
MOST_EPISODES = 1000
CREDITS = ("trajectory", "turn")


def watched_episodes(study: StudyConfig, options: argparse.Namespace) -> list[Episode]:
    """The episodes to play: K instances of a split, or K members of one group.

    A group (``--instance`` or ``--credit``) plays one instance K times.
    """
    task, count = study.task(options.task), options.episodes
    index = STREAMS.index(options.split)
    grouped = options.instance is not None or options.credit is not None
    members = count if grouped else 1
    if options.instance is not None:
        first, chosen = 0, [named_instance(options.task, task, options.instance)]
    else:
        first = options.seed
        last = first + (1 if grouped else count)
        if first < 0:
            raise UserError(f"--seed {first}: instances of a split are counted from 0")
        chosen = split_instances(options.task, task, options.split, last)
    episodes = episodes_of(study, chosen, 0, Stream.EVALUATION, index, members=members)
    return episodes[first * members :]


def reward_columns(
    trajectories: Sequence[Trajectory], study: StudyConfig, names: Sequence[str]
) -> list[list[Column]]:
    """For every trajectory a column per reward specification."""
    paid = {s.name: turn_rewards(trajectories, s) for s in reward_settings(study, names)}
    return [
        [Column(name, table[index], summed=True) for name, table in paid.items()]
        for index in range(len(trajectories))
    ]


def advantage_columns(
    trajectories: Sequence[Trajectory], columns: list[list[Column]], study: StudyConfig, credit: Any
) -> list[list[Column]]:
    """For every trajectory a column ``A name`` per reward: the advantages inside the group."""
    facts = episode_facts(trajectories)
    result: list[list[Column]] = [[] for _ in trajectories]
    for number, column in enumerate(columns[0]):
        (setting,) = reward_settings(study, [column.name])
        table = np.zeros(facts.alive.shape)
        for row, own in enumerate(columns):
            table[row, : len(own[number].values)] = own[number].values
        found = advantages(facts, table, credit=credit, gamma=setting.gamma)
        for row, trajectory in enumerate(trajectories):
            values = tuple(float(value) for value in found[row, : len(trajectory.turns)])
            result[row].append(Column(f"A {column.name}", values))
    return result


def summary(trajectories: Sequence[Trajectory], columns: Sequence[Sequence[Column]]) -> str:
    """One line over several episodes."""
    wins = sum(trajectory.success for trajectory in trajectories)
    parts = [
        f"{column.name} {np.mean([sum(own[number].values) for own in columns]):.3f}"
        for number, column in enumerate(columns[0])
        if column.summed
    ]
    turns = np.mean([len(trajectory.turns) for trajectory in trajectories])
    return (
        f"{len(trajectories)} episodes: {wins} won, mean turns {turns:.1f}, "
        f"mean return: {', '.join(parts)}"
    )


def watch(study: StudyConfig, options: argparse.Namespace) -> None:
    """Play and print."""
    task = study.task(options.task)
    playable(options.task, task)
    if not 1 <= options.episodes <= MOST_EPISODES:
        raise UserError(f"--episodes {options.episodes}: must lie between 1 and {MOST_EPISODES}")
    if options.credit is not None and options.episodes < 2:
        raise UserError(
            f"--credit {options.credit}: an advantage compares the members of a group; "
            "add --episodes 8 or another number of at least 2"
        )
    policy = make_policy(
        options.policy,
        study=study,
        task_name=options.task,
        artifacts=Artifacts(options.artifacts / options.task),
        temperature=options.temperature,
    )
    played = make_engine(options.task, task.on(options.split), seed=0).play(
        policy, watched_episodes(study, options)
    )
    names = options.reward or [reward.name for reward in study.rewards.values()]
    columns = reward_columns(played, study, names)
    extra: list[list[Column]] = [[] for _ in played]
    if options.credit is not None:
        extra = advantage_columns(played, columns, study, options.credit)
    for trajectory, paid, credited in zip(played, columns, extra, strict=True):
        sampled = any(turn.logprobs for turn in trajectory.turns)
        shown = [*paid, *credited, *([logprob_column(trajectory)] if sampled else [])]
        print(episode_text(trajectory, shown), end="\n\n")
    if options.credit is not None and not any(any(c.values) for own in extra for c in own):
        print("dead group: all returns are equal, every advantage is 0")
    if len(played) > 1:
        print(summary(played, columns))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m agent_rl watch", description="See a policy play a task, turn by turn."
    )
    instance_arguments(parser)
    parser.add_argument(
        "--policy", required=True, help="oracle, random, base, or the folder of a trained policy"
    )
    parser.add_argument(
        "--episodes",
        type=int,
        default=1,
        metavar="K",
        help="instances from --seed on; with --instance or --credit, one instance K times",
    )
    parser.add_argument(
        "--temperature", type=float, help="of a model's softmax; 0 is greedy (default: 0)"
    )
    parser.add_argument(
        "--reward",
        action="append",
        metavar="NAME",
        help="show this one of the study's rewards only (repeatable)",
    )
    parser.add_argument(
        "--credit", choices=CREDITS, help="play a group and show the advantages of its turns"
    )
    parser.add_argument("--artifacts", type=Path, default=ARTIFACTS, help="default: %(default)s")
    options = parser.parse_args(argv)
    return guarded(lambda: watch(load_task_study(options.task, options.set), options))


if __name__ == "__main__":
    sys.exit(main())
