"""SFT on actions: which positions carry loss, and that the agent learns to stop."""

import copy
import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

import agent_rl.training.loop as loop
import agent_rl.training.supervised as supervised
from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.policies import OraclePolicy, TokenRecord
from agent_rl.training.supervised import (
    IGNORE,
    supervised_dataset,
    train_supervised,
    written_tokens,
)


@pytest.fixture
def demonstrations(stub, episodes_for):
    """Expert episodes of 1 to 4 turns, actions of one word."""
    return RolloutEngine("stub", stub).play(OraclePolicy(), episodes_for(range(8)))


@pytest.fixture(params=["word_tokenizer", "bpe"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def seen(monkeypatch):
    """Batches that reach the loss."""
    batches = []
    original = supervised.CountingSFTTrainer.compute_loss

    def spy(self, model, inputs, *args, **kwargs):
        batches.append({name: value.clone() for name, value in inputs.items()})
        return original(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(supervised.CountingSFTTrainer, "compute_loss", spy)
    return batches


def train(model, tokenizer, records, log, *, learning_rate=1e-3, batch_size=8, seed=0):
    train_supervised(
        model, tokenizer, supervised_dataset(records), learning_rate=learning_rate,
        batch_size=batch_size, config=log.config, log=log, seed=seed,
    )  # fmt: skip


def test_p10_labels_are_the_actions_and_their_end_token_at_their_own_positions(
    tokenizer, demonstrations
):
    chat = Chat(tokenizer)
    for row, trajectory in zip(
        supervised_dataset([written_tokens(t, chat) for t in demonstrations]),
        demonstrations,
        strict=True,
    ):
        expected_ids, expected_labels = [], []
        for index, turn in enumerate(trajectory.turns):
            context = (chat.observe if index else chat.opening)(turn.observation)
            action = [*tokenizer.encode(turn.action, add_special_tokens=False), chat.end_id]
            expected_ids += [*context, *action]
            expected_labels += [IGNORE] * len(context) + action
        assert row["input_ids"] == expected_ids
        assert row["labels"] == expected_labels
        assert row["labels"][-1] == chat.end_id
        assert row["labels"].count(chat.end_id) == len(trajectory.turns)


def test_p11_padding_never_hides_the_last_end_token_although_both_are_one_token(
    bpe, demonstrations, make_model, make_log, seen
):
    assert bpe.pad_token_id == bpe.eos_token_id
    chat = Chat(bpe)
    records = [written_tokens(t, chat) for t in demonstrations]
    train(make_model(bpe, std=0.02), bpe, records, make_log(budget=1))
    (batch,) = seen
    lengths = sorted(len(r.token_ids) for r in records)
    assert sorted(batch["attention_mask"].sum(1).tolist()) == lengths  # from lengths, not values
    assert len(set(lengths)) > 2
    for labels, attention in zip(batch["labels"], batch["attention_mask"], strict=True):
        assert labels[attention == 1][-1] == chat.end_id
        assert (labels[attention == 0] == IGNORE).all()


def test_p10_the_loss_is_the_mean_over_action_tokens_of_an_unpadded_forward(
    word_tokenizer, demonstrations, make_model, make_log, chat, monkeypatch
):
    losses = []
    original = supervised.CountingSFTTrainer.compute_loss

    def spy(self, *args, **kwargs):
        loss = original(self, *args, **kwargs)
        losses.append(float((loss[0] if isinstance(loss, tuple) else loss).detach()))
        return loss

    monkeypatch.setattr(supervised.CountingSFTTrainer, "compute_loss", spy)
    model = make_model(word_tokenizer)
    start = copy.deepcopy(model)
    records = [written_tokens(t, chat) for t in demonstrations]
    train(model, word_tokenizer, records, make_log(budget=1))
    terms = []
    for record in records:
        ids = torch.tensor(record.token_ids.astype("int64"))
        with torch.no_grad():
            table = torch.log_softmax(start(input_ids=ids[None]).logits[0], -1)
        places = np.flatnonzero(record.mask)
        terms += (-table[places - 1, ids[places]]).tolist()
    assert losses == pytest.approx([np.mean(terms)], abs=1e-5)


def test_p11_one_example_overfit_says_the_action_and_then_stops(
    bpe, stub, episodes_for, make_model, make_log
):
    chat = Chat(bpe)
    episodes = episodes_for([2])
    (expert,) = RolloutEngine("stub", stub).play(OraclePolicy(), episodes)
    model = make_model(bpe, std=0.02)
    log = make_log(budget=60 * 100, warmup_share=0.01)
    train(model, bpe, [written_tokens(expert, chat)], log, learning_rate=2e-2, batch_size=1)
    policy = ModelPolicy("m", model, chat, temperature=0.0, max_action_tokens=12, max_tokens=500)
    (played,) = RolloutEngine("stub", stub).play(policy, episodes)
    assert [t.action for t in played.turns] == [t.action for t in expert.turns]
    assert all(t.token_ids[-1] == chat.end_id for t in played.turns)


def test_equal_sequences_count_once_and_keep_their_order(demonstrations, chat):
    records = [written_tokens(t, chat) for t in demonstrations[:3]]
    dataset = supervised_dataset([records[1], records[0], records[1], records[2], records[0]])
    assert dataset["input_ids"] == [records[i].token_ids.tolist() for i in (1, 0, 2)]


def test_p1_own_successes_are_trained_on_as_sampled(sample, make_model, word_tokenizer):
    played = sample(make_model(word_tokenizer))
    rows = supervised_dataset([TokenRecord(t.token_ids, t.mask, t.logprobs) for t in played])
    distinct = list({t.token_ids.tobytes(): t for t in played}.values())
    for row, trajectory in zip(rows, distinct, strict=True):
        assert row["input_ids"] == trajectory.token_ids.tolist()
        labelled = [i for i, label in enumerate(row["labels"]) if label != IGNORE]
        assert labelled == np.flatnonzero(trajectory.mask).tolist()


def test_p16_a_cut_action_teaches_its_tokens_but_not_the_end_that_it_never_said(
    sample, make_model, word_tokenizer, chat
):
    played = [t for t in sample(make_model(word_tokenizer)) if len(t.turns) > 1]
    cut = [t for t in played if t.turns[0].token_ids[-1] != chat.end_id]
    assert cut
    for trajectory in cut:
        (row,) = supervised_dataset(
            [TokenRecord(trajectory.token_ids, trajectory.mask, trajectory.logprobs)]
        )
        after = int(trajectory.turn_spans[0][1])
        assert row["input_ids"][after] == chat.end_id and row["labels"][after] == IGNORE


def test_p63_every_token_that_was_trained_on_is_on_the_ledger_and_no_padding(
    word_tokenizer, demonstrations, make_model, make_log, chat, seen
):
    log = make_log(budget=600)
    records = [written_tokens(t, chat) for t in demonstrations]
    train(make_model(word_tokenizer), word_tokenizer, records, log, batch_size=3)
    real = [int((batch["input_ids"] != word_tokenizer.pad_token_id).sum()) for batch in seen]
    assert log.ledger.trained_tokens == log.ledger.total_tokens == sum(real)
    assert log.ledger.optimizer_steps == len(seen)
    assert sum(real[:-1]) < 600 <= sum(real)


def test_a_dataset_smaller_than_a_batch_still_trains(
    word_tokenizer, demonstrations, make_model, make_log, chat
):
    log = make_log(budget=100)
    records = [written_tokens(t, chat) for t in demonstrations[:2]]
    train(make_model(word_tokenizer), word_tokenizer, records, log, batch_size=32)
    assert log.ledger.optimizer_steps > 1


def test_p8_every_turn_of_a_demonstration_carries_loss(demonstrations, chat):
    longest = max(demonstrations, key=lambda t: len(t.turns))
    record = written_tokens(longest, chat)
    starts = np.flatnonzero(np.diff(np.concatenate([[0], record.mask])) == 1)
    assert len(starts) == len(longest.turns) == 4


def test_expert_records_with_other_text_are_written_anew(demonstrations, chat):
    turns = demonstrations[3].turns
    changed = dataclasses.replace(
        demonstrations[3], turns=(*turns[:-1], dataclasses.replace(turns[-1], action="w5"))
    )
    before, after = (written_tokens(t, chat).token_ids for t in (demonstrations[3], changed))
    assert (before != after).sum() == 1


def test_p35_a_batch_in_pieces_gives_the_update_of_the_whole(
    word_tokenizer, demonstrations, make_model, make_log, chat, monkeypatch
):
    records = [written_tokens(t, chat) for t in demonstrations]
    assert len({int(r.mask.sum()) for r in records}) > 2  # a mean of means would differ
    like_length, trained = loop._like_length, []
    for pieces in (1, 2, 4):
        monkeypatch.setattr(loop, "_like_length", partial(like_length, pieces=pieces))
        model = make_model(word_tokenizer)
        train(model, word_tokenizer, records, make_log(budget=1, max_grad_norm=1e9))
        trained.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert all((other - trained[0]).abs().max() < 1e-6 for other in trained[1:])
