"""An episode as text for the terminal, and what each of its turns was paid."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent_rl.config import GRPOArmConfig, RewardConfig, StudyConfig
from agent_rl.errors import UserError
from agent_rl.rewards import episode_facts, rewards
from agent_rl.trajectory import EndReason, Trajectory, Turn

WIDTH = 100

ENDINGS = {
    EndReason.SUCCESS: "success",
    EndReason.FAILURE: "failure: the task ended the episode",
    EndReason.TURN_LIMIT: "turn limit",
    EndReason.TOKEN_LIMIT: "token limit: the next turn would not have fitted",
    EndReason.ERROR: "error in the task",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A number per turn."""

    name: str
    values: tuple[float, ...]
    """(T,) nan where there is none."""
    summed: bool = False
    """Whether the sum over the turns means something."""


def reward_settings(study: StudyConfig, names: Sequence[str]) -> list[RewardConfig]:
    """Reward specifications by name, as the study's first arm that trains with each is paid.

    One that no arm trains with is that of the study's list of rewards.

    Raises: UserError for a name that the study does not have.
    """
    known = known_rewards(study)
    for name in names:
        if name not in known:
            raise UserError(f"unknown reward {name!r}; this study has: {', '.join(sorted(known))}")
    return [known[name] for name in names]


def known_rewards(study: StudyConfig) -> dict[str, RewardConfig]:
    """Every reward that the study lists or pays an arm; an arm's own settings come first."""
    arms = [arm.reward for arm in study.arms.values() if isinstance(arm, GRPOArmConfig)]
    known = {reward.name: reward for reward in study.rewards.values()}
    return known | {reward.name: reward for reward in reversed(arms)}


def turn_rewards(
    trajectories: Sequence[Trajectory], settings: RewardConfig
) -> list[tuple[float, ...]]:
    """Reward of every turn of every trajectory under one specification."""
    table = rewards(settings, episode_facts(trajectories))
    # + 0.0 turns a negative zero, which shaping can give, into a plain one.
    return [
        tuple(float(value) + 0.0 for value in row[: len(trajectory.turns)])
        for row, trajectory in zip(table, trajectories, strict=True)
    ]


def logprob_column(trajectory: Trajectory) -> Column:
    """Mean log-probability of the tokens of each action; nan for policies without tokens."""
    means = tuple(
        float(np.mean(turn.logprobs)) if turn.logprobs else math.nan for turn in trajectory.turns
    )
    return Column("log-prob", means)


def episode_text(trajectory: Trajectory, columns: Sequence[Column], title: str = "") -> str:
    """The episode turn by turn: what the agent read, then a row with its action and the numbers.

    Args:
        trajectory: what happened.
        columns: numbers per turn, each as long as the episode.
        title: put before the first line, e.g. the split.

    Returns: lines of about ``WIDTH`` characters; an action is never broken.
    """
    lines = [title] if title else []
    lines.append(_start(trajectory))
    names = "  ".join(f"{column.name:>{_width(column)}}" for column in columns)
    lines.append(_row("turn", "valid", "distance", names, "action"))
    for index, turn in enumerate(trajectory.turns):
        lines += _read(turn.observation)
        numbers = "  ".join(_number(column.values[index], _width(column)) for column in columns)
        lines.append(_row(f"{index + 1:4d}", _valid(turn), _distance(turn), numbers, turn.action))
    if trajectory.final_observation:
        lines += _read(trajectory.final_observation)
    if any(column.summed for column in columns):
        sums = "  ".join(
            _number(sum(column.values) if column.summed else math.nan, _width(column))
            for column in columns
        )
        lines.append(_row(" sum", "", "", sums, "(return, not discounted)"))
    lines.append(f"end: {_end(trajectory)} after {len(trajectory.turns)} turns")
    return "\n".join(lines)


def _start(trajectory: Trajectory) -> str:
    known = trajectory.distances
    away = f"{_steps(known[0])} expert steps away, " if len(known) else ""
    weights = f" ({trajectory.weights})" if trajectory.weights else ""
    return (
        f"{trajectory.task}, instance {trajectory.instance_id}: {away}"
        f"{trajectory.horizon} turns allowed; policy {trajectory.policy}{weights}, "
        f"temperature {trajectory.temperature:g}"
    )


def _end(trajectory: Trajectory) -> str:
    said = ENDINGS[trajectory.end]
    return f"{said} ({trajectory.error})" if trajectory.error else said


def _row(turn: str, valid: str, distance: str, numbers: str, action: str) -> str:
    row = f"{turn}  {valid:>5}  {distance:>8}  {numbers}"
    return f"{row}{'  ' if numbers else ''}{action or '(nothing)'}"


def _read(observation: str) -> list[str]:
    lines = observation.splitlines() or ["(nothing)"]
    return [
        part
        for line in lines
        for part in textwrap.wrap(
            line, WIDTH, initial_indent="      | ", subsequent_indent="      |   "
        )
    ]


def _valid(turn: Turn) -> str:
    return "yes" if turn.valid else "NO"


def _distance(turn: Turn) -> str:
    return f"{_steps(turn.distance_before)} > {_steps(turn.distance_after)}"


def _steps(distance: float) -> str:
    return "lost" if math.isinf(distance) else f"{distance:g}"


def _width(column: Column) -> int:
    return max(6, len(column.name))


def _number(value: float, width: int) -> str:
    return f"{'-' if math.isnan(value) else format(value, '.3f'):>{width}}"
