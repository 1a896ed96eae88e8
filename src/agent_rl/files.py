"""Reading and writing so that nothing is ever half written and every fault is one clear line."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from agent_rl.errors import UserError


def _unwritable(path: Path, error: OSError) -> UserError:
    shown = Path(*(part for part in path.parts if not _STAGED.fullmatch(part)))
    blocking = next((place for place in (shown, *shown.parents) if place.is_file()), None)
    if blocking is not None and error.errno in (errno.EEXIST, errno.ENOTDIR):
        return UserError(
            f"cannot write {shown}: {blocking} is a file where a folder must be; move it away, "
            "then run again (nothing was half written)"
        )
    return UserError(
        f"cannot write {shown}: {error.strerror or error}; free space or fix permissions, "
        "then run again (nothing was half written)"
    )


_STAGED = re.compile(r"\.\d+\.part")
"""Name of the folder in which :func:`together` gathers files."""


def _system_error(error: Exception) -> OSError | None:
    """What the system said, if that is what an exception is about.

    Libraries in Rust (safetensors, tokenizers) raise errors of their own with the number in the
    text.
    """
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A full disk, a missing permission and the like become one line that names ``path``."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        system = _system_error(error)
        if system is None:
            raise
        raise _unwritable(path, system) from error


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it to ``path`` only if the block succeeds.

    Raises: UserError when it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """The same for a directory: it appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with _writing(path):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            yield temporary
            if path.exists():
                shutil.rmtree(path)
            temporary.replace(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def together(folder: Path) -> Iterator[Path]:
    """Yield an empty folder; if the block succeeds, its files take their places below ``folder``.

    A disk that fills up at the last file leaves all the others as they were. Files that the block
    does not write stay.

    Raises: UserError when they cannot be written.
    """
    staged = folder / f".{os.getpid()}.part"
    with _writing(folder):
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        try:
            yield staged
            files = [path for path in sorted(staged.rglob("*")) if path.is_file()]
            targets = [folder / path.relative_to(staged) for path in files]
            for target in targets:
                target.parent.mkdir(parents=True, exist_ok=True)
            for path, target in zip(files, targets, strict=True):
                path.replace(target)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON with sorted keys, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_json(path: Path, made_by: str) -> Any:
    """Read JSON; ``made_by`` is the command that writes the file, for the error message."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; make it with `{made_by}`") from error
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as JSON ({error}); delete it, `{made_by}`"
        ) from error


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a Parquet file atomically; equal tables give equal bytes."""
    with atomic_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def read_parquet(path: Path, schema: pa.Schema, made_by: str) -> pa.Table:
    """Read a Parquet file and check its schema.

    Raises: UserError when the file is missing, damaged, or of another schema.
    """
    if not path.exists():
        raise UserError(f"{path} is missing; make it with `{made_by}`")
    try:
        # Without the checksums a flipped bit would come back as another number.
        table = pq.read_table(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path} is damaged ({reason}); delete it and make it again with `{made_by}`"
        ) from error
    if not table.schema.equals(schema, check_metadata=False):
        missing = sorted(set(schema.names) - set(table.schema.names))
        raise UserError(
            f"{path} has another schema (missing columns: {missing or 'none'}, types may differ); "
            f"make it again with `{made_by}`"
        )
    return table


def digest(value: Any) -> str:
    """Short SHA-256 of a JSON-like value: equal settings, equal digest."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def code_digest() -> str:
    """Short SHA-256 over the source of this package: what was computed by other code is not
    continued by this one."""
    package = Path(__file__).parent
    sha = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        sha.update(str(path.relative_to(package)).encode())
        sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; the lock goes with the process, however it ends.

    Raises: UserError when another process holds it.
    """
    lock = FileLock(folder / ".lock")
    with _writing(folder / ".lock"):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:  # an OSError, too
            raise UserError(
                f"another process is at work in {folder}; wait for it to end, or end it"
            ) from error
    try:
        yield
    finally:
        lock.release()
