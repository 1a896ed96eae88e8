"""The section that shows episodes: what the agent read, what it wrote and what that was paid."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent_rl.reporting import style
from agent_rl.reporting.document import DASH, Block, Missing, Paragraph, Table, number, plain
from agent_rl.reporting.transcripts import Transcript, Transcripts, TranscriptTurn

ROLES = {
    "oracle_first": "the first test instance",
    "failed": "the first failure of a trained agent",
    "oracle_same_instance": "the same instance as that failure",
    "successful": "the first success of the same arm",
}
ENDS = {
    "success": "success",
    "failure": "failure: the task ended the episode",
    "turn_limit": "no success within the turns allowed",
    "token_limit": "no success: the token budget of the episode was spent",
    "error": "the task crashed",
}


def transcript_blocks(shown: Transcripts | None, tasks: Sequence[str]) -> list[Block]:
    """A heading line and a table per episode, then the rule that chose them."""
    if shown is None:
        return [Missing("`results/transcripts.json` is absent: no episode is shown.")]
    blocks: list[Block] = []
    for task in tasks:
        episodes = [episode for episode in shown.episodes if episode.task == task]
        if not episodes:
            blocks.append(Missing(f"No episode of `{task}` is in `results/transcripts.json`."))
        for episode in episodes:
            blocks += [Paragraph(_heading(episode)), _table(episode)]
    reading = (
        "Steps: exact number of expert steps to success before and after the turn. The columns on "
        "the right are what the turn is paid under each reward; the last turn of `shaped` also "
        "settles the potential, which is 0 at every end. The last row holds the final text, which "
        "nobody acts upon, and the sums."
    )
    return [*blocks, Paragraph(reading), Paragraph(f"How they were chosen. {shown.selection}")]


def _heading(episode: Transcript) -> str:
    who = style.label(episode.policy)
    seed = "" if episode.seed is None else f", seed {episode.seed}, {episode.decoding}"
    why = ROLES.get(episode.role, episode.role)
    away = _steps(episode.distance)
    return (
        f"**{episode.task}: {who}{seed}**, instance {episode.instance_id} ({why}; {away} expert "
        f"steps away, {episode.horizon} turns allowed): {ENDS[episode.end]}, "
        f"{len(episode.turns)} turns."
    )


def _table(episode: Transcript) -> Table:
    paid = {name for turn in episode.turns for name in turn.rewards}
    names = sorted(paid, key=lambda name: (name != "sparse", name))
    rows = [
        [
            str(index),
            literal(turn.observation),
            literal(turn.action),
            "yes" if turn.valid else "**no**",
            f"{_steps(turn.distance_before)} → {_steps(turn.distance_after)}",
            *(number(turn.rewards.get(name, math.nan)) for name in names),
        ]
        for index, turn in enumerate(episode.turns, start=1)
    ]
    sums = [number(_total(episode.turns, name)) for name in names]
    rows.append(["end", literal(episode.final_observation), DASH, DASH, DASH, *sums])
    header = ["turn", "the agent reads", "it writes", "valid", "steps", *names]
    return Table(header, rows, text_columns=4)


def _total(turns: Sequence[TranscriptTurn], name: str) -> float:
    return sum(turn.rewards.get(name, math.nan) for turn in turns)


def _steps(distance: float) -> str:
    return "lost" if math.isinf(distance) else f"{distance:g}"


def literal(text: str) -> str:
    """Text of a task or a model as a code span, in which nothing is read as mark-up."""
    shown = plain(text).replace("`", "'")
    return f"`{shown}`" if shown else DASH
