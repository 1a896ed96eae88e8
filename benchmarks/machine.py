"""What the numbers were measured on: no host name, no clock, no path."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "transformers", "trl", "numpy", "minigrid")


def machine() -> dict[str, Any]:
    """Facts about processor, memory and versions; what the system does not tell is left out."""
    facts: dict[str, Any] = {
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in LIBRARIES},
        "threads_per_process": 1,
    }
    if model := _field(Path("/proc/cpuinfo"), "model name"):
        facts["cpu"] = model
    if memory := _field(Path("/proc/meminfo"), "MemTotal"):
        facts["memory_gib"] = round(int(memory.split()[0]) / 2**20, 1)
    return facts


def _field(path: Path, name: str) -> str:
    """Value of the first line ``name : value``, or empty."""
    if not path.exists():
        return ""
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return " ".join(value.split())
    return ""
