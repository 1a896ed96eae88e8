"""Nothing in a file is run: hostile checkpoints, tables and settings are refused in one line."""

import dataclasses
import io
import json
import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_rl.__main__ import main
from agent_rl.errors import UserError

ROOT = Path(__file__).parents[1]


class Bomb:
    """An object that leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "UNPICKLED"


@pytest.fixture
def bombs(mark):
    """The same bomb as a plain pickle and as what ``torch.save`` writes."""
    import torch

    buffer = io.BytesIO()
    torch.save({"weight": Bomb(mark)}, buffer)
    return {"pickle": pickle.dumps(Bomb(mark), protocol=2), "torch": buffer.getvalue()}


def test_the_bomb_goes_off_where_a_pickle_is_loaded(bombs, mark):
    pickle.loads(bombs["pickle"])  # noqa: S301 (the claim)
    assert mark.exists()


@pytest.fixture(scope="module")
def policies(tmp_path_factory, make_model, study, quiet_torch):
    """A folder with the base of babyai, and adapters on it."""
    from agent_rl.rollouts.models import (
        add_adapters,
        build_tokenizer,
        save_policy,
        weights_fingerprint,
    )
    from agent_rl.tasks.babyai import BabyAITask

    root = tmp_path_factory.mktemp("policies")
    tokenizer = build_tokenizer(BabyAITask.vocabulary)
    model = make_model(tokenizer)
    card = {"task": "babyai", "method": "base", "seed": 0}
    save_policy(root / "babyai" / "base", model, tokenizer, card)
    base = weights_fingerprint(model)
    lora = dataclasses.replace(study.model, lora=dataclasses.replace(study.model.lora, rank=2))
    adapted = add_adapters(model, lora, 0)
    save_policy(root / "adapters", adapted, tokenizer, {**card, "method": "sft"}, base)
    return root


def plant_config(folder, name, **entries):
    content = json.loads((folder / name).read_text(encoding="utf-8"))
    (folder / name).write_text(json.dumps({**content, **entries}), encoding="utf-8")


def replaced(name, instead):
    """Weights under one name, the bomb under another."""

    def plant(folder, bomb, mark):
        (folder / name).unlink()
        (folder / instead).write_bytes(bomb)

    return plant


def sharded(folder, bomb, mark):
    (folder / "model.safetensors").unlink()
    (folder / "shard.bin").write_bytes(bomb)
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": "shard.bin"}}
    for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        (folder / name).write_text(json.dumps(index), encoding="utf-8")


def own_code(folder, bomb, mark):
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w')\n", encoding="utf-8")
    automatic = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    plant_config(folder, "config.json", model_type="evil", auto_map=automatic)
    automatic = {"AutoTokenizer": ["evil.Tokenizer", None]}
    plant_config(folder, "tokenizer_config.json", tokenizer_class="Evil", auto_map=automatic)


FULL = {
    "bin instead of safetensors": replaced("model.safetensors", "pytorch_model.bin"),
    "pickle named safetensors": replaced("model.safetensors", "model.safetensors"),
    "shards": sharded,
    "code of its own": own_code,
    "tokenizer": replaced("tokenizer.json", "tokenizer.json"),
    "card": replaced("card.json", "card.json"),
}
ADAPTERS = {
    "bin instead of safetensors": replaced("adapter_model.safetensors", "adapter_model.bin"),
    "pickle named safetensors": replaced("adapter_model.safetensors", "adapter_model.safetensors"),
}


def refused_by_watch(folder, artifacts, capsys):
    capsys.readouterr()
    words = ["--policy", str(folder), "--artifacts", str(artifacts)]
    assert main(["watch", "babyai", *words]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and "Traceback" not in printed.err
    assert str(folder) in printed.err


@pytest.fixture
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("kind", ["pickle", "torch"])
@pytest.mark.parametrize("case", FULL)
def test_a_hostile_checkpoint_is_refused_and_never_unpickled(
    policies, tmp_path, bombs, mark, case, kind, at_the_root, capsys
):
    from agent_rl.rollouts.models import load_policy

    folder = tmp_path / "policy"
    shutil.copytree(policies / "babyai" / "base", folder)
    FULL[case](folder, bombs[kind], mark)
    with pytest.raises(UserError) as refusal:
        load_policy(folder, "make repro")
    assert "\n" not in str(refusal.value) and str(folder) in str(refusal.value)
    refused_by_watch(folder, policies, capsys)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["pickle", "torch"])
@pytest.mark.parametrize("case", [case for case in FULL if case not in ("card", "tokenizer")])
def test_a_hostile_model_is_refused_as_the_start_of_a_study(
    policies, tmp_path, bombs, mark, case, kind
):
    from agent_rl.rollouts.models import load_model

    folder = tmp_path / "model"
    shutil.copytree(policies / "babyai" / "base", folder)
    FULL[case](folder, bombs[kind], mark)
    with pytest.raises(UserError, match="no model can be read"):
        load_model(folder)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["pickle", "torch"])
@pytest.mark.parametrize("case", ADAPTERS)
def test_hostile_adapters_are_refused_and_never_unpickled(
    policies, tmp_path, bombs, mark, case, kind, at_the_root, capsys
):
    folder = tmp_path / "policy"
    shutil.copytree(policies / "adapters", folder)
    ADAPTERS[case](folder, bombs[kind], mark)
    refused_by_load(folder, policies)
    refused_by_watch(folder, policies, capsys)
    assert not mark.exists()


def shortened(name, share):
    def damage(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return damage


def flipped(name, share):
    def damage(folder):
        content = bytearray((folder / name).read_bytes())
        content[int((len(content) - 1) * share)] ^= 4
        (folder / name).write_bytes(bytes(content))

    return damage


def rewritten(name, **entries):
    return lambda folder: plant_config(folder, name, **entries)


WEIGHTS = "adapter_model.safetensors"
DAMAGE = {
    **{f"{share:.0%} of the weights": shortened(WEIGHTS, share) for share in (0, 0.001, 0.5, 0.99)},
    **{f"bit flipped at {share:.0%}": flipped(WEIGHTS, share) for share in (0, 0.001, 0.5, 1)},
    "half of the settings": shortened("adapter_config.json", 0.5),
    "another rank": rewritten("adapter_config.json", r=3),
    "another kind": rewritten("adapter_config.json", peft_type="PROMPT_TUNING"),
    "an unknown kind": rewritten("adapter_config.json", peft_type="SOMETHING"),
    "modules that are not there": rewritten("adapter_config.json", target_modules=["w_q"]),
    "no settings": lambda folder: (folder / "adapter_config.json").unlink(),
    "no weights": lambda folder: (folder / WEIGHTS).unlink(),
    "an empty card": lambda folder: (folder / "card.json").write_text("{}"),
    "a list as card": lambda folder: (folder / "card.json").write_text("[1]"),
    "other weights in the card": rewritten("card.json", weights="0" * 16),
    "another base": rewritten("card.json", base_weights="0" * 16),
}


def refused_by_load(folder, policies):
    from agent_rl.rollouts.models import load_policy

    with pytest.raises(UserError) as refusal:
        load_policy(folder, "make repro", policies / "babyai" / "base")
    assert "\n" not in str(refusal.value) and str(folder) in str(refusal.value)


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_adapters_are_refused_in_one_line(policies, tmp_path, case):
    folder = tmp_path / "policy"
    shutil.copytree(policies / "adapters", folder)
    DAMAGE[case](folder)
    refused_by_load(folder, policies)


def test_pickles_beside_the_weights_are_never_unpickled(policies, tmp_path, bombs, mark):
    from agent_rl.rollouts.models import load_policy

    for source, own in (("babyai/base", "pytorch_model.bin"), ("adapters", "adapter_model.bin")):
        folder = tmp_path / own
        shutil.copytree(policies / source, folder)
        for name in (own, "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (folder / name).write_bytes(bombs["torch"])
        load_policy(folder, "make repro", policies / "babyai" / "base")
    assert not mark.exists()


def test_a_hostile_table_is_refused_and_never_unpickled(tmp_path, bombs, mark):
    from agent_rl.rollouts.storage import load_trajectories
    from agent_rl.stages.common import load_instances

    # The extension type whose parameters older versions of pyarrow unpickled (CVE-2023-47248).
    hostile = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": bombs["pickle"],
    }
    field = pa.field("split", pa.string(), metadata=hostile)
    table = tmp_path / "table.parquet"
    pq.write_table(pa.table([["test"]], schema=pa.schema([field])), table)
    raw = tmp_path / "raw.parquet"
    raw.write_bytes(bombs["pickle"])
    for path in (table, raw):
        for load in (load_instances, lambda path: load_trajectories(path, "make repro")):
            with pytest.raises(UserError) as refusal:
                load(path)
            assert "\n" not in str(refusal.value) and str(path) in str(refusal.value)
    assert not mark.exists()


@pytest.mark.parametrize(
    "text", ["params: !!python/object/apply:os.mkdir ['{mark}']", "a: &a [*a]"]
)
def test_hostile_settings_are_refused_and_run_nothing(tmp_path, mark, text):
    from agent_rl.config import load_params

    path = tmp_path / "params.yaml"
    path.write_text(text.format(mark=mark), encoding="utf-8")
    with pytest.raises(UserError) as refusal:
        load_params(path)
    assert "\n" not in str(refusal.value) and str(path) in str(refusal.value)
    assert not mark.exists()
