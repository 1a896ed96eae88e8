"""Episodes for reading, chosen by a rule that looks at no text: nothing here is picked by hand.

The rule is :data:`SELECTION`; it travels with the transcripts, so that whoever shows them can say
how they were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.config import RewardConfig, StudyConfig
from agent_rl.evaluation.episode_text import known_rewards, turn_rewards
from agent_rl.tasks.instances import Instance
from agent_rl.trajectory import EndReason, Trajectory

FIRST_ARM = "grpo_shaped"
"""The arm whose episodes are shown if it has any: the RL arm that the hypotheses name."""
REWARDS = ("sparse", "dense", "shaped")
UNTRAINED = ("random", "oracle", "base")

SELECTION = (
    "For each task, among the test episodes that evaluation keeps for reading (the first instances "
    "of the split): (1) the oracle on the first instance in the order of ids; (2) the first failed "
    f"greedy episode of a trained agent, where the arm {FIRST_ARM} comes first, then the other "
    "arms in the order of the study, then the training seed, then the instance id; (3) the oracle "
    "on the same instance, unless that is (1); (4) the first successful greedy episode of the same "
    "arm, by seed and instance id. If no episode failed, (2) and (3) are missing and (4) is of the "
    "first arm that has one. Episodes in which the task itself crashed are left out."
)
ROLES = ("oracle_first", "failed", "oracle_same_instance", "successful")
"""Names of the four choices, in order."""


def select(
    samples: Sequence[Trajectory], instances: Sequence[Instance], arms: Sequence[str]
) -> dict[str, Trajectory]:
    """The chosen episodes by role, in the order of :data:`ROLES`; see :data:`SELECTION`.

    Args:
        samples: episodes of one task, of all policies, splits and decodings.
        instances: of the task, of all splits.
        arms: names of the trained arms, in the order of the study.
    """
    tested = {instance.instance_id for instance in instances if instance.split == "test"}
    order = {arm: i for i, arm in enumerate(sorted(arms, key=lambda arm: arm != FIRST_ARM))}
    usable = [t for t in samples if t.instance_id in tested and t.end is not EndReason.ERROR]
    oracle = {
        t.instance_id: t
        for t in sorted(usable, key=lambda t: t.instance_id)
        if t.policy == "oracle"
    }
    greedy = sorted(
        (t for t in usable if t.policy in order and t.temperature == 0),
        key=lambda t: (order[t.policy], t.seed, t.instance_id),
    )
    failed = next((t for t in greedy if not t.success), None)
    same_arm = [t for t in greedy if failed is None or t.policy == failed.policy]
    chosen = {
        "oracle_first": next(iter(oracle.values()), None),
        "failed": failed,
        "oracle_same_instance": oracle.get(failed.instance_id) if failed else None,
        "successful": next((t for t in same_arm if t.success), None),
    }
    if chosen["oracle_same_instance"] is chosen["oracle_first"]:
        chosen["oracle_same_instance"] = None
    return {role: found for role in ROLES if (found := chosen[role]) is not None}


def transcripts(
    study: StudyConfig, chosen: Mapping[str, Mapping[str, Trajectory]]
) -> dict[str, Any]:
    """Content of ``results/transcripts.json``: the rule, the rewards' settings and the episodes.

    Args:
        study: settings; rewards are those that its arms are paid.
        chosen: for every task what :func:`select` gave.

    Returns: plain containers, numbers rounded to six decimals, a lost distance as None.
    """
    episodes = [
        {"task": task, "role": role, "split": "test", **episode_record(study, trajectory)}
        for task in sorted(chosen)
        for role, trajectory in chosen[task].items()
    ]
    settings = {
        setting.name: {"scale": setting.scale, "gamma": setting.gamma} for setting in _shown(study)
    }
    return {"selection": SELECTION, "rewards": settings, "episodes": episodes}


def _shown(study: StudyConfig) -> list[RewardConfig]:
    known = known_rewards(study)
    return [known[name] for name in REWARDS if name in known]


def episode_record(study: StudyConfig, trajectory: Trajectory) -> dict[str, Any]:
    """One episode in plain containers, with what each turn is paid."""
    paid = {s.name: turn_rewards([trajectory], s)[0] for s in _shown(study)}
    start = trajectory.distances
    return {
        "policy": trajectory.policy,
        "seed": None if trajectory.policy in UNTRAINED else trajectory.seed,
        "decoding": "greedy" if trajectory.temperature == 0 else f"t{trajectory.temperature:g}",
        "instance_id": trajectory.instance_id,
        "distance": _distance(start[0]) if len(start) else None,
        "horizon": trajectory.horizon,
        "turns": [
            {
                "observation": turn.observation,
                "action": turn.action,
                "valid": turn.valid,
                "distance_before": _distance(turn.distance_before),
                "distance_after": _distance(turn.distance_after),
                "rewards": {name: round(values[i], 6) + 0.0 for name, values in paid.items()},
            }
            for i, turn in enumerate(trajectory.turns)
        ],
        "end": trajectory.end.value,
        "final_observation": trajectory.final_observation,
    }


def _distance(steps: float) -> float | None:
    """JSON has no infinity: a lost state has no distance."""
    return None if math.isinf(steps) else round(float(steps), 6)
