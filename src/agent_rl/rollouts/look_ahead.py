"""Trying actions out on a private copy of a task, for policies that are allowed to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent_rl.errors import UserError
from agent_rl.tasks.base import TextTask


class Outcome(NamedTuple):
    """What an action leads to."""

    text: str
    valid: bool
    won: bool
    over: bool
    """Whether the task ended the episode, won or lost."""
    distance: float


class LookAhead:
    """What one action would lead to, found by replaying the episode on a private task.

    Tasks are deterministic, so the same actions from the same start give the same state; the task
    that is played is never touched.
    """

    def __init__(self, task: TextTask) -> None:
        self._task = task
        self._played: list[str] | None = None

    def forget(self) -> None:
        """A new episode begins."""
        self._played = None

    def outcome(self, task: TextTask, played: Sequence[str], action: str) -> Outcome:
        """What ``action`` leads to in the state that ``played`` led to.

        Raises: UserError when the instance cannot be made again.
        """
        if self._played != list(played):
            self._replay(task, played)
        text, success, terminated, _, info = self._task.step(action)
        # A state after the end cannot be played on, so that it must not count as known.
        self._played = None if terminated else [*played, action]
        return Outcome(
            text, bool(info["valid"]), bool(success), bool(terminated), float(info["distance"])
        )

    def _replay(self, task: TextTask, played: Sequence[str]) -> None:
        seed = task.np_random_seed
        self._task.reset(seed=seed)
        if self._task.instance_hash() != task.instance_hash():
            raise UserError(
                f"{type(task).__name__} cannot be replayed: reset(seed={seed}) makes another "
                "instance than the one that is played; call self.instance_seed(seed) in its reset"
            )
        for action in played:
            self._task.step(action)
