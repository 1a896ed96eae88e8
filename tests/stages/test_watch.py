"""What ``watch`` prints is what the policy did, under every reward, and what evaluation counted."""

import argparse
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from agent_rl.__main__ import main
from agent_rl.rewards import advantages, episode_facts, rewards, spec
from agent_rl.rollouts.policies import RandomPolicy
from agent_rl.rollouts.setup import make_engine
from agent_rl.seeding import Stream
from agent_rl.stages import evaluate
from agent_rl.stages.common import Artifacts, episodes_of
from agent_rl.stages.policy_folder import _base_of
from agent_rl.stages.task_settings import load_task_study
from agent_rl.stages.watch import advantage_columns, reward_columns, watched_episodes
from agent_rl.tasks.instances import build_instances

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def watch(capsys):
    """Runs the command; returns exit code, output and error output."""

    def run(words):
        code = main(["watch", *words.split()])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory, make_model, quiet_torch):
    """Artifacts with a random base of babyai and an arm of one seed, and a stranger beside them."""
    from agent_rl.rollouts.models import build_tokenizer, save_policy
    from agent_rl.tasks.babyai import BabyAITask

    root = tmp_path_factory.mktemp("watched")
    tokenizer = build_tokenizer(BabyAITask.vocabulary)
    for place, seed, card in (
        ("babyai/base", 0, {"task": "babyai", "method": "base", "seed": 0}),
        ("babyai/train/sft/seed-3", 1, {"task": "babyai", "method": "sft", "seed": 3}),
        ("runs/of-sqlqa/policy", 2, {"task": "sqlqa", "method": "sft", "seed": 0}),
    ):
        save_policy(root / place, make_model(tokenizer, seed), tokenizer, card)
    return root


def rows(text):
    """Cells of the table's turns: turn, valid, before, after, numbers..., action."""
    pattern = r"^ *(\d+) +(yes|NO) +(\S+) > (\S+)((?: +-?[\d.]+| +-)+)  (.*)$"
    return [
        (int(turn), valid, before, after, numbers.split(), action)
        for turn, valid, before, after, numbers, action in re.findall(pattern, text, flags=re.M)
    ]


def test_the_oracle_walks_down_to_the_goal_under_all_rewards(watch):
    code, text, _ = watch("babyai --policy oracle --seed 1")
    assert code == 0
    header = next(line for line in text.splitlines() if line.startswith("turn"))
    names = ["sparse", "dense", "dense_naive", "shaped", "rubric"]
    assert header.split() == ["turn", "valid", "distance", *names, "action"]
    found = rows(text)
    start = int(found[0][2])
    walked = [(str(start - i), str(start - i - 1)) for i in range(start)]
    assert [row[2:4] for row in found] == walked
    numbers = np.array([row[4] for row in found], dtype=float)
    sums = next(line.split() for line in text.splitlines() if line.startswith(" sum"))[1:6]
    assert numbers.sum(axis=0) == pytest.approx(np.array(sums, dtype=float), abs=0.01)
    assert sums == ["1.000", "1.000", f"{1 + 0.1 * start:.3f}", "1.500", "1.000"]
    assert f"end: success after {start} turns" in text
    assert text.count("      | ") == start + 1  # every observation and the final one


def test_a_model_is_shown_with_the_probabilities_of_what_it_wrote(watch, folder):
    where = f"--artifacts {folder} --seed 2 --reward shaped"
    _, text, _ = watch(f"babyai --policy base {where} --temperature 1")
    header = next(line for line in text.splitlines() if line.startswith("turn"))
    assert header.split()[3:] == ["shaped", "log-prob", "action"]
    found = rows(text)
    assert found and all(float(row[4][1]) < 0 for row in found)
    assert "policy base (" in text and "temperature 1" in text
    assert watch(f"babyai --policy base {where} --temperature 1")[1] == text
    greedy = watch(f"babyai --policy base {where}")[1]
    assert "temperature 0" in greedy and greedy != text
    arm = watch(f"babyai --policy {folder}/babyai/train/sft/seed-3 {where}")[1]
    assert "policy sft (" in arm


def test_the_episode_shown_is_the_one_that_evaluation_counted():
    study = load_task_study("babyai", ["instances.test=6", "instances.shifted=4"])
    task = study.task("babyai")
    sizes = {"train": 5, "val": 3, "test": 6, "shifted": 4}
    everything, _ = build_instances(
        "babyai", task.settings, sizes, task.held_out, max_distance=task.horizon
    )
    for index, split in enumerate(evaluate.SPLITS):
        own = [i for i in everything if i.split == split]
        counted = episodes_of(study, own, 0, Stream.EVALUATION, index)
        options = {"task": "babyai", "split": split, "instance": None, "credit": None}
        shown = watched_episodes(study, argparse.Namespace(**options, seed=2, episodes=2))
        for mine, theirs in zip(shown, counted[2:4], strict=True):
            assert (mine.instance_id, mine.instance_hash) == (
                theirs.instance_id,
                theirs.instance_hash,
            )
            assert mine.seed.spawn_key == theirs.seed.spawn_key
            assert mine.seed.entropy == theirs.seed.entropy


def test_several_episodes_are_several_instances_or_one_group(watch):
    _, text, _ = watch("babyai --policy random --episodes 3 --reward sparse")
    ids = re.findall(r"instance (\d+):", text)
    assert len(ids) == len(set(ids)) == 3 and "\n3 episodes: " in text
    _, text, _ = watch(f"babyai --policy random --episodes 3 --instance {ids[1]}")
    assert re.findall(r"instance (\d+):", text) == [ids[1]] * 3
    played = text.split("\n\n")
    assert played[0] != played[1]


def test_credit_shows_the_advantages_of_the_group():
    study = load_task_study("babyai")
    options = {"task": "babyai", "split": "test", "instance": None, "seed": 3}
    group = watched_episodes(study, argparse.Namespace(**options, credit="turn", episodes=6))
    played = make_engine("babyai", study.task("babyai"), seed=0).play(RandomPolicy(), group)
    columns = reward_columns(played, study, ["sparse", "shaped"])
    shown = advantage_columns(played, columns, study, "turn")
    facts = episode_facts(played)
    for number, name in enumerate(("sparse", "shaped")):
        expected = advantages(facts, rewards(spec(name), facts), credit="turn")
        for row, own in enumerate(shown):
            assert own[number].name == f"A {name}"
            assert own[number].values == pytest.approx(expected[row, : len(played[row].turns)])
    assert any(any(column.values) for own in shown for column in own)


def test_a_group_of_equals_is_called_dead(watch):
    _, text, _ = watch("babyai --policy oracle --credit trajectory --episodes 2 --reward dense")
    assert "dead group" in text
    assert all(row[4][1] == "0.000" for row in rows(text))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--policy base", "make the base with `dvc repro warmstart@babyai`"),
        ("--policy {folder}/nowhere", "no such folder; take oracle, base, random"),
        ("--policy {folder}/babyai/train/sft", "choose one of the folders in it: seed-3"),
        ("--policy {folder}/runs/of-sqlqa", "was trained on task sqlqa, not on babyai"),
        ("--policy {folder}/failed", "holds a run without a policy: loss was nan"),
        ("--policy {folder}/collected", "is not the card of a policy: 'task' is missing"),
        ("--policy {folder}/damaged", "weights have fingerprint"),
        ("--policy oracle --temperature 1", "policy oracle has none"),
        ("--policy {folder}/babyai/base --temperature -1", "must be a number of at least 0"),
        ("--policy {folder}/babyai/base --temperature nan", "must be a number of at least 0"),
        ("--policy random --credit turn", "--credit turn: an advantage compares"),
        ("--policy random --episodes 0", "--episodes 0: must lie between 1 and 1000"),
        ("--policy random --seed -1", "--seed -1"),
        ("--policy random --seed 399 --episodes 2", "number 400 was asked for"),
    ],
)
def test_what_cannot_be_watched_is_one_line_and_exit_code_2(words, told, watch, folder, tmp_path):
    made = tmp_path / "made"
    for name, content in (
        ("failed/run.json", {"status": "failed", "reason": "loss was nan"}),
        ("collected/card.json", {"settings": "x"}),
    ):
        (made / name).parent.mkdir(parents=True)
        (made / name).write_text(json.dumps(content))
    if "damaged" in words:
        shutil.copytree(folder / "babyai" / "train" / "sft" / "seed-3", made / "damaged")
        other = folder / "babyai" / "base" / "model.safetensors"
        shutil.copy(other, made / "damaged" / "model.safetensors")
    own = any(name in words for name in ("failed", "collected", "damaged"))
    words = words.format(folder=made if own else folder)
    code, out, err = watch(f"babyai --artifacts {tmp_path / 'none'} {words}")
    assert (code, out) == (2, "") and err.count("\n") == 1 and told in err


def test_adapters_find_the_base_they_belong_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    card = {
        "task": "babyai",
        "method": "base",
        "adapter": False,
        "base_weights": "",
        "tokenizer": "",
    }
    for place, weights in (("artifacts", "aa"), (".work/base/one", "bb"), (".work/base/two", "cc")):
        base = tmp_path / place / "babyai" / "base"
        base.mkdir(parents=True)
        (base / "card.json").write_text(json.dumps({**card, "weights": weights}))
    artifacts = Artifacts(Path("artifacts") / "babyai")

    def found(weights):
        return str(_base_of({**card, "base_weights": weights}, artifacts))

    assert found("aa") == "artifacts/babyai/base" == found("unknown")
    assert found("cc") == ".work/base/two/babyai/base"
