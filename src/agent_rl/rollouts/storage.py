"""Trajectories as Parquet: one row per episode, turns as nested lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from agent_rl.errors import UserError
from agent_rl.files import read_parquet, write_parquet
from agent_rl.trajectory import EndReason, Trajectory, Turn

_TURN = pa.struct(
    [
        ("observation", pa.string()),
        ("action", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("valid", pa.bool_()),
        ("distance_before", pa.float64()),
        ("distance_after", pa.float64()),
        ("weights", pa.string()),
    ]
)

SCHEMA = pa.schema(
    [
        ("task", pa.string()),
        ("instance_id", pa.int64()),
        ("instance_hash", pa.string()),
        ("group_id", pa.int64()),
        ("member", pa.int64()),
        ("policy", pa.string()),
        ("weights", pa.string()),
        ("seed", pa.int64()),
        ("temperature", pa.float64()),
        ("horizon", pa.int64()),
        ("turns", pa.list_(_TURN)),
        ("final_observation", pa.string()),
        ("end", pa.string()),
        ("error", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("mask", pa.list_(pa.int8())),
        ("logprobs", pa.list_(pa.float32())),
    ]
)

_TURN_FIELDS = tuple(field.name for field in _TURN)
_PLAIN = tuple(name for name in SCHEMA.names if name not in ("turns", "end"))


def save_trajectories(path: Path, trajectories: Sequence[Trajectory]) -> None:
    """Validate and write trajectories, atomically.

    Raises: ValueError when a record contradicts itself (a bug, not bad input).
    """
    rows: list[dict[str, Any]] = []
    for trajectory in trajectories:
        trajectory.validate()
        row: dict[str, Any] = {name: getattr(trajectory, name) for name in _PLAIN}
        row["end"] = trajectory.end.value
        row["turns"] = [
            {name: getattr(turn, name) for name in _TURN_FIELDS} for turn in trajectory.turns
        ]
        rows.append(row)
    write_parquet(path, pa.Table.from_pylist(rows, schema=SCHEMA))


def load_trajectories(path: Path, made_by: str) -> list[Trajectory]:
    """Read and validate trajectories.

    Args:
        path: a file written by :func:`save_trajectories`.
        made_by: the command that writes it, for the error message.

    Raises: UserError when the file is missing, damaged, or its records contradict themselves.
    """
    trajectories = []
    for row in read_parquet(path, SCHEMA, made_by).to_pylist():
        turns = tuple(
            Turn(
                **{
                    **turn,
                    "token_ids": tuple(turn["token_ids"]),
                    "logprobs": tuple(turn["logprobs"]),
                }
            )
            for turn in row.pop("turns")
        )
        try:
            trajectory = Trajectory(
                **{
                    **row,
                    "turns": turns,
                    "end": EndReason(row["end"]),
                    "token_ids": np.array(row["token_ids"], dtype=np.int32),
                    "mask": np.array(row["mask"], dtype=np.int8),
                    "logprobs": np.array(row["logprobs"], dtype=np.float32),
                }
            )
            trajectory.validate()
        except ValueError as error:
            raise UserError(f"{path}: {error}; make it again with `{made_by}`") from error
        trajectories.append(trajectory)
    return trajectories
