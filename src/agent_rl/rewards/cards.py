"""What a reward says of itself: the labelled parts of its docstring, for its card in the report."""

from __future__ import annotations

import inspect
import re
from dataclasses import asdict
from typing import Any

from agent_rl.config import RewardConfig
from agent_rl.rewards.specs import JUDGE, find_reward

LABELS = ("Target", "Signal", "Encoding", "Source")

JUDGE_CARD = """r_t = [t is the last turn] mean of the judge's scores over the orders shown

Target: do what the task asks better than the other attempts from the same start.
Signal: the texts of all attempts of a group, read together by a model that is told no outcome.
Encoding: a score in [0, 1] at the last turn, comparable inside a group only; a group without a
valid answer is left out.
Source: RULER, OpenPipe 2025 (art.openpipe.ai/fundamentals/ruler).
"""
"""The judge is no function of facts, so that its card stands here."""


def card(config: RewardConfig) -> dict[str, Any]:
    """Formula, target, signal, encoding and source of a reward, and its settings.

    A part that the docstring does not state is empty.

    Raises: UserError for an unknown reward.
    """
    text = JUDGE_CARD
    if config.name != JUDGE:
        text = inspect.getdoc(find_reward(config.name).function) or ""
    settings = asdict(config)
    # An address is the business of whoever runs the study, and no part of a result.
    settings["judge"] = config.judge.model if config.judge else None
    return {"formula": _formula(text), **_parts(text), "settings": settings}


def _formula(text: str) -> str:
    first = text.split("\n\n", 1)[0]
    return " ".join(first.split()).removesuffix(".")


def _parts(text: str) -> dict[str, str]:
    """Text after each label, up to the next label or an empty line."""
    found = {}
    for label in LABELS:
        match = re.search(rf"^{label}: (.*?)(?=\n\s*\n|\n[A-Z][a-z]+: |\Z)", text, re.M | re.S)
        found[label.lower()] = " ".join(match.group(1).split()) if match else ""
    return found
