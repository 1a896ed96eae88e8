"""The licence of every locked package, as the package itself declares it.

Run it:  python -m agent_rl.stages.licences
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from agent_rl.errors import UserError
from agent_rl.stages.common import guarded

PROJECT = Path("pyproject.toml")
LOCKS = (Path("requirements.lock"), Path("requirements-textworld.lock"))
PARTS = ("core", "dev", "textworld")
"""What a package is needed for: the study, its tests, the optional task."""
STRONG = "GPL alone"
"""Note on a package whose licence would extend to a work that contains it."""
_LONGEST = 80
"""Characters of a licence's name; what is longer is its text."""


@dataclass(frozen=True, slots=True)
class Package:
    """One locked package."""

    name: str
    version: str
    part: str
    """The first of :data:`PARTS` that needs it."""
    licence: str
    note: str
    """On copyleft; empty for the rest."""


def read_lock(path: Path) -> dict[str, str]:
    """Version of every package of a lock file, by canonical name.

    Raises: UserError when the file is missing or a line pins no exact version.
    """
    if not path.exists():
        raise UserError(f"no file {path} here; run from the root of the repository")
    versions: dict[str, str] = {}
    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        line = raw.split("#")[0].strip()
        if not line:
            continue
        try:
            pin = Requirement(line)
        except InvalidRequirement as error:
            raise UserError(f"{path}, line {number}: {line!r} names no package") from error
        exact = list(pin.specifier)
        if len(exact) != 1 or exact[0].operator != "==" or "*" in exact[0].version:
            raise UserError(f"{path}, line {number}: {line!r} is not pinned; write name==version")
        versions[canonicalize_name(pin.name)] = exact[0].version
    return versions


def requirements(part: str, project: Path = PROJECT) -> list[Requirement]:
    """What ``pyproject.toml`` asks for in one of :data:`PARTS`."""
    if not project.exists():
        raise UserError(f"no file {project} here; run from the root of the repository")
    table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    lines = table["dependencies"] if part == "core" else table["optional-dependencies"][part]
    return [Requirement(line) for line in lines]


def closure(wanted: Iterable[Requirement]) -> set[str]:
    """Canonical names of the packages asked for and of all that those need here.

    A package that is not installed is named too, without what it would need.
    """
    found: set[tuple[str, str]] = set()
    waiting = [(need, extra) for need in wanted for extra in ("", *need.extras)]
    while waiting:
        need, extra = waiting.pop()
        name = canonicalize_name(need.name)
        if (name, extra) in found:
            continue
        found.add((name, extra))
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for further in map(Requirement, lines):
            if further.marker is None or further.marker.evaluate({"extra": extra}):
                waiting += [(further, part) for part in ("", *further.extras)]
    return {name for name, _ in found}


def licence_of(name: str) -> str:
    """The licence that an installed package declares: its SPDX expression, or the older fields, or
    the title of its licence file."""
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return "not installed here"
    fields = package.metadata.json
    expression = str(fields.get("license_expression", ""))
    names = [
        entry.split("::")[-1].strip()
        for entry in fields.get("classifier", [])
        if entry.startswith("License ::") and not entry.endswith("OSI Approved")
    ]
    field = str(fields.get("license", "")).strip()
    if "\n" in field or len(field) > _LONGEST or field.upper() in ("UNKNOWN", "DUAL LICENSE"):
        field = ""
    return expression or field or ", ".join(names) or _title(package) or "not declared"


def _title(package: metadata.Distribution) -> str:
    """The first line of a package's licence file that speaks of a licence."""
    for file in package.files or ():
        if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
            place = Path(str(file.locate()))
            text = place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""
            for line in map(str.strip, text.splitlines()[:10]):
                if re.search(r"licen[cs]e", line, flags=re.IGNORECASE) and len(line) <= _LONGEST:
                    return line
    return ""


def copyleft_note(licence: str) -> str:
    """What a licence asks of a work that uses the package; empty for permissive ones."""
    if re.search(r"LGPL|Lesser General Public", licence):
        return "weak copyleft: used as a library, unchanged"
    if not re.search(r"GPL|General Public License", licence):
        weak = re.search(r"\bMPL|Mozilla|\bEPL|Eclipse", licence)
        return "weak copyleft: changes to its own files stay open" if weak else ""
    choices = re.split(r"\s+OR\s+|\s*\|\s*", licence.replace("General Public License", "GPL"))
    # Inside brackets a choice is none of the whole: "GPL AND (A OR B)".
    if " AND " not in licence and not all("GPL" in choice for choice in choices):
        return "GPL or another licence: the other one is taken"
    if re.search(r"exception", licence, flags=re.IGNORECASE):
        return "GPL with an exception for works that link to it"
    return STRONG


def packages() -> list[Package]:
    """Every locked package, those of the study first. Raises: UserError for a bad lock file."""
    needed = {part: closure(requirements(part)) for part in PARTS}
    found = []
    for path, fallback in zip(LOCKS, ("dev", "textworld"), strict=True):
        for name, version in read_lock(path).items():
            part = next((part for part in PARTS if name in needed[part]), fallback)
            licence = licence_of(name)
            found.append(Package(name, version, part, licence, copyleft_note(licence)))
    return sorted(found, key=lambda package: (PARTS.index(package.part), package.name))


def table_text(found: Sequence[Package]) -> str:
    """The packages as an aligned table, one line each."""
    rows = [("package", "version", "for", "licence", "note")]
    rows += [(p.name, p.version, p.part, p.licence, p.note) for p in found]
    widths = [min(46, max(len(row[i]) for row in rows)) for i in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args(argv)

    def run() -> None:
        found = packages()
        print(table_text(found))
        noted = sum(bool(package.note) for package in found)
        print(f"\n{len(found)} locked packages, {noted} of them with a note on copyleft")
        for package in found:
            if package.note == STRONG:
                print(f"GPL alone: {package.name} ({package.licence}), needed for {package.part}")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
