"""The learned policy: what is stored is what was sampled, under the distribution it came from."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import Episode, RolloutEngine
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.models import (
    add_adapters,
    load_model,
    load_policy,
    load_tokenizer,
    weights_fingerprint,
)
from agent_rl.tasks.registry import make_env
from agent_rl.training.grpo import training_batch
from agent_rl.trajectory import EndReason

UNEQUAL = (3, 0, 6, 1, 2, 9, 3, 12)
"""Instances of the stub: episodes of 1 to 4 turns with observations of 1 to 7 words."""


@pytest.fixture(params=["llama", "transformers"])
def play(stub, episodes_for, request, monkeypatch):
    """Plays the stub with a model, through either decoder; returns the trajectories."""
    if request.param == "transformers":
        monkeypatch.setattr("agent_rl.rollouts.decoders.fits", lambda model: False)

    def run(model, chat, ids=UNEQUAL, *, members=1, stream=0, batch_size=128, env=None, **policy):
        settings = {"temperature": 1.0, "max_action_tokens": 5, "max_tokens": 512, **policy}
        engine = RolloutEngine("stub", lambda: stub(**(env or {})), batch_size=batch_size)
        actor = ModelPolicy("policy", model, chat, **settings)
        return engine.play(actor, episodes_for(ids, members, stream))

    return run


@pytest.fixture(scope="module")
def model(make_model, word_tokenizer):
    return make_model(word_tokenizer)


@pytest.fixture(scope="module")
def chat(word_tokenizer):
    return Chat(word_tokenizer)


def ids_of(trajectories):
    return [t.token_ids.tolist() for t in trajectories]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5, 0.0])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_p14_p40_lock_step_logprobs_equal_an_unpadded_forward_of_each_episode(
    play, make_model, word_tokenizer, chat, unpadded_logprobs, temperature, attention
):
    model = make_model(word_tokenizer)
    model.set_attn_implementation(attention)
    played = play(model, chat, members=2, temperature=temperature)
    lengths = {len(t.token_ids) for t in played}
    assert len(lengths) > 6  # rows of unequal length, some finished early
    assert len({len(t.turns) for t in played}) == 4
    for trajectory in played:
        _, expected = unpadded_logprobs(model, trajectory, temperature or 1.0)
        stored = trajectory.logprobs[trajectory.mask == 1]
        assert np.abs(stored - expected).max() < 1e-5
        assert not trajectory.logprobs[trajectory.mask == 0].any()


def test_p40_the_temperature_is_in_the_stored_logprobs(play, model, chat, unpadded_logprobs):
    trajectory = play(model, chat, temperature=0.7)[2]
    _, at_one = unpadded_logprobs(model, trajectory, 1.0)
    assert np.abs(trajectory.logprobs[trajectory.mask == 1] - at_one).max() > 0.01


def test_p14_logprobs_on_a_real_task_equal_an_unpadded_forward(artifacts, study, unpadded_logprobs):
    from agent_rl.rollouts.storage import load_trajectories

    model, _, _ = load_policy(artifacts.base, "test")
    for trajectory in load_trajectories(artifacts.collected, "test")[::5]:
        _, expected = unpadded_logprobs(model, trajectory)
        assert np.abs(trajectory.logprobs[trajectory.mask == 1] - expected).max() < 1e-5


def test_greedy_takes_the_most_likely_token_everywhere(play, model, chat, unpadded_logprobs):
    for trajectory in play(model, chat, temperature=0.0):
        logits, _ = unpadded_logprobs(model, trajectory)
        assert trajectory.token_ids[trajectory.mask == 1].tolist() == logits.argmax(1).tolist()


def test_samples_follow_the_model_s_distribution(play, model, chat, unpadded_logprobs):
    played = play(model, chat, [0], members=3000, max_action_tokens=1, batch_size=3000)
    logits, _ = unpadded_logprobs(model, played[0])
    expected = torch.softmax(torch.tensor(logits[0]), 0).numpy()
    first = np.array([t.turns[0].token_ids[0] for t in played])
    found = np.bincount(first, minlength=len(expected)) / len(first)
    assert np.abs(found - expected).max() < 0.03


@pytest.mark.parametrize("batch_size", [1, 3])
def test_p56_what_a_slot_samples_does_not_depend_on_its_neighbours(play, model, chat, batch_size):
    together = play(model, chat, batch_size=8)
    assert ids_of(play(model, chat, batch_size=batch_size)) == ids_of(together)


def test_p56_equal_seeds_sample_equal_tokens_and_other_seeds_do_not(play, model, chat):
    torch.manual_seed(1)
    first = play(model, chat)
    torch.manual_seed(2)  # the global generator has no say
    again = play(model, chat)
    assert ids_of(first) == ids_of(again)
    assert all((a.logprobs == b.logprobs).all() for a, b in zip(first, again, strict=True))
    assert ids_of(play(model, chat, stream=1)) != ids_of(first)


def test_p56_members_of_a_group_sample_from_streams_of_their_own(play, model, chat):
    played = play(model, chat, [3], members=8)
    assert len({tuple(t.token_ids) for t in played}) > 4


def test_p52_sampling_leaves_the_global_generators_alone(play, model, chat):
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    play(model, chat)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == legacy).all()  # noqa: NPY002


def with_dropout(model):
    config = copy.deepcopy(model.config)
    config.attention_dropout = 0.5
    twin = LlamaForCausalLM(config)
    twin.load_state_dict(model.state_dict())
    return twin


def test_p41_dropout_is_off_while_sampling_and_the_mode_comes_back(
    play, model, chat, unpadded_logprobs
):
    noisy = with_dropout(model).train()
    played = play(noisy, chat)
    assert noisy.training
    assert ids_of(played) == ids_of(play(model, chat))
    for trajectory in played:
        _, expected = unpadded_logprobs(model, trajectory)
        assert np.abs(trajectory.logprobs[trajectory.mask == 1] - expected).max() < 1e-5


def test_p41_a_loaded_model_has_no_dropout_left(model, tmp_path):
    with_dropout(model).save_pretrained(tmp_path)
    loaded = load_model(tmp_path).train()
    ids = torch.arange(4, 12)[None]
    assert torch.equal(loaded(ids).logits, loaded(ids).logits)


@pytest.mark.parametrize("adapters", [False, True])
def test_p42_after_a_weight_change_the_next_rollout_is_the_new_policy_s(
    stub, episodes_for, make_model, word_tokenizer, chat, unpadded_logprobs, study, adapters
):
    model = make_model(word_tokenizer, seed=3)
    if adapters:
        model = add_adapters(model, study.model, 0)
    policy = ModelPolicy(
        "policy", model, chat, temperature=1.0, max_action_tokens=5, max_tokens=512
    )
    engine = RolloutEngine("stub", stub)
    engine.play(policy, episodes_for(UNEQUAL))
    before = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    for trajectory in engine.play(policy, episodes_for(UNEQUAL)):
        stored = trajectory.logprobs[trajectory.mask == 1]
        assert np.abs(stored - unpadded_logprobs(model, trajectory)[1]).max() < 1e-5
        assert np.abs(stored - unpadded_logprobs(before, trajectory)[1]).max() > 1e-2


def test_p16_an_action_that_did_not_close_is_closed_with_mask_0(play, model, chat):
    played = play(model, chat, members=12, max_action_tokens=2)
    cut = closed = 0
    for trajectory in played:
        for turn, (_, stop) in zip(trajectory.turns, trajectory.turn_spans, strict=True):
            assert len(turn.token_ids) <= 2
            ends_itself = turn.token_ids[-1] == chat.end_id
            assert chat.end_id not in turn.token_ids[:-1]
            if turn is trajectory.turns[-1]:
                continue
            following = (trajectory.token_ids[stop], trajectory.mask[stop])
            if ends_itself:
                closed += 1
                assert trajectory.token_ids[stop - 1] == chat.end_id
                assert following[0] != chat.end_id
            else:
                cut += 1
                assert following == (chat.end_id, 0)
    assert cut > 10 and closed > 3


def test_p17_the_token_budget_ends_an_episode_before_a_turn_that_might_not_fit(play, model, chat):
    played = play(model, chat, env={"endless": True, "horizon": 50}, max_tokens=60)
    for trajectory in played:
        assert trajectory.end is EndReason.TOKEN_LIMIT and not trajectory.success
        assert 1 <= len(trajectory.turns) < 50
        assert len(trajectory.token_ids) <= 60
        assert trajectory.mask[-1] == 1  # nothing was read for a turn that never came


def test_a_first_observation_beyond_the_budget_ends_the_episode_without_a_turn(play, model, chat):
    for trajectory in play(model, chat, max_tokens=5):
        assert trajectory.end is EndReason.TOKEN_LIMIT
        assert trajectory.turns == () and len(trajectory.token_ids) == 0


def test_the_policy_counts_the_tokens_that_its_records_hold(stub, episodes_for, model, chat):
    policy = ModelPolicy(
        "policy", model, chat, temperature=1.0, max_action_tokens=2, max_tokens=512
    )
    played = RolloutEngine("stub", stub, batch_size=3).play(policy, episodes_for(UNEQUAL))
    sampled = sum(int(t.mask.sum()) for t in played)
    assert (
        policy.sampled_tokens == sampled == sum(len(u.token_ids) for t in played for u in t.turns)
    )
    assert policy.context_tokens == sum(len(t.token_ids) for t in played) - sampled


def test_p1_sampled_ids_are_stored_and_trained_on_untouched(play, make_model, bpe, monkeypatch):
    chat, encoded = Chat(bpe), []
    encode = chat._encode
    monkeypatch.setattr(chat, "_encode", lambda text: encoded.append(text) or encode(text))
    # Nearly uniform sampling over bytes and merges: most strings split otherwise than BPE would.
    played = play(
        make_model(bpe, std=0.02), chat, range(100), members=3, env={"endless": True},
        max_action_tokens=6, max_tokens=400,
    )  # fmt: skip
    turns = [
        (t, turn, span) for t in played for turn, span in zip(t.turns, t.turn_spans, strict=True)
    ]
    assert len(turns) >= 1000
    otherwise = 0
    for trajectory, turn, (start, stop) in turns:
        assert tuple(trajectory.token_ids[start:stop]) == turn.token_ids
        assert trajectory.mask[start:stop].all()
        assert chat.read(turn.token_ids) == turn.action
        body = [i for i in turn.token_ids if i != chat.end_id]
        otherwise += bpe.encode(bpe.decode(body), add_special_tokens=False) != body
    assert otherwise > 500
    # Only what the environment wrote was ever encoded.
    told = {o for t in played for u in t.turns for o in (u.observation, t.final_observation)}
    frame = ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
    assert {
        text.strip("\n").removeprefix(frame[0]).split("<|im_end|>")[0] for text in encoded
    } <= told
    batch = training_batch(played[:60], np.zeros((60, 6)), bpe.pad_token_id)
    rows = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    real = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1).bool()
    for row, keep, trajectory in zip(rows, real, played[:60], strict=True):
        assert row[keep].int().numpy().tobytes() == trajectory.token_ids.tobytes()


def test_p1_a_split_that_reads_like_one_word_stays_split(bpe):
    chat = Chat(bpe)
    whole = bpe.encode("having", add_special_tokens=False)
    split = [i for letter in "having" for i in bpe.encode(letter, add_special_tokens=False)]
    assert split != whole and chat.read(tuple(split)) == chat.read(tuple(whole)) == "having"


def test_instructions_are_read_before_the_first_observation(study):
    from agent_rl.rollouts.models import build_tokenizer
    from agent_rl.training.arms import make_chat

    task = study.task("babyai")
    env = make_env(task.family, task.settings, task.horizon)
    tokenizer = build_tokenizer([*env.task.vocabulary, *env.task.instructions.split()])
    told = make_chat(tokenizer, task, dataclasses.replace(study.model, instructions=True))
    silent = make_chat(tokenizer, task, study.model)
    prefix = tuple(tokenizer.encode(env.task.instructions, add_special_tokens=False))
    assert told.opening("forward") == (*prefix, *silent.opening("forward"))
    assert told.observe("forward") == silent.observe("forward")


def test_a_tokenizer_without_padding_pads_with_its_end_token(bpe, tmp_path):
    bpe_without = copy.deepcopy(bpe)
    bpe_without.pad_token = None
    bpe_without.save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).pad_token_id == bpe.eos_token_id


def test_an_episode_needs_its_own_stream_not_its_place_in_the_list(stub, model, chat, episodes_for):
    policy = ModelPolicy(
        "policy", model, chat, temperature=1.0, max_action_tokens=5, max_tokens=512
    )
    engine = RolloutEngine("stub", stub)
    episodes: list[Episode] = episodes_for(UNEQUAL)
    backwards = engine.play(policy, episodes[::-1])[::-1]
    assert ids_of(backwards) == ids_of(engine.play(policy, episodes))


def test_p42_every_turn_carries_the_weights_that_sampled_it(
    stub, episodes_for, make_model, word_tokenizer
):
    """A training step in the middle of the episodes is seen from the next turn on."""
    model = make_model(word_tokenizer)
    before = weights_fingerprint(model)
    policy = ModelPolicy(
        "m",
        model,
        Chat(word_tokenizer),
        temperature=1.0,
        max_action_tokens=4,
        max_tokens=400,
        weights=before,
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    act, calls = policy.act, []

    def act_and_train(*args):
        if len(calls) == 1:
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            optimiser.step()
        calls.append(None)
        return act(*args)

    policy.act = act_and_train
    played = RolloutEngine("stub", stub).play(policy, episodes_for((3, 6), 4, 0))
    after = weights_fingerprint(model)
    assert after != before
    long = [t for t in played if len(t.turns) > 1]
    assert long
    for trajectory in long:
        expected = [before] + [after] * (len(trajectory.turns) - 1)
        assert [turn.weights for turn in trajectory.turns] == expected


def test_p4_exactly_what_the_agent_said_has_mask_1(play, model, chat, said):
    for trajectory in play(model, chat, members=4, max_action_tokens=3):
        assert np.flatnonzero(trajectory.mask).tolist() == said(trajectory, chat).tolist()
        spoken = trajectory.token_ids[said(trajectory, chat)].tolist()
        assert spoken == [i for turn in trajectory.turns for i in turn.token_ids]


class Babbler:
    """A policy's task that answers with text of any kind, the empty one included."""

    pieces = ("", "", "w1", " ", "\n", "é", "<|im_end|>", "<|im_start|>user", "{{ x }}", "\t", "'")

    @classmethod
    def text(cls, seed, turn):
        rng = np.random.default_rng([seed, turn])
        return "".join(rng.choice(cls.pieces, size=rng.integers(0, 5)))


@pytest.mark.parametrize("kind", ["word_tokenizer", "bpe"])
def test_p7_ids_mask_and_logprobs_stay_of_one_length_whatever_the_environment_says(
    play, make_model, monkeypatch, request, stub, kind
):
    kind_of_task = type(stub().task)
    monkeypatch.setattr(kind_of_task, "_text", lambda task: Babbler.text(task.seed, task.turn))
    tokenizer = request.getfixturevalue(kind)
    chat = Chat(tokenizer)
    model = make_model(tokenizer, std=0.02)
    played = play(model, chat, range(60), env={"endless": True, "horizon": 4}, max_tokens=480)
    texts = {turn.observation for t in played for turn in t.turns}
    assert "" in texts and len(texts) > 60
    for trajectory in played:
        assert len(trajectory.turns) == 4
        assert len(trajectory.token_ids) == len(trajectory.mask) == len(trajectory.logprobs)
        for turn in trajectory.turns:
            assert len(turn.token_ids) == len(turn.logprobs) >= 1
        trajectory.validate()


def test_p41_fresh_adapters_have_no_dropout_and_repeat_in_training_mode(
    make_model, word_tokenizer, study
):
    model = add_adapters(make_model(word_tokenizer), study.model, 0).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3)
    ids = torch.arange(4, 12)[None]
    assert torch.equal(model(ids).logits, model(ids).logits)


LEAVING = ((3, 0, 6, 1), (0, 1, 2, 3), (3, 2, 1, 0), (0, 3, 0, 3, 1, 3))
"""Orders in which episodes leave the batch: from its middle, its front, its end."""


@pytest.mark.parametrize("ids", LEAVING)
def test_p61_a_row_that_leaves_the_batch_takes_its_cache_along(
    play, model, chat, unpadded_logprobs, ids
):
    played = play(model, chat, ids)
    assert len({len(t.turns) for t in played}) > 1
    for trajectory in played:
        _, expected = unpadded_logprobs(model, trajectory)
        assert np.abs(trajectory.logprobs[trajectory.mask == 1] - expected).max() < 1e-5


def test_p61_a_batch_begins_without_the_cache_of_the_batch_before(
    play, model, chat, unpadded_logprobs
):
    # Batches of two: the second pair meets a policy that has just read the first.
    for trajectory in play(model, chat, (3, 7, 2, 6), batch_size=2):
        _, expected = unpadded_logprobs(model, trajectory)
        assert np.abs(trajectory.logprobs[trajectory.mask == 1] - expected).max() < 1e-5


def test_p65_equally_likely_tokens_are_told_apart_the_same_way_in_every_batch(
    play, make_model, word_tokenizer, chat
):
    undecided = make_model(word_tokenizer, std=0.0)  # all logits are equal: nothing but ties
    settings = {"temperature": 0.0, "max_action_tokens": 3}
    alone = ids_of(play(undecided, chat, batch_size=1, **settings))
    for batch_size in (2, 3, 8):
        torch.manual_seed(batch_size)
        assert ids_of(play(undecided, chat, batch_size=batch_size, **settings)) == alone
    assert len({turn.token_ids for t in play(undecided, chat, **settings) for turn in t.turns}) == 1


def test_p65_greedy_answers_do_not_depend_on_the_batch(play, model, chat):
    alone = ids_of(play(model, chat, batch_size=1, temperature=0.0))
    for batch_size in (2, 8):
        assert ids_of(play(model, chat, batch_size=batch_size, temperature=0.0)) == alone
