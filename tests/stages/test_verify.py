"""Comparison of results folders on planted copies of the committed results; no training here."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from agent_rl.files import write_json
from agent_rl.stages import verify
from agent_rl.stages.comparison import KEYS, OBJECTS
from agent_rl.stages.smoke import prepare_copy
from agent_rl.stages.tolerance import TOLERANCE
from agent_rl.stages.verify import compare_results, main, prepare_folder, tasks_of, tell

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
TASKS = tasks_of(RESULTS)


@pytest.fixture
def fresh(tmp_path):
    """A new run that came out as the committed one did."""
    folder = tmp_path / "fresh"
    folder.mkdir()
    for name in (*KEYS, *OBJECTS):
        shutil.copy(RESULTS / name, folder / name)
    return folder


@pytest.fixture
def slice_of(fresh):
    """The same, as a run of one task alone writes it: other rows and settings, no empty columns."""

    def cut(task):
        for name in KEYS:
            frame = pd.read_csv(fresh / name, dtype=str, keep_default_na=False)
            if "task" in frame:
                frame = frame[frame.task == task]
            frame = frame.drop(columns=[c for c in frame if (frame[c] == "").all() and c != "seed"])
            frame.to_csv(fresh / name, index=False, lineterminator="\n")
        edit_json(fresh / "transcripts.json", lambda t: keep_episodes(t, task))
        edit_json(
            fresh / "reward_cards.json",
            lambda cards: [c.update(tasks=[task]) for c in cards.values()],
        )
        edit_json(fresh / "provenance.json", lambda p: keep_task(p, task))
        return fresh

    return cut


def keep_episodes(content, task):
    content["episodes"] = [e for e in content["episodes"] if e["task"] == task]


def keep_task(content, task):
    content["config_hash"] = "0" * 16
    for entry in ("tasks", "budget_tokens"):
        content[entry] = {task: content[entry][task]}


def edit_json(path, change):
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    write_json(path, content)


def edit_table(path, change):
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    changed = change(frame)
    (frame if changed is None else changed).to_csv(path, index=False, lineterminator="\n")


def wrong(found):
    return {one.name: one for one in found if not one.same}


def test_tables_and_keys_are_those_that_the_pipeline_publishes():
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    assert all(f"- results/{name}: {{cache: false}}" in text for name in (*KEYS, *OBJECTS))
    assert text.count("- results/") - text.count("- results/showcase") == 2 * len([*KEYS, *OBJECTS])


@pytest.mark.parametrize("elsewhere", [False, True])
def test_equal_results_are_verified_and_every_row_is_counted(fresh, elsewhere, capsys):
    found = compare_results(RESULTS, fresh, TASKS, elsewhere=elsewhere)
    assert not wrong(found) and all(one.rows == one.identical > 0 for one in found)
    assert tell(RESULTS, fresh, TASKS, elsewhere=elsewhere)
    printed = capsys.readouterr().out
    assert "verified: all agrees" in printed and str(fresh.parent) in printed
    assert "not compared: bench.csv, tuning.csv" in printed


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_of_one_task_is_compared_with_its_slice(slice_of, task, elsewhere):
    found = compare_results(RESULTS, slice_of(task), [task], elsewhere=elsewhere)
    assert not wrong(found)
    runs = next(one for one in found if one.name == "runs.csv")
    committed = pd.read_csv(RESULTS / "runs.csv")
    assert elsewhere or runs.rows == (committed.task == task).sum()


def test_one_digit_is_found_and_placed(fresh, capsys):
    def change(frame):
        frame.loc[frame.index[10], "mean_turns"] = "11.0276"

    before = pd.read_csv(RESULTS / "runs.csv", dtype=str, keep_default_na=False).iloc[10]
    edit_table(fresh / "runs.csv", change)
    found = wrong(compare_results(RESULTS, fresh, TASKS))
    assert found.keys() == {"runs.csv"}
    assert (found["runs.csv"].different, found["runs.csv"].missing) == (1, 0)
    assert f"mean_turns {before.mean_turns} -> 11.0276" in found["runs.csv"].worst
    assert found["runs.csv"].worst.startswith(f"{before.task} {before.method}")
    assert not tell(RESULTS, fresh, TASKS, elsewhere=False)
    assert "NOT verified" in capsys.readouterr().out


def test_the_largest_of_several_differences_is_named(fresh):
    def change(frame):
        frame.loc[frame.index[3], "mean_distance"] = "3.9"
        frame.loc[frame.index[1], "mean_distance"] = "13.5"

    edit_table(fresh / "instances.csv", change)
    found = wrong(compare_results(RESULTS, fresh, TASKS))["instances.csv"]
    assert found.different == 2 and "-> 13.5" in found.worst and found.size > 9


def test_a_row_that_is_missing_or_too_much_is_counted(fresh):
    edit_table(fresh / "curves.csv", lambda frame: frame.drop(index=frame.index[5]))
    edit_table(
        fresh / "reward_stats.csv",
        lambda frame: pd.concat([frame, frame.tail(1).assign(reward="mystery")]),
    )
    found = wrong(compare_results(RESULTS, fresh, TASKS))
    assert found["curves.csv"].missing == 1 and "not in the new run" in found["curves.csv"].worst
    assert found["reward_stats.csv"].missing == 1
    assert "mystery: only in the new run" in found["reward_stats.csv"].worst


def test_a_column_that_is_missing_makes_its_rows_differ(fresh):
    edit_table(fresh / "runs.csv", lambda frame: frame.drop(columns="total_tokens"))
    found = wrong(compare_results(RESULTS, fresh, TASKS))["runs.csv"]
    # Cells that say 0 are gone too.
    assert found.different == found.rows and "-> empty" in found.worst


def test_a_file_that_is_missing_is_told_and_fails(fresh):
    (fresh / "dead_groups.csv").unlink()
    found = wrong(compare_results(RESULTS, fresh, TASKS))
    assert found.keys() == {"dead_groups.csv"}
    assert found["dead_groups.csv"].worst == "no such file in the new run"


def test_whole_files_are_held_to_their_bytes(fresh):
    edit_table(fresh / "runs.csv", lambda frame: frame[[*frame.columns[1:], frame.columns[0]]])
    edit_table(fresh / "instances.csv", lambda frame: frame.iloc[::-1])
    found = wrong(compare_results(RESULTS, fresh, TASKS))
    assert "other bytes" in found["runs.csv"].worst
    assert "another order" in found["instances.csv"].worst


def test_other_settings_are_found_by_their_digest_only_in_whole_studies(fresh):
    edit_json(fresh / "provenance.json", lambda p: p.update(config_hash="f" * 16))
    assert wrong(compare_results(RESULTS, fresh, TASKS)).keys() == {"digest of all settings"}
    edit_json(fresh / "provenance.json", lambda p: p["arms"]["dpo"].update(beta=0.2))
    found = wrong(compare_results(RESULTS, fresh, TASKS[:1], elsewhere=True))
    assert "arms.dpo.beta" in found["provenance.json"].worst


def test_other_versions_are_a_note_and_no_failure(fresh, capsys):
    edit_json(fresh / "provenance.json", lambda p: p["versions"].update(torch="9.9.9"))
    assert tell(RESULTS, fresh, TASKS, elsewhere=False)
    committed = json.loads((RESULTS / "provenance.json").read_text(encoding="utf-8"))
    assert f"torch {committed['versions']['torch']} -> 9.9.9" in capsys.readouterr().out


def shift(frame, method, by, column="success_rate"):
    rows = (frame.method == method) & (frame[column] != "")
    frame.loc[rows, column] = (frame.loc[rows, column].astype(float) + by).map("{:.6f}".format)


@pytest.mark.parametrize(
    ("by", "same"), [(0.9 * TOLERANCE, True), (1.1 * TOLERANCE, False), (-1.1 * TOLERANCE, False)]
)
def test_estimates_of_another_machine_are_held_to_the_tolerance(fresh, by, same, capsys):
    edit_table(fresh / "runs.csv", lambda frame: shift(frame, "grpo_dense", by))
    edit_table(fresh / "curves.csv", lambda frame: shift(frame, "rft", by, "val_success_rate"))
    assert wrong(compare_results(RESULTS, fresh, TASKS)).keys() == {"runs.csv", "curves.csv"}
    found = wrong(compare_results(RESULTS, fresh, TASKS, elsewhere=True))
    assert found.keys() == (set() if same else {"runs.csv", "curves.csv"})
    # The largest difference is told, whether or not it counts.
    assert tell(RESULTS, fresh, TASKS, elsewhere=True) is same
    told = next(line for line in capsys.readouterr().out.splitlines() if "runs.csv" in line)
    assert "grpo_dense" in told and "mean" in told
    if not same:
        # Two tasks, two splits, two decodings; one curve on either task.
        assert found["runs.csv"].different == 8 and found["curves.csv"].different == 2


def test_a_wide_committed_interval_allows_more_than_the_tolerance(fresh, tmp_path):
    wide = tmp_path / "wide"
    shutil.copytree(fresh, wide)

    def spread(frame):
        rates = ["0.1", "0.9"] * (len(frame) // 2 + 1)
        rows = frame.method == "dpo"
        order = frame[rows].sort_values(["task", "split", "decoding", "seed"]).index
        frame.loc[order, "success_rate"] = rates[: len(order)]

    edit_table(wide / "runs.csv", spread)
    edit_table(
        fresh / "runs.csv",
        lambda frame: frame.__setitem__(
            "success_rate", frame.success_rate.where(frame.method != "dpo", "0.7")
        ),
    )
    assert not wrong(compare_results(wide, fresh, TASKS, elsewhere=True))
    # The narrow interval of the other side allows nothing.
    assert wrong(compare_results(fresh, wide, TASKS, elsewhere=True)).keys() == {"runs.csv"}


@pytest.mark.parametrize(
    ("file", "column", "rows"),
    [
        ("runs.csv", "expert_labels", lambda f: f.method == "sft"),
        ("runs.csv", "episodes", lambda f: f.method == "grpo_sparse"),
        ("runs.csv", "success_rate", lambda f: f.method == "random"),
        ("instances.csv", "skipped_held_out", lambda f: f.split == "test"),
        ("reward_audit.csv", "mean_return", lambda f: f.policy == "random"),
        ("by_distance.csv", "episodes", lambda f: f.method == "base"),
    ],
)
def test_what_no_model_touches_must_agree_on_another_machine_too(fresh, file, column, rows):
    def change(frame):
        chosen = rows(frame)
        assert chosen.any()
        frame.loc[chosen, column] = (frame.loc[chosen, column].astype(float) + 1e-3).map(str)

    edit_table(fresh / file, change)
    assert file in wrong(compare_results(RESULTS, fresh, TASKS, elsewhere=True))


def test_a_method_without_a_successful_run_is_found_on_another_machine(fresh):
    def fail(frame):
        rows = frame.method == "rft"
        frame.loc[rows, ["success_rate", "status"]] = ["", "failed"]

    edit_table(fresh / "runs.csv", fail)
    found = wrong(compare_results(RESULTS, fresh, TASKS, elsewhere=True))["runs.csv"]
    assert found.missing == 8


def asked(*words, folder, against=RESULTS):
    return main([*words, "--folder", str(folder), "--against", str(against)])


@pytest.fixture
def no_run(monkeypatch):
    """The pipeline, replaced by a copy of results; a call that should not happen is seen."""
    calls = []

    def run(source):
        def pipeline(folder, root, profile="smoke", overrides=(), **variables):
            calls.append((folder.name, tuple(overrides), variables))
            shutil.copytree(source, folder / "results", dirs_exist_ok=True)

        monkeypatch.setattr(verify, "run_pipeline", pipeline)
        return calls

    monkeypatch.chdir(ROOT)
    return run


def one_line(capsys):
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and "Traceback" not in printed.err
    return printed.err


def test_exit_code_0_when_all_agrees_and_1_when_not(fresh, tmp_path, no_run, capsys):
    calls = no_run(fresh)
    folder = tmp_path / "run"
    assert asked(folder=folder) == 0
    assert calls == [("copy", (f"tasks={','.join(TASKS)}",), {"PYTHONHASHSEED": "0"})]
    edit_table(fresh / "runs.csv", lambda frame: frame.drop(index=frame.index[0]))
    assert asked(folder=folder) == 1
    assert capsys.readouterr().err == ""


def test_two_smoke_runs_differ_in_hash_seed_and_workers(fresh, tmp_path, no_run, capsys):
    calls = no_run(fresh)
    folder = tmp_path / "run"
    assert main(["--profile", "smoke", "--task", TASKS[0], "--folder", str(folder)]) == 0
    seeds = {variables["PYTHONHASHSEED"] for _, _, variables in calls}
    workers = {words[-1] for _, words, _ in calls}
    assert len(calls) == len(seeds) == 2 and workers == {"workers=1", "workers=2"}


def test_a_truncated_table_is_one_line_and_exit_code_2(fresh, tmp_path, no_run, capsys):
    no_run(fresh)
    path = fresh / "by_distance.csv"
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    assert asked(folder=tmp_path / "run") == 2
    assert "by_distance.csv" in (told := one_line(capsys)) and "truncated" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--task", "chess"], "--task chess: "),
        (["--profile", "smoke"], "is of profile default"),
    ],
)
def test_a_question_without_an_answer_is_refused_before_anything_runs(
    fresh, tmp_path, no_run, capsys, words, told
):
    calls = no_run(fresh)
    folder = tmp_path / "run"
    assert asked(*words, folder=folder) == 2
    assert told in one_line(capsys) and not calls and not folder.exists()


def test_results_that_are_no_study_are_refused(fresh, tmp_path, no_run, capsys):
    calls = no_run(fresh)
    assert asked(folder=tmp_path / "run", against=tmp_path) == 2
    assert "runs.csv" in one_line(capsys) and not calls


def test_smoke_runs_know_no_other_machine(tmp_path, no_run, capsys, fresh):
    no_run(fresh)
    assert main(["--profile", "smoke", "--machine", "other", "--folder", str(tmp_path / "r")]) == 2
    assert "--machine other" in one_line(capsys)


def test_a_folder_with_other_files_is_left_alone(fresh, tmp_path, no_run, capsys):
    calls = no_run(fresh)
    assert asked(folder=fresh) == 2
    assert "holds other files" in one_line(capsys) and not calls
    assert (fresh / "runs.csv").exists()


@pytest.mark.parametrize(
    ("folder", "told"), [("src/agent_rl/new", "lies in src"), ("README.md", "is a file")]
)
def test_a_folder_that_cannot_be_used_is_refused(fresh, no_run, capsys, folder, told):
    calls = no_run(fresh)
    assert asked(folder=folder) == 2
    assert told in one_line(capsys) and not calls and not Path("src/agent_rl/new").exists()


def test_an_interrupted_run_is_taken_up_and_a_finished_one_made_anew(tmp_path):
    question = {"tasks": ["babyai"], "profile": "default", "copies": ["copy"]}
    folder = tmp_path / "run"
    assert not prepare_folder(folder, question)
    made = folder / "copy" / "artifacts" / "stage"
    made.mkdir(parents=True)
    assert prepare_folder(folder, question) and made.exists()
    write_json(folder / verify.MARKER, {**question, "finished": True})
    assert not prepare_folder(folder, question) and not made.exists()
    made.mkdir(parents=True)
    assert not prepare_folder(folder, {**question, "tasks": ["sqlqa"]}) and not made.exists()


def test_the_interruption_is_told(fresh, tmp_path, no_run, capsys, monkeypatch):
    no_run(fresh)
    folder = tmp_path / "run"

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(verify, "run_pipeline", killed)
        assert asked(folder=folder) == 130
    assert asked(folder=folder) == 0
    assert "taking up the interrupted run" in capsys.readouterr().out


def test_a_copy_is_brought_up_to_date_and_keeps_what_its_pipeline_made(tmp_path):
    prepare_copy(tmp_path, ROOT)
    stale, made = tmp_path / "src" / "agent_rl" / "stale.py", tmp_path / "artifacts" / "made"
    stale.write_text("", encoding="utf-8")
    made.mkdir(parents=True)
    prepare_copy(tmp_path, ROOT)
    assert made.exists() and not stale.exists()
    assert (tmp_path / "src" / "agent_rl" / "errors.py").exists()
    assert "dir = cache" in (tmp_path / ".dvc" / "config.local").read_text(encoding="utf-8")
