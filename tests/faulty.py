"""What every injected fault must leave: one line, exit code 2, and the files as they were."""

import errno
import hashlib
import subprocess
from pathlib import Path

import pytest

from agent_rl.stages.common import guarded


def tree(folder):
    """SHA-256 of every file below a folder, locks left out."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name not in (".lock", Disk.BALLAST)
    }


def refused(act, capsys, *told):
    """Runs ``act`` as a stage; returns the one line that it must print."""
    capsys.readouterr()
    code = guarded(act)
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(lines) == 1, printed.err
    assert "Traceback" not in printed.err + printed.out
    for part in told:
        assert part in lines[0], lines[0]
    return lines[0]


class Disk:
    """A small file system of its own, which can be filled up and made read-only."""

    BALLAST = "ballast"

    def __init__(self, path, megabytes):
        self.path = path
        path.mkdir(exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            here = "unshare -rm python -m pytest"
            pytest.skip(f"NOT TESTED, no disk can be mounted ({done.stderr.strip()}): try `{here}`")

    def fill(self, left=0):
        """Use up all room but ``left`` bytes."""
        with (self.path / self.BALLAST).open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"\0" * 65536)
            except OSError as error:
                assert error.errno == errno.ENOSPC
            ballast.truncate(max(0, ballast.tell() - left))

    def free(self):
        (self.path / self.BALLAST).unlink()

    def lock(self, mode):
        """``ro`` or ``rw``."""
        subprocess.run(["mount", "-o", f"remount,{mode}", str(self.path)], check=True)

    def close(self):
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path):
    small = Disk(tmp_path / "disk", megabytes=24)
    yield small
    small.close()
