"""A made-up study with every file that ``results/`` holds. Its numbers mean nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.reporting.planted_rewards import write_reward_files

LEVELS = {
    "random": 0.05, "oracle": 1.0, "base": 0.3, "sft": 0.66, "rft": 0.45, "dpo": 0.42,
    "grpo_sparse": 0.55, "grpo_dense": 0.62, "grpo_shaped": 0.7, "sft_grpo": 0.82,
}  # fmt: skip
UNTRAINED = ("random", "oracle", "base")
RL = ("grpo_sparse", "grpo_dense", "grpo_shaped", "sft_grpo")
REWARD_NAMES = {"grpo_sparse": "sparse", "grpo_dense": "dense"}
REWARD_OFFSET = {"grpo_sparse": (1, 0.0), "grpo_dense": (0.75, 0.2), "grpo_shaped": (1, 0.5)}
REWARD_OFFSET["sft_grpo"] = REWARD_OFFSET["grpo_shaped"]
REWARDS = tuple((arm, REWARD_NAMES.get(arm, "shaped")) for arm in RL)
EPISODES = 400
BUDGET = 2_000_000
DISTANCES = np.arange(2, 13)


def _run_row(rng, task, method, seed, split, decoding, level):
    level = np.clip(level - 0.12 * (split == "shifted") - 0.06 * (decoding == "t1"), 0.01, 1.0)
    wins = round(level * EPISODES)
    ends = rng.multinomial(EPISODES - wins, [0.3, 0.6, 0.08, 0.02])
    trained, rl, expert = method not in UNTRAINED, method in RL, method in ("sft", "sft_grpo")
    total = BUDGET * (1 + rng.normal(0, 0.01)) if trained else 0
    share = (0.35, 0.3) if rl else (0.1, 0.7)
    return {
        "task": task, "method": method, "seed": seed if trained else "", "split": split,
        "decoding": decoding, "episodes": EPISODES, "successes": wins,
        "success_rate": round(wins / EPISODES, 6), "mean_turns": 7.5, "invalid_action_rate": 0.02,
        "end_success": wins, "end_failure": ends[0], "end_turn_limit": ends[1],
        "end_token_limit": ends[2], "end_error": ends[3],
        "train_env_steps": 60_000 * rl + 8_000 * (method in ("rft", "dpo")),
        "train_sampled_tokens": int(share[0] * total),
        "train_trained_tokens": int(share[1] * total), "expert_labels": 5_000 * expert,
        "optimizer_steps": 200 * trained, "status": "ok", "reason": "",
        "train_context_tokens": int((1 - sum(share)) * total), "total_tokens": int(total),
    }  # fmt: skip


def _curve_rows(rng, task, method, seed, final, base):
    rl = method in RL
    rows, updates = [], (30 if rl else 20) + int(rng.integers(-3, 3)) * rl
    for update in range(updates + 1):
        part = update / updates
        success = base + (final - base) * (1 - np.exp(-3 * part)) / (1 - np.exp(-3))
        noisy = float(np.clip(success + rng.normal(0, 0.02), 0, 1))
        factor, offset = REWARD_OFFSET.get(method, (1, 0.0))
        start = 0.15 if method in ("rft", "dpo") else 0.0
        rows.append(
            {
                "task": task, "method": method, "seed": seed, "update": update,
                "env_steps": 2000 * update if rl else 8000 * (method in ("rft", "dpo")),
                "tokens": int(BUDGET * (start + (1 - start) * part)),
                "success_rate": noisy if rl else "",
                "reward_mean": factor * noisy + offset if rl else "",
                "reward_std": 0.4 if rl else "",
                "dead_group_share": float(np.clip(abs(2 * noisy - 1) ** 2, 0, 1)) if rl else "",
                "entropy": 1.2 * np.exp(-1.5 * part) + rng.normal(0, 0.02) if rl else "",
                "mean_turns": 8.0,
                "val_success_rate": noisy if update % 5 == 0 or update == updates else "",
                "ratio_max_deviation": 0.01 if rl else "",
            }
        )  # fmt: skip
    return rows


def _distance_rows(rng, task, method, seed, level):
    weights = np.exp(-0.5 * ((DISTANCES - 5) / 2.5) ** 2)
    sizes = np.round(EPISODES * weights / weights.sum()).astype(int)
    for distance, size in zip(DISTANCES, sizes, strict=True):
        chance = np.clip(level + 0.06 * (5 - distance) * (method != "oracle"), 0, 1)
        yield {
            "task": task, "method": method, "seed": seed, "split": "test", "decoding": "greedy",
            "distance": int(distance), "episodes": int(size),
            "successes": int(rng.binomial(size, chance)),
        }  # fmt: skip


def write_results(directory: Path, tasks=("babyai",), seeds=8) -> Path:
    """Write a whole synthetic results folder and return it."""
    rng = np.random.default_rng(7)
    directory.mkdir(parents=True, exist_ok=True)
    runs, curves, distances = [], [], []
    for index, task in enumerate(tasks):
        for method, nominal in LEVELS.items():
            level = nominal if method == "oracle" else nominal * (1 - 0.3 * index)
            for seed in range(seeds) if method not in UNTRAINED else [""]:
                own = level + (rng.normal(0, 0.04) if seed != "" else 0.0)
                row = _run_row(rng, task, method, seed, "test", "greedy", own)
                costs = {k: row[k] for k in row if k.startswith("train_") or "tokens" in k}
                runs.append(row)
                for where in (("test", "t1"), ("shifted", "greedy"), ("shifted", "t1")):
                    runs.append(_run_row(rng, task, method, seed, *where, own) | costs)
                distances += _distance_rows(rng, task, method, seed, own)
                if seed != "":
                    base = LEVELS["base"] * (1 - 0.3 * index)
                    curves += _curve_rows(rng, task, method, seed, own, base)
    pd.DataFrame(runs).to_csv(directory / "runs.csv", index=False)
    pd.DataFrame(curves).to_csv(directory / "curves.csv", index=False)
    pd.DataFrame(distances).to_csv(directory / "by_distance.csv", index=False)
    instances = [
        {
            "task": task, "split": split, "instances": size, "skipped_duplicate": 31,
            "skipped_held_out": 44, "skipped_solved": 2, "mean_distance": 5.3, "overlap": 0,
        }
        for task in tasks
        for split, size in (("train", 2000), ("val", 200), ("test", 400), ("shifted", 400))
    ]  # fmt: skip
    pd.DataFrame(instances).to_csv(directory / "instances.csv", index=False)
    provenance = {
        "config_hash": "0123abcd", "profile": "synthetic",
        "versions": {"torch": "0.0", "trl": "0.0"},
        "tasks": {task: {"level": "made up", "horizon": 16, "base_success": 0.3} for task in tasks},
        "seeds": list(range(seeds)), "budget_tokens": dict.fromkeys(tasks, BUDGET),
        "commands": ["dvc repro"],
        "arms": {arm: {"kind": "grpo", "reward": {"name": reward}} for arm, reward in REWARDS},
    }  # fmt: skip
    (directory / "provenance.json").write_text(json.dumps(provenance))
    return directory


def edit(results: Path, name: str, change) -> None:
    """Apply ``change`` to one results file, read as text so that nothing else moves."""
    frame = pd.read_csv(results / f"{name}.csv", dtype=str, keep_default_na=False)
    changed = change(frame)
    (frame if changed is None else changed).to_csv(results / f"{name}.csv", index=False)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """One task, eight seeds."""
    return write_results(tmp_path / "results")


@pytest.fixture(scope="session")
def edit_results():
    """The function that changes one file of a results folder."""
    return edit


@pytest.fixture(scope="session")
def make_results():
    """The function that writes a results folder."""
    return write_results


@pytest.fixture(scope="session")
def make_reward_files():
    """The function that adds the files on rewards to a results folder."""
    return write_reward_files
