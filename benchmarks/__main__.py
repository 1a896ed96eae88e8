"""Speed and memory of rollouts and training, in one run -> ``results/bench.csv``.

Every case runs several times, each time in a fresh process with one torch thread, and the cases
take turns. ``value`` is the median of the runs, ``low`` and ``high`` are the lowest and highest.

Run it:  python -m benchmarks                        (or: make bench; about 10 minutes on 2 cores)
         python -m benchmarks --quick                (toy sizes, one run: does everything work?)
         python -m benchmarks --only agent_rl --only generate
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_rl.errors import UserError
from agent_rl.files import write_json, write_text
from agent_rl.stages.common import RESULTS, guarded
from benchmarks.cases import FULL, QUICK
from benchmarks.machine import machine
from benchmarks.rounds import measure_all
from benchmarks.suite import CASES

TABLE = "bench.csv"
MACHINE = "bench_machine.json"
PART = Path(".work") / "bench"
"""Where a part or a toy run goes: the table of the results holds one whole run."""


def main(argv: Sequence[str] | None = None) -> int:
    names = list(dict.fromkeys(case.name for case in CASES))
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="toy sizes, one run")
    parser.add_argument("--only", action="append", metavar="CASE", help=", ".join(names))
    parser.add_argument("--runs", type=int, help="runs of every case (default: 5, quick: 1)")
    parser.add_argument(
        "--out",
        type=Path,
        help=f"folder for {TABLE} and {MACHINE} (default: {RESULTS}; a part or a toy run: {PART})",
    )
    options = parser.parse_args(argv)

    def run() -> None:
        chosen = options.only or names
        if unknown := [name for name in chosen if name not in names]:
            raise UserError(f"--only {unknown[0]}: no such case; known: {', '.join(names)}")
        if options.runs is not None and options.runs < 1:
            raise UserError(f"--runs {options.runs}: at least 1 run is needed")
        sizes = QUICK if options.quick else FULL
        if options.runs is not None:
            sizes = dataclasses.replace(sizes, runs=options.runs)
        folder = options.out or (PART if options.quick or options.only else RESULTS)
        table = measure_all([case for case in CASES if case.name in chosen], sizes)
        about = {
            **machine(),
            "runs": sizes.runs,
            "value": "median of the runs",
            "low": "lowest of the runs",
            "high": "highest of the runs",
            "sizes": "quick" if options.quick else "full",
        }
        write_text(folder / TABLE, table.to_csv(index=False, lineterminator="\n"))
        write_json(folder / MACHINE, about)
        print(table.drop(columns="case").to_string(index=False))
        print(f"table: {folder / TABLE}, machine: {folder / MACHINE}")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
