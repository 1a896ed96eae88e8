"""Stage ``evaluate``: every policy on the held-out splits, greedy and sampled.

The streams of evaluation are its own and do not depend on the arm: arm A and arm B meet the same
instance with the same random numbers.

Run it alone:  python -m agent_rl.stages.evaluate --task babyai
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from agent_rl.config import StudyConfig
from agent_rl.evaluation.episodes import EPISODE_SCHEMA, episode_rows
from agent_rl.files import read_json, write_parquet
from agent_rl.parallel import run_parallel, tick
from agent_rl.rollouts.policies import OraclePolicy, Policy, RandomPolicy
from agent_rl.rollouts.setup import make_chat, make_engine
from agent_rl.rollouts.storage import save_trajectories
from agent_rl.seeding import Stream
from agent_rl.stages.common import Artifacts, episodes_of, load_instances, task_stage
from agent_rl.training.ledger import RUN
from agent_rl.trajectory import Trajectory

SPLITS = ("test", "shifted")
TEMPERATURE = {"greedy": 0.0, "t1": 1.0}
KEPT = 6
"""Trajectories kept per policy, split and decoding: the first instances, for reading."""


class Contender(NamedTuple):
    """A policy to evaluate."""

    method: str
    seed: int | None
    folder: Path | None
    """Policy folder; None for scripted policies."""


def contenders(study: StudyConfig, artifacts: Artifacts) -> list[Contender]:
    """All policies of a task; failed runs have none and are reported from their ``run.json``."""
    found = [
        Contender("random", None, None),
        Contender("oracle", None, None),
        Contender("base", None, artifacts.base),
    ]
    for arm in study.arms:
        for seed in study.seeds:
            folder = artifacts.arm(arm) / f"seed-{seed}"
            run = read_json(folder / RUN, f"dvc repro train@{artifacts.root.name}-{arm}")
            if run["status"] == "ok":
                found.append(Contender(arm, seed, folder))
    return found


def evaluate(
    contender: Contender, *, study: StudyConfig, task_name: str, artifacts: Artifacts
) -> tuple[list[dict[str, Any]], list[Trajectory]]:
    """Play all splits and decodings of one policy."""
    # Imported here, in the workers: the parent only waits and needs no torch.
    from agent_rl.rollouts.models import load_policy

    instances = load_instances(artifacts.instances)
    rows: list[dict[str, Any]] = []
    kept: list[Trajectory] = []
    decodings = study.evaluation.decodings
    model = None
    if contender.folder is not None:
        model = load_policy(contender.folder, "dvc repro", artifacts.base)
    task = study.task(task_name)
    for split_index, split in enumerate(SPLITS):
        engine = make_engine(
            task_name,
            task.on(split),
            seed=contender.seed or 0,
            batch_size=study.evaluation.batch_size,
        )
        chosen = [i for i in instances if i.split == split]
        for decoding in decodings:
            policy = _policy(contender, model, study, task_name, decoding)
            episodes = episodes_of(study, chosen, 0, Stream.EVALUATION, split_index)
            played = engine.play(policy, episodes)
            rows += episode_rows(
                played,
                [i.distance for i in chosen],
                method=contender.method,
                seed=contender.seed,
                split=split,
                decoding=decoding,
            )
            kept += played[:KEPT]
            tick(1 / (len(SPLITS) * len(decodings)))
    return rows, kept


def _policy(
    contender: Contender, loaded: Any, study: StudyConfig, task_name: str, decoding: str
) -> Policy:
    if contender.method == "random":
        return RandomPolicy()
    if contender.method == "oracle":
        return OraclePolicy()
    from agent_rl.rollouts.model_policy import ModelPolicy

    model, tokenizer, card = loaded
    task = study.task(task_name)
    return ModelPolicy(
        contender.method,
        model,
        make_chat(tokenizer, task, study.model),
        temperature=TEMPERATURE[decoding],
        max_action_tokens=task.max_action_tokens,
        max_tokens=task.max_tokens,
        weights=card["weights"],
    )


def build(study: StudyConfig, task_name: str, artifacts: Artifacts) -> None:
    """Evaluate everything that was trained."""
    results = run_parallel(
        partial(evaluate, study=study, task_name=task_name, artifacts=artifacts),
        contenders(study, artifacts),
        workers=study.workers,
        title=f"evaluate {task_name}",
        preload=["agent_rl.rollouts.model_policy"],
    )
    rows = [row for rows, _ in results for row in rows]
    write_parquet(artifacts.episodes, pa.Table.from_pylist(rows, schema=EPISODE_SCHEMA))
    save_trajectories(artifacts.samples, [t for _, kept in results for t in kept])


if __name__ == "__main__":
    sys.exit(task_stage(__doc__ or "", build))
