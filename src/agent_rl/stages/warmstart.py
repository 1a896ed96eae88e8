"""Stage ``warmstart``: the base policy that every arm starts from.

With ``model.source: scratch`` a small model learns from the mixed demonstrations; otherwise the
named pretrained model is taken as it is.

Run it alone:  python -m agent_rl.stages.warmstart --task babyai
"""

from __future__ import annotations

import sys

from tqdm import tqdm

from agent_rl.config import StudyConfig
from agent_rl.parallel import prepare_process
from agent_rl.rollouts.models import (
    build_model,
    build_tokenizer,
    load_model,
    load_tokenizer,
    save_policy,
)
from agent_rl.rollouts.setup import make_chat
from agent_rl.rollouts.storage import load_trajectories
from agent_rl.seeding import Stream, integer_seed
from agent_rl.stages.common import Artifacts, task_stage
from agent_rl.tasks.registry import make_env
from agent_rl.training.supervised import written_tokens
from agent_rl.training.warmstart import train_base


def build(study: StudyConfig, task_name: str, artifacts: Artifacts) -> None:
    """Train or load the base and save it with its tokenizer."""
    prepare_process()
    task = study.task(task_name)
    card = {"task": task_name, "method": "base", "seed": 0}
    if study.model.source != "scratch":
        tokenizer = load_tokenizer(study.model.source)
        make_chat(tokenizer, task, study.model)  # refuses a template that cannot be trained on
        save_policy(artifacts.base, load_model(study.model.source), tokenizer, card)
        return
    rules = make_env(task.family, task.settings, task.horizon).task
    told = rules.instructions.split() if study.model.instructions else []
    tokenizer = build_tokenizer([*rules.vocabulary, *told])
    chat = make_chat(tokenizer, task, study.model)
    model = build_model(
        study.model, tokenizer, task.max_tokens, integer_seed(study.seed, 0, Stream.INIT)
    )
    demonstrations = load_trajectories(artifacts.mixed, "dvc repro demos")
    with tqdm(total=study.warmstart.steps, desc=f"warmstart {task_name}", unit="step") as bar:
        loss = train_base(
            model,
            tokenizer,
            [written_tokens(t, chat) for t in demonstrations],
            warmstart=study.warmstart,
            config=study.train,
            seed=integer_seed(study.seed, 0, Stream.DATA),
            report=bar.update,
        )
    save_policy(artifacts.base, model, tokenizer, {**card, "training_loss": round(loss, 4)})


if __name__ == "__main__":
    sys.exit(task_stage(__doc__ or "", build))
