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

COPIED = ("configs", "src", "dvc.yaml", "pyproject.toml", ".dvc/config", ".dvcignore")
"""What the pipeline needs of a checkout."""


def run_pipeline(folder: Path, root: Path, profile: str = "smoke") -> None:
    """Copy the checkout at ``root`` into ``folder`` and run ``dvc repro`` there.

    Raises: UserError when a stage fails.
    """
    for name in COPIED:
        source, target = root / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, target, ignore=ignore)
        else:
            shutil.copy(source, target)
    (folder / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n", encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str((folder / "src").resolve()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    for command in (
        [sys.executable, "-m", "agent_rl.stages.params", f"profile={profile}"],
        [sys.executable, "-m", "dvc", "repro"],
    ):
        done = subprocess.run(command, cwd=folder, env=environment, check=False)
        if done.returncode:
            raise UserError(f"`{' '.join(command[1:])}` failed in {folder} (see above)")


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
