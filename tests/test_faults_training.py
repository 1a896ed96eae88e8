"""Weights that are no numbers, policies that collapsed, workers killed on the way, another clock.

All of it trains; `make test-slow` runs it.
"""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.faulty import tree

import agent_rl.training.checkpoints as checkpoints
from agent_rl.stages import audit, evaluate, reward
from agent_rl.stages.common import Artifacts
from agent_rl.stages.publish import publish
from agent_rl.stages.train import arm_inputs
from agent_rl.training.arms import train_arm
from agent_rl.training.loop import BudgetCallback

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.mutation, pytest.mark.slow]


def record(folder):
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


@pytest.fixture
def train(study, artifacts, tmp_path):
    def run(arm, name, base=None, unfinished=None, **changes):
        inputs = arm_inputs(dataclasses.replace(study, **changes), "babyai", artifacts)
        if base is not None:
            inputs = dataclasses.replace(inputs, base=base)
        train_arm(inputs, arm, 0, tmp_path / name, lambda share: None, unfinished)
        return tmp_path / name

    return run


@pytest.mark.parametrize("arm", ["sft", "dpo", "grpo_shaped"])
@pytest.mark.parametrize("step", [1, 2, "last"])
def test_weights_that_turn_into_nan_at_any_step_fail_the_run_with_its_reason(
    train, monkeypatch, arm, step
):
    steps = record(train(arm, "whole"))["ledger"]["optimizer_steps"]
    at, taken = (steps if step == "last" else step), iter(range(1, 10**6))
    original = torch.optim.AdamW.step

    def poisoned(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        if next(taken) == at:
            with torch.no_grad():
                self.param_groups[0]["params"][0].view(-1)[0] = float("nan")
        return result

    monkeypatch.setattr(torch.optim.AdamW, "step", poisoned)
    folder = train(arm, "poisoned")
    told = record(folder)
    assert (
        told["status"] == "failed" and told["reason"] == f"weights are not finite after step {at}"
    )
    assert not list(folder.glob("*.safetensors"))
    assert json.loads((folder / "curve.json").read_text(encoding="utf-8"))


def in_this_process(function, items, **_):
    return [function(item) for item in items]


def test_a_failed_and_a_collapsed_run_are_published_and_reported(
    train, study, artifacts, tmp_path, monkeypatch
):
    """SFT turns into NaN; the policy of GRPO says one thing only, so that every group is dead."""
    from agent_rl.reporting import build_report
    from agent_rl.rollouts.models import load_policy, save_policy

    own = Artifacts(tmp_path / "artifacts" / "babyai")
    shutil.copytree(artifacts.root, own.root)
    model, tokenizer, card = load_policy(own.base, "x")
    with torch.no_grad():
        model.model.norm.weight.mul_(1e4)  # every logit far from every other one: no entropy left
    save_policy(tmp_path / "stuck", model, tokenizer, card)
    stuck = train("grpo_shaped", "grpo", base=tmp_path / "stuck")
    rows = json.loads((stuck / "curve.json").read_text(encoding="utf-8"))
    updates = [row for row in rows if row["dead_group_share"] is not None]
    assert record(stuck)["status"] == "ok" and len(updates) > 3
    assert all(row["dead_group_share"] == 1 and row["reward_std"] >= 0 for row in updates)
    original = BudgetCallback.on_step_end

    def poisoned(self, args, state, control, **kwargs):
        with torch.no_grad():
            next(iter(kwargs["model"].parameters())).fill_(float("nan"))
        return original(self, args, state, control, **kwargs)

    monkeypatch.setattr(BudgetCallback, "on_step_end", poisoned)
    failed = train("sft", "sft")
    for arm, folder in (("sft", failed), ("grpo_shaped", stuck)):
        shutil.copytree(folder, own.arm(arm) / "seed-0")
    study = dataclasses.replace(
        study, seeds=(0,), tasks={"babyai": study.task("babyai")},
        arms={arm: study.arm(arm) for arm in ("sft", "grpo_shaped")},
        audit=dataclasses.replace(study.audit, instances=4),
    )  # fmt: skip
    monkeypatch.setattr(evaluate, "run_parallel", in_this_process)
    for stage in (reward, audit, evaluate):
        stage.build(study, "babyai", own)
    publish(study, own.root.parent, tmp_path / "results")
    lines = (tmp_path / "results" / "runs.csv").read_text(encoding="utf-8").splitlines()
    sft = [line for line in lines if line.startswith("babyai,sft,")]
    cells = 2 * len(study.evaluation.decodings)
    assert len(sft) == cells and all("failed" in line and "not finite" in line for line in sft)
    assert sum(line.startswith("babyai,grpo_shaped,0,") for line in lines) == cells
    page = build_report(tmp_path / "results", tmp_path / "reports").read_text(encoding="utf-8")
    assert "not finite" in page


def test_a_clock_that_is_set_back_on_the_way_changes_no_byte(train, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints.Checkpoints, "due", lambda self: True)
    straight = tree(train("grpo_shaped", "straight", unfinished=tmp_path / "a"))
    real, asked = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() - 86400 * (next(asked) > 0))
    shutil.rmtree(tmp_path / "straight")
    assert tree(train("grpo_shaped", "straight", unfinished=tmp_path / "b")) == straight
    assert next(asked) > 1, "nobody looked at the clock"


CHILD = """
import json, sys
from pathlib import Path
from tests.conftest import TINY
from agent_rl.compose import compose_config
from agent_rl.config import study_from
from agent_rl.stages.common import Artifacts, guarded
from agent_rl.stages.train import build
import dataclasses

if __name__ == "__main__":
    content = compose_config("study", [*TINY], Path("configs"))
    content["learning_rates"] = {}
    study = dataclasses.replace(study_from(content, "test"), seeds=(0, 1), workers=1)
    sys.exit(guarded(lambda: build(study, "babyai", Artifacts(Path(sys.argv[1])), "sft")))
"""


def children(pid):
    return sorted(int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def workers_of(pid):
    """Processes forked to work; the server forks the one that passes the progress on first."""
    servers = [c for c in children(pid) if "forkserver" in Path(f"/proc/{c}/cmdline").read_text()]
    return [worker for server in servers for worker in children(server)[1:]]


def test_a_worker_that_is_killed_costs_its_seed_alone(artifacts, tmp_path):
    root = tmp_path / "artifacts" / "babyai"
    shutil.copytree(artifacts.root, root)
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    words = [sys.executable, str(script), str(root)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    unfinished = tmp_path / ".work" / "unfinished" / "babyai-sft"
    stage = subprocess.Popen(
        words, cwd=ROOT, env=environment, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    while not list(unfinished.glob("seed-0-*/finished/run.json")):
        assert stage.poll() is None, stage.stderr.read()
        time.sleep(0.02)
    workers = workers_of(stage.pid)
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    _, told = stage.communicate(timeout=120)
    lines = [line for line in told.splitlines() if line.startswith("error: ")]
    assert stage.returncode == 2 and len(lines) == 1 and "Traceback" not in told, told
    assert "a worker process was killed or ran out of memory" in lines[0]
    (kept,) = unfinished.glob("seed-0-*/finished")
    assert not list(unfinished.glob("seed-1-*/finished/run.json"))
    # A mark in what is kept shows in the end whether seed 0 was trained again.
    (kept / "mark").write_text("kept", encoding="utf-8")
    assert subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode == 0
    made = root / "train" / "sft"
    assert (made / "seed-0" / "mark").exists() and not (made / "seed-1" / "mark").exists()
    assert record(made / "seed-1")["status"] == "ok"
