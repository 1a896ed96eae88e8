"""Whole arms on BabyAI: they learn, pay for what they use, and repeat to the bit."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import agent_rl.training.grpo as grpo
import agent_rl.training.preference as preference
import agent_rl.training.supervised as supervised
from agent_rl.errors import UserError
from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.models import load_policy, weights_fingerprint
from agent_rl.rollouts.storage import load_trajectories
from agent_rl.stages.common import load_instances
from agent_rl.stages.train import arm_inputs
from agent_rl.training.arms import ArmInputs, Run, run_digest, train_arm
from agent_rl.training.loop import BudgetCallback
from agent_rl.trajectory import group_trajectories

ARMS = ("sft", "rft", "dpo", "grpo_sparse", "grpo_dense", "grpo_shaped", "sft_grpo")
LORA = "model.lora.enabled=true"


@pytest.fixture
def train(compose, artifacts, tmp_path):
    """Trains one arm; returns its folder and what it recorded."""
    made = iter(range(100))

    def run(arm, *overrides, seed=0, **inputs):
        folder = tmp_path / str(next(made))
        prepared = arm_inputs(compose(*overrides), "babyai", artifacts)
        if inputs:
            fields = {n: getattr(prepared, n) for n in ArmInputs.__dataclass_fields__}
            prepared = ArmInputs(**{**fields, **inputs})
        train_arm(prepared, arm, seed, folder, lambda share: None)
        return folder, json.loads((folder / "run.json").read_text())

    return run


def weights(folder):
    (file,) = folder.glob("*.safetensors")
    return file.read_bytes()


def curve(folder):
    return json.loads((folder / "curve.json").read_text())


@pytest.fixture
def tally(monkeypatch):
    """What a run costs, counted at other places than the ledger counts."""
    counts = {"env_steps": 0, "sampled": 0, "read": 0, "trained": 0, "supervised": [], "totals": []}
    play = RolloutEngine.play

    def counted_play(self, policy, episodes, progress=None):
        played = play(self, policy, episodes, progress)
        if policy.name != "validation":
            counts["env_steps"] += sum(len(t.turns) for t in played)
            counts["sampled"] += sum(len(u.token_ids) for t in played for u in t.turns)
            counts["read"] += sum(int((t.mask == 0).sum()) for t in played)
        return played

    batch = grpo.training_batch

    def counted_batch(trajectories, *args):
        counts["trained"] += sum(len(t.token_ids) for t in trajectories)
        return batch(trajectories, *args)

    for trainer in (supervised.CountingSFTTrainer, preference.TokenDPOTrainer):

        def counted_loss(self, model, inputs, *args, _original=trainer.compute_loss, **kwargs):
            tokens = int((inputs["input_ids"] != self.processing_class.pad_token_id).sum())
            counts["trained"] += tokens
            if not isinstance(self, preference.TokenDPOTrainer):
                counts["supervised"].append(tokens)
            return _original(self, model, inputs, *args, **kwargs)

        monkeypatch.setattr(trainer, "compute_loss", counted_loss)
    reference = preference.TokenDPOTrainer.compute_ref_log_probs

    def counted_reference(self, model, inputs):
        counts["read"] += int((inputs["input_ids"] != self.processing_class.pad_token_id).sum())
        return reference(self, model, inputs)

    monkeypatch.setattr(preference.TokenDPOTrainer, "compute_ref_log_probs", counted_reference)
    step_end = BudgetCallback.on_step_end

    def counted_step(self, *args, **kwargs):
        counts["totals"].append(self.log.ledger.total_tokens)
        return step_end(self, *args, **kwargs)

    monkeypatch.setattr(RolloutEngine, "play", counted_play)
    monkeypatch.setattr(grpo, "training_batch", counted_batch)
    monkeypatch.setattr(BudgetCallback, "on_step_end", counted_step)
    return counts


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_an_arm_learns_and_its_ledger_is_what_an_independent_count_says(
    train, study, artifacts, tally, arm, lora
):
    budget = study.train.budget_tokens
    folder, run = train(arm, f"model.lora.enabled={str(lora).lower()}")
    assert (run["status"], run["reason"]) == ("ok", "")
    ledger = run["ledger"]

    if arm in ("rft", "dpo", "grpo_sparse", "sft_grpo"):  # they use the collected groups and pay
        collected = load_trajectories(artifacts.collected, "test")
        tally["env_steps"] += sum(len(t.turns) for t in collected)
        tally["sampled"] += sum(int(t.mask.sum()) for t in collected)
        tally["read"] += sum(int((t.mask == 0).sum()) for t in collected)
    assert ledger["env_steps"] == tally["env_steps"]
    assert ledger["sampled_tokens"] == tally["sampled"]
    assert ledger["context_tokens"] == tally["read"]
    assert ledger["trained_tokens"] == tally["trained"] > 0
    expert = load_trajectories(artifacts.expert, "test")
    labels = sum(len(t.turns) for t in expert) if arm in ("sft", "sft_grpo") else 0
    assert ledger["expert_labels"] == labels
    assert ledger["total_tokens"] == sum(tally[n] for n in ("sampled", "read", "trained"))

    totals = tally["totals"]
    assert ledger["optimizer_steps"] == len(totals) >= 3
    assert totals[-1] == ledger["total_tokens"]
    # Another step, or one less, would have ended further from the budget.
    step = totals[-1] - totals[-2]
    assert totals[-2] + (totals[-2] - totals[-3]) / 2 < budget <= totals[-1] + step / 2

    base, _, card = load_policy(artifacts.base, "test")
    trained, _, own = load_policy(folder, "test", artifacts.base)
    assert own["adapter"] is lora and own["base_weights"] == card["weights"]
    before = dict(base.named_parameters())
    if lora:
        adapters = {n: p for n, p in trained.named_parameters() if "lora_B" in n}
        assert adapters and all(p.any() for p in adapters.values())  # they start at 0
        for name, parameter in base.named_parameters():
            plain = name.replace("_proj.weight", "_proj.base_layer.weight")
            kept = trained.get_base_model().get_parameter(plain)
            assert torch.equal(parameter, kept)
    else:
        assert all(not torch.equal(p, before[n]) for n, p in trained.named_parameters())

    rows = curve(folder)
    assert rows[0]["val_success_rate"] is not None and rows[0]["update"] == 0
    assert rows[-1]["val_success_rate"] is not None
    deviations = [r["ratio_max_deviation"] for r in rows if r["ratio_max_deviation"] is not None]
    assert bool(deviations) == ("grpo" in arm)
    assert max(deviations, default=0) < 1e-4  # P40, P42: sampler and trainer are one policy


@pytest.mark.parametrize("arm", ["sft", "dpo", "grpo_shaped", "sft_grpo"])
def test_p56_equal_seeds_give_equal_bytes_and_another_seed_does_not(train, arm):
    (first, run), (again, run_again) = train(arm), train(arm)
    assert weights(first) == weights(again)
    assert curve(first) == curve(again) and run == run_again
    other, _ = train(arm, seed=1)
    assert weights(other) != weights(first)


def test_p56_adapters_repeat_to_the_bit(train):
    (first, _), (again, _), (other, _) = (train("grpo_shaped", LORA, seed=s) for s in (0, 0, 1))
    assert weights(first) == weights(again) != weights(other)


class Interrupted(BaseException):
    """What a key press raises."""


@pytest.mark.parametrize("arm", ["sft", "grpo_shaped"])
def test_p55_a_run_that_was_interrupted_and_begun_again_equals_one_that_was_not(
    compose, artifacts, tmp_path, monkeypatch, arm
):
    inputs = arm_inputs(compose(), "babyai", artifacts)
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train_arm(inputs, arm, 0, straight, lambda share: None)
    step_end = BudgetCallback.on_step_end

    def interrupt(self, args, state, *rest, **known):
        if state.global_step == 2:
            raise Interrupted
        return step_end(self, args, state, *rest, **known)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(BudgetCallback, "on_step_end", interrupt)
        train_arm(inputs, arm, 0, broken, lambda share: None)
    assert not broken.exists() or not any(broken.iterdir())  # nothing to go on from half-way
    # What an interrupted process leaves in the global generators has no say either.
    torch.rand(7)
    np.random.random(7)  # noqa: NPY002
    train_arm(inputs, arm, 0, broken, lambda share: None)
    assert weights(broken) == weights(straight)
    assert curve(broken) == curve(straight)


@pytest.mark.parametrize("arm", ["sft", "grpo_shaped"])
def test_p52_validating_more_often_does_not_change_the_training(train, arm):
    few, _ = train(arm, "train.validation_points=2")
    many, _ = train(arm, "train.validation_points=4", "train.validation_instances=8")

    def validated(folder):
        return sum(row["val_success_rate"] is not None for row in curve(folder))

    assert validated(many) > validated(few) == 2
    assert weights(few) == weights(many)


def test_the_number_of_workers_and_other_arms_do_not_change_a_run(train, compose):
    first, _ = train("grpo_sparse")
    other, _ = train("grpo_sparse", "workers=7", "arms.sft.learning_rate=0.5", "seeds=[0]")
    assert weights(first) == weights(other)
    a, b = compose(), compose("workers=7", "arms.sft.learning_rate=0.5", "seeds=[0]")
    assert run_digest(a, "babyai", "grpo_sparse", 0) == run_digest(b, "babyai", "grpo_sparse", 0)
    assert run_digest(a, "babyai", "sft", 0) != run_digest(b, "babyai", "sft", 0)
    assert run_digest(a, "babyai", "sft", 0) != run_digest(a, "babyai", "sft", 1)


def losing_groups(artifacts):
    played = load_trajectories(artifacts.collected, "test")
    lost = group_trajectories([t for t in played if not t.success])
    assert lost
    return lambda: lost


@pytest.mark.parametrize(
    ("arm", "reason"),
    [("rft", "never succeeded"), ("dpo", "no branch point")],
)
def test_a_run_without_anything_to_learn_from_is_recorded_as_failed(train, artifacts, arm, reason):
    folder, run = train(arm, groups=losing_groups(artifacts))
    assert run["status"] == "failed" and reason in run["reason"]
    assert run["ledger"]["sampled_tokens"] > 0  # what it cost is not forgotten
    assert not (folder / "card.json").exists() and not list(folder.glob("*.safetensors"))
    assert (folder / "curve.json").exists()


def test_a_run_whose_instances_are_nearly_all_dead_is_recorded_as_failed(train, artifacts, compose):
    instances = arm_inputs(compose(), "babyai", artifacts).instances
    few = [i for i in instances if i.split != "train"]
    few += [i for i in instances if i.split == "train"][:3]
    folder, run = train("grpo_sparse", instances=few)
    assert run["status"] == "failed" and "needs 4 training instances" in run["reason"]
    assert not list(folder.glob("*.safetensors"))


def test_a_collapse_on_the_way_is_recorded_with_its_curve(train, monkeypatch):
    original = grpo.TrajectoryGRPOTrainer._compute_loss

    def explode(self, model, inputs):
        return original(self, model, inputs) * (float("nan") if self._update == 2 else 1.0)

    monkeypatch.setattr(grpo.TrajectoryGRPOTrainer, "_compute_loss", explode)
    folder, run = train("grpo_shaped")
    assert run["status"] == "failed" and run["reason"] == "weights are not finite after step 2"
    assert [row["update"] for row in curve(folder)] == [0, 1, 2]
    assert not (folder / "card.json").exists()


def test_p29_instances_that_the_base_always_or_never_solved_are_not_played(
    compose, artifacts, monkeypatch
):
    inputs = arm_inputs(compose(), "babyai", artifacts)
    played = []
    play = RolloutEngine.play

    def spy(self, policy, episodes, progress=None):
        if policy.name != "validation":
            played.extend(e.instance_id for e in episodes)
        return play(self, policy, episodes, progress)

    monkeypatch.setattr(RolloutEngine, "play", spy)
    Run(inputs, "grpo_sparse", 0, lambda share: None).train()
    groups = group_trajectories(load_trajectories(artifacts.collected, "test"))
    dead = {
        g.trajectories[0].instance_id
        for g in groups
        if len({t.success for t in g.trajectories}) == 1
    }
    train_ids = {i.instance_id for i in inputs.instances if i.split == "train"}
    assert dead and played
    assert not set(played) & dead
    assert set(played) <= train_ids  # P50: nothing of validation or test is ever trained on


def test_the_supervised_phase_of_sft_grpo_gets_its_share_of_the_budget(train, tally, study):
    train("sft_grpo", "arms.sft_grpo.sft_share=0.3")
    # The collected groups were paid for before; they are not supervised training.
    share, batches = 0.3 * study.train.budget_tokens, tally["supervised"]
    assert sum(batches[:-1]) + batches[-2] / 2 < share <= sum(batches) + batches[-1] / 2


def test_p56_rollouts_are_named_by_seed_and_update(compose, artifacts):
    inputs = arm_inputs(compose(), "babyai", artifacts)

    def played(seed, update):
        run = Run(inputs, "grpo_sparse", seed, lambda share: None)
        rollout = run._rollout(inputs.split("train"), run.arm)
        return [t.token_ids.tolist() for t in rollout(run.model, [5] * 4 + [7] * 4, update)]

    first = played(0, 1)
    assert played(0, 1) == first
    assert played(1, 1) != first and played(0, 2) != first
    assert len({tuple(ids) for ids in first[:4]}) > 1  # members of a group do not copy each other


def test_data_that_was_paid_for_before_does_not_use_up_the_warm_up(compose, artifacts, monkeypatch):
    seen = []
    step_end = BudgetCallback.on_step_end

    def spy(self, args, state, control, **kwargs):
        seen.append(kwargs["optimizer"].param_groups[0]["lr"])
        return step_end(self, args, state, control, **kwargs)

    monkeypatch.setattr(BudgetCallback, "on_step_end", spy)
    study = compose("train.warmup_share=0.5", "train.budget_tokens=30000")
    run = Run(arm_inputs(study, "babyai", artifacts), "rft", 0, lambda share: None)
    run.train()
    peak = study.arm("rft").learning_rate
    assert seen[0] < 0.3 * peak and len(seen) > 4
    assert max(seen) < peak


@pytest.mark.parametrize("lora", ["true", "false"])
def test_p40_p57_a_second_phase_at_another_temperature_and_with_kl_leaves_a_sound_policy(
    train, artifacts, lora
):
    # SFT patches the model at temperature 1 first; the KL makes TRL add a reference to it.
    arm = "arms.sft_grpo"
    folder, run = train(
        "sft_grpo", f"model.lora.enabled={lora}", f"{arm}.temperature=0.7", f"{arm}.beta=0.1"
    )
    assert run["status"] == "ok"
    deviations = [r["ratio_max_deviation"] for r in curve(folder)]
    assert max(d for d in deviations if d is not None) < 1e-4
    load_policy(folder, "test", artifacts.base)  # the reference was not saved with it


def test_p67_the_reference_of_adapters_is_where_the_phase_began(train, monkeypatch):
    apart = []
    original = grpo.TrajectoryGRPOTrainer._reference_logprobs

    def spy(self, batch):
        result = original(self, batch)
        mask = batch["tool_mask"].bool()
        if mask.any():
            apart.append(float((result - batch["old_per_token_logps"])[mask].abs().max()))
        return result

    monkeypatch.setattr(grpo.TrajectoryGRPOTrainer, "_reference_logprobs", spy)
    train(
        "sft_grpo", LORA, "train.budget_tokens=30000",
        *(f"arms.sft_grpo.{x}" for x in ("beta=0.1", "sft_learning_rate=1e-2")),
    )  # fmt: skip
    assert apart[0] < 1e-4 < 1e-3 < apart[-1]


@pytest.fixture
def adapted(train):
    folder, _ = train("grpo_shaped", LORA, "arms.grpo_shaped.learning_rate=1e-2")
    return folder


IDS = torch.arange(4, 40)[None]


def test_p57_merged_and_unmerged_adapters_answer_alike(adapted, artifacts):
    model, _, _ = load_policy(adapted, "test", artifacts.base)
    base, _, _ = load_policy(artifacts.base, "test")
    with torch.no_grad():
        unmerged, plain = model(IDS).logits, base(IDS).logits
        with model.disable_adapter():
            assert torch.equal(model(IDS).logits, plain)
        merged = model.merge_and_unload()(IDS).logits
    assert (merged - unmerged).abs().max() < 1e-4
    assert (plain - unmerged).abs().max() > 1e-2


def test_p57_an_adapter_is_refused_on_another_base(adapted, artifacts, tmp_path):
    from agent_rl.rollouts.models import save_policy

    base, tokenizer, card = load_policy(artifacts.base, "test")
    with torch.no_grad():
        next(base.parameters())[0, 0] += 1e-3
    other = tmp_path / "other"
    save_policy(other, base, tokenizer, card)
    with pytest.raises(UserError, match=r"belongs to base \w+, not to") as refusal:
        load_policy(adapted, "dvc repro", other)
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="name the folder of their base"):
        load_policy(adapted, "dvc repro")


def test_p57_changed_weights_or_tokenizer_are_refused(adapted, artifacts, tmp_path):
    import shutil

    from safetensors.torch import save_file

    for source in (adapted, artifacts.base):
        damaged = tmp_path / f"damaged-{source.name}"
        shutil.copytree(source, damaged)
        (file,) = damaged.glob("*.safetensors")
        tensors = load_file(file)
        first = next(iter(tensors))
        tensors[first] = tensors[first] + 1e-3
        save_file(tensors, file, metadata={"format": "pt"})
        with pytest.raises(UserError, match="fingerprint"):
            load_policy(damaged, "dvc repro", artifacts.base)
    renamed = tmp_path / "renamed"
    shutil.copytree(artifacts.base, renamed)
    text = (renamed / "tokenizer.json").read_text()
    (renamed / "tokenizer.json").write_text(text.replace('"forward"', '"onwards"'))
    with pytest.raises(UserError, match="tokenizer is not the one"):
        load_policy(renamed, "dvc repro")


def test_a_saved_policy_names_no_path_and_no_time_of_this_machine(adapted, train):
    full, _ = train("sft")
    for folder in (adapted, full):
        for file in folder.iterdir():
            if file.suffix == ".json":
                text = file.read_text()
                assert "/tmp" not in text and "/home" not in text and "/root" not in text, file


def test_the_fingerprint_knows_every_weight(artifacts):
    model, _, card = load_policy(artifacts.base, "test")
    assert weights_fingerprint(model) == card["weights"]
    for parameter in model.parameters():
        with torch.no_grad():
            kept = parameter.flatten()[-1].clone()
            parameter.view(-1)[-1] += 1e-3
            assert weights_fingerprint(model) != card["weights"]
            parameter.view(-1)[-1] = kept
    assert weights_fingerprint(model) == card["weights"]


def test_p1_own_successes_are_handed_over_as_they_were_sampled(
    stub, episodes_for, make_model, bpe, quiet_torch
):
    chat = Chat(bpe)
    policy = ModelPolicy(
        "m", make_model(bpe, std=0.02), chat, temperature=1.0, max_action_tokens=6, max_tokens=400
    )
    played = RolloutEngine("stub", stub).play(policy, episodes_for(range(30)))
    groups = group_trajectories(played)
    run = SimpleNamespace(_groups=lambda: groups, chat=chat, tokenizer=bpe)
    records = Run._own_successes(run)
    won = [t for t in played if t.success]
    assert len(records) == len(won) > 10
    for record, trajectory in zip(records, won, strict=True):
        assert record.token_ids.tolist() == trajectory.token_ids.tolist()
        assert record.mask.tolist() == trajectory.mask.tolist()


def test_p22_an_update_plays_every_group_from_one_start(compose, artifacts):
    inputs = arm_inputs(compose(), "babyai", artifacts)
    run = Run(inputs, "grpo_sparse", 0, lambda share: None)
    train, size = inputs.split("train"), run.arm.group_size
    chosen = [9, 4, 6]
    played = run._rollout(train, run.arm)(run.model, [i for i in chosen for _ in range(size)], 1)
    groups = group_trajectories(played)
    assert [len(group) for group in groups] == [size] * 3
    assert [g.trajectories[0].instance_hash for g in groups] == [train[i].hash for i in chosen]
    for group in groups:
        assert len({t.turns[0].observation for t in group.trajectories}) == 1
        assert sorted(t.member for t in group.trajectories) == list(range(size))


def test_p50_p54_training_is_validated_on_validation_instances_and_plays_no_others(
    compose, artifacts
):
    inputs = arm_inputs(compose(), "babyai", artifacts)
    run = Run(inputs, "grpo_sparse", 0, lambda share: None)
    ids = {
        split: {i.instance_id for i in inputs.split(split)} for split in ("train", "val", "test")
    }
    validated = {e.instance_id for e in run.log.validation.episodes}
    assert validated and validated <= ids["val"]
    assert not validated & (ids["train"] | ids["test"])


def test_p50_the_base_and_the_arms_learn_from_training_instances_alone(artifacts, study):
    train = {i.instance_id for i in load_instances(artifacts.instances) if i.split == "train"}
    for path in (artifacts.mixed, artifacts.expert, artifacts.collected, artifacts.probe):
        assert {t.instance_id for t in load_trajectories(path, "test")} <= train


def test_p29_p69_dead_instances_are_left_out_and_the_others_keep_their_numbers(
    compose, artifacts, monkeypatch
):
    inputs = arm_inputs(compose(), "babyai", artifacts)
    run = Run(inputs, "grpo_sparse", 0, lambda share: None)
    handed = []
    monkeypatch.setattr(
        "agent_rl.training.arms.train_grpo",
        lambda model, tokenizer, usable, rollout, **rest: handed.extend([usable, rollout]),
    )
    run.train()
    usable, rollout = handed
    train = inputs.split("train")
    dead = {
        g.trajectories[0].instance_id
        for g in inputs.groups()
        if len({t.success for t in g.trajectories}) == 1
    }
    assert dead and {train[i].instance_id for i in usable} == {
        i.instance_id for i in train if i.instance_id not in dead
    }
    last = usable[-1]
    (played, *_) = rollout(run.model, [last] * run.arm.group_size, 1)
    assert played.instance_id == train[last].instance_id
