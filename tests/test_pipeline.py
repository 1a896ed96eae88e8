"""The smoke pipeline in a copy of the checkout: it runs, it is complete, it repeats."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from tests.rewards.judge_server import JudgeServer, answer, say

from agent_rl.stages.smoke import prepare_copy, run_command, run_pipeline

ROOT = Path(__file__).parents[1]
TASKS = ("babyai", "sqlqa")
ARMS = ("sft", "rft", "dpo", "grpo_sparse", "grpo_dense", "grpo_shaped", "sft_grpo")


def hashes(folder, *parts):
    """SHA-256 of every file below some places of a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in parts
        for path in sorted((folder / part).rglob("*"))
        if path.is_file() and path.name != ".gitignore"
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which the whole smoke pipeline has run."""
    folder = tmp_path_factory.mktemp("smoke")
    before = hashes(ROOT, "results", "reports", "configs")
    run_pipeline(folder, ROOT)
    assert hashes(ROOT, "results", "reports", "configs") == before
    return folder


@pytest.fixture(scope="module")
def runs(finished):
    return pd.read_csv(finished / "results" / "runs.csv")


@pytest.mark.parametrize("task", TASKS)
def test_every_arm_seed_split_and_decoding_has_a_row(runs, task):
    assert set(runs.task) == set(TASKS)
    own = runs[runs.task == task]
    trained = own[own.method.isin(ARMS)]
    assert set(trained.method) == set(ARMS)
    cells = trained.groupby(["method", "seed", "split", "decoding"]).size()
    assert (cells == 1).all() and len(cells) == len(ARMS) * 2 * 2 * 2
    untrained = own[own.method.isin(["random", "oracle", "base"])]
    assert untrained.seed.isna().all() and len(untrained) == 3 * 2 * 2


@pytest.mark.parametrize("task", TASKS)
def test_the_transcripts_hold_an_oracle_episode_and_name_their_rule(finished, task):
    content = json.loads((finished / "results" / "transcripts.json").read_text(encoding="utf-8"))
    own = [episode for episode in content["episodes"] if episode["task"] == task]
    assert own and own[0]["role"] == "oracle_first" and own[0]["end"] == "success"
    assert content["selection"][:60] in (finished / "reports" / "index.md").read_text(
        encoding="utf-8"
    )


def test_the_pipeline_has_about_thirty_stages(finished):
    listed = run_command(["dvc", "stage", "list", "--name-only"], finished, capture=True)
    assert len(listed.split()) == 2 * (6 + 1 + len(ARMS)) + 2


def test_the_oracle_wins_and_ends_add_up(runs):
    assert (runs[runs.method == "oracle"].success_rate >= 0.99).all()
    played = runs[runs.status != "failed"]
    ends = played.filter(like="end_").sum(axis=1)
    assert (ends == played.episodes).all()
    assert (played.successes == played.end_success).all()


def test_every_trained_arm_spent_the_budget_to_within_half_an_update(runs):
    trained = runs[runs.method.isin(ARMS) & (runs.status != "failed")]
    total = trained.train_sampled_tokens + trained.train_trained_tokens
    assert (total + trained.train_context_tokens == trained.total_tokens).all()
    budget = 60_000  # of the smoke profile, where one update is up to a tenth of it
    assert trained.total_tokens.between(0.95 * budget, 1.05 * budget).all()


def test_results_name_no_place_and_no_machine(finished):
    files = [path for path in (finished / "results").rglob("*") if path.is_file()]
    for path in [*files, finished / "reports" / "index.md"]:
        text = path.read_text(encoding="utf-8")
        assert str(finished) not in text and os.uname().nodename not in text, path


def test_the_second_repro_runs_nothing(finished):
    before = hashes(finished, "artifacts", "results", "reports")
    output = run_command(["dvc", "repro"], finished, capture=True)
    assert "Running stage" not in output and "up to date" in output
    assert hashes(finished, "artifacts", "results", "reports") == before


def test_p56_other_hash_seed_and_worker_count_give_the_same_bytes(finished, tmp_path):
    prepare_copy(tmp_path, ROOT)
    run_command(["agent_rl.stages.params", "profile=smoke", "workers=1"], tmp_path)
    targets = ["reward@babyai", "train@babyai-grpo_shaped", "train@babyai-dpo"]
    run_command(["dvc", "repro", *targets], tmp_path, PYTHONHASHSEED="7")
    parts = ["instances", "demos", "base", "collect", "reward", "train/grpo_shaped", "train/dpo"]
    places = [f"artifacts/babyai/{part}" for part in parts]
    again = hashes(tmp_path, *places)
    assert len(again) > 20
    assert again == hashes(finished, *places)


def test_a_stage_refuses_bad_input_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "agent_rl.stages.collect", "--task", "babyai"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "params.yaml is missing" in done.stderr


def test_one_run_reuses_the_base_and_says_where_everything_is(finished):
    words = "run task=babyai method=grpo reward=shaped credit=turn group_size=8 horizon=10 seed=3"
    output = run_command(["agent_rl", *words.split(), "profile=smoke"], finished, capture=True)
    assert not (finished / ".work" / "base").exists(), "the pipeline's base was not reused"
    for name in ("curve", "checkpoint", "evaluation"):
        line = next(row for row in output.splitlines() if row.startswith(f"{name}:"))
        assert (finished / line.split(":", 1)[1].strip()).exists()
    assert "test     greedy success" in output


def short_run(folder, words):
    """Curve rows of a run on a fraction of the smoke budget."""
    words = ["run", "task=babyai", *words, "profile=smoke", "train.budget_tokens=20000"]
    output = run_command(["agent_rl", *words], folder, capture=True)
    curve = next(row for row in output.splitlines() if row.startswith("curve:"))
    rows = json.loads((folder / curve.split(":", 1)[1].strip()).read_text(encoding="utf-8"))
    return [row for row in rows if row["reward_mean"] is not None]


def test_a_rubric_is_trained_on_with_its_criteria_logged_apart(finished):
    rows = short_run(finished, ["reward=rubric"])
    assert rows
    for row in rows:
        weights = {"right_answer": 0.7, "answered": 0.1, "valid_calls": 0.1, "no_repeats": 0.1}
        parts = {name: row[f"rubric_{name}"] for name in weights}
        assert parts["right_answer"] == pytest.approx(row["success_rate"])
        summed = sum(weights[name] * share for name, share in parts.items())
        assert row["reward_mean"] == pytest.approx(summed)


def test_a_reward_of_ones_own_is_trained_on_by_its_name(finished):
    rows = short_run(finished, ["reward=brisk", "reward.scale=1.0"])
    assert rows and all(row["reward_mean"] <= row["success_rate"] + 1e-9 for row in rows)


def test_a_judge_is_trained_on_through_its_endpoint(finished):
    def quick_is_good(handler, request):
        steps = {a["id"]: len(a["steps"]) for a in request.question["attempts"]}
        say(handler, answer({name: 1 / count for name, count in steps.items()}))

    with JudgeServer(quick_is_good) as server:
        words = [f"reward.judge.url={server.url}", "reward.judge.model=any"]
        rows = short_run(finished, ["reward=judge", *words])
    assert rows and server.requests
    assert sum(row["judge_requests"] for row in rows) == len(server.requests)
    assert all(row["judge_invalid_share"] == 0 and 0 < row["reward_mean"] <= 1 for row in rows)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("run method=grpo group_size=1", "group_size = 1"),
        ("run method=ppo", "ppo"),
        ("run reward=dense model.dropout=0.1", "dropout"),
        ("run reward.name=sprase", "arms.run.reward: unknown reward 'sprase'"),
        ("run reward.size=2", "size"),
        ("run reward=judge", "no endpoint is configured"),
        ("run credit.gae_lambda=0.5", "reward shaped with credit turn"),
        ("run tasks.babyai.settings.level=GoToMars", "GoToMars"),
        ("run train.budget_token=5", "budget_token"),
        ("run seed=x", "seed=x"),
        ("walk", "walk"),
    ],
)
def test_bad_words_on_the_command_line_are_one_line_and_exit_code_2(words, told, capfd):
    from agent_rl.__main__ import main

    assert main(words.split()) == 2
    printed = capfd.readouterr()
    assert printed.err.count("\n") == 1 and told in printed.err and "Traceback" not in printed.err
