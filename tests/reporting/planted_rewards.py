"""Made-up files on rewards, of which one can be farmed, one pays failures and two are tight."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

POLICIES = (
    "oracle", "random", "oscillate", "stall", "stop_early", "repeat", "answer_at_once", "dump"
)  # fmt: skip
RANGES = {
    "sparse": (1.0, 0.0), "dense": (1.0, 0.0), "shaped": (1.5, 0.5), "dense_naive": (1.4, 0.0),
}  # fmt: skip
"""Oracle and floor."""
RETURNS = {
    # reward -> mean return of each policy after the oracle
    "sparse": (0.18, 0.0, 0.0, 0.0, 0.0, 0.04, 0.0),
    "dense": (0.35, 0.12, 0.0, 0.42, 0.08, 0.05, 0.02),
    "shaped": (0.68, 0.5, 0.5, 0.5, 0.5, 0.54, 0.5),
    "dense_naive": (0.6, 1.9, 0.0, 0.3, 0.2, 0.1, 0.0),
}
FAILED = {
    "sparse": (0.0,) * 7,
    "dense": (0.2, 0.12, 0.0, 0.42, 0.08, 0.01, 0.02),
    "shaped": (0.5,) * 7,
    "dense_naive": (0.5, 1.9, 0.0, 0.3, 0.2, 0.06, 0.0),
}
VERDICTS = {
    "sparse": ("tight", "random", 0.18, 0.0),
    "dense": ("pays failures", "stop_early", 0.42, 0.42),
    "shaped": ("tight", "random", 0.68, 0.0),
    "dense_naive": ("farmable", "oscillate", 1.9, 1.0),
}
SIZES = (2, 4, 8, 16)


def _audit(task, reward):
    oracle, _ = RANGES[reward]
    returns, failed = (oracle, *RETURNS[reward]), ("", *FAILED[reward])
    for policy, mean, lost in zip(POLICIES, returns, failed, strict=True):
        success = {"oracle": 1.0, "random": 0.18, "answer_at_once": 0.04}.get(policy, 0.0)
        yield {
            "task": task, "reward": reward, "policy": policy, "mean_return": mean,
            "success_rate": success, "episodes": 200, "mean_return_failed": lost,
            "max_return": max(mean, oracle), "beats_oracle_share": 0.95 * (mean > oracle),
        }  # fmt: skip


def _verdict(task, reward):
    oracle, floor = RANGES[reward]
    verdict, exploit, earned, paid = VERDICTS[reward]
    return {
        "task": task, "reward": reward, "oracle_return": oracle, "floor_return": floor,
        "best_exploit": exploit, "best_exploit_return": earned, "paid_failures": paid,
        "declared_maximum": oracle, "highest_return": max(oracle, earned),
        "farmable": verdict == "farmable", "verdict": verdict,
    }  # fmt: skip


def _dead(task, reward, credit, chance):
    for size in SIZES:
        predicted = chance**size + (1 - chance) ** size
        tells = {"sparse": 1.0, "shaped": 1.0 if credit == "trajectory" else 0.0}.get(reward, 0.4)
        measured = 0.95 * tells * predicted
        yield {
            "task": task, "reward": reward, "credit": credit, "group_size": size,
            "instances": 250, "groups": 1000, "measured": round(measured, 6),
            "measured_low": round(measured - 0.03, 6), "measured_high": round(measured + 0.03, 6),
            "predicted": round(predicted, 6),
            "predicted_low": round(predicted - 0.02, 6),
            "predicted_high": round(predicted + 0.02, 6),
        }  # fmt: skip


def _stats(task, reward):
    oracle, floor = RANGES[reward]
    return {
        "task": task, "reward": reward, "episodes": 4000,
        "mean": round(floor + 0.31 * (oracle - floor), 6), "std_in_group": 0.298,
        "variance_in_group": 0.0888, "correlation_with_success": 0.97,
    }  # fmt: skip


def write_reward_files(directory: Path, tasks=("babyai",)) -> Path:
    """Write every file on rewards into a results folder, the judge's included; return it."""
    frames = {
        "reward_audit": [row for t in tasks for r in RANGES for row in _audit(t, r)],
        "reward_verdicts": [_verdict(task, reward) for task in tasks for reward in RANGES],
        "tabular_check": [
            {
                "maze": maze, "reward": reward, "setting": setting, "states": 57,
                "differing_states": 9 * (reward == "dense_naive"),
                "example": "at 2,3: right, not up" if reward == "dense_naive" else "",
            }
            for maze in ("corridor", "rooms")
            for reward in ("shaped", "dense_naive")
            for setting in ("horizon 12, gamma 1", "gamma 0.9")
        ],
        "dead_groups": [
            row
            for index, task in enumerate(tasks)
            for reward in RANGES
            for credit in ("trajectory", "turn")
            for row in _dead(task, reward, credit, 0.3 - 0.1 * index)
        ],
        "reward_stats": [_stats(task, reward) for task in tasks for reward in RANGES],
        "rubric_criteria": [
            {
                "task": task, "reward": "rubric", "criterion": name, "weight": weight, "rate": rate,
                "correlation_with_success": correlation,
            }
            for task in tasks
            for name, weight, rate, correlation in (
                ("success", 1.0, 0.31, 1.0), ("every action is valid", 0.2, 1.0, ""),
                ("no repeated action", 0.3, 0.62, 0.21),
            )
        ],
        "judge": [
            {
                "task": task, "reward": "judge", "groups": 40, "invalid_groups": 3,
                "requests": 91, "retries": 5, "pair_agreement": 0.81, "pairs": 310,
                "order_effect": -0.04, "order_disagreement": 0.11,
            }
            for task in tasks
        ],
    }  # fmt: skip
    for name, rows in frames.items():
        pd.DataFrame(rows).to_csv(directory / f"{name}.csv", index=False)
    cards = {
        reward: {
            "formula": f"r_t = [won at t] * 1 + k * {reward}_t", "target": "reach the goal",
            "signal": "exact distance", "encoding": "one number for each turn",
            "source": "Ng et al. 1999, section 3" if reward == "shaped" else "",
            "settings": {"scale": 0.5, "gamma": 1.0}, "tasks": list(tasks),
        }
        for reward in RANGES
    }  # fmt: skip
    (directory / "reward_cards.json").write_text(json.dumps(cards))
    return directory
