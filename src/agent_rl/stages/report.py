"""Stage ``report``: tables, figures, Markdown and HTML from ``results/`` alone.

Run it alone:  python -m agent_rl.stages.report      (or: make report)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_rl.reporting.report import build_report
from agent_rl.stages.common import REPORTS, RESULTS, guarded


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--reports", type=Path, default=REPORTS)
    options = parser.parse_args(argv)

    def run() -> None:
        print(f"report: {build_report(options.results, options.reports)}")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
