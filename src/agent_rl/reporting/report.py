"""Builds ``reports/index.md`` and ``reports/report.html`` from ``results/``.

    python -m agent_rl.stages.report

The same results give the same bytes: no clock, host or path enters, figures have fixed metadata,
and the one bootstrap has a fixed stream.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from agent_rl.files import together
from agent_rl.reporting import document
from agent_rl.reporting.drawing import SavedFigure
from agent_rl.reporting.figures import Gap, draw_all
from agent_rl.reporting.sections import build_document
from agent_rl.reporting.style import write_atomic
from agent_rl.reporting.tables import load_results


def build_report(results_dir: Path, reports_dir: Path) -> Path:
    """Write index.md, report.html, figures/ and rewards/; returns the path of index.md.

    Raises :class:`~agent_rl.errors.UserError` when a results file is missing or wrong, or when the
    report cannot be written; an earlier report stays as it was then. Figures and reward cards that
    no longer belong to the report are removed.
    """
    results = load_results(results_dir)
    with together(reports_dir) as staged:
        figures = draw_all(results, staged / "figures")
        content = build_document(results, figures)
        for name, template, autoescape in (
            ("index.md", "index.md.j2", False),
            ("report.html", "report.html.j2", True),
        ):
            text = _environment(autoescape).get_template(template).render(document=content)
            write_atomic(staged / name, text.encode())
        cards = _write_cards(staged / "rewards", content)
    # The folders are there even when a report has no figure or no reward a card.
    for folder, kinds, keep in (
        ("figures", {".svg", ".png", ".csv", ".tmp"}, _names(figures)),
        ("rewards", {".md", ".part"}, cards),
    ):
        _remove_stale(reports_dir / folder, kinds, keep)
    return reports_dir / "index.md"


def _names(figures: Mapping[str, SavedFigure | Gap]) -> set[str]:
    saved = [figure for figure in figures.values() if isinstance(figure, SavedFigure)]
    return {path.name for figure in saved for path in (figure.svg, figure.png, figure.csv)}


def _remove_stale(folder: Path, kinds: set[str], keep: set[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if path.suffix in kinds and path.name not in keep:
            path.unlink()


def _write_cards(directory: Path, content: document.Document) -> set[str]:
    """One Markdown page for each reward; returns the names of the files."""
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
    return {f"{card.file}.md" for card in cards}


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
