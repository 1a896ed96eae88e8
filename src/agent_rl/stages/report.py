"""Stage ``report``: tables, figures, Markdown and HTML from ``results/`` alone.

Run it alone:  python -m agent_rl.stages.report      (or: make report)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_rl.errors import UserError
from agent_rl.files import write_text
from agent_rl.reporting import build_report, headline, performance
from agent_rl.stages.common import REPORTS, RESULTS, guarded

BEGIN, END = "<!-- headline: written by make report -->", "<!-- end of headline -->"
PERFORMANCE = "<!-- performance: written by make report -->", "<!-- end of performance -->"
"""Marks of the paragraph on speed; a README of one's own may do without them."""


def write_headline(readme: Path, text: str) -> None:
    """Put the headline estimate between the two marks of the README.

    Raises: UserError when the marks are missing.
    """
    write_between(readme, BEGIN, END, text)


def write_performance(readme: Path, text: str) -> None:
    """Put the paragraph on speed between its marks, where the README has any.

    Raises: UserError when only one of the two marks is there.
    """
    content = readme.read_text(encoding="utf-8")
    if any(mark in content for mark in PERFORMANCE):
        write_between(readme, *PERFORMANCE, text)


def write_between(readme: Path, opening: str, closing: str, text: str) -> None:
    """Replace what stands between two marks of a file.

    Raises: UserError when the file or a mark is missing.
    """
    if not readme.exists():
        raise UserError(f"{readme} does not exist; name the README that carries the marks")
    content = readme.read_text(encoding="utf-8")
    head, begin, rest = content.partition(opening)
    _, end, tail = rest.partition(closing)
    if not begin or not end:
        raise UserError(
            f"{readme}: the marks {opening!r} and {closing!r} are missing; put them back"
        )
    changed = f"{head}{opening}\n{text.strip()}\n{closing}{tail}"
    if changed != content:
        write_text(readme, changed)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--reports", type=Path, default=REPORTS)
    parser.add_argument("--readme", type=Path, help="also put headline and speed into this")
    parser.add_argument("--only-readme", action="store_true", help="draw nothing")
    options = parser.parse_args(argv)

    def run() -> None:
        if options.only_readme and options.readme is None:
            raise UserError("--only-readme needs --readme FILE")
        if options.readme is not None:
            write_headline(options.readme, headline(options.results))
            write_performance(options.readme, performance(options.results))
        if options.only_readme:
            return
        page = build_report(options.results, options.reports)
        print(f"report: {page} (and {page.with_name('report.html')})")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
