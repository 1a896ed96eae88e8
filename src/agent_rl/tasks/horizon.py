"""The horizon: how many turns an episode may take. It belongs to the study, not to the task."""

from __future__ import annotations

from typing import Any, cast

import gymnasium

from agent_rl.tasks.base import EpisodeOver, TextTask


class Horizon(gymnasium.Wrapper[str, str, str, str]):
    """Truncate an episode after ``horizon`` steps and refuse to step beyond its end.

    gymnasium's own ``TimeLimit`` keeps stepping after the limit; here that raises, so that no
    driver can be paid twice for one goal.
    """

    def __init__(self, env: gymnasium.Env[str, str], horizon: int) -> None:
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        super().__init__(env)
        self.horizon = horizon
        self._elapsed = 0
        self._over = True

    @property
    def task(self) -> TextTask:
        """The task under the wrappers."""
        return cast(TextTask, self.unwrapped)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self._elapsed = 0
        self._over = False
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EpisodeOver("the episode is over: call reset before step")
        text, success, terminated, truncated, info = self.env.step(action)
        self._elapsed += 1
        truncated = truncated or (not terminated and self._elapsed >= self.horizon)
        self._over = terminated or truncated
        return text, float(success), terminated, truncated, info
