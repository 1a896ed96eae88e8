"""Runs tests of this checkout on a copy of the package into which a fault was put."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 600
"""Seconds that one run may take; a fault that hangs counts as an error of the harness."""

NO_TEST = ("SyntaxError", "ImportError", "NameError")
"""Errors that say that the changed code does not run at all: such a fault is none."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test (all its parameters together)."""

    failed: tuple[str, ...]
    """What each failure said."""
    passed: int
    broken: tuple[str, ...]
    """Why it counts as no result: it could not be collected or set up, or was skipped."""


def package_copy(folder: Path) -> Path:
    """Copy ``src/agent_rl`` below ``folder``; returns the folder for ``PYTHONPATH``."""
    shutil.copytree(
        ROOT / "src" / "agent_rl",
        folder / "src" / "agent_rl",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return folder / "src"


def occurrences(file: str, old: str) -> int:
    """How often a text occurs in a file below ``src/``."""
    return (ROOT / "src" / file).read_text(encoding="utf-8").count(old)


def put_in(source: Path, file: str, old: str, new: str) -> None:
    """Replace a text that must occur once. Raises: AssertionError when the table is stale."""
    path = source / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, (
        f"the table is stale: {old!r} occurs {text.count(old)} times in {file}; "
        "take the present text into tests/mutations"
    )
    path.write_text(text.replace(old, new), encoding="utf-8")


class Nursery:
    """Runs tests in children of one prepared process, see ``nursery.py``."""

    def __init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutations.nursery"],
            cwd=ROOT,
            env={**environment, "TOKENIZERS_PARALLELISM": "false"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def run(self, source: Path, nodes: Sequence[str], folder: Path, changed: str = "") -> dict:
        """Run tests in a process that imports the package from ``source``.

        Args:
            nodes: tests, as paths from the root of the checkout.
            folder: takes what the run writes.
            changed: file below ``source`` that must have been imported.

        Returns: node -> Outcome.
        """
        report, output = folder / "report.json", folder / "output.txt"
        environment = {
            "PYTHONPATH": str(source),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "AGENT_RL_PROBE": str(report),
        }
        options = ["-p", "tests.mutations.probe", "-p", "no:cacheprovider", "--tb=short"]
        request = {
            "source": str(source),
            "arguments": [*options, f"--basetemp={folder / 'tmp'}", *nodes],
            "environment": environment,
            "output": str(output),
            "limit": LIMIT,
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        status = self._process.stdout.readline()
        told = output.read_text(encoding="utf-8")[-800:] if output.exists() else ""
        assert report.exists(), f"no result, exit status {status}: {told}"
        content = json.loads(report.read_text(encoding="utf-8"))
        assert not content["broken"], f"tests could not be collected: {content['broken']}"
        _check_modules(content["modules"], source, changed)
        return {node: _outcome(node, content["phases"]) for node in nodes}


def _check_modules(modules: dict, source: Path, changed: str) -> None:
    """The copy was imported, and nothing of the package from anywhere else."""
    elsewhere = [file for file in modules.values() if file and not file.startswith(str(source))]
    assert modules and not elsewhere, f"imported from elsewhere: {elsewhere or 'nothing at all'}"
    if changed:
        assert str(source / changed) in modules.values(), f"{changed} was not imported"


def _outcome(node: str, phases: list) -> Outcome:
    own = [p for p in phases if p["node"] == node or p["node"].startswith(f"{node}[")]
    failed, broken, passed = [], [], 0
    for phase in own:
        unsound = phase["when"] != "call" or set(phase["errors"]) & set(NO_TEST)
        if phase["outcome"] == "skipped" or (phase["outcome"] == "failed" and unsound):
            broken.append(f"{phase['node']} {phase['when']}: {phase['told']}")
        elif phase["outcome"] == "failed":
            failed.append(phase["told"])
        elif phase["when"] == "call":
            passed += 1
    if not own:
        broken.append(f"{node}: there is no such test")
    return Outcome(tuple(failed), passed, tuple(broken))
