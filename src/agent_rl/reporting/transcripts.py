"""Reads ``results/transcripts.json`` and ``results/showcase/`` strictly: episodes to print."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_rl.errors import UserError
from agent_rl.reporting.style import ARMS

ENDS = ("success", "failure", "turn_limit", "token_limit", "error")


@dataclass(frozen=True)
class TranscriptTurn:
    """One exchange."""

    observation: str
    action: str
    valid: bool
    distance_before: float
    """Expert steps to success; inf when lost."""
    distance_after: float
    rewards: dict[str, float]
    """What the turn is paid, by reward specification."""


@dataclass(frozen=True)
class Transcript:
    """One episode."""

    task: str
    role: str
    """Why it was chosen."""
    policy: str
    seed: int | None
    """Training seed; None for policies that were not trained."""
    split: str
    decoding: str
    instance_id: int
    distance: float
    """Expert steps at the start; inf when unknown."""
    horizon: int
    turns: tuple[TranscriptTurn, ...]
    end: str
    final_observation: str


@dataclass(frozen=True)
class Transcripts:
    """All episodes and the rule that chose them."""

    selection: str
    episodes: tuple[Transcript, ...]


@dataclass(frozen=True)
class Showcase:
    """Episodes of one run beside the study, on one task."""

    task: str
    settings: dict[str, Any]
    """Of the task."""
    horizon: int
    test_episodes: int
    success: dict[str, float]
    """Share of the test episodes that succeed with greedy decoding, by policy."""
    arm: str
    """The policy that was trained."""
    budget_tokens: int
    total_tokens: int
    """Tokens that training processed."""
    seed: int
    command: str
    """What makes the file again."""
    shown: Transcripts


def load_transcripts(path: Path) -> Transcripts | None:
    """Read and check the file; None when it does not exist.

    Raises :class:`~agent_rl.errors.UserError` that names the file, the place and the value.
    """
    return _transcripts(_read(path)) if path.exists() else None


def load_showcases(folder: Path) -> tuple[Showcase, ...]:
    """Every ``*.json`` of the folder, by name; none when it does not exist.

    Raises :class:`~agent_rl.errors.UserError` as :func:`load_transcripts`.
    """
    return tuple(_showcase(_read(path)) for path in sorted(folder.glob("*.json")))


def _read(path: Path) -> _Reader:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    return _Reader(content, str(path))


class _Reader:
    """One JSON object; every wrong value is refused with its place."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, dict):
            raise UserError(f"{where}: must be one JSON object; run the stage that writes it again")
        self.content: dict[str, Any] = content
        self.where = where

    def value(self, key: str, wanted: type | tuple[type, ...], name: str) -> Any:
        if key not in self.content:
            raise UserError(
                f"{self.where}: key {key} is missing; run the stage that writes it again"
            )
        value = self.content[key]
        boolean = isinstance(value, bool) and wanted is not bool
        if boolean or not isinstance(value, wanted):
            raise UserError(f"{self.where}, key {key}: {value!r} is not {name}")
        return value

    def text(self, key: str) -> str:
        return str(self.value(key, str, "a text"))

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.text(key)
        if value not in allowed:
            raise UserError(
                f"{self.where}, key {key}: {value!r} is not one of {', '.join(allowed)}"
            )
        return value

    def whole(self, key: str) -> int:
        return int(self.value(key, int, "a whole number"))

    def number(self, key: str) -> float:
        value = float(self.value(key, (int, float), "a number"))
        if not math.isfinite(value):
            raise UserError(f"{self.where}, key {key}: {value!r} is not a finite number")
        return value

    def part(self, key: str) -> _Reader:
        return _Reader(self.value(key, dict, "an object"), f"{self.where}, {key}")

    def distance(self, key: str) -> float:
        """Expert steps; null means lost."""
        return math.inf if self.content.get(key, 0) is None else self.number(key)

    def items(self, key: str) -> list[_Reader]:
        values = self.value(key, list, "a list")
        return [_Reader(item, f"{self.where}, {key}[{index}]") for index, item in enumerate(values)]


def _transcripts(source: _Reader) -> Transcripts:
    episodes = source.items("episodes")
    return Transcripts(source.text("selection"), tuple(_transcript(item) for item in episodes))


def _showcase(source: _Reader) -> Showcase:
    header = source.part("header")
    arm = header.choice("arm", tuple(ARMS))
    rates = header.part("success")
    success = {policy: rates.number(policy) for policy in ("oracle", "base", arm)}
    for policy, rate in success.items():
        if not 0 <= rate <= 1:
            raise UserError(f"{rates.where}, key {policy}: {rate!r} is not in [0, 1]")
    return Showcase(
        task=header.text("task"),
        settings=header.part("settings").content,
        horizon=header.whole("horizon"),
        test_episodes=header.whole("test_episodes"),
        success=success,
        arm=arm,
        budget_tokens=header.whole("budget_tokens"),
        total_tokens=header.whole("total_tokens"),
        seed=header.whole("seed"),
        command=header.text("command"),
        shown=_transcripts(source),
    )


def _transcript(item: _Reader) -> Transcript:
    untrained = item.content.get("seed", 0) is None
    return Transcript(
        task=item.text("task"),
        role=item.text("role"),
        policy=item.choice("policy", tuple(ARMS)),
        seed=None if untrained else item.whole("seed"),
        split=item.text("split"),
        decoding=item.text("decoding"),
        instance_id=item.whole("instance_id"),
        distance=item.distance("distance"),
        horizon=item.whole("horizon"),
        turns=tuple(_turn(turn) for turn in item.items("turns")),
        end=item.choice("end", ENDS),
        final_observation=item.text("final_observation"),
    )


def _turn(item: _Reader) -> TranscriptTurn:
    paid = item.part("rewards")
    return TranscriptTurn(
        observation=item.text("observation"),
        action=item.text("action"),
        valid=bool(item.value("valid", bool, "true or false")),
        distance_before=item.distance("distance_before"),
        distance_after=item.distance("distance_after"),
        rewards={name: paid.number(name) for name in paid.content},
    )
