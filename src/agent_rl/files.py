"""Reading and writing so that nothing is ever half written and every fault is one clear line."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from agent_rl.errors import UserError


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot write {path}: {error.strerror or error}; free space or fix permissions, "
        "then run again (nothing was half written)"
    )


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it to ``path`` only if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """The same for a directory: it appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
        pq.write_table(table, temporary, compression="zstd")


def read_parquet(path: Path, schema: pa.Schema, made_by: str) -> pa.Table:
    """Read a Parquet file and check its schema.

    Raises: UserError when the file is missing, damaged, or of another schema.
    """
    if not path.exists():
        raise UserError(f"{path} is missing; make it with `{made_by}`")
    try:
        table = pq.read_table(path)
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
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UserError(
            f"another process is at work in {folder}; wait for it to end, or end it"
        ) from error
    try:
        yield
    finally:
        lock.release()
