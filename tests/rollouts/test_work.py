"""Budgets of work, counted in operations: they hold on every machine, at every load."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import Episode, RolloutEngine
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.models import build_model, build_tokenizer
from agent_rl.tasks.babyai import BabyAITask
from agent_rl.tasks.registry import make_env

EPISODES = 16


def attention(query, key, value, *_, out_shape=None, **__):
    """Operations of attention, which torch does not count on a CPU: two products, two each."""
    rows, heads, width, size = query
    return 4 * rows * heads * width * key[2] * size


def counter():
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return FlopCounterMode(display=False, custom_mapping={kernel: attention})


@pytest.fixture(scope="module")
def policy(study):
    tokenizer = build_tokenizer(BabyAITask.vocabulary)
    shape = dataclasses.replace(study.model, hidden_size=64, layers=2, heads=4)
    model = build_model(shape, tokenizer, 2048, 0).requires_grad_(False)  # for the counter
    chat = Chat(tokenizer)

    def build():
        return ModelPolicy("p", model, chat, temperature=1.0, max_action_tokens=2, max_tokens=2048)

    return build


def play(policy, turns):
    """Episodes of about as many turns as the horizon allows: a model that was not trained seldom
    wins. Returns the trajectories and the floating-point operations."""
    engine = RolloutEngine("babyai", lambda: make_env("babyai", {"level": "GoToLocal"}, turns))
    env = make_env("babyai", {"level": "GoToLocal"}, turns)
    episodes = []
    for seed in range(10**6, 10**6 + EPISODES):
        env.reset(seed=seed)
        stream = np.random.SeedSequence(seed)
        episodes.append(Episode(seed, env.task.instance_hash(), seed, 0, stream))
    with counter() as counted:
        played = engine.play(policy, episodes)
    return played, counted.get_total_flops()


def test_the_work_of_an_episode_grows_with_its_turns_and_not_with_their_square(policy):
    work = {}
    for turns in (8, 16, 32, 64):
        played, operations = play(policy(), turns)
        work[turns] = operations / sum(len(t.turns) for t in played)
    exponent = 1 + math.log(work[64] / work[8]) / math.log(8)
    # Attention over a longer past is the part that grows; without a cache it would be near 2.
    assert exponent < 1.6, (exponent, work)


def test_every_token_is_computed_once_and_padding_costs_little(policy, monkeypatch):
    """Operations of the projections, by hand: per token 4 d^2 + 3 d m multiplications a layer, in
    the last layer keys and values (2 d^2) for all and the rest for one token per answer."""
    played, operations = play(policy(), 12)
    model = policy().model
    d, m, vocabulary = 64, model.config.intermediate_size, model.config.vocab_size
    tokens = sum(len(t.token_ids) - 1 for t in played)  # the very last one is never read
    answers = sum(int(t.mask.sum()) for t in played)
    multiplications = tokens * (4 * d**2 + 3 * d * m + 2 * d**2)
    multiplications += answers * (2 * d**2 + 3 * d * m + d * vocabulary)
    # What is left is attention, padded to rectangles.
    assert 1.0 < operations / (2 * multiplications) < 1.9, operations / (2 * multiplications)


def test_reading_the_history_again_at_every_turn_costs_several_times_as_much(policy):
    """What an engine without a cache across turns would compute for the same episodes."""
    played, operations = play(policy(), 12)
    model = policy().model
    again, read = 0, 0
    for trajectory in played[:3]:
        read += len(trajectory.token_ids)
        ids = torch.tensor(trajectory.token_ids.astype("int64"))[None]
        for start, stop in trajectory.turn_spans:
            with counter() as counted, torch.inference_mode():
                model(input_ids=ids[:, :start], logits_to_keep=1)
            again += counted.get_total_flops()
            assert stop > start
    share = operations * read / sum(len(t.token_ids) for t in played)
    assert again > 4 * share, again / share
