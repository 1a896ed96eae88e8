"""Looks of rewards and of scripted policies, fixed by name so that figures agree.

Colours are those of the arms (``style``); a name that is not known here takes the next free look
in the order of names, which is the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_rl.reporting import style
from agent_rl.reporting.reward_files import ORACLE, reward_order

_SPARE = ("#de8f05", "#029e73", "#cc78bc", "#7f5f3a", "#ca9161", "#949494", "#00664a", "#57606a")
_SPARE_MARKERS = ("s", "D", "^", "v", "<", ">", "p", "h")


@dataclass(frozen=True, slots=True)
class Look:
    """Colour and marker."""

    color: str
    marker: str


_LONGEST = 24

_REWARDS = {
    name: Look(style.ARMS[f"grpo_{name}"].color, style.ARMS[f"grpo_{name}"].marker)
    for name in ("sparse", "dense", "shaped")
}

POLICIES: dict[str, Look] = {
    ORACLE: Look(style.ARMS["oracle"].color, "*"),
    "random": Look("#949494", "o"),
    "oscillate": Look("#d55e00", "X"),
    "stall": Look("#0173b2", "s"),
    "stop_early": Look("#029e73", "^"),
    "repeat": Look("#de8f05", "D"),
    "answer_at_once": Look("#cc78bc", "v"),
    "dump": Look("#332288", "P"),
    "dawdle": Look("#7f5f3a", "h"),
}
"""Scripted policies of the audit, in display order."""


def short_name(name: str) -> str:
    """A name that leaves a figure its room: beginning and end of a long one."""
    return name if len(name) <= _LONGEST else f"{name[:8]}\u2026{name[-(_LONGEST - 9) :]}"


def reward_looks(names: set[str]) -> dict[str, Look]:
    """A look for every reward, in display order."""
    return _looks(reward_order(names), _REWARDS)


def policy_looks(names: set[str]) -> dict[str, Look]:
    """A look for every policy, in display order: the oracle first, unknown ones last."""
    known = [name for name in POLICIES if name in names]
    return _looks(known + sorted(names - set(POLICIES)), POLICIES)


def _looks(order: list[str], known: dict[str, Look]) -> dict[str, Look]:
    taken = {look.color for look in known.values()}
    colors = [color for color in _SPARE if color not in taken]
    looks = {}
    spare = 0
    for name in order:
        if name in known:
            looks[name] = known[name]
        else:
            # The markers run on when the colours begin again, so that no two looks are equal.
            turn, place = divmod(spare, len(colors))
            marker = _SPARE_MARKERS[(place + turn) % len(_SPARE_MARKERS)]
            looks[name] = Look(colors[place], marker)
            spare += 1
    return looks
