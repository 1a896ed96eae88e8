"""Every registered family keeps the contract of a task, and the checks find what is broken.

On a task of one's own, with settings small enough that all short plans can be tried:
    python -m pytest tests/tasks/test_contract.py --family examples.jugs:FAMILY \\
        --settings '{"largest": 7}'
"""

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import broken_tasks
import contract_checks
import pytest

from agent_rl.tasks import build_instances, family_names, goal_keys, make_task, overlap

ROOT = Path(__file__).parents[2]

SETTINGS = {
    "babyai": [
        {"level": "GoToLocal", "room_size": 6, "num_dists": 3},
        {"level": "PutNextLocal", "room_size": 5, "num_dists": 3},
        {"level": "PickupLoc", "room_size": 5, "num_dists": 3},
    ],
    "sqlqa": [
        {"hops": 2, "mode": "sql"},
        {"hops": 2, "mode": "search"},
        {"hops": 2, "mode": "sql", "question": "compare"},
        {"hops": 1, "mode": "sql", "question": "find"},
    ],
    "textworld": [{"level": 8}, {"game": "cooking"}],
    "examples.jugs:FAMILY": [{"largest": 7}],
}
"""Small settings of every family: nothing can be registered without standing these tests."""

NEEDS: dict[str, str] = {"textworld": "textworld"}
"""Module that a family needs and that is no dependency of the package."""


def pytest_generate_tests(metafunc):
    own = metafunc.config.getoption("--family")
    if "broken" in metafunc.fixturenames:
        metafunc.parametrize(("broken", "check"), [] if own else broken_tasks.BROKEN, ids=_name)
    if "family" in metafunc.fixturenames:
        table = {own: [json.loads(metafunc.config.getoption("--settings"))]} if own else SETTINGS
        cases = [(family, given) for family, several in table.items() for given in several]
        names = ["-".join(map(str, (family, *given.values()))) for family, given in cases]
        metafunc.parametrize(("family", "given"), cases, ids=names)


def _name(value):
    return value if isinstance(value, str) else value.__name__


@pytest.fixture
def make(family, given):
    needed = NEEDS.get(family)
    if needed and importlib.util.find_spec(needed) is None:
        assert os.environ.get("AGENT_RL_REQUIRE_EXTRAS") != "1", f"{needed} is not installed"
        pytest.skip(f"{needed} is not installed")
    return partial(make_task, family, given)


def test_every_registered_family_stands_these_tests():
    assert set(family_names()) <= set(SETTINGS)


@pytest.mark.parametrize("check", contract_checks.CHECKS, ids=_name)
def test_the_contract_is_kept(check, make):
    check(make)


def digests(family, given):
    """Digest of the transcript under two hash seeds, each in a process of its own."""
    code = (
        "from functools import partial; from agent_rl.tasks import make_task; "
        f"import contract_checks as c; print(c.transcript(partial(make_task, {family!r}, {given})))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for hash_seed in ("1", "2")
    ]
    found = [process.communicate()[0].strip() for process in running]
    assert all(len(one) == 64 for one in found)
    return found


def test_transcripts_are_equal_in_processes_with_different_hash_seeds(make, family, given):
    one, two = digests(family, given)
    assert one == two


def test_a_transcript_that_depends_on_the_hash_seed_is_found():
    one, two = digests("broken_tasks:HASH_ORDER", {})
    assert one != two


def test_p50_small_splits_share_no_start_and_goals_have_known_keys(make, family, given):
    task = make()
    keys = set()
    for seed in range(30):
        task.reset(seed=seed)
        keys.add(task.goal_key())
    single = sorted(key for key in keys if key and " or " not in key)
    assert {part for key in keys if key for part in key.split(" or ")} <= set(goal_keys(family))
    sizes = {"train": 30, "val": 6, "test": 6, "shifted": 4 if single else 0}
    instances, _ = build_instances(family, given, sizes, single[:1])
    assert len(instances) == sum(sizes.values()) and overlap(instances) == 0
    assert len({one.hash for one in instances}) == len(instances)
    for one in instances:
        assert (one.goal_key in single[:1]) == (one.split == "shifted")


def test_a_broken_task_is_found(broken, check):
    chosen = getattr(contract_checks, check)
    with pytest.raises((AssertionError, IndexError, pytest.fail.Exception)):
        chosen(broken)


def test_every_check_has_a_task_that_it_finds():
    assert {check for _, check in broken_tasks.BROKEN} == {
        check.__name__ for check in contract_checks.CHECKS
    }
