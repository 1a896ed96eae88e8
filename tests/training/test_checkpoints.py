"""A run that is killed goes on and ends with the same bytes; a foreign checkpoint is refused."""

import dataclasses
import json
import shutil

import pytest

import agent_rl.training.checkpoints as checkpoints
from agent_rl.errors import UserError
from agent_rl.stages.train import arm_inputs
from agent_rl.training.arms import train_arm
from agent_rl.training.checkpoints import Checkpoints


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


def content(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def always(monkeypatch):
    """A checkpoint at every step that allows one."""
    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)


@pytest.fixture
def train(compose, artifacts, tmp_path):
    def run(arm, name, *overrides, unfinished=None, seed=0, kill_at=None, starts=None):
        steps = iter(range(1, 10**6))

        def tick(share):
            if next(steps) == kill_at:
                raise Killed

        inputs = arm_inputs(compose(*overrides), "babyai", artifacts)
        if starts is not None:
            kept = [i for i in inputs.instances if i.split != "train"]
            kept += inputs.split("train")[:starts]
            inputs = dataclasses.replace(inputs, instances=kept)
        train_arm(inputs, arm, seed, tmp_path / name, tick, unfinished)
        return content(tmp_path / name)

    return run


SHAPES = [  # a handful of steps each: those of a supervised arm are all alike
    ("sft", ("train.budget_tokens=8000",)),
    ("rft", ("train.budget_tokens=16000",)),
    ("dpo", ("train.budget_tokens=16000",)),
    ("grpo_sparse", ()),
    ("grpo_shaped", ("arms.grpo_shaped.minibatches=2", "arms.grpo_shaped.iterations=2")),
    ("grpo_dense", ("arms.grpo_dense.beta=0.1", "arms.grpo_dense.micro_batches=2")),
    ("sft_grpo", ("arms.sft_grpo.beta=0.1",)),
    ("grpo_shaped", ("model.lora.enabled=true", "arms.grpo_shaped.beta=0.1")),
    ("sft", ("train.budget_tokens=8000", "model.lora.enabled=true")),
]
NAMES = [f"{arm}-{sum('budget' not in word for word in words)}" for arm, words in SHAPES]


@pytest.mark.parametrize(("arm", "overrides"), SHAPES, ids=NAMES)
def test_p55_a_run_killed_at_every_step_ends_with_the_same_bytes(
    train, tmp_path, always, arm, overrides
):
    straight = train(arm, "straight", *overrides)
    rows = json.loads(straight["run.json"])["ledger"]["optimizer_steps"]
    assert rows >= 3
    unfinished, deaths, resumed = tmp_path / "unfinished", 0, None
    # Every life gets as far as one checkpoint, which is one batch of rollouts, and one step more.
    steps = 4 if "minibatches=2" in str(overrides) else 1
    for _ in range(rows + 2):
        try:
            resumed = train(arm, "killed", *overrides, unfinished=unfinished, kill_at=steps + 1)
        except Killed:
            deaths += 1
        else:
            break
    assert deaths >= 2
    assert resumed == straight


def test_p55_the_order_of_the_data_goes_on_over_many_epochs(train, tmp_path, always):
    words = ("arms.sft.batch_size=64", "train.budget_tokens=60000")
    straight = train("sft", "straight", *words)
    unfinished = tmp_path / "unfinished"
    for kill_at in (7, 9):
        with pytest.raises(Killed):
            train("sft", "killed", *words, unfinished=unfinished, kill_at=kill_at)
    assert train("sft", "killed", *words, unfinished=unfinished) == straight


def test_p55_the_rollouts_go_on_with_the_instance_that_is_next(train, tmp_path, always):
    """Eight starts and four groups per update: every second update begins a new epoch."""
    straight = train("grpo_dense", "straight", starts=8)
    assert json.loads(straight["run.json"])["ledger"]["optimizer_steps"] > 5
    for kill_at in (4, 2):
        with pytest.raises(Killed):
            train(
                "grpo_dense",
                "killed",
                unfinished=tmp_path / "unfinished",
                kill_at=kill_at,
                starts=8,
            )
    resumed = train("grpo_dense", "killed", unfinished=tmp_path / "unfinished", starts=8)
    assert resumed == straight


def test_how_often_checkpoints_are_written_is_no_part_of_the_result(train, tmp_path, always):
    plain = train("grpo_shaped", "plain")
    assert train("grpo_shaped", "saved", unfinished=tmp_path / "unfinished") == plain


def test_a_finished_run_is_not_trained_again(train, tmp_path, monkeypatch):
    unfinished = tmp_path / "unfinished"
    first = train("sft", "first", unfinished=unfinished)
    monkeypatch.setattr(
        "agent_rl.training.arms.Run.train", lambda self: pytest.fail("trained again")
    )
    shutil.rmtree(tmp_path / "first")
    assert train("sft", "first", unfinished=unfinished) == first


def killed_once(train, tmp_path, *overrides, seed=0):
    unfinished = tmp_path / "unfinished"
    with pytest.raises(Killed):
        train("sft", "killed", *overrides, unfinished=unfinished, seed=seed, kill_at=3)
    (folder,) = unfinished.iterdir()
    (saved,) = (p for p in folder.iterdir() if p.name[0].isdigit())
    return unfinished, saved


@pytest.mark.parametrize("seed", [0, 1])
def test_other_settings_or_another_seed_do_not_find_it(train, tmp_path, always, seed):
    unfinished, _ = killed_once(train, tmp_path)
    words = () if seed else ("arms.sft.learning_rate=2e-3",)
    fresh = train("sft", "fresh", *words, seed=seed)
    assert train("sft", "other", *words, unfinished=unfinished, seed=seed) == fresh


@pytest.mark.parametrize("key", ["run", "code", "libraries", "base", "tokenizer", "instances"])
def test_a_checkpoint_of_another_run_is_refused_by_what_differs(train, tmp_path, always, key):
    unfinished, saved = killed_once(train, tmp_path)
    state = json.loads((saved / "state.json").read_text())
    state["card"][key] = "0123456789abcdef"
    (saved / "state.json").write_text(json.dumps(state))
    with pytest.raises(UserError) as refusal:
        train("sft", "killed", unfinished=unfinished)
    text = str(refusal.value)
    assert f"{key} is '0123456789abcdef'" in text and "to start the run anew" in text
    assert "\n" not in text and not (tmp_path / "killed").exists()


@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json", "trainer_state.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "pickle"])
def test_a_damaged_checkpoint_is_one_line(train, tmp_path, always, file, damage):
    unfinished, saved = killed_once(train, tmp_path)
    path = saved / file
    raw = bytearray(path.read_bytes())
    if damage == "flip":
        raw[len(raw) // 2] ^= 0x10
    if damage == "cut":
        raw = raw[: len(raw) // 2]
    if damage == "pickle":
        raw = b"\x80\x04}\x94."  # a pickled empty dictionary
    path.unlink() if damage == "gone" else path.write_bytes(bytes(raw))
    with pytest.raises(UserError) as refusal:
        train("sft", "killed", unfinished=unfinished)
    assert "\n" not in str(refusal.value) and str(saved) in str(refusal.value)
    assert "to start the run anew" in str(refusal.value)


def test_a_checkpoint_holds_no_pickle_and_half_a_one_is_not_seen(train, tmp_path, always):
    unfinished, saved = killed_once(train, tmp_path)
    assert {p.name for p in saved.iterdir()} == {
        "tensors.safetensors",
        "state.json",
        "trainer_state.json",
    }
    half = saved.with_name(f".{saved.name}.123.part")
    half.mkdir()
    (half / "tensors.safetensors").write_bytes(b"half")
    assert train("sft", "killed", unfinished=unfinished) == train("sft", "straight")


def test_checkpoints_come_by_time(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    kept = Checkpoints(tmp_path, {}, interval=30.0)
    assert not kept.due()
    now[0] += 30.0
    assert kept.due()
