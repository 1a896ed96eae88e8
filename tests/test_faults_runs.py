"""Tasks that crash, weights that are no numbers, workers that die, clocks, two at once, Ctrl-C."""

import dataclasses
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.faulty import refused, tree

from agent_rl import parallel
from agent_rl.evaluation.episodes import episode_rows
from agent_rl.parallel import run_parallel
from agent_rl.rollouts.storage import save_trajectories
from agent_rl.trajectory import EndReason

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
TURNS = 4


@pytest.fixture
def play(stub, episodes_for, make_model, word_tokenizer, quiet_torch):
    """Two groups of three that a model plays; the task of one episode breaks at one turn."""
    from agent_rl.rollouts.chat import Chat
    from agent_rl.rollouts.engine import RolloutEngine
    from agent_rl.rollouts.model_policy import ModelPolicy

    policy = ModelPolicy(
        "m", make_model(word_tokenizer), Chat(word_tokenizer), temperature=1.0,
        max_action_tokens=3, max_tokens=400,
    )  # fmt: skip

    def run(broken=None, episode=1, instances=(3, 7)):
        places = iter(range(100))

        def make():
            return stub(broken=broken if next(places) == episode else None)

        return RolloutEngine("stub", make).play(policy, episodes_for(instances, 3))

    return run


@pytest.mark.parametrize("turn", [0, 1, 2, TURNS], ids=["reset", "first", "second", "last"])
def test_a_task_that_breaks_at_any_turn_costs_its_own_episode_alone(play, turn, tmp_path):
    whole, hurt = play(), play(broken=turn)
    assert len(whole[1].turns) == TURNS
    broken = hurt.pop(1)
    assert (broken.end, broken.success, len(broken.turns)) == (EndReason.ERROR, False, turn)
    assert broken.error == "ZeroDivisionError: a bug in the task"
    del whole[1]
    for name, played in (("whole", whole), ("hurt", hurt)):
        save_trajectories(tmp_path / name, played)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "hurt").read_bytes()


@pytest.mark.parametrize("turn", [0, 1, 2, TURNS], ids=["reset", "first", "second", "last"])
def test_a_broken_episode_is_a_failure_of_evaluation_and_in_no_baseline(play, turn):
    from agent_rl.rewards import advantages, dead_groups, episode_facts, rewards, spec

    hurt = play(broken=turn, instances=(3, 0, 4))
    rows = episode_rows(hurt, [1] * 9, method="m", seed=0, split="test", decoding="t1")
    assert len(rows) == 9 and [row["end"] for row in rows].count("error") == 1
    config = dataclasses.replace(spec("shaped"))
    values = {}
    for name, played in (("with", hurt), ("without", hurt[:1] + hurt[2:3])):
        facts = episode_facts(played)
        values[name] = advantages(facts, rewards(config, facts), credit="trajectory")
        if name == "with":
            assert facts.crashed.tolist() == [False, True, *[False] * 7]
            assert not values[name][1].any() and len(dead_groups(facts, values[name])) == 9
    width = values["without"].shape[1]
    assert np.array_equal(values["with"][[0, 2], :width], values["without"])


def test_a_task_that_breaks_is_told_by_collect_and_evaluate(
    artifacts, study, tmp_path, monkeypatch
):
    """The whole stages: only the episodes of the instance that breaks are others."""
    from agent_rl.rollouts.storage import load_trajectories
    from agent_rl.stages import collect, evaluate
    from agent_rl.stages.common import Artifacts, load_instances
    from agent_rl.tasks.babyai import BabyAITask

    instances = load_instances(artifacts.instances)
    chosen = {next(i.instance_id for i in instances if i.split == s) for s in ("train", "test")}
    reset, step = BabyAITask.reset, BabyAITask.step

    def remembering(self, *, seed=None, options=None):
        self.breaks = seed in chosen
        return reset(self, seed=seed, options=options)

    def breaking(self, action):
        if self.breaks:
            raise KeyError("a bug")
        return step(self, action)

    monkeypatch.setattr(BabyAITask, "reset", remembering)
    monkeypatch.setattr(BabyAITask, "step", breaking)
    own = Artifacts(tmp_path / "babyai")
    for part in ("instances", "base"):
        shutil.copytree(artifacts.root / part, own.root / part)
    collect.build(study, "babyai", own)
    before, after = (load_trajectories(a.collected, "x") for a in (artifacts, own))
    for whole, hurt in zip(before, after, strict=True):
        hit = hurt.instance_id in chosen
        assert (hurt.end is EndReason.ERROR) == hit
        assert (repr(whole) == repr(hurt)) != hit
    base = evaluate.Contender("base", None, own.base)
    rows, _ = evaluate.evaluate(base, study=study, task_name="babyai", artifacts=own)
    wrong = [row for row in rows if row["end"] == "error"]
    assert len(wrong) == len(study.evaluation.decodings)


@pytest.fixture
def light(monkeypatch):
    """Workers without torch."""
    monkeypatch.setattr(parallel, "_start_worker", start_light)


def start_light(ticks):
    parallel._ticks = ticks


def greedy_of_memory(item):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    return float(np.ones(1 << 30)[item])


def torch_s_greed(item):
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes")


def killed(item):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("function", [greedy_of_memory, torch_s_greed, killed])
def test_a_worker_without_memory_is_one_line(light, capsys, function):
    refused(
        lambda: run_parallel(function, [0, 1], workers=1, title="train babyai sft"),
        capsys,
        "train babyai sft: a worker process was killed or ran out of memory; free memory",
        "what is finished is kept",
    )


def test_torch_says_so_in_words_that_are_known(capsys, quiet_torch):
    import torch

    refused(lambda: torch.empty(1 << 55), capsys, "out of memory", "free memory")
    with pytest.raises(RuntimeError, match="shape"):
        refused(lambda: torch.ones(2, 3) @ torch.ones(2, 3), capsys)


def test_two_runs_in_one_folder_are_one_line_and_the_second_may_follow(
    tmp_path, monkeypatch, capsys
):
    from agent_rl.files import alone
    from agent_rl.stages import run

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(run, "WORK", tmp_path)
    planned = run.plan(["task=babyai", "method=sft", "profile=smoke"])
    words = ["another process is at work in", "wait for it to end"]
    with alone(planned.folder):
        refused(lambda: run.make_run(planned, None), capsys, str(planned.folder), *words)
    monkeypatch.setattr(run, "ARTIFACTS", tmp_path / "none")
    wanted = run.shared_digest(planned.study, "babyai")
    with alone(tmp_path / "base" / wanted):
        refused(lambda: run.shared_artifacts(planned.study, "babyai"), capsys, wanted, *words)
    assert not tree(tmp_path)


def test_what_a_stage_left_half_done_is_made_again(tmp_path, monkeypatch):
    """Collect writes three files: with the last one missing, a run from the command line that
    finds the first must not go on."""
    from agent_rl.stages import collect, demos, instances, reward, run, warmstart

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(run, "WORK", tmp_path)
    monkeypatch.setattr(run, "ARTIFACTS", tmp_path / "none")
    planned = run.plan(["task=babyai", "method=sft", "profile=smoke"])
    made = []
    for stage in (instances, demos, warmstart, collect, reward):
        monkeypatch.setattr(stage, "build", lambda *_, name=stage.__name__: made.append(name))
    shared = run.shared_artifacts(planned.study, "babyai")
    for path in (shared.instances, shared.mixed, shared.collected, shared.probe):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    made.clear()
    run.shared_artifacts(planned.study, "babyai")
    assert [name.rsplit(".", 1)[1] for name in made] == [
        "instances", "warmstart", "collect", "reward"
    ]  # fmt: skip


PYTHON = """#!/bin/bash
# Stands for python: makes a venv with itself in it, and a pip that may die.
case "$*" in
  -c*) exit 0;;
  "-m venv "*) mkdir -p $3/bin; cp "$0" $3/bin/python; echo venv >> "$LOG"
     [ "$DIE" = venv ] && kill -9 $PPID; touch $3/with-pip;;
  "-m pip --version") test -e "$(dirname $0)/../with-pip";;
  "-m pip install"*) echo "pip ${@: -1}" >> "$LOG"
     test -e "$(dirname $0)/../with-pip" || exit 1
     [ "$DIE" = "${@: -1}" ] && kill -9 $PPID; exit 0;;
esac
"""


@pytest.mark.parametrize("moment", ["venv", "requirements.lock", "."])
def test_an_install_that_is_killed_goes_on_and_is_never_taken_for_finished(tmp_path, moment):
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    stub = tmp_path / "stub"
    stub.write_text(PYTHON)
    stub.chmod(0o755)
    log = tmp_path / "log"

    def setup(die=""):
        environment = {**os.environ, "LOG": str(log), "DIE": die}
        words = ["make", "setup", f"PYTHON={stub}"]
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert setup(die=moment).returncode != 0
    assert not (tmp_path / ".venv" / ".installed").exists()
    done = setup()
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".venv" / ".installed").exists()
    assert log.read_text().split("\n")[-3:] == ["pip requirements.lock", "pip .", ""]
    before = log.read_text()
    assert setup().returncode == 0 and log.read_text() == before


STAGE = """
import sys, time
from functools import partial
from pathlib import Path
from agent_rl import parallel
from agent_rl.stages.common import guarded

def start(ticks):
    pass

def work(item, folder):
    (Path(folder) / f"at-work-{item}").touch()
    time.sleep(60)

if __name__ == "__main__":
    parallel._start_worker = start
    act = partial(work, folder=sys.argv[1])
    sys.exit(guarded(lambda: parallel.run_parallel(act, [0, 1], workers=2, title="t")))
"""


def listening():
    """A shell lets what it runs in the background ignore Ctrl-C, tests included."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(words, ready, cwd=ROOT):
    """Ctrl-C as a terminal sends it: to the stage and all its workers."""
    process = subprocess.Popen(
        words, cwd=cwd, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, preexec_fn=listening,
    )  # fmt: skip
    began = time.monotonic()
    while not ready() and process.poll() is None and time.monotonic() - began < 120:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    with pytest.raises(ProcessLookupError):  # no worker is left behind
        for _ in range(100):
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    assert "Traceback" not in out + err, err
    # The progress bar has its own line.
    assert [line for line in err.splitlines() if "%|" not in line and line.strip()] == [
        "interrupted: nothing was half written; run the same command again"
    ]
    return process.returncode


def test_ctrl_c_ends_a_stage_and_its_workers_in_one_line(tmp_path):
    script = tmp_path / "stage.py"
    script.write_text(STAGE)
    ready = [tmp_path / "at-work-0", tmp_path / "at-work-1"]
    words = [sys.executable, str(script), str(tmp_path)]
    assert interrupted(words, lambda: all(path.exists() for path in ready)) == 130


@pytest.mark.slow
@pytest.mark.parametrize("wait", [1.0, 3.0])
def test_ctrl_c_while_a_stage_still_imports_is_one_line_too(tmp_path, wait):
    words = [sys.executable, "-m", "agent_rl.stages.collect", "--task", "babyai"]
    shutil.copy(ROOT / "params.yaml", tmp_path)
    began = time.monotonic()
    assert interrupted(words, lambda: time.monotonic() - began > wait, cwd=tmp_path) == 130
