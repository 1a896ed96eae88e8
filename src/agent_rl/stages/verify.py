"""Run the study again in another folder and compare what comes out with the committed results.

On the same kind of machine the results must agree to the last byte; with ``--machine other``,
estimates must agree within the tolerances that :mod:`agent_rl.stages.tolerance` states. Figures and
the report are drawn from the results alone, so they are not compared.

``--profile smoke`` has no committed results: it makes two runs, with other hash seeds and other
numbers of workers, and compares them with each other.

Run it:  python -m agent_rl.stages.verify [--task babyai] [--profile smoke] [--machine other]

Exit code: 0 when all agrees, 1 when something differs, 2 for bad input or a stage that failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_rl.errors import UserError
from agent_rl.files import read_json, write_json
from agent_rl.reporting.csv_files import read_csv, read_object
from agent_rl.stages.common import RESULTS, guarded
from agent_rl.stages.comparison import (
    KEYS,
    OBJECTS,
    FileComparison,
    compare_bytes,
    compare_rows,
    compare_table,
    leaves,
    read_table,
    task_part,
)
from agent_rl.stages.params import compose_study
from agent_rl.stages.smoke import COPIED, run_pipeline
from agent_rl.stages.tolerance import ROUNDING, TOLERANCE, certain_part, compare_elsewhere

FOLDER = Path(".work") / "verify"
MARKER = "verify.json"


@dataclass(frozen=True, slots=True)
class Copy:
    """One fresh run: the name of its folder and what must not change its results."""

    name: str
    overrides: tuple[str, ...] = ()
    hash_seed: str = "0"


ONE = (Copy("copy"),)
TWO = (Copy("one-worker", ("workers=1",), "7"), Copy("two-workers", ("workers=2",), "8"))


def compare_results(
    committed: Path, fresh: Path, tasks: Sequence[str], *, elsewhere: bool = False
) -> list[FileComparison]:
    """Compare every file that the pipeline publishes, in the rows of ``tasks``.

    Args:
        committed: a results folder.
        fresh: the results folder of the new run.
        tasks: names; where they are all tasks of the committed study, whole files are compared.
        elsewhere: whether the two were made on different kinds of machines.

    Raises: UserError for a file that cannot be read.
    """
    whole = set(tasks) == set(tasks_of(committed))
    made = {path.name for path in fresh.glob("*") if path.suffix in (".csv", ".json")}
    known = {name for name in (*KEYS, *OBJECTS) if (committed / name).exists()}
    found = []
    for name in sorted(made | known, key=_order):
        left, right = committed / name, fresh / name
        if not left.exists() or not right.exists():
            side = "committed results" if right.exists() else "new run"
            found.append(FileComparison(name, 1, missing=1, worst=f"no such file in the {side}"))
            continue
        result = _compare_file(left, right, tasks, elsewhere)
        if whole and not elsewhere and name != "provenance.json":  # versions may differ there
            result = compare_bytes(left, right, result)
        found.append(result)
    if whole:
        found.append(_compare_settings(committed, fresh))
    return found


def _order(name: str) -> tuple[int, str]:
    known = (*KEYS, *OBJECTS)
    return (known.index(name) if name in known else len(known), name)


def _compare_file(left: Path, right: Path, tasks: Sequence[str], elsewhere: bool) -> FileComparison:
    name = left.name
    if left.suffix == ".csv":
        rows = [read_table(path, tasks) for path in (left, right)]
        return compare_elsewhere(name, *rows) if elsewhere else compare_table(name, *rows)
    content = [task_part(name, read_object(path), tasks) for path in (left, right)]
    if elsewhere:
        return compare_elsewhere(name, *(leaves(certain_part(name, one)) for one in content))
    return compare_rows(name, *(leaves(one) for one in content))


def _compare_settings(committed: Path, fresh: Path) -> FileComparison:
    """The digest of all settings, which only a run of all tasks can have."""
    left, right = (
        leaves({"config_hash": _provenance(folder).get("config_hash")})
        for folder in (committed, fresh)
    )
    return compare_rows("digest of all settings", left, right)


def tasks_of(results: Path) -> list[str]:
    """Tasks of a results folder. Raises: UserError when it holds no study."""
    table = read_csv(results / "runs.csv", {"task": "str", "method": "str"})
    return sorted(set(table["task"]))


def _provenance(results: Path) -> dict[str, Any]:
    return read_object(results / "provenance.json")


def version_notes(committed: Path, fresh: Path) -> list[str]:
    """Packages whose version is another one in the new run, one line each."""
    old, new = (_provenance(folder).get("versions", {}) for folder in (committed, fresh))
    return [
        f"{name} {old.get(name, 'absent')} -> {new.get(name, 'absent')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def table_text(found: Sequence[FileComparison], same: str) -> str:
    """The comparison as an aligned table; ``same`` heads the rows without a fault."""
    head = ("file", "compared", same, "different", "missing", "worst difference, and where")
    rows = [
        (f.name, str(f.rows), str(f.identical), str(f.different), str(f.missing), f.worst)
        for f in found
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(5)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 5)), row[5]]
        ).rstrip()
        for row in [head, *rows]
    )


def prepare_folder(folder: Path, asked: dict[str, Any]) -> bool:
    """Make ``folder`` ready for copies; an interrupted run of the same question is taken up.

    Returns: whether there is something to take up.
    Raises: UserError when the folder holds anything else.
    """
    marker = folder / MARKER
    place = folder.resolve()
    for name in COPIED:
        if place.is_relative_to(Path(name).resolve()):
            raise UserError(f"--folder {folder}: lies in {name}, which is copied; name another one")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--folder {folder}: is a file; name an empty folder or a new one")
    if folder.exists() and any(folder.iterdir()):
        if not marker.exists():
            raise UserError(
                f"--folder {folder}: it holds other files; name an empty folder or a new one"
            )
        if read_json(marker, "make verify") == {**asked, "finished": False}:
            return True
        # Only what an earlier verification made is deleted.
        for copy in (*ONE, *TWO):
            shutil.rmtree(folder / copy.name, ignore_errors=True)
    write_json(marker, {**asked, "finished": False})
    return False


def check_asked(options: argparse.Namespace) -> list[str]:
    """The tasks to run. Raises: UserError for a question that has no answer."""
    if options.against is None:
        known = sorted(compose_study([f"profile={options.profile}"])["tasks"])
        where = "configs/study.yaml"
    else:
        known, where = tasks_of(options.against), str(options.against)
        profile = _provenance(options.against).get("profile")
        if profile != options.profile:
            raise UserError(
                f"{where} is of profile {profile}, --profile is {options.profile}: "
                "they cannot agree; name results of the same profile with --against"
            )
    for task in options.task:
        if task not in known:
            raise UserError(f"--task {task}: {where} has no such task; it has: {', '.join(known)}")
    return sorted(set(options.task)) or known


def verify(options: argparse.Namespace) -> bool:
    """Run, compare and print. Returns: whether all agrees."""
    root, folder = Path.cwd(), options.folder
    if options.against is None and options.profile != "smoke":
        options.against = RESULTS
    if options.against is None and options.machine == "other":
        raise UserError("--machine other: the two smoke runs are of one machine; leave it out")
    tasks = check_asked(options)
    copies = TWO if options.against is None else ONE
    asked = {"tasks": tasks, "profile": options.profile, "copies": [copy.name for copy in copies]}
    if prepare_folder(folder, asked):
        print(f"taking up the interrupted run in {folder}: finished stages are not run again")
    for number, copy in enumerate(copies, start=1):
        print(f"run {number} of {len(copies)} in {folder / copy.name}: {', '.join(tasks)}")
        sys.stdout.flush()  # before what the stages print
        words = (f"tasks={','.join(tasks)}", *copy.overrides)
        seed = copy.hash_seed
        run_pipeline(folder / copy.name, root, options.profile, words, PYTHONHASHSEED=seed)
    write_json(folder / MARKER, {**asked, "finished": True})
    fresh = folder / copies[-1].name / RESULTS
    against = options.against or folder / copies[0].name / RESULTS
    return tell(against, fresh, tasks, elsewhere=options.machine == "other")


def tell(committed: Path, fresh: Path, tasks: Sequence[str], *, elsewhere: bool) -> bool:
    """Print the comparison of two results folders. Returns: whether all agrees."""
    found = compare_results(committed, fresh, tasks, elsewhere=elsewhere)
    print(f"\n{committed} against {fresh}, tasks: {', '.join(tasks)}")
    if elsewhere:
        print(
            f"another machine: estimates within the committed 95% interval or {TOLERANCE:g}, "
            f"what no model touches within {ROUNDING:g}, counts exactly"
        )
    print(table_text(found, "agree" if elsewhere else "identical"))
    notes = version_notes(committed, fresh)
    if notes:
        print(f"note: other versions of packages: {', '.join(notes)}")
    skipped = sorted(
        path.name for path in committed.glob("*.csv") if not (fresh / path.name).exists()
    )
    skipped = [name for name in skipped if name not in KEYS]
    if skipped:
        print(f"note: not made by the pipeline, not compared: {', '.join(skipped)}")
    print("note: figures and the report are drawn from these files and are not compared")
    same = all(one.same for one in found)
    if same:
        print("verified: all agrees")
    else:
        hint = "" if elsewhere else "; on another kind of machine use --machine other"
        print(f"NOT verified: see the table{hint}")
    print(f"the copy, its artifacts and its report: {fresh.parent}")
    return same


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Run the study again in another folder and compare it with results/."
    )
    parser.add_argument(
        "--task", action="append", default=[], help="run this task only (repeatable; default: all)"
    )
    parser.add_argument(
        "--profile", choices=("smoke", "default", "full"), default="default", help="size"
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="where to run (default: %(default)s)"
    )
    parser.add_argument(
        "--against",
        type=Path,
        help="results to compare with (default: results; with --profile smoke: a second run)",
    )
    parser.add_argument(
        "--machine",
        choices=("same", "other"),
        default="same",
        help="same: byte by byte (default); other: another CPU, estimates within tolerances",
    )
    options = parser.parse_args(argv)
    agreed: list[bool] = []
    code = guarded(lambda: agreed.append(verify(options)))
    return code or int(not all(agreed))


if __name__ == "__main__":
    sys.exit(main())
