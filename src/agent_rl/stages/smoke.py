"""The whole pipeline on toy sizes, in a copy of this checkout that is thrown away.

Run it:  python -m agent_rl.stages.smoke [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agent_rl.errors import UserError
from agent_rl.stages.common import guarded

COPIED = (
    *("configs", "src", "examples", "results/showcase"),
    *("dvc.yaml", "pyproject.toml", ".dvc/config", ".dvcignore"),
)
"""What the pipeline needs of a checkout."""


def prepare_copy(folder: Path, root: Path) -> None:
    """Copy what the pipeline needs of the checkout at ``root`` into ``folder``.

    An earlier copy there is brought up to date; what its pipeline made stays.
    """
    for name in COPIED:
        source, target = root / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.rmtree(target, ignore_errors=True)  # a file deleted since must not linger
            shutil.copytree(source, target, ignore=ignore)
        else:
            shutil.copy(source, target)
    # The copy is no git repository; DVC has to be told. A cache of its own: whatever a user has set
    # for all repositories, no result is taken from elsewhere.
    settings = "[core]\n    no_scm = true\n[cache]\n    dir = cache\n"
    (folder / ".dvc" / "config.local").write_text(settings, encoding="utf-8")


def run_command(
    arguments: Sequence[str], folder: Path, *, capture: bool = False, **variables: str
) -> str:
    """Run ``python -m arguments`` in a copy, on the copy's own source.

    Returns: what it printed, if ``capture``. Raises: UserError when it fails.
    """
    environment = {
        **os.environ,
        **variables,
        "PYTHONPATH": str((folder / "src").resolve()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=environment,
        check=False,
        text=True,
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.STDOUT if capture else None,
    )
    if done.returncode:
        raise UserError(
            f"`python -m {' '.join(arguments)}` failed in {folder} (see above){done.stdout or ''}"
        )
    return done.stdout or ""


def run_pipeline(
    folder: Path,
    root: Path,
    profile: str = "smoke",
    overrides: Sequence[str] = (),
    **variables: str,
) -> None:
    """Copy the checkout at ``root`` into ``folder`` and run ``dvc repro`` there.

    Args:
        folder: the copy; stages that it already finished are not run again.
        root: the checkout.
        profile: size of the study.
        overrides: further words for ``agent_rl.stages.params``, e.g. ``tasks=babyai``.
        variables: environment of the stages, e.g. PYTHONHASHSEED.

    Raises: UserError when a stage fails.
    """
    prepare_copy(folder, root)
    words = [f"profile={profile}", *overrides]
    run_command(["agent_rl.stages.params", *words], folder, capture=False, **variables)
    run_command(["dvc", "repro"], folder, capture=False, **variables)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="an empty folder to run in and to keep")
    options = parser.parse_args(argv)

    def run() -> None:
        if options.keep is not None:
            if options.keep.exists() and any(options.keep.iterdir()):
                raise UserError(f"--keep {options.keep}: the folder is not empty")
            run_pipeline(options.keep, Path.cwd())
            print(f"smoke pipeline passed; its files: {options.keep}")
            return
        with tempfile.TemporaryDirectory(prefix="agent-rl-smoke-") as folder:
            run_pipeline(Path(folder), Path.cwd())
        print("smoke pipeline passed; nothing in this checkout was touched")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
