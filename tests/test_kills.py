"""Kill -9 at random moments of a stage: run again, and nothing differs from a run without kills.

The pipeline of the smoke profile is run once; then each stage is taken back, killed at moments
drawn over its whole duration (imports, work, writing), and run to its end. `make test-slow` runs
this.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.test_pipeline import hashes

from agent_rl.stages.smoke import run_command, run_pipeline

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.mutation, pytest.mark.slow]

STAGES = [
    ("collect", ["collect", "--task", "babyai"], ["artifacts/babyai/collect"]),
    (
        "train-grpo",
        ["train", "--task", "babyai", "--arm", "grpo_shaped"],
        ["artifacts/babyai/train/grpo_shaped"],
    ),
    (
        "train-sft_grpo",
        ["train", "--task", "sqlqa", "--arm", "sft_grpo"],
        ["artifacts/sqlqa/train/sft_grpo"],
    ),
    ("evaluate", ["evaluate", "--task", "sqlqa"], ["artifacts/sqlqa/evaluate"]),
    ("publish", ["publish"], ["results"]),
]
KILLS = 4
"""Per stage: 20 in all."""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kills")
    run_pipeline(folder, ROOT)
    return folder


def start(words, folder):
    """A stage in a session of its own, so that a kill takes its workers along."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.Popen(
        [sys.executable, "-m", f"agent_rl.stages.{words[0]}", *words[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def empty(folder, outputs):
    """As DVC does before it runs a stage; ``results`` holds files of other stages too."""
    for output in outputs:
        if output != "results":
            shutil.rmtree(folder / output, ignore_errors=True)


def visible(folder, outputs):
    """Hashes of the outputs; what a kill left half written has a hidden name."""
    found = hashes(folder, *outputs)
    return {name: digest for name, digest in found.items() if "/." not in f"/{name}"}


@pytest.mark.parametrize(("name", "words", "outputs"), STAGES, ids=[s[0] for s in STAGES])
def test_p55_a_stage_killed_at_random_moments_ends_with_the_same_bytes(
    pipeline, name, words, outputs
):
    expected = visible(pipeline, outputs)
    assert expected
    empty(pipeline, outputs)
    began = time.monotonic()
    assert start(words, pipeline).wait(timeout=300) == 0
    duration = time.monotonic() - began
    assert visible(pipeline, outputs) == expected
    rng = np.random.default_rng([20261201, len(name), len(words)])
    deaths = 0
    # One that ended before its moment (the first run had cold files) does not count as killed.
    for moment in rng.uniform(0.05, 0.95, 5 * KILLS):
        if deaths == KILLS:
            break
        empty(pipeline, outputs)
        began = time.monotonic()
        process = start(words, pipeline)
        try:
            process.wait(timeout=moment * duration)
            duration = min(duration, time.monotonic() - began)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            deaths += 1
        process.wait()
        # What is there is whole: no file under its own name differs from a finished one.
        for file, digest in visible(pipeline, outputs).items():
            assert expected[file] == digest, file
    assert deaths == KILLS
    empty(pipeline, outputs)
    run_command([f"agent_rl.stages.{words[0]}", *words[1:]], pipeline)
    assert visible(pipeline, outputs) == expected
    leftovers = pipeline / ".work" / "unfinished"
    assert not leftovers.exists() or not any(leftovers.iterdir())


def test_two_stages_that_train_one_arm_at_once_are_one_line(pipeline):
    words = ["train", "--task", "babyai", "--arm", "sft"]
    first = start(words, pipeline)
    lock = pipeline / ".work" / "unfinished" / "babyai-sft" / ".lock"
    for _ in range(600):
        if lock.exists():
            break
        time.sleep(0.1)
    second = subprocess.run(
        [sys.executable, "-m", "agent_rl.stages.train", *words[1:]],
        cwd=pipeline,
        env={**os.environ, "PYTHONPATH": str(pipeline / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        assert second.returncode == 2 and "Traceback" not in second.stderr
        assert "another process is at work in" in second.stderr.splitlines()[-1]
    finally:
        assert first.wait(timeout=300) == 0
