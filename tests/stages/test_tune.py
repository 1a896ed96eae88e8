"""The search for learning rates: what a trial is judged by."""

import json

import pytest

from agent_rl.stages import tune
from agent_rl.training.arms import run_digest


@pytest.fixture
def finished(study, tmp_path, monkeypatch):
    """Writes a trial that has been trained before, so that only its record is read."""
    monkeypatch.setattr(tune, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(tune, "WORK", tmp_path / "tune")
    base = tmp_path / "artifacts" / "babyai" / "base"
    base.mkdir(parents=True)
    (base / "card.json").write_text('{"weights": "abc"}')
    trial = tune.Trial("babyai", "grpo_shaped", study.arm("grpo_shaped").learning_rate, 0)

    def write(validated, status="ok"):
        folder = tmp_path / "tune" / f"abc-{run_digest(study, 'babyai', trial.arm, 0)}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = [{"val_success_rate": rate} for rate in validated]
        (folder / "curve.json").write_text(json.dumps(rows))
        (folder / "run.json").write_text(json.dumps({"status": status}))
        return tune.run_trial(trial, study=study)

    return write


def test_p54_a_trial_is_worth_what_it_ends_with_and_not_its_best_moment(finished):
    assert finished([0.2, None, 0.9, 0.4, None])["val_success_rate"] == 0.4


def test_a_trial_that_failed_is_worth_nothing(finished):
    assert finished([0.2, 0.9], "failed")["val_success_rate"] == 0.0
