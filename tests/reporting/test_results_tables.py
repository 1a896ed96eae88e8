"""Reading results: every way in which a file can be wrong gives one line that names it."""

from __future__ import annotations

import json

import pytest
from tests.reporting.damage import change, failure

from agent_rl.reporting.tables import UNSEEDED, load_results


@pytest.mark.parametrize(
    "name", ["runs.csv", "curves.csv", "by_distance.csv", "instances.csv", "provenance.json"]
)
def test_missing_file(results, name):
    (results / name).unlink()
    message = failure(results)
    assert name in message and "not found" in message


@pytest.mark.parametrize("cut", [1, 7, 60, 400])
@pytest.mark.parametrize("name", ["runs.csv", "curves.csv"])
def test_truncated_file(results, name, cut):
    path = results / name
    path.write_bytes(path.read_bytes()[:-cut])
    assert "truncated" in failure(results)


def test_line_cut_in_the_middle(results):
    path = results / "runs.csv"
    lines = path.read_text().splitlines()
    lines[4] = ",".join(lines[4].split(",")[:9])
    path.write_text("\n".join(lines) + "\n")
    assert "line 5: 9 fields" in failure(results)


def test_empty_file(results):
    (results / "curves.csv").write_text("")
    assert "curves.csv: file is empty" in failure(results)


def test_missing_column(results, edit_results):
    edit_results(results, "runs", lambda frame: frame.drop(columns="end_error"))
    assert "column end_error is missing" in failure(results)


@pytest.mark.parametrize(
    ("column", "value", "part"),
    [
        ("successes", "many", "line 2, column successes: 'many' is not a whole number"),
        ("successes", "1.5", "'1.5' is not a whole number"),
        ("mean_turns", "inf", "'inf' is not a finite number"),
        ("method", "gpro_sparse", "'gpro_sparse' is not one of"),
        ("split", "train", "'train' is not one of test, shifted"),
        ("status", "done", "'done' is not one of"),
        ("task", "", "column task: empty"),
        ("success_rate", "0.999", "is not successes / episodes"),
        ("successes", "401", "needs 0 <= successes <= episodes"),
        ("episodes", "", "needs 0 <= successes <= episodes"),
    ],
)
def test_wrong_value_in_runs(results, edit_results, column, value, part):
    edit_results(results, "runs", change(column, value))
    assert part in failure(results)


def test_an_episode_batch_counted_twice_is_refused(results, edit_results):
    def duplicate(frame):
        frame.loc[len(frame)] = frame.iloc[-1]

    edit_results(results, "runs", duplicate)
    assert "a second row for task=babyai, method=sft_grpo, seed=7" in failure(results)


def test_trained_arm_needs_a_seed(results, edit_results):
    edit_results(results, "runs", change("seed", "", row=-1))
    assert "sft_grpo has a training seed" in failure(results)


def test_broken_provenance(results):
    path = results / "provenance.json"
    content = json.loads(path.read_text())
    del content["seeds"]
    path.write_text(json.dumps(content))
    assert "key seeds is missing" in failure(results)
    path.write_text('{"seeds": [')
    assert "not valid JSON" in failure(results)


def test_untrained_policies_may_have_an_empty_or_a_negative_seed(results, edit_results):
    def negative(frame):
        frame.loc[frame.method == "base", "seed"] = "-1"

    edit_results(results, "runs", negative)
    runs = load_results(results).runs
    assert set(runs.loc[runs.method.isin(["random", "oracle", "base"]), "seed"]) == {UNSEEDED}


def test_optional_columns_may_be_absent(results, edit_results):
    extra = ["train_context_tokens", "total_tokens", "reason"]
    edit_results(results, "runs", lambda frame: frame.drop(columns=extra))
    runs = load_results(results).runs
    assert runs["total_tokens"].isna().all() and (runs["reason"] == "").all()
