"""Held-out episodes of one policy: the same instances for every arm, seed and checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from agent_rl.trajectory import Trajectory

EPISODE_SCHEMA = pa.schema(
    [
        ("method", pa.string()),
        ("seed", pa.int64()),
        ("split", pa.string()),
        ("decoding", pa.string()),
        ("instance_id", pa.int64()),
        ("distance", pa.int64()),
        ("end", pa.string()),
        ("turns", pa.int64()),
        ("invalid_actions", pa.int64()),
    ]
)
"""One row per evaluated episode; ``seed`` is null for policies that were not trained."""


def episode_rows(
    trajectories: Sequence[Trajectory],
    distances: Sequence[int],
    *,
    method: str,
    seed: int | None,
    split: str,
    decoding: str,
) -> list[dict[str, Any]]:
    """Rows of :data:`EPISODE_SCHEMA`; ``distances`` are those of the instances, in order."""
    return [
        {
            "method": method,
            "seed": seed,
            "split": split,
            "decoding": decoding,
            "instance_id": trajectory.instance_id,
            "distance": distance,
            "end": trajectory.end.value,
            "turns": len(trajectory.turns),
            "invalid_actions": sum(not turn.valid for turn in trajectory.turns),
        }
        for trajectory, distance in zip(trajectories, distances, strict=True)
    ]
