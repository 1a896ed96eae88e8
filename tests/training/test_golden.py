"""The trainer against numbers worked out by hand: see golden.py and docs/golden.md."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from tests.training import golden
from tests.training.golden import CREDITS, EPISODES, LOSSES, NORMALISATIONS, Setting
from tests.training.lookup_model import LookupConfig, LookupModel

import agent_rl.training.grpo as grpo
from agent_rl.rewards import advantages, episode_facts, rewards
from agent_rl.rewards.specs import spec
from agent_rl.training.grpo import train_grpo, training_batch
from agent_rl.trajectory import EndReason, Trajectory, Turn

LIMIT = 1e-6
CASES = list(itertools.product(CREDITS, NORMALISATIONS))
CASE_NAMES = [f"{credit.label}; {normalisation}" for credit, normalisation in CASES]
every_case = pytest.mark.parametrize(("credit", "normalisation"), CASES, ids=CASE_NAMES)
every_loss = pytest.mark.parametrize("loss", LOSSES)


def lookup(weights=golden.WEIGHTS):
    table = golden.logits(weights)
    return LookupModel(LookupConfig(), [table[token] for token in golden.TOKENS])


def trajectory_of(episode, setting=Setting()):  # noqa: B008 (frozen)
    """The record that the rollout engine would have stored."""
    tokens = golden.tokens_of(episode)
    old = iter(golden.old_logprobs(episode, setting))
    logprobs = [next(old) if token.turn >= 0 else 0.0 for token in tokens]
    ids = [golden.TOKENS.index(token.text) for token in tokens]
    turns = []
    for turn in range(golden.HORIZON):
        places = [i for i, token in enumerate(tokens) if token.turn == turn]
        turns.append(
            Turn(
                episode.blocks[2 * turn], episode.blocks[2 * turn + 1],
                tuple(ids[i] for i in places), tuple(logprobs[i] for i in places), True,
                float(episode.distances[turn]), float(episode.distances[turn + 1]),
            )
        )  # fmt: skip
    group, member = ord(episode.name[0]) - ord("A"), int(episode.name[1])
    trajectory = Trajectory(
        "golden", group, f"hash-{group}", group, member, "policy", "", 0, setting.temperature,
        golden.HORIZON, tuple(turns), "",
        EndReason.SUCCESS if episode.distances[-1] == 0 else EndReason.TURN_LIMIT, "",
        np.array(ids, np.int32), np.array([t.turn >= 0 for t in tokens], np.int8),
        np.array(logprobs, np.float32),
    )  # fmt: skip
    trajectory.validate()
    return trajectory


@pytest.fixture
def arm_of(grpo_arm):
    """Settings of the arm that a hand calculation is about."""

    def build(credit, normalisation, setting, episodes=EPISODES, gamma=1.0, **pieces):
        arm = grpo_arm(
            group_size=2, episodes_per_update=len(episodes), loss=setting.loss, clip=setting.clip,
            temperature=setting.temperature, beta=setting.beta, iterations=1, minibatches=1,
            importance="sequence" if setting.sequence else "token",
            reward=spec(credit.reward, scale=golden.SCALE, gamma=gamma),
        )  # fmt: skip
        how = dataclasses.replace(
            arm.credit, name=credit.name, normalisation=normalisation, gae_lambda=credit.lam,
            epsilon=golden.EPSILON,
        )  # fmt: skip
        return dataclasses.replace(arm, credit=how, **pieces)

    return build


@pytest.fixture
def trainer_of(make_trainer, monkeypatch):
    def build(arm, trajectories, seed=0):
        # TRL loads the reference from a folder; ours is the other table.
        monkeypatch.setattr(
            "trl.trainer.grpo_trainer.create_model_from_path",
            lambda *_, **__: lookup(golden.REFERENCE),
        )
        return make_trainer(lookup(), arm, trajectories, max_tokens=golden.MAX_TOKENS, seed=seed)

    return build


def step(trainer, batches):
    """(loss, dL/dW as rows by previous token), summed over micro-batches."""
    trainer.model.zero_grad()
    loss = 0.0
    for batch in batches:
        part = trainer._compute_loss(trainer.model, batch)
        part.backward()
        loss += float(part.detach())
    return loss, trainer.model.lm_head.weight.grad.T.numpy()


def by_hand(credit, normalisation, setting, episodes=EPISODES, gamma=1.0):
    values = golden.advantages(episodes, credit, normalisation, gamma)
    parts = golden.terms(episodes, values, setting)
    rows = golden.gradient(parts, setting.temperature)
    return golden.total(parts), np.array([rows[token] for token in golden.TOKENS])


def assert_golden(found, expected):
    assert found[0] == pytest.approx(expected[0], abs=LIMIT)
    assert np.abs(found[1] - expected[1]).max() < LIMIT


@every_case
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_advantages_are_those_by_hand(credit, normalisation, gamma):
    facts = episode_facts([trajectory_of(episode) for episode in EPISODES])
    found = advantages(
        facts, rewards(spec(credit.reward, scale=golden.SCALE, gamma=gamma), facts),
        credit=credit.name, gamma=gamma, gae_lambda=credit.lam, normalisation=normalisation,
        epsilon=golden.EPSILON,
    )  # fmt: skip
    expected = golden.advantages(EPISODES, credit, normalisation, gamma)
    assert found == pytest.approx(np.array([expected[e.name] for e in EPISODES]), abs=1e-12)


def test_the_mask_is_that_on_paper(arm_of, trainer_of):
    trajectories = [trajectory_of(episode) for episode in EPISODES]
    trainer = trainer_of(arm_of(CREDITS[1], "group", Setting()), trajectories)
    (batch,) = trainer._collect([0, 0, 1, 1])
    length = batch["completion_ids"].size(1)
    found = set()
    for ids, mask in zip(batch["completion_ids"], batch["tool_mask"], strict=True):
        found.add("".join(golden.TOKENS[i] if m else "-" for i, m in zip(ids, mask, strict=True)))
    paper = ["L.--R", "R--.", "LL----.", ".-L."]
    assert found == {text.ljust(length, "-") for text in paper}


@every_case
@every_loss
@pytest.mark.parametrize("moved", [False, True], ids=["on-policy", "moved"])
@pytest.mark.parametrize("episodes", [EPISODES[:2], EPISODES], ids=["one group", "two groups"])
def test_loss_and_gradient_are_those_by_hand(
    arm_of, trainer_of, credit, normalisation, loss, moved, episodes
):
    setting = Setting(loss, moved=moved)
    trajectories = [trajectory_of(episode, setting) for episode in episodes]
    trainer = trainer_of(arm_of(credit, normalisation, setting, episodes), trajectories)
    found = step(trainer, trainer._collect([0] * len(episodes)))
    expected = by_hand(credit, normalisation, setting, episodes)
    assert_golden(found, expected)
    assert np.abs(expected[1]).max() > 1e-3


@every_loss
@pytest.mark.parametrize("credit", CREDITS, ids=[credit.label for credit in CREDITS])
@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.5},
        {"temperature": 2.0, "moved": True},
        {"beta": 0.3},
        {"beta": 0.3, "temperature": 0.5, "moved": True},
        {"sequence": True, "moved": True},
        {"sequence": True, "moved": True, "clip": 0.03},
        {"sequence": True, "moved": True, "clip": 0.03, "temperature": 0.5},
    ],
    ids=str,
)
def test_temperature_reference_and_sequence_ratio_act_as_by_hand(
    arm_of, trainer_of, loss, credit, changes
):
    setting = Setting(loss, **changes)
    trajectories = [trajectory_of(episode, setting) for episode in EPISODES]
    trainer = trainer_of(arm_of(credit, "group", setting), trajectories)
    found = step(trainer, trainer._collect([0, 0, 1, 1]))
    assert_golden(found, by_hand(credit, "group", setting))
    plain = by_hand(credit, "group", Setting(loss, moved=setting.moved))
    assert np.abs(found[1] - plain[1]).max() > 1e-3  # the change does act


@every_loss
def test_a_discount_acts_as_by_hand(arm_of, trainer_of, loss):
    setting = Setting(loss, moved=True)
    trajectories = [trajectory_of(episode, setting) for episode in EPISODES]
    trainer = trainer_of(arm_of(CREDITS[2], "group", setting, gamma=0.9), trajectories)
    found = step(trainer, trainer._collect([0, 0, 1, 1]))
    assert_golden(found, by_hand(CREDITS[2], "group", setting, gamma=0.9))


# What must not matter.


@every_loss
@pytest.mark.parametrize("credit", CREDITS[:2], ids=[credit.label for credit in CREDITS[:2]])
@pytest.mark.parametrize("pieces", [(1, 2), (2, 1), (2, 2), (1, 4)], ids=str)
def test_pieces_of_a_batch_add_up_to_the_whole(arm_of, trainer_of, loss, credit, pieces):
    minibatches, micro_batches = pieces
    setting = Setting(loss, moved=True, beta=0.3)
    trajectories = [trajectory_of(episode, setting) for episode in EPISODES]
    arm = arm_of(credit, "group", setting, minibatches=minibatches, micro_batches=micro_batches)
    orders = set()
    for seed in (0, 4):  # decides which episodes a minibatch holds
        trainer = trainer_of(arm, trajectories, seed)
        batches = trainer._collect([0, 0, 1, 1])
        orders.add(str([batch["completion_ids"].tolist() for batch in batches]))
        loss_sum, slope_sum = step(trainer, batches)
        # A minibatch is a step of its own; without moving between them their mean is the batch.
        found = loss_sum / minibatches, slope_sum / minibatches
        assert_golden(found, by_hand(credit, "group", setting))
    if minibatches > 1:
        assert len(orders) > 1


@every_loss
@pytest.mark.parametrize("order", [(1, 0, 3, 2), (2, 3, 0, 1), (3, 0, 2, 1)], ids=str)
def test_the_order_of_episodes_does_not_matter(arm_of, trainer_of, loss, order):
    setting = Setting(loss, moved=True)
    trajectories = [trajectory_of(EPISODES[i], setting) for i in order]
    trainer = trainer_of(arm_of(CREDITS[1], "batch", setting), trajectories)
    found = step(trainer, trainer._collect([0] * 4))
    assert_golden(found, by_hand(CREDITS[1], "batch", setting))


def widened(batch, left, right, pad):
    """The batch as longer neighbours would have padded it."""
    sides = {"prompt_ids": (left, 0), "prompt_mask": (left, 0)}
    result = dict(batch)
    for name in batch.keys() - {"num_items_in_batch", "row_share"}:
        value = pad if name.endswith("_ids") else 0
        result[name] = torch.nn.functional.pad(
            batch[name], sides.get(name, (0, right)), value=value
        )
    return result


@every_loss
@pytest.mark.parametrize("pad", range(4), ids=list(golden.TOKENS))
def test_padding_on_either_side_does_not_matter(arm_of, trainer_of, loss, pad):
    setting = Setting(loss, moved=True, beta=0.3)
    trajectories = [trajectory_of(episode, setting) for episode in EPISODES[:2]]
    arm = arm_of(CREDITS[1], "group", setting, EPISODES[:2])
    trainer = trainer_of(arm, trajectories)
    batches = [widened(batch, 3, 2, pad) for batch in trainer._collect([0, 0])]
    assert_golden(step(trainer, batches), by_hand(CREDITS[1], "group", setting, EPISODES[:2]))


@pytest.mark.parametrize("pad", range(4), ids=list(golden.TOKENS))
def test_any_token_may_be_the_padding_token(arm_of, trainer_of, monkeypatch, pad):
    setting = Setting(moved=True)
    trajectories = [trajectory_of(episode, setting) for episode in EPISODES]
    trainer = trainer_of(arm_of(CREDITS[1], "group", setting), trajectories)
    monkeypatch.setattr(
        grpo, "training_batch", lambda rows, values, _: training_batch(rows, values, pad)
    )
    found = step(trainer, trainer._collect([0, 0, 1, 1]))
    assert_golden(found, by_hand(CREDITS[1], "group", setting))


@every_loss
@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_step_of_plain_descent_moves_the_table_by_the_gradient_by_hand(
    arm_of, word_tokenizer, make_log, monkeypatch, loss, micro_batches, temperature
):
    def optimizer(model, learning_rate, config, log):
        chosen = torch.optim.SGD(model.parameters(), lr=1.0)
        return chosen, torch.optim.lr_scheduler.LambdaLR(chosen, lambda step: 1.0)

    monkeypatch.setattr(grpo, "optimizer_and_schedule", optimizer)
    setting = Setting(loss, temperature)
    arm = arm_of(CREDITS[1], "group", setting, micro_batches=micro_batches)
    trajectories = [trajectory_of(episode, setting) for episode in EPISODES]
    model, log = lookup(), make_log(budget=1, max_grad_norm=1e9, validation_points=2)
    train_grpo(
        model, word_tokenizer, [0, 1], lambda *_: trajectories, arm=arm, learning_rate=1.0,
        config=log.config, max_tokens=golden.MAX_TOKENS, log=log, seed=0,
    )  # fmt: skip
    assert log.ledger.optimizer_steps == 1
    moved = (lookup().lm_head.weight - model.lm_head.weight).detach().T.numpy()
    assert np.abs(moved - by_hand(CREDITS[1], "group", setting)[1]).max() < LIMIT
