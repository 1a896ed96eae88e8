"""Stage ``collect``: the base policy plays training instances in groups.

Arms learn from these groups. The probe, fewer instances in larger groups, only tells how often a
group of each size would be dead; no arm sees it and no arm pays for it.

Run it alone:  python -m agent_rl.stages.collect --task babyai
"""

from __future__ import annotations

import sys
from typing import cast

from tqdm import tqdm
from transformers import PreTrainedModel

from agent_rl.config import StudyConfig
from agent_rl.files import write_json
from agent_rl.parallel import prepare_process
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.models import load_policy
from agent_rl.rollouts.setup import make_chat, make_engine
from agent_rl.rollouts.storage import save_trajectories
from agent_rl.seeding import Stream
from agent_rl.stages.common import (
    Artifacts,
    episodes_of,
    load_instances,
    shared_digest,
    task_stage,
)


def build(study: StudyConfig, task_name: str, artifacts: Artifacts) -> None:
    """Play ``collect.instances`` groups of ``collect.group_size`` episodes, and the probe."""
    prepare_process()
    task, settings = study.task(task_name), study.collect_on(task_name)
    model, tokenizer, card = load_policy(artifacts.base, "dvc repro warmstart")
    policy = ModelPolicy(
        "base",
        cast(PreTrainedModel, model),
        make_chat(tokenizer, task, study.model),
        temperature=settings.temperature,
        max_action_tokens=task.max_action_tokens,
        max_tokens=task.max_tokens,
        weights=card["weights"],
    )
    train = [i for i in load_instances(artifacts.instances) if i.split == "train"]
    groups = episodes_of(
        study,
        train[: settings.instances],
        0,
        Stream.SAMPLING,
        0,
        members=settings.group_size,
    )
    # On the same starts, so that the probe speaks of what the arms are trained on.
    probe = episodes_of(
        study,
        train[: settings.probe_instances],
        0,
        Stream.PROBE,
        members=settings.probe_group_size,
    )
    engine = make_engine(task_name, task, seed=0)
    total = len(groups) + len(probe)
    with tqdm(total=total, desc=f"collect {task_name}", unit="episode") as bar:
        save_trajectories(artifacts.collected, engine.play(policy, groups, bar.update))
        save_trajectories(artifacts.probe, engine.play(policy, probe, bar.update))
    write_json(artifacts.collect_card, {"settings": shared_digest(study, task_name)})


if __name__ == "__main__":
    sys.exit(task_stage(__doc__ or "", build))
