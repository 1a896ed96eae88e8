"""The results files on rewards: audit, dead groups, what the base is paid, cards.

Each may be absent, because a study need not audit its rewards, and each may hold rows of tasks
that the report does not show; those are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from agent_rl.errors import UserError
from agent_rl.reporting.csv_files import (
    Schema,
    check_choice,
    check_range,
    check_unique,
    read_csv,
    read_object,
)

FARMABLE, PAYS_FAILURES, TIGHT = "farmable", "pays failures", "tight"
VERDICTS = (FARMABLE, PAYS_FAILURES, TIGHT)
CREDITS = ("trajectory", "turn")
ORACLE = "oracle"

_SCHEMAS: dict[str, Schema] = {
    "reward_audit": {
        "task": "str",
        "reward": "str",
        "policy": "str",
        "mean_return": "float",
        "success_rate": "float",
        "episodes": "int",
        "mean_return_failed": "float?",
        "max_return": "float",
        "beats_oracle_share": "float?",
    },
    "reward_verdicts": {
        "task": "str",
        "reward": "str",
        "oracle_return": "float",
        "floor_return": "float?",
        "best_exploit": "str?",
        "best_exploit_return": "float?",
        "paid_failures": "float?",
        "declared_maximum": "float?",
        "highest_return": "float",
        "farmable": "str",
        "verdict": "str",
    },
    "tabular_check": {
        "maze": "str",
        "reward": "str",
        "setting": "str",
        "states": "int",
        "differing_states": "int",
        "example": "str?",
    },
    "dead_groups": {
        "task": "str",
        "reward": "str",
        "credit": "str",
        "group_size": "int",
        "instances": "int",
        "groups": "int",
        "measured": "float",
        "measured_low": "float?",
        "measured_high": "float?",
        "predicted": "float?",
        "predicted_low": "float?",
        "predicted_high": "float?",
    },
    "reward_stats": {
        "task": "str",
        "reward": "str",
        "episodes": "int",
        "mean": "float?",
        "std_in_group": "float?",
        "variance_in_group": "float?",
        "correlation_with_success": "float?",
    },
    "rubric_criteria": {
        "task": "str",
        "reward": "str",
        "criterion": "str",
        "weight": "float",
        "rate": "float?",
        "correlation_with_success": "float?",
    },
    "judge": {
        "task": "str",
        "reward": "str",
        "groups": "int",
        "invalid_groups": "int",
        "requests": "int",
        "retries": "int",
        "pair_agreement": "float?",
        "pairs": "int",
        "order_effect": "float?",
        "order_disagreement": "float?",
    },
}
_KEYS = {
    "reward_audit": ["task", "reward", "policy"],
    "reward_verdicts": ["task", "reward"],
    "tabular_check": ["maze", "reward", "setting"],
    "dead_groups": ["task", "reward", "credit", "group_size"],
    "reward_stats": ["task", "reward"],
    "rubric_criteria": ["task", "reward", "criterion"],
    "judge": ["task", "reward"],
}
_SHARES = {
    "reward_audit": ("success_rate", "beats_oracle_share"),
    "dead_groups": ("measured", "predicted"),
    "rubric_criteria": ("rate",),
    "judge": ("pair_agreement",),
}
CARD_TEXTS = ("formula", "target", "signal", "encoding", "source")


@dataclass(frozen=True, slots=True)
class CardText:
    """What the code says of one reward; an empty text means that it says nothing."""

    texts: dict[str, str]
    """Text by key of ``CARD_TEXTS``."""
    settings: dict[str, Any]
    tasks: tuple[str, ...]
    """Tasks on which the study scores with it; empty when it is not bound to any."""


@dataclass(frozen=True, eq=False)
class RewardFiles:
    """The files on rewards by name; a file that is absent has no entry."""

    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    """Tables by name of the file without suffix, rows of the study's tasks only."""
    cards: dict[str, CardText] | None = None
    """Cards by name of the reward; None when the file is absent."""

    def rows(self, name: str, **where: object) -> pd.DataFrame:
        """The rows of a table in which every column of ``where`` has that value.

        Empty with its columns where the file is absent.
        """
        frame = self.frames.get(name)
        if frame is None:
            frame = pd.DataFrame(columns=list(_SCHEMAS[name]))
        for column, value in where.items():
            frame = frame[frame[column] == value]
        return frame

    @property
    def names(self) -> list[str]:
        """Every reward that a card, the audit or the scored rollouts know, in display order."""
        known = set(self.cards or {})
        for name in ("reward_verdicts", "reward_stats", "dead_groups"):
            known |= set(self.rows(name)["reward"])
        return reward_order(known)


def reward_order(names: set[str]) -> list[str]:
    """Rewards in display order: the plainest first, then those of the names' order."""
    first = ("sparse", "dense", "shaped")
    return [name for name in first if name in names] + sorted(names - set(first))


def load_reward_files(results_dir: Path, tasks: Sequence[str]) -> RewardFiles:
    """Read and check the files that are there; rows of other tasks are left out.

    Raises :class:`~agent_rl.errors.UserError` that names the file, the line, the column and the
    value.
    """
    frames = {
        name: _load(results_dir / f"{name}.csv", name, tasks)
        for name in _SCHEMAS
        if (results_dir / f"{name}.csv").exists()
    }
    path = results_dir / "reward_cards.json"
    return RewardFiles(frames, _load_cards(path, tasks) if path.exists() else None)


def _load(path: Path, name: str, tasks: Sequence[str]) -> pd.DataFrame:
    frame = read_csv(path, _SCHEMAS[name])
    check_unique(frame, _KEYS[name], path)
    check_range(frame, _SHARES.get(name, ()), 0.0, 1.0, path)
    if "correlation_with_success" in frame:
        check_range(frame, ("correlation_with_success",), -1.0, 1.0, path)
    if name == "dead_groups":
        check_choice(frame, "credit", CREDITS, path)
        check_range(frame, ("group_size",), 1, float("inf"), path)
    if name == "reward_verdicts":
        # Failures of a reward that is farmed may earn more than the oracle does.
        check_range(frame, ("paid_failures",), 0.0, float("inf"), path)
        _check_verdicts(frame, path)
    return frame[frame["task"].isin(tasks)].reset_index(drop=True) if "task" in frame else frame


def _check_verdicts(frame: pd.DataFrame, path: Path) -> None:
    """The word and the flag must say the same of every reward."""
    frame["farmable"] = frame["farmable"].str.lower()
    check_choice(frame, "farmable", ("true", "false"), path)
    check_choice(frame, "verdict", VERDICTS, path)
    differ = frame[(frame["farmable"] == "true") != (frame["verdict"] == FARMABLE)]
    if len(differ):
        row = differ.iloc[0]
        raise UserError(
            f"{path}, line {differ.index[0] + 2}: farmable is {row['farmable']}, but the verdict "
            f"is {row['verdict']!r}; run the publish stage again"
        )


def _load_cards(path: Path, tasks: Sequence[str]) -> dict[str, CardText]:
    cards = {}
    for name, entry in sorted(read_object(path).items()):
        where = f"{path}, {name}"
        if not isinstance(entry, dict):
            raise UserError(f"{where}: must be one JSON object; run the publish stage again")
        texts = {key: _entry(entry, key, str, "a text", where) for key in CARD_TEXTS}
        settings = _entry(entry, "settings", dict, "an object", where)
        own = _entry(entry, "tasks", list, "a list", where)
        if not all(isinstance(task, str) for task in own):
            raise UserError(f"{where}, key tasks: {own!r} is not a list of texts")
        if not own or set(own) & set(tasks):
            cards[name] = CardText(texts, settings, tuple(task for task in tasks if task in own))
    return cards


def _entry(entry: dict[str, Any], key: str, wanted: type, kind: str, where: str) -> Any:
    if key not in entry:
        raise UserError(f"{where}: key {key} is missing; run the publish stage again")
    if not isinstance(entry[key], wanted):
        raise UserError(f"{where}, key {key}: {entry[key]!r} is not {kind}")
    return entry[key]
