"""The section that shows episodes: what the agent read, what it wrote and what that was paid."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent_rl.reporting import style
from agent_rl.reporting.document import (
    DASH,
    Block,
    Missing,
    Paragraph,
    Table,
    count,
    number,
    plain,
)
from agent_rl.reporting.transcripts import Showcase, Transcript, Transcripts, TranscriptTurn

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


READING = (
    "Steps: exact number of expert steps to success before and after the turn. The columns on "
    "the right are what the turn is paid under each reward; the last turn of `shaped` also "
    "settles the potential, which is 0 at every end. The last row holds the final text, which "
    "nobody acts upon, and the sums."
)


def transcript_blocks(
    shown: Transcripts | None, tasks: Sequence[str], showcases: Sequence[Showcase] = ()
) -> list[Block]:
    """A heading line and a table per episode, then the rule that chose them.

    Args:
        shown: episodes of the study.
        tasks: of the study, in the order to show.
        showcases: runs beside the study, shown after it.
    """
    blocks: list[Block] = []
    if shown is None:
        blocks.append(Missing("`results/transcripts.json` is absent: no episode is shown."))
    else:
        for task in tasks:
            episodes = [episode for episode in shown.episodes if episode.task == task]
            if not episodes:
                blocks.append(Missing(f"No episode of `{task}` is in `results/transcripts.json`."))
            blocks += _episodes(episodes)
    for showcase in showcases:
        blocks += [Paragraph(_introduction(showcase)), *_episodes(showcase.shown.episodes)]
    sources = [*([shown] if shown else []), *(showcase.shown for showcase in showcases)]
    # One rule chose all of them, unless a file is older than the others.
    rules = dict.fromkeys(source.selection for source in sources)
    reading = [Paragraph(READING)] if rules else []
    return [*blocks, *reading, *(Paragraph(f"How they were chosen. {rule}") for rule in rules)]


def _episodes(episodes: Sequence[Transcript]) -> list[Block]:
    return [block for e in episodes for block in (Paragraph(_heading(e)), _table(e))]


def _introduction(showcase: Showcase) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in sorted(showcase.settings.items()))
    rates = ", ".join(
        f"{style.label(policy)} {number(rate)}" for policy, rate in showcase.success.items()
    )
    tokens = f"{count(showcase.total_tokens)} tokens (budget {count(showcase.budget_tokens)})"
    return (
        f"**{showcase.task}** ({settings or 'no settings'}; {showcase.horizon} turns allowed): "
        f"success on {count(showcase.test_episodes)} test episodes, greedy: {rates} (seed "
        f"{showcase.seed}, trained on {tokens}); one training seed: descriptive; not part of the "
        f"study's comparisons. Made by {literal(showcase.command)}."
    )


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
