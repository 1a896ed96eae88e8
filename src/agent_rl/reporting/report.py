"""Builds ``reports/index.md`` and ``reports/report.html`` from ``results/``.

    python -m agent_rl.stages.report

The same results give the same bytes: no clock, host or path enters, figures have fixed metadata,
and the one bootstrap has a fixed stream.
"""

from __future__ import annotations

import base64
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from agent_rl.reporting import document
from agent_rl.reporting.drawing import SavedFigure
from agent_rl.reporting.figures import draw_all
from agent_rl.reporting.sections import build_document
from agent_rl.reporting.style import write_atomic
from agent_rl.reporting.tables import load_results


def build_report(results_dir: Path, reports_dir: Path) -> Path:
    """Write index.md, report.html, figures/ and rewards/; returns the path of index.md.

    Raises :class:`~agent_rl.errors.UserError` when a results file is missing or wrong; nothing is
    written then. Figures and reward cards that no longer belong to the report are removed.
    """
    results = load_results(results_dir)
    figures = draw_all(results, reports_dir / "figures")
    content = build_document(results, figures)
    index = reports_dir / "index.md"
    for path, template, autoescape in (
        (index, "index.md.j2", False),
        (reports_dir / "report.html", "report.html.j2", True),
    ):
        text = _environment(autoescape).get_template(template).render(document=content)
        write_atomic(path, text.encode())
    _write_cards(reports_dir / "rewards", content)
    return index


def _write_cards(directory: Path, content: document.Document) -> None:
    """One Markdown page for each reward; the folder is there even when no reward has a card."""
    directory.mkdir(parents=True, exist_ok=True)
    template = _environment(autoescape=False).get_template("card.md.j2")
    cards = [
        card
        for section in content.sections
        for block in section.blocks
        if isinstance(block, document.Cards)
        for card in block.cards
    ]
    for card in cards:
        write_atomic(directory / f"{card.file}.md", template.render(card=card).encode())
    keep = {f"{card.file}.md" for card in cards}
    for path in sorted(directory.iterdir()):
        if path.suffix in {".md", ".part"} and path.name not in keep:
            path.unlink()


def _environment(autoescape: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("agent_rl.reporting"),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["inline"] = document.html_text if autoescape else document.markdown_text
    environment.filters["cell"] = document.markdown_cell
    environment.filters["data_uri"] = _data_uri
    environment.filters["attribute"] = _attribute
    return environment


def _data_uri(figure: SavedFigure) -> str:
    encoded = base64.b64encode(figure.svg.read_bytes()).decode("ascii")
    return f"data:image/svg+xml;base64,{encoded}"


def _attribute(text: str) -> str:
    """Alt text inside Markdown brackets."""
    return document.plain(text).replace("[", "(").replace("]", ")")
