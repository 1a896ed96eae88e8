"""GRPO over whole trajectories: which tokens learn, how much, and from whose log-probabilities."""

import copy
import dataclasses
import itertools

import numpy as np
import pytest
import torch

import agent_rl.training.grpo as grpo
from agent_rl.rewards import episode_facts, scoring, spec
from agent_rl.rewards.specs import shaping_potential
from agent_rl.rollouts.models import weights_fingerprint
from agent_rl.training import fast_forward
from agent_rl.training.grpo import (
    TrajectoryGRPOTrainer,
    grpo_arguments,
    token_advantages,
    train_grpo,
    training_batch,
)
from agent_rl.training.loop import TrainingCollapse
from agent_rl.trajectory import EndReason

CLIP = 0.2


@pytest.fixture
def model(make_model, word_tokenizer):
    return make_model(word_tokenizer)


@pytest.fixture
def spread_rewards(monkeypatch):
    """Rewards that make every group live: the stub's own outcome is the same for all members."""

    def scores(config, facts):
        rng = np.random.default_rng(len(facts.lengths))
        earned = rng.normal(size=facts.alive.shape)
        return np.where(facts.alive, earned, 0.0)

    monkeypatch.setattr(scoring, "rewards", scores)
    return scores


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def summed(trainer, batches):
    """Loss and gradient over all micro-batches, as the optimiser step adds them."""
    total, grads = 0.0, {}
    for batch in batches:
        loss = trainer._compute_loss(trainer.model, batch)
        total += float(loss.detach())
        for name, grad in gradients(trainer.model, loss).items():
            grads[name] = grads.get(name, 0) + grad
    return total, grads


def assert_close(a, b, limit=1e-6):
    assert a.keys() == b.keys()
    assert max(float((a[n] - b[n]).abs().max()) for n in a) < limit


def by_hand(model, trajectories, values, kind, temperature=1.0, max_tokens=400):
    """The clipped loss written out for each episode alone, without padding."""
    rows, counts = [], []
    for trajectory, row in zip(trajectories, values, strict=True):
        ids = torch.tensor(trajectory.token_ids.astype("int64"))
        table = torch.log_softmax(model(input_ids=ids[None]).logits[0] / temperature, dim=-1)
        terms, place = [], 0
        sampled = np.flatnonzero(trajectory.mask)
        for turn, advantage in zip(trajectory.turns, row, strict=False):
            for token, old in zip(turn.token_ids, turn.logprobs, strict=True):
                ratio = torch.exp(table[sampled[place] - 1, token] - np.float32(old))
                clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
                terms.append(-torch.min(ratio * advantage, clipped * advantage))
                place += 1
        rows.append(torch.stack(terms).sum())
        counts.append(place)
    if kind == "dapo":
        return sum(rows) / sum(counts)
    if kind == "grpo":
        return sum(r / c for r, c in zip(rows, counts, strict=True)) / len(rows)
    return sum(rows) / (len(rows) * max_tokens)


def moved(model, size=0.05):
    """The same model some steps later: ratios differ from 1 and some are clipped."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * size)
    return model


def test_p1_p16_a_batch_holds_the_stored_ids_padded_by_length(sample, model, word_tokenizer):
    played = sample(model)
    values = np.random.default_rng(0).normal(size=(16, 6))
    batch = training_batch(played, values, word_tokenizer.pad_token_id)
    shapes = {name: tuple(t.shape) for name, t in batch.items()}
    assert shapes["prompt_ids"] == shapes["prompt_mask"]
    assert len({s for name, s in shapes.items() if not name.startswith("prompt")}) == 1
    for row, trajectory in enumerate(played):
        start = int(trajectory.turn_spans[0][0])
        length = len(trajectory.token_ids) - start
        left, right = batch["prompt_mask"][row], batch["completion_mask"][row]
        # padded on the left of the prompt and on the right of the completion, nowhere else
        assert left.tolist() == [0] * (len(left) - start) + [1] * start
        assert right.tolist() == [1] * length + [0] * (len(right) - length)
        assert batch["prompt_ids"][row, -start:].tolist() == trajectory.token_ids[:start].tolist()
        for name, stored in (
            ("completion_ids", trajectory.token_ids),
            ("tool_mask", trajectory.mask),
            ("old_per_token_logps", trajectory.logprobs),
            ("advantages", token_advantages(trajectory, values[row])),
        ):
            assert batch[name][row, :length].tolist() == stored[start:].tolist(), name
            if name != "completion_ids":
                assert not batch[name][row, length:].any(), name


def test_p11_masks_come_from_lengths_when_the_padding_token_is_sampled(sample, model, chat):
    played = sample(model)
    padded = training_batch(played, np.zeros((16, 6)), chat.end_id)
    plain = training_batch(played, np.zeros((16, 6)), 0)
    for name in ("prompt_mask", "completion_mask", "tool_mask"):
        assert torch.equal(padded[name], plain[name])


def test_p34_each_token_gets_the_advantage_of_its_turn(sample, model):
    for trajectory in sample(model):
        values = np.arange(1.0, 7.0)
        tokens = token_advantages(trajectory, values)
        for value, (start, stop) in zip(values, trajectory.turn_spans, strict=False):
            assert (tokens[start:stop] == value).all()
        assert not tokens[trajectory.mask == 0].any()


@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_p40_loss_and_gradient_equal_the_closed_form(
    sample, model, make_trainer, grpo_arm, spread_rewards, loss, temperature
):
    played = sample(model, temperature=temperature)
    arm = grpo_arm(loss=loss, temperature=temperature, clip=CLIP)
    trainer = make_trainer(model, arm, played)
    moved(model)
    (batch,) = trainer._collect([0] * 16)
    total, found = summed(trainer, [batch])
    assert batch["completion_ids"].shape[0] == 16  # no group is dead
    facts = episode_facts(played)
    values = grpo.advantages(facts, spread_rewards(None, facts), credit="turn", epsilon=1e-4)
    expected = by_hand(model, played, values, loss, temperature)
    assert total == pytest.approx(float(expected.detach()), abs=1e-6)
    assert_close(found, gradients(model, expected))
    assert max(float(g.abs().max()) for g in found.values()) > 1e-3


def test_the_clip_acts_in_the_closed_form_above(sample, model):
    played = sample(model)
    moved(model)
    ratios = []
    for t in played:
        ids = torch.tensor(t.token_ids.astype("int64"))
        with torch.no_grad():
            table = torch.log_softmax(model(input_ids=ids[None]).logits[0], -1)
        places = np.flatnonzero(t.mask)
        ratios += (table[places - 1, ids[places]] - torch.tensor(t.logprobs[places])).exp().tolist()
    outside = np.mean(np.abs(np.array(ratios) - 1) > CLIP)
    assert 0.05 < outside < 0.95


def predicting(batch):
    """(B, P + L) positions whose logits predict a sampled token."""
    mask = torch.cat([torch.zeros_like(batch["prompt_mask"]), batch["tool_mask"]], dim=1)
    return mask[:, 1:].bool()


def with_hidden(model, change):
    """Hook that changes the last hidden states, from which logits are read."""
    return model.model.norm.register_forward_hook(lambda module, args, output: change(output))


def test_p4_the_environment_s_tokens_are_not_even_scored(
    sample, model, make_trainer, grpo_arm, spread_rewards, monkeypatch
):
    asked = []
    scored = fast_forward.scored
    monkeypatch.setattr(
        fast_forward, "scored", lambda *args: asked.append(args[3]) or scored(*args)
    )
    played = sample(model)
    trainer = make_trainer(model, grpo_arm(), played)
    (batch,) = trainer._collect([0] * 16)
    summed(trainer, [batch])
    (labels,) = asked
    assert int((labels != fast_forward.IGNORE).sum()) == sum(int(t.mask.sum()) for t in played)
    assert ((labels != fast_forward.IGNORE)[:, 1:] == predicting(batch)).all()
    logged, tokens = trainer._entropy[-1]
    entropies = []
    for trajectory in played:
        with torch.no_grad():
            ids = torch.tensor(trajectory.token_ids.astype("int64"))
            table = torch.log_softmax(model(input_ids=ids[None]).logits[0], -1)
        entropies.append(-(table.exp() * table).sum(-1)[np.flatnonzero(trajectory.mask) - 1])
    assert tokens == len(torch.cat(entropies))
    assert logged == pytest.approx(float(torch.cat(entropies).mean()), abs=1e-6)


def test_p4_perturbed_logits_at_the_environment_s_tokens_move_nothing(
    sample, model, make_trainer, grpo_arm, spread_rewards
):
    trainer = make_trainer(model, grpo_arm(), sample(model))
    (batch,) = trainer._collect([0] * 16)
    hook = with_hidden(model, lambda output: output)  # with one, transformers' own pass is asked
    before, before_grads = summed(trainer, [batch])
    hook.remove()
    entropy = trainer._entropy[-1]
    learns = predicting(batch)

    def perturb(output):
        noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
        noise[:, :-1][learns] = 0.0
        return output + noise

    hook = with_hidden(model, perturb)
    after, after_grads = summed(trainer, [batch])
    hook.remove()
    assert after == before and trainer._entropy[-1] == entropy
    assert_close(before_grads, after_grads, 1e-9)

    hook = with_hidden(model, lambda output: output + 0.1)
    assert abs(summed(trainer, [batch])[0] - before) > 1e-6  # the hook itself does act
    hook.remove()


def test_p4_advantages_at_the_environment_s_tokens_are_never_read(
    sample, model, make_trainer, grpo_arm, spread_rewards
):
    trainer = make_trainer(model, grpo_arm(), sample(model))
    (batch,) = trainer._collect([0] * 16)
    before, grads = summed(trainer, [batch])
    batch["advantages"] = torch.where(batch["tool_mask"].bool(), batch["advantages"], 1e3)
    after, after_grads = summed(trainer, [batch])
    assert after == before
    assert_close(grads, after_grads, 1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo"])
def test_p4_nothing_but_what_the_agent_said_decides_loss_kl_and_entropy(
    sample, model, make_trainer, grpo_arm, word_tokenizer, chat, said, loss, beta
):
    played = sample(model)
    trainer = make_trainer(model, grpo_arm(loss=loss), played)
    trainer.beta = beta
    batch = training_batch(played, np.ones((16, 6)), word_tokenizer.pad_token_id)
    batch["num_items_in_batch"], batch["row_share"] = torch.tensor(90), torch.tensor(1.0)
    batch["ref_per_token_logps"] = torch.full_like(batch["advantages"], -2.0)
    width = batch["prompt_ids"].size(1)
    learns = torch.zeros(16, width + batch["completion_ids"].size(1), dtype=torch.bool)
    for row, trajectory in enumerate(played):
        places = said(trajectory, chat)
        learns[row, places - places[0] + width - 1] = True

    def perturb(output, where):
        noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
        return output + noise * where[..., None]

    hook = with_hidden(model, lambda output: output)  # with one, transformers' own pass is asked
    before, before_grads = summed(trainer, [batch])
    hook.remove()
    entropy = trainer._entropy[-1]
    hook = with_hidden(model, lambda output: perturb(output, ~learns))
    after, after_grads = summed(trainer, [batch])
    hook.remove()
    assert after == before and trainer._entropy[-1] == entropy
    assert_close(before_grads, after_grads, 1e-9)
    hook = with_hidden(model, lambda output: perturb(output, learns))
    assert abs(summed(trainer, [batch])[0] - before) > 1e-4
    hook.remove()


def test_p8_exactly_the_sampled_tokens_receive_gradient_in_the_first_turn_too(
    sample, model, make_trainer, grpo_arm, spread_rewards
):
    trainer = make_trainer(model, grpo_arm(), sample(model))
    (batch,) = trainer._collect([0] * 16)
    seen = []

    def keep(output):
        output.retain_grad()
        seen.append(output)
        return output

    hook = with_hidden(model, keep)
    gradients(model, trainer._compute_loss(model, batch))
    hook.remove()
    received = seen[0].grad[:, :-1].abs().sum(-1) > 0
    full = torch.cat([torch.zeros_like(batch["prompt_mask"]).float(), batch["advantages"]], dim=1)
    assert torch.equal(received, predicting(batch) & (full[:, 1:] != 0))
    first_turn = batch["prompt_mask"].size(1) - 1
    assert received[:, first_turn].all()  # the first sampled token of every episode


def test_p13_the_environment_s_tokens_are_attended_to(
    sample, model, make_trainer, grpo_arm, spread_rewards
):
    played = sample(model, ids=(2, 3, 6, 7))
    trainer = make_trainer(model, grpo_arm(), played)
    (batch,) = trainer._collect([0] * 16)
    trainer._compute_loss(model, batch)
    before = trainer._last_logprobs.clone()
    environment = (batch["completion_mask"] - batch["tool_mask"]).bool()
    last = torch.where(environment, torch.arange(environment.size(1)), -1).max(dim=1).values
    assert (last > 0).all()
    rows = torch.arange(len(last))
    batch["completion_ids"][rows, last] = 7 + batch["completion_ids"][rows, last] % 4
    trainer._compute_loss(model, batch)
    apart = (trainer._last_logprobs - before).abs()
    for row, place in enumerate(last):
        sampled = batch["tool_mask"][row].bool()
        later = sampled & (torch.arange(len(sampled)) > place)
        earlier = sampled & (torch.arange(len(sampled)) < place)
        assert later.any() and apart[row][later].max() > 1e-4
        assert apart[row][earlier].max() < 1e-6


def wavering(trajectory):
    """The same episode with distances that differ between the members of a group, and no win."""
    start = trajectory.turns[0].distance_before
    walk = [start, *(start + (trajectory.member + t) % 3 for t in range(len(trajectory.turns)))]
    turns = tuple(
        dataclasses.replace(turn, distance_before=a, distance_after=b)
        for turn, (a, b) in zip(trajectory.turns, itertools.pairwise(walk), strict=True)
    )
    return dataclasses.replace(trajectory, turns=turns, end=EndReason.TURN_LIMIT)


@pytest.mark.parametrize("gamma", [1.0, 0.8])
def test_p46_training_discounts_returns_by_the_gamma_of_the_shaping(
    sample, model, make_trainer, grpo_arm, gamma
):
    played = [wavering(t) for t in sample(model)]
    arm = grpo_arm(reward=spec("shaped", scale=0.5, gamma=gamma))
    arm = dataclasses.replace(
        arm, credit=dataclasses.replace(arm.credit, name="turn", normalisation="none")
    )
    trainer, seen = make_trainer(model, arm, played), []
    trainer._micro_batches = lambda trajectories, values, keep: seen.append(values) or []
    trainer._collect([0] * 16)
    # Nobody wins, so what is left of turn t under one and the same gamma is -k Phi(s_t).
    facts = episode_facts(played)
    left = -0.5 * shaping_potential(facts)[:, :-1]
    expected = np.zeros_like(left)
    for group in range(4):
        rows = facts.groups == group
        expected[rows] = np.where(facts.alive[rows], left[rows] - left[rows].mean(axis=0), 0)
    assert np.abs(expected).max() > 0.05
    assert seen[0] == pytest.approx(expected, abs=1e-9)


def test_p48_the_logged_success_is_the_task_s_verdict_and_not_the_reward_s(
    sample, model, make_trainer, grpo_arm, spread_rewards
):
    played = sample(model)
    trainer = make_trainer(model, grpo_arm(), played)
    trainer._collect([0] * 16)
    row = trainer._log.rows[-1]
    verdict = np.mean([t.end is EndReason.SUCCESS for t in played])
    paid = (spread_rewards(None, episode_facts(played)).sum(axis=1) > 0).mean()
    assert row["success_rate"] == verdict != paid


@pytest.mark.parametrize("pieces", [(1, 1), (2, 2), (1, 4)])
def test_p62_an_episode_keeps_its_own_advantage_through_shuffling_and_sorting(
    sample, model, make_trainer, grpo_arm, pieces
):
    played = sample(model)
    arm = grpo_arm(minibatches=pieces[0], micro_batches=pieces[1])
    trainer = make_trainer(model, arm, played)
    names = np.arange(1.0, 17.0)  # the advantage names the episode
    batches = trainer._micro_batches(played, np.tile(names[:, None], (1, 6)), np.arange(16))
    found = []
    for batch in batches:
        for row, mask in enumerate(batch["tool_mask"].bool()):
            (name,) = set(batch["advantages"][row][mask].tolist())
            own = played[int(name) - 1]
            start = int(own.turn_spans[0][0])
            width = len(own.token_ids) - start
            assert batch["completion_ids"][row, :width].tolist() == own.token_ids[start:].tolist()
            kept = batch["old_per_token_logps"][row, :width].numpy()
            assert np.array_equal(kept, own.logprobs[start:])
            found.append(name)
    assert sorted(found) == names.tolist()
    assert found != sorted(found)  # they were shuffled


def test_p63_the_ledger_counts_the_tokens_of_episodes_and_no_padding(
    sample, model, make_trainer, grpo_arm, spread_rewards
):
    played = sample(model)
    trainer = make_trainer(model, grpo_arm(micro_batches=2), played)
    batches = trainer._collect([0] * 16)
    summed(trainer, batches)
    real = sum(len(t.token_ids) for t in played)
    assert trainer._log.ledger.trained_tokens == real
    assert sum(b["prompt_ids"].numel() + b["completion_ids"].numel() for b in batches) > real


def train(model, tokenizer, trajectories, arm, log, learning_rate=1.0, instances=4):
    rollout = trajectories if callable(trajectories) else lambda *_: trajectories
    train_grpo(
        model, tokenizer, range(instances), rollout, arm=arm, learning_rate=learning_rate,
        config=log.config, max_tokens=400, log=log, seed=0,
    )  # fmt: skip


@pytest.fixture
def plain_descent(monkeypatch):
    """Plain gradient descent with rate 1: a parameter moves by exactly its gradient."""

    def optimizer(model, learning_rate, config, log):
        chosen = torch.optim.SGD(model.parameters(), lr=1.0)
        return chosen, torch.optim.lr_scheduler.LambdaLR(chosen, lambda step: 1.0)

    monkeypatch.setattr(grpo, "optimizer_and_schedule", optimizer)


@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo"])
def test_p35_micro_batches_give_the_update_of_the_closed_form(
    sample, make_model, word_tokenizer, grpo_arm, make_log, plain_descent, monkeypatch, loss
):
    start = make_model(word_tokenizer)
    played = sample(start)
    # One group is dead, so that 12 episodes are left: they do not split into 8 equal parts.
    values = np.random.default_rng(0).normal(size=(16, 6))
    values[4:8] = 0
    monkeypatch.setattr(grpo, "advantages", lambda *_, **__: values)
    monkeypatch.setattr(grpo, "dead_groups", lambda *_, **__: np.repeat([0, 1, 0, 0], 4) > 0)
    keep = [i for i in range(16) if not 4 <= i < 8]
    reference = copy.deepcopy(start)
    expected = gradients(
        reference, by_hand(reference, [played[i] for i in keep], values[keep], loss)
    )
    for pieces in (1, 2, 4, 8):
        trained = copy.deepcopy(start)
        log = make_log(budget=1, max_grad_norm=1e9, validation_points=2)
        train(trained, word_tokenizer, played, grpo_arm(loss=loss, micro_batches=pieces), log)
        assert log.ledger.optimizer_steps == 1
        after = dict(trained.named_parameters())
        update = {n: p.detach() - after[n].detach() for n, p in start.named_parameters()}
        assert_close(update, {n: expected[n] for n in update}, 2e-6)


@pytest.mark.parametrize("k_dead", [0, 1, 3])
def test_p29_dead_groups_do_not_dilute_the_step_of_the_living(
    sample, make_model, word_tokenizer, grpo_arm, make_trainer, monkeypatch, k_dead
):
    model = make_model(word_tokenizer)
    played = sample(model, ids=(0, 3, 6, 2)[: 1 + k_dead])
    values = np.zeros((len(played), 6))
    values[:4] = np.random.default_rng(0).normal(size=(4, 6))
    monkeypatch.setattr(grpo, "advantages", lambda *_, **__: values)
    monkeypatch.setattr(grpo, "dead_groups", lambda *_, **__: np.arange(len(played)) >= 4)
    trainer = make_trainer(model, grpo_arm(episodes_per_update=len(played)), played)
    total, found = summed(trainer, trainer._collect([0] * len(played)))
    expected = by_hand(model, played[:4], values[:4], "dapo")
    assert total == pytest.approx(float(expected.detach()), abs=1e-6)
    assert_close(found, gradients(model, expected))


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_p29_a_batch_of_dead_groups_has_a_gradient_of_exactly_0(
    sample, make_model, word_tokenizer, grpo_arm, make_trainer, micro_batches, beta
):
    model = make_model(word_tokenizer)
    played = sample(model, ids=(0, 4, 8, 12))  # every member wins at its first step
    arm = grpo_arm(micro_batches=micro_batches)
    trainer = make_trainer(model, arm, played)
    trainer.beta = beta
    trainer._reference_logprobs = lambda batch: torch.full_like(batch["advantages"], -3.0)
    batches = trainer._collect([0] * 16)
    total, found = summed(trainer, batches)
    assert total == 0
    assert not any(g.any() for g in found.values())
    assert trainer._log.ledger.trained_tokens == 0
    assert trainer._log.rows[-1]["dead_group_share"] == 1


def test_p27_crashed_episodes_enter_neither_loss_nor_success(
    sample, model, make_trainer, grpo_arm, spread_rewards
):
    played = sample(model)
    crashed = dataclasses.replace(played[5], end=EndReason.ERROR, error="ValueError: x")
    at_reset = dataclasses.replace(
        crashed, turns=(), token_ids=played[0].token_ids[:0], mask=played[0].mask[:0],
        logprobs=played[0].logprobs[:0], member=played[6].member,
    )  # fmt: skip
    episodes = [*played[:5], crashed, at_reset, *played[7:]]
    trainer = make_trainer(model, grpo_arm(), episodes)
    (batch,) = trainer._collect([0] * 16)
    assert batch["completion_ids"].size(0) == 14
    assert int(batch["num_items_in_batch"]) == int(batch["tool_mask"].sum())
    loss, _ = summed(trainer, [batch])
    assert np.isfinite(loss)


def test_p27_crashes_are_not_in_the_logged_reward(
    sample, model, make_trainer, grpo_arm, spread_rewards
):
    played = sample(model)
    for index in (1, 6, 14):
        played[index] = dataclasses.replace(played[index], end=EndReason.ERROR, error="E: x")
    trainer = make_trainer(model, grpo_arm(), played)
    trainer._collect([0] * 16)
    totals = spread_rewards(None, episode_facts(played)).sum(axis=1)
    row, sound = trainer._log.rows[-1], np.delete(totals, [1, 6, 14])
    assert row["reward_mean"] == pytest.approx(sound.mean()) != pytest.approx(totals.mean())
    assert row["reward_std"] == pytest.approx(sound.std())


def test_p23_a_rollout_that_mixes_starts_in_a_group_stops_the_run(
    sample, model, make_trainer, grpo_arm
):
    played = sample(model)
    played[2] = dataclasses.replace(played[2], instance_hash="another")
    with pytest.raises(ValueError, match="one initial state"):
        make_trainer(model, grpo_arm(), played)._collect([0] * 16)


def test_p23_an_update_asks_for_whole_groups_of_distinct_instances(
    sample, model, word_tokenizer, grpo_arm, make_log
):
    asked = []

    def rollout(model, indices, update):
        asked.append((list(indices), update))
        return sample(model)

    log = make_log(budget=4000)

    def paid(model, indices, update):
        log.ledger.sampled_tokens += 1000
        return rollout(model, indices, update)

    train(model, word_tokenizer, paid, grpo_arm(), log, 1e-4, instances=7)
    assert [update for _, update in asked] == list(range(1, len(asked) + 1)) and len(asked) >= 2
    for indices, _ in asked:
        groups = [indices[i : i + 4] for i in range(0, 16, 4)]
        assert all(len(set(group)) == 1 for group in groups)
        assert len({group[0] for group in groups}) == 4


def test_too_few_instances_for_an_update_fail_the_run_instead_of_skipping_it(
    sample, model, word_tokenizer, grpo_arm, make_log
):
    with pytest.raises(TrainingCollapse, match="needs 4 training instances and only 3"):
        train(model, word_tokenizer, sample(model), grpo_arm(), make_log(), instances=3)


def deviation_of_a_run(sample, model, tokenizer, arm, log, played_at, broken=lambda t: t):
    def rollout(policy, indices, update):
        log.ledger.sampled_tokens += 100
        return [broken(t) for t in sample(policy, temperature=played_at, stream=update)]

    train(model, tokenizer, rollout, arm, log, learning_rate=1e-3)
    return [r["ratio_max_deviation"] for r in log.rows if r["ratio_max_deviation"] is not None]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
@pytest.mark.parametrize("pieces", [(1, 1), (2, 2)])
def test_p40_p42_sampler_and_trainer_agree_before_every_update(
    sample, model, word_tokenizer, grpo_arm, make_log, spread_rewards, temperature, pieces
):
    minibatches, micro_batches = pieces
    arm = grpo_arm(
        temperature=temperature, minibatches=minibatches, micro_batches=micro_batches, iterations=2
    )
    apart = deviation_of_a_run(
        sample, model, word_tokenizer, arm, make_log(budget=2500), temperature
    )
    assert len(apart) >= 3
    assert max(apart) < 1e-4


@pytest.mark.parametrize(("played_at", "trained_at"), [(1.3, 1.0), (1.0, 0.7), (0.7, 1.0)])
def test_p40_a_temperature_that_the_sampler_did_not_have_stops_the_run(
    sample, model, word_tokenizer, grpo_arm, make_log, spread_rewards, played_at, trained_at
):
    with pytest.raises(TrainingCollapse, match="sampler and trainer disagree"):
        deviation_of_a_run(
            sample,
            model,
            word_tokenizer,
            grpo_arm(temperature=trained_at),
            make_log(budget=300),
            played_at,
        )


def shifted(trajectory):
    """Log-probabilities one token late."""
    logprobs = np.where(trajectory.mask, np.roll(trajectory.logprobs, 1), 0)
    return dataclasses.replace(trajectory, logprobs=logprobs.astype(np.float32))


def test_p14_p40_logprobs_that_are_shifted_by_one_stop_the_run(
    sample, model, word_tokenizer, grpo_arm, make_log, spread_rewards
):
    with pytest.raises(TrainingCollapse, match="sampler and trainer disagree"):
        deviation_of_a_run(
            sample, model, word_tokenizer, grpo_arm(), make_log(budget=300), 1.0, broken=shifted
        )


def test_p42_episodes_of_other_weights_stop_the_run(
    sample, model, make_model, word_tokenizer, grpo_arm, make_log, spread_rewards
):
    stale = sample(make_model(word_tokenizer, seed=1))
    with pytest.raises(TrainingCollapse, match="sampler and trainer disagree"):
        train(model, word_tokenizer, stale, grpo_arm(), make_log(budget=300))


def test_a_loss_that_is_not_finite_stops_the_run(
    sample, model, word_tokenizer, grpo_arm, make_log, spread_rewards, monkeypatch
):
    monkeypatch.setattr(grpo, "advantages", lambda *_, **__: np.full((16, 6), np.nan))
    with pytest.raises(TrainingCollapse, match="loss is nan at update 1"):
        train(model, word_tokenizer, sample(model), grpo_arm(), make_log(budget=300))


def test_logprobs_that_are_not_finite_stop_the_run_even_when_every_group_is_dead(
    sample, model, word_tokenizer, grpo_arm, make_log
):
    played = sample(model, ids=(0, 4, 8, 12))  # every member wins at its first step
    bad = np.where(played[0].mask, np.nan, 0).astype(np.float32)
    played[0] = dataclasses.replace(played[0], logprobs=bad)
    with pytest.raises(TrainingCollapse, match="log-probabilities are not finite at update 1"):
        train(model, word_tokenizer, played, grpo_arm(), make_log(budget=300))


def test_weights_that_are_not_finite_stop_the_run(
    sample, model, word_tokenizer, grpo_arm, make_log, spread_rewards
):
    with pytest.raises(TrainingCollapse, match="weights are not finite after step 1"):
        train(model, word_tokenizer, sample(model), grpo_arm(), make_log(budget=300), float("inf"))


def test_the_settings_that_define_the_method_are_what_the_documentation_says(study):
    arm = dataclasses.replace(
        study.arm("grpo_shaped"), temperature=0.7, clip=0.15, iterations=3, minibatches=2,
        micro_batches=4, episodes_per_update=16, group_size=4,
    )  # fmt: skip
    arguments = grpo_arguments(arm, study.train, 160, 7)
    expected = {
        "loss_type": "dapo", "scale_rewards": "none", "importance_sampling_level": "token",
        "beta": 0.0, "epsilon": 0.15, "epsilon_high": 0.15, "delta": None,
        "temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0,
        "mask_truncated_completions": False, "disable_dropout": True,
        "use_bias_correction_kl": False, "sync_ref_model": False, "use_vllm": False,
        "top_entropy_quantile": 1.0, "entropy_coef": 0.0, "use_adaptive_entropy": False,
        "off_policy_mask_threshold": None, "num_iterations": 3, "num_generations": 4,
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4,
        "steps_per_generation": 8, "generation_batch_size": 16, "max_completion_length": 160,
        "bf16": False, "fp16": False, "gradient_checkpointing": False,
        "max_grad_norm": study.train.max_grad_norm, "seed": 7, "data_seed": 7,
        "shuffle_dataset": True, "remove_unused_columns": False, "use_liger_kernel": False,
        "torch_compile": False, "neftune_noise_alpha": None, "label_smoothing_factor": 0.0,
        "cast_lm_head_to_fp32": False, "router_aux_loss_coef": None,
    }  # fmt: skip
    found = {name: getattr(arguments, name) for name in expected}
    assert found == expected


def test_p67_the_reference_of_the_kl_is_the_policy_at_the_start_of_the_phase(
    sample, word_tokenizer, grpo_arm, make_log, spread_rewards, monkeypatch, make_model, tmp_path,
):  # fmt: skip
    from agent_rl.rollouts.models import load_model

    make_model(word_tokenizer, seed=4).save_pretrained(tmp_path)
    model = moved(load_model(tmp_path))  # the phase begins elsewhere than the folder says
    seen = []
    original = TrajectoryGRPOTrainer._reference_logprobs

    def spy(self, batch):
        result = original(self, batch)
        mask = batch["tool_mask"].bool()
        seen.append(float((result - batch["old_per_token_logps"])[mask].abs().max()))
        return result

    monkeypatch.setattr(TrajectoryGRPOTrainer, "_reference_logprobs", spy)
    log = make_log(budget=5000)

    def rollout(policy, indices, update):
        log.ledger.sampled_tokens += 1500
        return sample(policy, stream=update)

    train(model, word_tokenizer, rollout, grpo_arm(beta=0.1), log, 1e-2)
    assert seen[0] < 1e-4 and seen[-1] > 1e-2


def test_p42_turns_that_other_weights_sampled_are_refused(sample, model, make_trainer, grpo_arm):
    played = sample(model)
    present = weights_fingerprint(model)

    def marked(weights):
        return [
            dataclasses.replace(
                t, turns=tuple(dataclasses.replace(turn, weights=weights) for turn in t.turns)
            )
            for t in played
        ]

    make_trainer(model, grpo_arm(), marked(present))._collect([0] * 16)
    trainer = make_trainer(model, grpo_arm(), [*marked(present)[:-1], marked("0" * 16)[-1]])
    with pytest.raises(TrainingCollapse, match=f"sampled by weights {'0' * 16}, and {present}"):
        trainer._collect([0] * 16)
