"""Reads results files strictly: a wrong file is one clear line, not a strange figure.

pandas would fill a truncated last line with missing values and turn a column with one typing error
into text. Both look like data afterwards, so the files are parsed here field by field.
"""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from agent_rl.errors import UserError

# A kind per column: str, int, float; a question mark allows an empty field.
Schema = dict[str, str]


PUBLISH = "run the publish stage again"


def read_csv(
    path: Path, schema: Schema, optional: Schema | None = None, again: str = PUBLISH
) -> pd.DataFrame:
    """One CSV file as a frame with typed columns.

    Columns of ``schema`` must exist, those of ``optional`` are added empty when they do not, and
    unknown ones are kept as text. ``again`` tells what to do about a file that is not whole.
    """
    header, rows = _read_rows(path, again)
    missing = [column for column in schema if column not in header]
    if missing:
        raise UserError(f"{path}: column {', '.join(missing)} is missing; {again}")
    kinds = {**schema, **(optional or {})}
    columns: dict[str, list[Any]] = {}
    for index, name in enumerate(header):
        kind = kinds.get(name, "str?")
        columns[name] = [
            _convert(row[index], kind, path, number, name)
            for number, row in enumerate(rows, start=2)
        ]
    frame = pd.DataFrame(columns)
    for name, kind in kinds.items():
        if name not in frame:
            frame[name] = "" if kind.startswith("str") else math.nan
        elif kind == "int":
            frame[name] = frame[name].astype(int)
        elif not kind.startswith("str"):
            frame[name] = frame[name].astype(float)
    return frame


def read_text(path: Path) -> str:
    """The text of a results file; UserError when there is none or it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: file not found; `dvc repro publish` writes it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text ({error})") from None


def _read_rows(path: Path, again: str) -> tuple[list[str], list[list[str]]]:
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path}: file is empty; {again}")
    if not text.endswith("\n"):
        raise UserError(f"{path}: last line has no end, so the file looks truncated; restore it")
    header, *rows = list(csv.reader(io.StringIO(text, newline="")))
    if len(set(header)) != len(header):
        raise UserError(f"{path}: a column name occurs twice in the header")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise UserError(
                f"{path}, line {number}: {len(row)} fields where the header has {len(header)}; "
                "the file looks truncated or edited"
            )
    return header, rows


def _convert(raw: str, kind: str, path: Path, line: int, column: str) -> str | float | None:
    if raw == "":
        if kind.endswith("?"):
            return "" if kind == "str?" else None
        raise UserError(f"{path}, line {line}, column {column}: empty, but a value is required")
    if kind.startswith("str"):
        return raw
    try:
        value = float(raw)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (kind.startswith("int") and value != int(value)):
        wanted = "a whole number" if kind.startswith("int") else "a finite number"
        raise UserError(f"{path}, line {line}, column {column}: {raw!r} is not {wanted}")
    return value


def check_choice(frame: pd.DataFrame, column: str, allowed: tuple[str, ...], path: Path) -> None:
    """Refuse a value of ``column`` that is not one of ``allowed``."""
    unknown = frame.loc[~frame[column].isin(allowed), column]
    if len(unknown):
        raise UserError(
            f"{path}, line {unknown.index[0] + 2}, column {column}: {unknown.iloc[0]!r} is not one "
            f"of {', '.join(allowed)}"
        )


def check_unique(frame: pd.DataFrame, keys: list[str], path: Path) -> None:
    """Refuse a second row with the same ``keys``."""
    repeated = frame[frame.duplicated(keys)]
    if len(repeated):
        row = repeated.iloc[0]
        raise UserError(
            f"{path}, line {repeated.index[0] + 2}: a second row for "
            + ", ".join(f"{key}={row[key]}" for key in keys)
        )


def check_range(
    frame: pd.DataFrame, columns: tuple[str, ...], low: float, high: float, path: Path
) -> None:
    """Refuse a number outside [low, high] in any of ``columns``; empty fields pass."""
    for column in columns:
        wrong = frame.loc[(frame[column] < low) | (frame[column] > high), column]
        if len(wrong):
            raise UserError(
                f"{path}, line {wrong.index[0] + 2}, column {column}: {wrong.iloc[0]:g} is not in "
                f"[{low:g}, {high:g}]; run the publish stage again"
            )


def read_object(path: Path) -> dict[str, Any]:
    """The one JSON object in a results file; UserError when it holds anything else."""
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: must hold one JSON object")
    return content
