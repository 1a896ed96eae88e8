"""Stage ``demos``: expert demonstrations for sft, demonstrations of mixed purpose for the base.

Run it alone:  python -m agent_rl.stages.demos --task babyai
"""

from __future__ import annotations

import sys
from dataclasses import asdict

from tqdm import tqdm

from agent_rl.config import StudyConfig
from agent_rl.rollouts.policies import Demonstrator, OraclePolicy, Purpose
from agent_rl.rollouts.setup import make_engine
from agent_rl.rollouts.storage import save_trajectories
from agent_rl.seeding import Stream
from agent_rl.stages.common import Artifacts, episodes_of, load_instances, task_stage


def build(study: StudyConfig, task_name: str, artifacts: Artifacts) -> None:
    """Play the expert once on every training instance, and the mixed demonstrator in turns."""
    task = study.task(task_name)
    train = [i for i in load_instances(artifacts.instances) if i.split == "train"]
    mixture = asdict(task.demonstrations)
    count = mixture.pop("episodes")
    engine = make_engine(task_name, task, seed=0)
    with tqdm(total=len(train) + count, desc=f"demos {task_name}", unit="episode") as bar:
        expert = engine.play(
            OraclePolicy(), episodes_of(study, train, 0, Stream.TASKS, 0), bar.update
        )
        rounds = -(-count // len(train))
        mixed = engine.play(
            Demonstrator(Purpose(**mixture)),
            # Round after round over the instances, so that each is shown about equally often.
            sorted(
                episodes_of(study, train, 0, Stream.TASKS, 1, members=rounds),
                key=lambda episode: episode.member,
            )[:count],
            bar.update,
        )
    save_trajectories(artifacts.expert, expert)
    save_trajectories(artifacts.mixed, mixed)


if __name__ == "__main__":
    sys.exit(task_stage(__doc__ or "", build))
