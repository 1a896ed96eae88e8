"""Write ``params.yaml``: the composition of ``configs/`` that DVC tracks.

Run it:  python -m agent_rl.stages.params [profile=smoke] [tasks=babyai,sqlqa] [any Hydra override]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agent_rl.compose import CONFIGS, compose_config
from agent_rl.config import MATRIX, PARAMS, matrix_of, study_from
from agent_rl.errors import UserError
from agent_rl.files import write_text
from agent_rl.stages.common import check_rewards, check_task, guarded

HEADER = "# Written by `make params` from configs/; edit there.\n"


TASKS = "tasks="


def task_names() -> list[str]:
    """Names of the task configurations, sorted. Raises: UserError outside the repository."""
    folder = CONFIGS / "task"
    if not folder.is_dir():
        raise UserError(f"no folder {folder}/ here; run from the root of the repository")
    return sorted(path.stem for path in folder.glob("*.yaml"))


def compose_study(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The composed study; a word ``tasks=A,B`` narrows or extends it to the tasks named.

    Every arm gets a learning rate on every task: the tuned one, or that of its method.

    Raises: UserError for a task without a file in ``configs/task/``.
    """
    names = [word.removeprefix(TASKS) for word in overrides if word.startswith(TASKS)]
    rest = [word for word in overrides if not word.startswith(TASKS)]
    chosen = [name.strip() for name in ",".join(names).split(",") if name.strip()]
    present = task_names() if chosen else []
    studied = compose_config("study")["tasks"] if chosen else []
    added = []
    for name in chosen:
        if name not in present:
            raise UserError(f"unknown task {name!r}; {CONFIGS}/task/ has: {', '.join(present)}")
        if name not in studied:
            added.append(f"+task@tasks.{name}={name}")
            if (CONFIGS / "tuned" / f"{name}.yaml").exists():
                added.append(f"+tuned@learning_rates.{name}={name}")
    content = compose_config("study", [*added, *rest])
    content["tasks"] = {name: content["tasks"][name] for name in chosen or content["tasks"]}
    content["learning_rates"] = {
        task: {
            arm: content["learning_rates"].get(task, {}).get(arm, settings["learning_rate"])
            for arm, settings in content["arms"].items()
        }
        for task in content["tasks"]
    }
    return content


def render(overrides: Sequence[str] = ()) -> str:
    """Text of ``params.yaml``; the settings are checked first."""
    content = compose_study(overrides)
    study = study_from(content, "configs/study.yaml")
    content[MATRIX] = matrix_of(study)
    for name, task in study.tasks.items():
        check_task(name, task)
    check_rewards(study)
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
