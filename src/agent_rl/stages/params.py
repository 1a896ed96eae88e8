"""Write ``params.yaml``: the composition of ``configs/`` that DVC tracks.

Run it:  python -m agent_rl.stages.params [profile=smoke] [any Hydra override]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from agent_rl.compose import compose_config
from agent_rl.config import PARAMS, study_from
from agent_rl.files import write_text
from agent_rl.stages.common import check_task, guarded

HEADER = "# Written by `make params` from configs/; edit there.\n"


def render(overrides: Sequence[str] = ()) -> str:
    """Text of ``params.yaml``; the settings are checked first."""
    content = compose_config("study", overrides)
    study = study_from(content, "configs/study.yaml")
    for name, task in study.tasks.items():
        check_task(name, task)
    return HEADER + OmegaConf.to_yaml(OmegaConf.create(content), sort_keys=True)


def main(argv: Sequence[str] | None = None) -> int:
    overrides = list(sys.argv[1:] if argv is None else argv)

    def run() -> None:
        text = render(overrides)
        path = Path(PARAMS)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
