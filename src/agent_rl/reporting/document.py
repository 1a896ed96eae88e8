"""The report as a list of sections, so that Markdown and HTML say the same thing.

Text may hold `code` and **strong** spans and nothing else; both templates know how to show these.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from agent_rl.evaluation.statistics import Estimate
from agent_rl.reporting.drawing import SavedFigure

DASH = "–"


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str
    kind: str = "paragraph"


@dataclass(frozen=True)
class Bullets:
    """Sentences one below the other."""

    lines: list[str]
    kind: str = "bullets"


@dataclass(frozen=True)
class Table:
    """A table of ready-made strings; the first ``text_columns`` columns are left-aligned."""

    header: list[str]
    rows: list[list[str]]
    text_columns: int = 1
    kind: str = "table"


@dataclass(frozen=True)
class Picture:
    """A figure with its caption."""

    figure: SavedFigure
    kind: str = "picture"


@dataclass(frozen=True)
class Missing:
    """A visible line in the place of something that could not be shown."""

    text: str
    kind: str = "missing"


@dataclass(frozen=True)
class Code:
    """Commands, one per line."""

    lines: list[str]
    kind: str = "code"


@dataclass(frozen=True)
class Card:
    """A page of its own in Markdown, a part that opens in HTML."""

    name: str
    file: str
    """Name of the page without suffix."""
    summary: str
    """What the link to it says beside the name."""
    blocks: list[Block]

    @property
    def link(self) -> str:
        """The name as the text of a link."""
        return plain(self.name).replace("`", "'")


@dataclass(frozen=True)
class Cards:
    """Cards one below the other."""

    cards: list[Card]
    kind: str = "cards"


Block = Paragraph | Bullets | Table | Picture | Missing | Code | Cards


@dataclass(frozen=True)
class Section:
    """A heading and what follows it."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Identifier for links inside the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Document:
    """The whole report."""

    title: str
    sections: list[Section]


def number(value: float, digits: int = 3) -> str:
    """A number with fixed digits, or a dash."""
    return DASH if math.isnan(value) else f"{_rounded(value, digits):.{digits}f}"


def with_sign(value: float, digits: int = 3) -> str:
    """A difference with its sign, or a dash."""
    return DASH if math.isnan(value) else f"{_rounded(value, digits):+.{digits}f}"


def _rounded(value: float, digits: int) -> float:
    """Without a minus before a zero."""
    return round(value, digits) + 0.0


def count(value: float) -> str:
    """A whole number with thousands separators, or a dash."""
    return DASH if value is None or math.isnan(value) else f"{round(value):,}"


def interval(estimate: Estimate, signed: bool = False) -> str:
    """``0.512 [0.470, 0.554]``; without bounds where there are none, a dash without a value."""
    if math.isnan(estimate.value):
        return DASH
    show = with_sign if signed else number
    text = show(estimate.value)
    if estimate.has_interval:
        text += f" [{show(estimate.low)}, {show(estimate.high)}]"
    return text


def plain(text: str) -> str:
    """Text that carries no mark-up of its own: one line, no pipe or angle bracket taken as such."""
    return " ".join(str(text).split())


def markdown_text(text: str) -> str:
    """Inline text for Markdown: HTML is shown, not interpreted."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    """HTML and a lone asterisk (a product, not emphasis) as they are."""
    shown = text.replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"(?<!\*)\*(?!\*)", r"\\*", shown)


def markdown_cell(text: str) -> str:
    """A table cell for Markdown."""
    return markdown_text(plain(text)).replace("|", "\\|")


def html_text(text: str) -> Markup:
    """Inline text for HTML with code and strong spans."""
    safe = str(escape(text))
    safe = re.sub(r"`([^`]*)`", r"<code>\1</code>", safe)
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe))
