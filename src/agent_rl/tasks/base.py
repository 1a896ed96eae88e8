"""What every task is: a gymnasium environment with text in, text out, and exact facts.

A task states what happened. It never says what that is worth: the second value of ``step`` is
success (0 or 1), and every reward of the study is computed elsewhere from ``info``.
"""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypedDict

import gymnasium

MAX_TEXT = 4096
"""Longest observation or action, in characters, that the declared spaces admit."""

CHARSET = string.printable


class TaskInfo(TypedDict):
    """Facts that accompany every observation."""

    valid: bool
    """Whether the last action was understood (True after ``reset``)."""
    success: bool
    """Whether the goal holds now."""
    distance: float
    """Exact number of expert steps to success; 0 when won, inf when lost."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a tool; every argument is required."""

    name: str
    kind: Literal["string", "integer"]
    """Type in the sense of JSON Schema."""
    description: str

    def text(self, value: object) -> str | None:
        """The value as it stands in an action, or None when it is of another type."""
        if self.kind == "string":
            return value if isinstance(value, str) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
            return None
        return str(int(value))


@dataclass(frozen=True, slots=True)
class Tool:
    """A kind of action as a function that a chat model can call.

    The action is the tool's name followed by the arguments in order. Blanks may stand in the last
    argument only, so that an action can be read back as a call.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...] = ()

    def schema(self) -> dict[str, Any]:
        """The function as chat templates take it, its parameters as JSON Schema."""
        parameters = {
            "type": "object",
            "properties": {
                p.name: {"type": p.kind, "description": p.description} for p in self.parameters
            },
            "required": [p.name for p in self.parameters],
            "additionalProperties": False,
        }
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def action(self, arguments: Mapping[str, object]) -> str | None:
        """Action of a call, or None when the arguments are not those of the schema."""
        if arguments.keys() != {p.name for p in self.parameters}:
            return None
        values = [p.text(arguments[p.name]) for p in self.parameters]
        if None in values or any(len(str(value).split()) != 1 for value in values[:-1]):
            return None
        return " ".join([self.name, *(str(value) for value in values)])

    def arguments(self, action: str) -> dict[str, str | int]:
        """Arguments of the call that stands for an action.

        Raises: ValueError when the action is not one of this tool.
        """
        name, *values = action.split(" ", len(self.parameters))
        if name != self.name or len(values) != len(self.parameters):
            raise ValueError(f"{action!r} is no action of tool {self.name}")
        return {
            p.name: int(value) if p.kind == "integer" else value
            for p, value in zip(self.parameters, values, strict=True)
        }


class EpisodeOver(RuntimeError):
    """Raised by ``step`` after the end of an episode."""


class TextTask(gymnasium.Env[str, str], ABC):
    """A multi-step task that is read and played as text.

    A task of one's own defines the six abstract methods; :meth:`instance_seed` and :meth:`facts`
    take the routine out of ``reset`` and ``step``. ``examples/jugs.py`` is a complete one.

    ``reset(seed=s)`` makes instance ``s``: equal seeds give equal instances, whatever was played
    before. ``step`` takes any text; what the task does not understand costs a step, changes
    nothing and is reported as ``info["valid"] = False``. The empty text is never understood. A
    fault of the task raises.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (declared so by gymnasium)
    instructions: ClassVar[str] = ""
    """What a reader who has never seen the task must know; the system message of chat models."""
    tools: tuple[Tool, ...] = ()
    """The actions as functions, for models that call tools; empty where there are none. Together
    they cover every action of the expert and of :meth:`admissible_actions`."""
    tool_instructions: ClassVar[str] = ""
    """The system message in place of ``instructions`` where the actions are tool calls."""
    vocabulary: ClassVar[tuple[str, ...]] = ()
    """Every word that observations and valid actions can contain, for word-level tokenizers."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Text(MAX_TEXT, min_length=0, charset=CHARSET)
        self.action_space = gymnasium.spaces.Text(MAX_TEXT, min_length=0, charset=CHARSET)

    @abstractmethod
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an instance; the text holds the goal and the first observation."""

    @abstractmethod
    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once.

        Returns: text, success (1.0 on the winning step, else 0.0), terminated, truncated (always
        False here: the horizon is the wrapper's), info.
        Raises: EpisodeOver after the end.
        """

    @abstractmethod
    def expert_action(self, goal: str | None = None) -> str:
        """First action of a shortest plan to ``goal`` (default: the instance's own goal).

        ``goal`` is one of :meth:`alternative_goals`. When that goal is reached already, the
        answer is an action that changes nothing.
        """

    @abstractmethod
    def goal_distance(self, goal: str) -> float:
        """Exact number of steps from here to one of :meth:`alternative_goals`; 0 when it holds.

        An empty ``goal`` means the instance's own.
        """

    @abstractmethod
    def idle_action(self) -> str:
        """A valid action that changes nothing in the present state."""

    @abstractmethod
    def instance_hash(self) -> str:
        """Hex digest of the full initial state, equal for states that no observation can tell
        apart (e.g. rotations of a room that is described from within)."""

    def alternative_goals(self) -> tuple[str, ...]:
        """Goals that this world also affords, other than its own; none unless a task names them.

        Demonstrations of mixed purpose pursue them; the mission that is shown stays the same.
        """
        return ()

    def admissible_actions(self) -> tuple[str, ...] | None:
        """Actions that make sense now, or None (the default) when actions are free text."""
        return None

    def exploits(self) -> Mapping[str, tuple[str, ...]]:
        """Scripts that look like work by name, for the reward audit; none unless a task has some.

        A script is played from the first turn on, then the idle action. It may use what the first
        observation tells, never the answer. The names are the same for all instances.
        """
        return {}

    def goal_key(self) -> str:
        """What the goal is about (e.g. ``red ball``): the shifted split holds some keys out.

        The default is empty: all goals are of one kind, and none can be held out.
        """
        return ""

    def instance_seed(self, seed: int | None, options: dict[str, Any] | None = None) -> int:
        """Seed of the instance that ``reset`` shall make; seeds the generator as gymnasium asks.

        Without a seed it is drawn from the generator of the last seeded reset.
        """
        gymnasium.Env.reset(self, seed=seed, options=options)
        return int(self.np_random.integers(2**31)) if seed is None else seed

    def facts(self, *, valid: bool = True) -> dict[str, Any]:
        """The ``info`` of the present state, see :class:`TaskInfo`: success is distance 0."""
        distance = float(self.goal_distance(""))
        return {"valid": valid, "success": distance == 0, "distance": distance}
