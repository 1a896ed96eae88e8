"""Processes change how long a stage takes and nothing else."""

import os
import subprocess
import sys
from functools import partial

import pytest

from agent_rl import parallel
from agent_rl.errors import UserError
from agent_rl.files import alone
from agent_rl.parallel import run_parallel, tick


@pytest.fixture(autouse=True)
def _light_workers(monkeypatch):
    """Workers start without torch: what is tested here is the pool."""
    monkeypatch.setattr(parallel, "_start_worker", start_light_worker)


def start_light_worker(ticks):
    parallel._ticks = ticks


def square(item, *, offset=0):
    tick(0.5)
    return item * item + offset


def slow_first(item):
    import time

    time.sleep(0.6 if item == 0 else 0)
    return item, os.getpid()


def fail_at_three(item):
    if item == 3:
        raise UserError("file x is missing; make it with `y`")
    return item


def crash(item):
    os._exit(1)


def threads(item):
    return os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]


def test_results_keep_the_order_of_the_items_when_the_first_is_slowest():
    results = run_parallel(slow_first, [0, 1, 2, 3], workers=2, title="t")
    assert [item for item, _ in results] == [0, 1, 2, 3]
    assert os.getpid() not in {pid for _, pid in results}


def test_results_do_not_depend_on_the_number_of_workers():
    function = partial(square, offset=1)
    expected = [i * i + 1 for i in range(5)]
    for workers in (1, 2, 9):
        assert run_parallel(function, range(5), workers=workers, title="t") == expected


def test_an_error_in_a_worker_comes_out_as_what_it_was():
    with pytest.raises(UserError, match="file x is missing"):
        run_parallel(fail_at_three, range(6), workers=2, title="t")


def test_a_worker_that_dies_is_one_line_and_not_an_endless_wait():
    with pytest.raises(UserError) as refusal:
        run_parallel(crash, [0], workers=1, title="train babyai sft")
    text = str(refusal.value)
    assert "\n" not in text and text.startswith("train babyai sft: a worker process was killed")


def test_every_worker_has_one_thread_for_its_numbers():
    assert run_parallel(threads, [0], workers=1, title="t") == [("1", "1")]


def test_progress_outside_of_a_worker_is_ignored():
    tick(0.5)


def test_a_folder_belongs_to_one_process_at_a_time(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from agent_rl.files import alone\n"
        "with alone(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "work")]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match="another process is at work in"),
            alone(tmp_path / "work"),
        ):
            pass
    finally:
        holder.kill()
        holder.wait()
    # The lock died with its holder.
    with alone(tmp_path / "work"):
        pass
