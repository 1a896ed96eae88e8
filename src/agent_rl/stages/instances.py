"""Stage ``instances``: distinct instances per split, without overlap.

Run it alone:  python -m agent_rl.stages.instances --task babyai
"""

from __future__ import annotations

import sys
from dataclasses import asdict

from tqdm import tqdm

from agent_rl.config import StudyConfig
from agent_rl.files import write_json
from agent_rl.stages.common import Artifacts, save_instances, task_stage
from agent_rl.tasks.instances import build_instances, overlap


def build(study: StudyConfig, task_name: str, artifacts: Artifacts) -> None:
    """Walk seeds until every split is full."""
    task = study.task(task_name)
    sizes = asdict(task.instances)
    with tqdm(total=sum(sizes.values()), desc=f"instances {task_name}", unit="instance") as bar:
        instances, skipped = build_instances(
            task.family,
            task.settings,
            sizes,
            task.held_out,
            max_distance=task.horizon,
            shifted_settings=task.shifted_settings,
            progress=lambda *_: bar.update(),
        )
    shared = overlap(instances)
    assert shared == 0, f"{shared} initial states occur in two splits"
    save_instances(artifacts.instances, instances)
    write_json(artifacts.skipped, {"skipped": skipped, "overlap": shared})


if __name__ == "__main__":
    sys.exit(task_stage(__doc__ or "", build))
