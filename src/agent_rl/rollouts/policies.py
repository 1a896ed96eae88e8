"""Who acts: one protocol for scripted and learned policies.

A policy plays many episodes at once. ``start`` opens slots, ``act`` is called once per turn with
the slots that are still alive, ``record`` gives the tokens of a slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from agent_rl.tasks.base import TextTask


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy answers."""

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    command: str | None = None
    """What the task is told where that is not the text itself: the action of a tool call."""
    weights: str = ""
    """Fingerprint of the weights that sampled it; empty for scripted policies."""


class TokenRecord(NamedTuple):
    """Every token of one episode, see :class:`agent_rl.trajectory.Trajectory`."""

    token_ids: NDArray[np.int32]
    mask: NDArray[np.int8]
    logprobs: NDArray[np.float32]


EMPTY_RECORD = TokenRecord(np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.float32))


class Policy(Protocol):
    """Acts in many episodes in lock-step."""

    name: str
    weights: str
    """Fingerprint of the weights, empty for scripted policies."""
    temperature: float
    """0 means greedy."""

    def start(self, generators: Sequence[np.random.Generator], horizon: int) -> None:
        """Open one slot per generator; slot i draws from generator i only."""
        ...

    def act(
        self, slots: Sequence[int], observations: Sequence[str], tasks: Sequence[TextTask]
    ) -> list[Action | None]:
        """One action per living slot, or None where the token budget of the episode is spent.

        ``tasks`` are there for privileged (scripted) policies; a learned policy reads text only.
        """
        ...

    def record(self, slot: int) -> TokenRecord:
        """Tokens of an episode so far; empty for policies without tokens."""
        ...


class ScriptedPolicy:
    """Base of policies that follow a rule: one :meth:`choose` per slot and turn."""

    name = "scripted"
    weights = ""
    temperature = 1.0

    def __init__(self) -> None:
        self.generators: list[np.random.Generator] = []

    def start(self, generators: Sequence[np.random.Generator], horizon: int) -> None:
        self.generators = list(generators)

    def act(
        self, slots: Sequence[int], observations: Sequence[str], tasks: Sequence[TextTask]
    ) -> list[Action | None]:
        return [
            Action(self.choose(slot, observation, task))
            for slot, observation, task in zip(slots, observations, tasks, strict=True)
        ]

    def record(self, slot: int) -> TokenRecord:
        return EMPTY_RECORD

    def choose(self, slot: int, observation: str, task: TextTask) -> str:
        """Action text for one slot."""
        raise NotImplementedError


def random_action(task: TextTask, rng: np.random.Generator) -> str:
    """A uniformly drawn admissible action; the idle one where actions are free text.

    Raises: ValueError when the task claims that no action makes sense.
    """
    actions = task.admissible_actions()
    if actions is None:
        return task.idle_action()
    if not actions:
        raise ValueError(f"{type(task).__name__} lists no admissible actions to draw from")
    return actions[int(rng.integers(len(actions)))]


class RandomPolicy(ScriptedPolicy):
    """Draws uniformly from the admissible actions: the floor."""

    name = "random"

    def choose(self, slot: int, observation: str, task: TextTask) -> str:
        return random_action(task, self.generators[slot])


class OraclePolicy(ScriptedPolicy):
    """Follows the task's expert: the ceiling. It sees the state, not only the text."""

    name = "oracle"
    temperature = 0.0

    def choose(self, slot: int, observation: str, task: TextTask) -> str:
        return task.expert_action()


class SequencePolicy(ScriptedPolicy):
    """Plays a fixed list of actions, over and over: for audits and tests."""

    name = "sequence"
    temperature = 0.0

    def __init__(self, actions: Sequence[str]) -> None:
        super().__init__()
        self.actions = tuple(actions)
        self._turns: list[int] = []

    def start(self, generators: Sequence[np.random.Generator], horizon: int) -> None:
        super().start(generators, horizon)
        self._turns = [0] * len(generators)

    def choose(self, slot: int, observation: str, task: TextTask) -> str:
        action = self.actions[self._turns[slot] % len(self.actions)]
        self._turns[slot] += 1
        return action


@dataclass(frozen=True, slots=True)
class Purpose:
    """Shares of demonstrations by what the demonstrator is after; they sum to 1.

    A pretrained model has seen many behaviours, most of them not the one that is asked for.
    """

    right: float
    """Pursues the goal that is shown."""
    wrong: float
    """Pursues another goal that the world affords, drawn at random, then lingers there."""
    nearest: float
    """Pursues whatever goal is closest at the start, then lingers there."""
    wander: float
    """Acts at random."""
    quit: float
    """Sets out for the right goal and lingers after some steps."""
    noise: float = 0.0
    """Chance that any single action is replaced by a random one."""


class Demonstrator(ScriptedPolicy):
    """Demonstrations of mixed purpose, one purpose per episode, drawn from the slot's stream."""

    name = "demonstrator"

    def __init__(self, purpose: Purpose) -> None:
        super().__init__()
        self.purpose = purpose
        self._kinds: list[str] = []
        self._goals: list[str | None] = []
        self._patience: list[int] = []

    def start(self, generators: Sequence[np.random.Generator], horizon: int) -> None:
        super().start(generators, horizon)
        names = ("right", "wrong", "nearest", "wander", "quit")
        shares = np.array([getattr(self.purpose, name) for name in names])
        self._kinds = [names[int(rng.choice(len(names), p=shares))] for rng in generators]
        self._goals = [None] * len(generators)
        self._patience = [int(rng.integers(1, horizon)) for rng in generators]

    def choose(self, slot: int, observation: str, task: TextTask) -> str:
        rng, kind = self.generators[slot], self._kinds[slot]
        if kind == "wander" or rng.random() < self.purpose.noise:
            return random_action(task, rng)
        if kind in ("wrong", "nearest"):
            if self._goals[slot] is None:
                self._goals[slot] = self._other_goal(kind, task, rng)
            return task.expert_action(self._goals[slot] or None)
        if kind == "quit":
            self._patience[slot] -= 1
            if self._patience[slot] < 0:
                return task.idle_action()
        return task.expert_action()

    @staticmethod
    def _other_goal(kind: str, task: TextTask, rng: np.random.Generator) -> str:
        """The goal to pursue; empty for the instance's own."""
        goals = task.alternative_goals()
        if not goals:
            return ""
        if kind == "wrong":
            return goals[int(rng.integers(len(goals)))]
        closest = min(goals, key=task.goal_distance)
        return closest if task.goal_distance(closest) < task.goal_distance("") else ""
