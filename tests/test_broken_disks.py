"""Full disks, folders that cannot be written, damaged files: one line, and nothing is lost.

The faults are real: a small file system that is full or read-only, flipped bits, cut files. Where
no file system can be mounted, these tests run again in a name space in which it can.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.faulty import disk, refused, tree  # noqa: F401 (a fixture)

from agent_rl.errors import UserError
from agent_rl.files import atomic_directory, together, write_text
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.rollouts.policies import RandomPolicy
from agent_rl.rollouts.storage import load_trajectories, save_trajectories

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def played(stub, episodes_for):
    return RolloutEngine("stub", stub).play(RandomPolicy(), episodes_for(range(60), 8))


@pytest.fixture(scope="module")
def tiny(study, tmp_path_factory, make_model, quiet_torch):
    """All stages around the training, which failed: a base that knows nothing, and its results."""
    import dataclasses

    from agent_rl.config import SplitSizes
    from agent_rl.rollouts.models import build_tokenizer, save_policy
    from agent_rl.stages import audit, collect, evaluate, instances, reward
    from agent_rl.stages.common import Artifacts
    from agent_rl.tasks.babyai import BabyAITask
    from agent_rl.training.ledger import CURVE, RUN, Ledger

    small = dataclasses.replace(
        study.task("babyai"), instances=SplitSizes(train=8, val=4, test=6, shifted=6)
    )
    collected = dataclasses.replace(
        study.collect, instances=6, group_size=4, probe_instances=4, probe_group_size=8
    )
    own = dataclasses.replace(
        study, seeds=(0, 1), tasks={"babyai": small}, collect=collected,
        arms={"sft": study.arm("sft"), "grpo_sparse": study.arm("grpo_sparse")},
        audit=dataclasses.replace(study.audit, instances=4),
    )  # fmt: skip
    made = Artifacts(tmp_path_factory.mktemp("tiny") / "babyai")
    instances.build(own, "babyai", made)
    tokenizer = build_tokenizer(BabyAITask.vocabulary)
    card = {"task": "babyai", "method": "base", "seed": 0}
    save_policy(made.base, make_model(tokenizer), tokenizer, card)
    for stage in (collect, reward, audit):
        stage.build(own, "babyai", made)
    for arm in own.arms:
        for seed in own.seeds:
            folder = made.arm(arm) / f"seed-{seed}"
            row = {"update": 0, "tokens": 0, "env_steps": 0, "val_success_rate": 0.0}
            record = {"status": "failed", "reason": "loss is nan", "ledger": Ledger().as_dict()}
            empty = ("success_rate", "reward_mean", "reward_std", "dead_group_share", "entropy")
            row |= dict.fromkeys((*empty, "mean_turns", "ratio_max_deviation"))
            write_text(folder / CURVE, json.dumps([row]))
            write_text(folder / RUN, json.dumps(record))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evaluate, "run_parallel", in_this_process)
        evaluate.build(own, "babyai", made)
    return own, made


class Undrawn(dict):
    """Every figure of a report, left out."""

    def __missing__(self, name):
        from agent_rl.reporting.figures import Gap

        return Gap(name, "not drawn")


def in_this_process(function, items, **_):
    return [function(item) for item in items]


def collecting(tiny, folder):
    from agent_rl.stages import collect
    from agent_rl.stages.common import Artifacts

    study, made = tiny
    own = Artifacts(folder / "babyai")
    for part in ("instances", "base"):
        shutil.copytree(made.root / part, own.root / part, dirs_exist_ok=True)
    return lambda: collect.build(study, "babyai", own)


def saving(tiny, folder):
    from agent_rl.rollouts.models import load_policy, save_policy

    model, tokenizer, card = load_policy(tiny[1].base, "make repro")
    return lambda: save_policy(folder / "babyai" / "base", model, tokenizer, card)


def checkpointing(tiny, folder):
    import torch
    from transformers import TrainerState

    from agent_rl.training.checkpoints import Checkpoints

    kept = Checkpoints(folder / "unfinished", {"run": "x"})
    return lambda: kept.save({"weights/w": torch.ones(20000)}, {"log": {}}, TrainerState())


def publishing(tiny, folder):
    from agent_rl.stages.publish import publish

    return lambda: publish(tiny[0], tiny[1].root.parent, folder / "results")


def reporting(tiny, folder):
    from agent_rl.reporting import build_report, drawing, figures, report, style

    def draw_one(results, directory):
        """All figures would take half a minute."""
        with style.drawing_style():
            saved = drawing.save_plot(figures.pipeline(), directory)
        return Undrawn({"pipeline": saved})

    def act():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(report, "draw_all", draw_one)
            build_report(ROOT / "results", folder / "reports")

    return act


def playing(tiny, folder):
    from agent_rl.stages import evaluate
    from agent_rl.stages.common import Artifacts

    study, made = tiny
    own = Artifacts(folder / "babyai")
    for part in ("instances", "base", "train"):
        shutil.copytree(made.root / part, own.root / part, dirs_exist_ok=True)
    return lambda: evaluate.build(study, "babyai", own)


CASES = {f.__name__: f for f in (collecting, saving, checkpointing, publishing, reporting, playing)}


@pytest.fixture
def prepared(tiny, disk, monkeypatch):  # noqa: F811
    """A stage that has run once on the small disk."""
    from agent_rl.stages import evaluate

    monkeypatch.setattr(evaluate, "run_parallel", in_this_process)

    def prepare(case):
        act = CASES[case](tiny, disk.path)
        before = tree(disk.path)
        act()
        after = tree(disk.path)
        assert after.keys() > before.keys()
        return act, after, sum((disk.path / name).stat().st_size for name in after.keys() - before)

    return prepare


@pytest.mark.parametrize("room", ["none", "half"])
@pytest.mark.parametrize("case", CASES)
def test_a_full_disk_is_one_line_and_what_was_there_stays(prepared, disk, case, room, capsys):  # noqa: F811
    act, made, size = prepared(case)
    disk.fill(left=size // 2 if room == "half" else 0)
    refused(act, capsys, f"cannot write {disk.path}", "No space left on device", "free space")
    assert tree(disk.path) == made
    assert not list(disk.path.rglob("*.part"))
    disk.free()
    act()
    assert tree(disk.path) == made


@pytest.mark.parametrize("case", CASES)
def test_a_read_only_disk_is_one_line(prepared, disk, case, capsys):  # noqa: F811
    act, made, _ = prepared(case)
    disk.lock("ro")
    refused(act, capsys, f"cannot write {disk.path}", "Read-only file system", "fix permissions")
    disk.lock("rw")
    assert tree(disk.path) == made
    act()
    assert tree(disk.path) == made


@pytest.mark.parametrize("case", ["saving", "checkpointing", "publishing", "reporting"])
def test_a_file_where_a_folder_must_be_is_named(tiny, tmp_path, case, capsys):
    place = tmp_path / {"saving": "babyai", "checkpointing": "unfinished"}.get(
        case, "results" if case == "publishing" else "reports"
    )
    place.write_text("mine", encoding="utf-8")
    act = CASES[case](tiny, tmp_path)
    refused(act, capsys, f"{place} is a file where a folder must be; move it away")
    assert place.read_text(encoding="utf-8") == "mine" and tree(tmp_path).keys() == {place.name}
    place.unlink()
    act()
    assert place.is_dir()


def test_these_tests_run_where_only_a_name_space_of_ones_own_can_mount(tmp_path):
    probe = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        subprocess.run(["umount", str(tmp_path)], check=True)
        return
    if subprocess.run(["unshare", "-rm", *probe], capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: neither root nor a user name space may mount a disk here")
    words = ["-m", "pytest", "-q", str(Path(__file__)), "-k", "disk"]
    done = subprocess.run(["unshare", "-rm", sys.executable, *words], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_an_error_that_is_not_the_system_s_is_not_called_a_full_disk(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_directory(tmp_path / "folder"):
        raise ZeroDivisionError
    with pytest.raises(UserError, match=r"^of its own \(os error 2\)$"), together(tmp_path):
        raise UserError("of its own (os error 2)")
    assert not list(tmp_path.rglob("*.part"))


def flipped(raw, rng):
    """The bytes with one random bit turned over."""
    changed = bytearray(raw)
    changed[rng.integers(len(raw))] ^= 1 << rng.integers(8)
    return bytes(changed)


def cut(raw, rng):
    return raw[: rng.integers(len(raw))]


def one_line(load):
    """What ``load`` gives, or None when it refuses in one line."""
    try:
        return load()
    except UserError as refusal:
        assert "\n" not in str(refusal)
        return None


@pytest.mark.parametrize("damage", [flipped, cut])
def test_damaged_trajectories_are_refused_or_are_the_same(played, tmp_path, damage):
    path, rng, silent = tmp_path / "t.parquet", np.random.default_rng(1), 0
    save_trajectories(path, played)
    raw, whole = path.read_bytes(), repr(load_trajectories(path, "x"))
    for _ in range(80):
        path.write_bytes(damage(raw, rng))
        loaded = one_line(lambda: load_trajectories(path, "dvc repro collect"))
        silent += loaded is not None
        assert loaded is None or repr(loaded) == whole
    assert silent < 40


@pytest.mark.parametrize("damage", [flipped, cut])
def test_damaged_weights_are_refused_or_are_the_same(tiny, tmp_path, damage):
    from agent_rl.rollouts.models import load_policy

    folder, rng, silent = tmp_path / "base", np.random.default_rng(2), 0
    shutil.copytree(tiny[1].base, folder)
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    weights = 8 + int.from_bytes(raw[:8], "little")
    for _ in range(25):
        path.write_bytes(changed := damage(raw, rng))
        loaded = one_line(lambda: load_policy(folder, "make repro"))
        silent += loaded is not None
        # Only the header holds bytes that mean nothing; a weight that differs is always found.
        assert loaded is None or (changed[weights:] == raw[weights:] and len(changed) == len(raw))
    assert silent < 5


RESULTS = sorted(
    str(path.relative_to(ROOT / "results"))
    for kind in ("*.csv", "*.json")
    for path in (ROOT / "results").rglob(kind)
    if path.name not in ("bench.csv", "tuning.csv")  # no report reads them
)


@pytest.mark.parametrize("name", RESULTS)
def test_damaged_results_are_one_line_or_a_report(name, tmp_path):
    """A digit that became another digit cannot be told from the file; nothing may crash on it."""
    from agent_rl.reporting.sections import build_document
    from agent_rl.reporting.tables import load_results

    rng, results = np.random.default_rng(3), tmp_path / "results"
    shutil.copytree(ROOT / "results", results)
    raw = (ROOT / "results" / name).read_bytes()
    for damage in (flipped, flipped, cut):
        (results / name).write_bytes(damage(raw, rng))
        one_line(lambda: build_document(load_results(results), Undrawn()))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "binary"])
def test_a_damaged_lock_of_the_pipeline_stops_it_in_one_line(tmp_path, damage):
    for name in ("dvc.yaml", "params.yaml", "dvc.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / ".dvc", tmp_path / ".dvc")
    (tmp_path / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")
    lock = tmp_path / "dvc.lock"
    raw = lock.read_bytes()
    lock.write_bytes(
        raw[: len(raw) // 2 + 3] if damage == "cut" else raw[:900] + b"\x81" + raw[901:]
    )
    names = ("dvc.yaml", "params.yaml", "dvc.lock")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    done = subprocess.run(
        [sys.executable, "-m", "dvc", "repro", "instances@babyai"],
        cwd=tmp_path,
        env={**os.environ, "DVC_NO_ANALYTICS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0 and "Traceback" not in done.stderr + done.stdout
    # DVC's own words; what they say of the place in the file takes some lines more.
    assert "dvc.lock" in done.stderr.strip().splitlines()[0], done.stderr
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert not (tmp_path / "artifacts").exists()
