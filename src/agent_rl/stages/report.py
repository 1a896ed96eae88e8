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
from agent_rl.reporting import build_report, headline
from agent_rl.stages.common import REPORTS, RESULTS, guarded

BEGIN, END = "<!-- headline: written by make report -->", "<!-- end of headline -->"


def write_headline(readme: Path, text: str) -> None:
    """Put the headline estimate between the two marks of the README.

    Raises: UserError when the marks are missing.
    """
    if not readme.exists():
        raise UserError(f"{readme} does not exist; name the README that carries the marks")
    content = readme.read_text(encoding="utf-8")
    head, begin, rest = content.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise UserError(f"{readme}: the marks {BEGIN!r} and {END!r} are missing; put them back")
    changed = f"{head}{BEGIN}\n{text.strip()}\n{END}{tail}"
    if changed != content:
        write_text(readme, changed)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--reports", type=Path, default=REPORTS)
    parser.add_argument("--readme", type=Path, help="also put the headline into this README")
    parser.add_argument("--only-readme", action="store_true", help="draw nothing")
    options = parser.parse_args(argv)

    def run() -> None:
        if options.only_readme and options.readme is None:
            raise UserError("--only-readme needs --readme FILE")
        if options.readme is not None:
            write_headline(options.readme, headline(options.results))
        if options.only_readme:
            return
        page = build_report(options.results, options.reports)
        print(f"report: {page} (and {page.with_name('report.html')})")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
