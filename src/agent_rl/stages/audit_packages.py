"""Known vulnerabilities of the locked packages, asked of a public database with pip-audit.

The tool lives in an environment of its own, so that nothing is added to the locked one. Where it or
the database cannot be reached, one loud line says that nothing was checked, and the exit code is 0.
pip-audit calls a package that the database does not know "not vulnerable"; here it counts as not
checked.

Run it:  python -m agent_rl.stages.audit_packages

Exit code: 1 when a vulnerability is known.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_rl.errors import UserError
from agent_rl.stages.common import guarded
from agent_rl.stages.licences import LOCKS, read_lock

ENVIRONMENT = Path(".work") / "pip-audit"
SECONDS = 50.0
"""Longest time for the installation, and again for the questions."""


def install(environment: Path, seconds: float) -> Path:
    """The program pip-audit, installed where it is not there yet. Raises: UserError."""
    program = environment / "bin" / "pip-audit"
    if not program.exists():
        venv.create(environment, with_pip=True, clear=True)
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        limits = ["--disable-pip-version-check", "--timeout", "10", "--retries", "0"]
        _run([*pip, *limits, "pip-audit"], seconds)
    if not program.exists():
        raise UserError("pip-audit cannot be installed from the package index")
    return program


def ask(program: Path, lock: Path, seconds: float) -> list[dict[str, Any]]:
    """What pip-audit says of one lock file. Raises: UserError when it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        words = ["-r", str(lock), "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        words += ["--timeout", "10", "--format", "json", "--output", str(answer)]
        told = _run([str(program), *words], seconds)
        try:
            content = json.loads(answer.read_text(encoding="utf-8"))
            return [{"name": entry["name"], **entry} for entry in content["dependencies"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"the database gave no answer ({told})") from error


def _run(words: Sequence[str], seconds: float) -> str:
    """Run a program. Returns: the last line it printed. Raises: UserError when it takes longer."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{Path(words[0]).name} took longer than {seconds:g} s") from error
    except OSError as error:
        raise UserError(f"{words[0]}: {error.strerror}") from error
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1][:200] if lines else f"exit code {done.returncode}"


def audit(locks: Sequence[Path], environment: Path, seconds: float) -> int:
    """Ask and print. Returns: the number of packages with a known vulnerability."""
    locked = {path: read_lock(path) for path in locks}
    try:
        program = install(environment, seconds)
        answers = [entry for path in locks for entry in ask(program, path, seconds)]
    except UserError as error:
        print(f"SKIPPED: no package was checked for known vulnerabilities: {error}")
        return 0
    checked = [entry for entry in answers if "vulns" in entry]
    total = sum(len(versions) for versions in locked.values())
    if not checked:
        reason = next((str(entry.get("skip_reason")) for entry in answers), "no answer")
        print(f"SKIPPED: no package was checked for known vulnerabilities: {reason}")
        return 0
    for entry in checked:
        for found in entry["vulns"]:
            fixed = ", ".join(found.get("fix_versions") or []) or "no version yet"
            print(f"{entry['name']} {entry['version']}: {found['id']}, fixed in {fixed}")
    bad = sum(bool(entry["vulns"]) for entry in checked)
    print(f"{len(checked)} of {total} locked packages checked, {bad} with a known vulnerability")
    unknown = sorted({entry["name"] for entry in answers} - {e["name"] for e in checked})
    if len(checked) < total:
        print(f"NOT CHECKED: {total - len(checked)} packages: {', '.join(unknown) or 'no answer'}")
    return bad


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Ask for known vulnerabilities of the lock.")
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT, help="of pip-audit")
    parser.add_argument("--lock", type=Path, action="append", help="default: both lock files")
    options = parser.parse_args(argv)
    bad: list[int] = []
    code = guarded(lambda: bad.append(audit(options.lock or LOCKS, options.environment, SECONDS)))
    return code or int(any(bad))


if __name__ == "__main__":
    sys.exit(main())
