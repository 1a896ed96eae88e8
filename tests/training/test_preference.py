"""Single-turn DPO: pairs come from branch points, hold sampled ids and nothing else."""

import copy
import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

import agent_rl.training.loop as loop
import agent_rl.training.preference as preference
from agent_rl.training.preference import Pair, branch_pairs, branch_point, train_preference
from agent_rl.trajectory import EndReason, Trajectory, TrajectoryGroup, Turn, group_trajectories

END = 3


def episode(actions, won, *, observations=None, member=0, error=False):
    """Observation n is the one token 100 + n; an action is its tokens and the end."""
    observations = observations or [f"o{i}" for i in range(len(actions))]
    turns, ids, mask = [], [], []
    for observation, action in zip(observations, actions, strict=True):
        sampled = (*action, END)
        turns.append(Turn(observation, str(action), sampled, (-1.0,) * len(sampled), True, 1, 0))
        ids += [100 + int(observation[1:]), *sampled]
        mask += [0] + [1] * len(sampled)
    end = EndReason.ERROR if error else EndReason.SUCCESS if won else EndReason.TURN_LIMIT
    return Trajectory(
        task="t", instance_id=0, instance_hash="h", group_id=0, member=member, policy="p",
        weights="", seed=0, temperature=1.0, horizon=9, turns=tuple(turns), final_observation="",
        end=end, error="E: x" if error else "", token_ids=np.array(ids, np.int32),
        mask=np.array(mask, np.int8), logprobs=np.zeros(len(ids), np.float32),
    )  # fmt: skip


def pairs_of(*episodes, most=100, seed=0):
    return branch_pairs([TrajectoryGroup(tuple(episodes))], most, np.random.default_rng(seed))


A, B, C = (7,), (8, 8), (9,)


def test_a_pair_is_the_shared_history_and_the_two_actions_after_it():
    won, lost = episode([A, B, A], True), episode([A, C, A], False)
    assert pairs_of(won, lost) == [Pair((100, 7, END, 101), (8, 8, END), (9, END))]


def test_a_branch_at_the_first_turn_has_the_opening_as_history():
    assert pairs_of(episode([A], True), episode([C], False)) == [Pair((100,), (7, END), (9, END))]


def test_every_winner_meets_every_loser_and_equal_pairs_count_once():
    winners = [episode([A, B], True), episode([A, B, C], True)]
    losers = [episode([A, C], False), episode([B, C], False)]
    assert pairs_of(*winners, *losers) == [
        Pair((100, 7, END, 101), (8, 8, END), (9, END)),
        Pair((100,), (7, END), (8, 8, END)),
    ]


def test_where_both_directions_were_seen_the_majority_stands_and_a_tie_says_nothing():
    better, worse = [episode([A, B], True)] * 2, [episode([A, C], False)]
    reverse = [episode([A, C], True), episode([A, B], False)]
    decided = pairs_of(*better, *worse, *reverse[:1])  # B over C twice, C over nothing
    assert decided == [Pair((100, 7, END, 101), (8, 8, END), (9, END))]
    majority = pairs_of(*better, *worse * 2, *reverse)  # B over C four times, C over B once
    assert majority == decided
    assert pairs_of(better[0], worse[0], *reverse) == []


@pytest.mark.parametrize("won", [True, False])
def test_equal_outcomes_give_no_pair(won):
    assert pairs_of(episode([A], won), episode([B], won), episode([C], won)) == []


def test_histories_that_the_task_made_different_give_no_pair():
    won = episode([A, B], True, observations=["o0", "o1"])
    lost = episode([A, C], False, observations=["o0", "o2"])
    assert pairs_of(won, lost) == []
    assert branch_point(won, lost) is None


def test_an_episode_that_is_the_start_of_the_other_gives_no_pair():
    assert pairs_of(episode([A, B], True), episode([A], False)) == []


def test_p27_a_crash_is_not_a_rejected_answer():
    assert pairs_of(episode([A], True), episode([B], False, error=True)) == []


def test_p1_actions_that_read_alike_but_were_sampled_otherwise_are_a_branch():
    won, lost = episode([(5, 6), A], True), episode([(7, 8), B], False)
    lost = dataclasses.replace(
        lost, turns=(dataclasses.replace(lost.turns[0], action="(5, 6)"), *lost.turns[1:])
    )
    assert pairs_of(won, lost) == [Pair((100,), (5, 6, END), (7, 8, END))]


def test_a_group_gives_at_most_its_share_drawn_by_the_generator():
    winners = [episode([(10 + i,)], True) for i in range(4)]
    losers = [episode([(20 + i,)], False) for i in range(4)]
    everything = pairs_of(*winners, *losers)
    assert len(everything) == 16
    few = pairs_of(*winners, *losers, most=3)
    assert len(set(few)) == 3 and set(few) < set(everything)
    assert few == pairs_of(*winners, *losers, most=3)
    assert any(few != pairs_of(*winners, *losers, most=3, seed=s) for s in range(1, 4))


def test_p23_pairs_never_cross_groups():
    won, lost = episode([A], True), episode([B], False)
    groups = [TrajectoryGroup((won, won)), TrajectoryGroup((lost, lost))]
    assert branch_pairs(groups, 10, np.random.default_rng(0)) == []


def test_p1_histories_and_actions_of_real_rollouts_are_their_stored_ids(artifacts):
    from agent_rl.rollouts.storage import load_trajectories

    played = load_trajectories(artifacts.collected, "test")
    for group in group_trajectories(played):
        prefixes = {}
        for t in group.trajectories:
            for turn, (start, _) in zip(t.turns, t.turn_spans, strict=True):
                key = (tuple(t.token_ids[:start].tolist()), turn.token_ids)
                prefixes.setdefault(key, set()).add(t.success)
        pairs = branch_pairs([group], 1000, np.random.default_rng(0))
        for pair in pairs:
            assert True in prefixes[pair.history, pair.chosen]
            assert False in prefixes[pair.history, pair.rejected]
            assert pair.chosen != pair.rejected
        outcomes = {t.success for t in group.trajectories}
        assert bool(pairs) <= (outcomes == {True, False})


@pytest.fixture
def pairs(sample, make_model, word_tokenizer):
    """Pairs of unequal lengths from sampled episodes with outcomes written in."""
    played = [
        dataclasses.replace(t, end=EndReason.SUCCESS if t.member % 2 else EndReason.FAILURE)
        for t in sample(make_model(word_tokenizer))
    ]
    return branch_pairs(group_trajectories(played), 3, np.random.default_rng(0))


def train(model, tokenizer, pairs, study, log, **changes):
    arm = dataclasses.replace(study.arm("dpo"), **changes)
    train_preference(
        model, tokenizer, pairs, arm=arm, learning_rate=1e-2, config=log.config, log=log, seed=0
    )


def logprob(model, history, action):
    ids = torch.tensor([*history, *action])
    with torch.no_grad():
        table = torch.log_softmax(model(input_ids=ids[None]).logits[0], -1)
    places = torch.arange(len(history), len(ids))
    return float(table[places - 1, ids[places]].sum())


def test_p14_the_loss_is_the_formula_on_the_answer_s_tokens_only(
    pairs, make_model, word_tokenizer, study, make_log, monkeypatch
):
    seen = []
    original = preference.TokenDPOTrainer.compute_loss

    def spy(self, model, inputs, *args, **kwargs):
        before = make_model(word_tokenizer)
        before.load_state_dict(model.state_dict())
        batch = {name: value.clone() for name, value in inputs.items()}
        loss = original(self, model, inputs, *args, **kwargs)
        value = loss[0] if isinstance(loss, tuple) else loss
        seen.append((before, batch, float(value.detach())))
        return loss

    monkeypatch.setattr(preference.TokenDPOTrainer, "compute_loss", spy)
    reference = make_model(word_tokenizer)
    log = make_log(budget=4000, warmup_share=0.01)
    train(copy.deepcopy(reference), word_tokenizer, pairs, study, log, batch_size=len(pairs))
    assert len(seen) >= 2 and len({len(p.history) for p in pairs}) > 2
    assert seen[0][2] == pytest.approx(np.log(2), abs=1e-5)
    policy, batch, loss = seen[1]
    beta, terms = study.arm("dpo").beta, []
    for pair in pairs:
        margin = [
            logprob(policy, pair.history, action) - logprob(reference, pair.history, action)
            for action in (pair.chosen, pair.rejected)
        ]
        terms.append(np.log1p(np.exp(-beta * (margin[0] - margin[1]))))
    assert loss == pytest.approx(np.mean(terms), abs=1e-5)
    rows = [ids[keep == 1].tolist() for ids, keep in
            zip(batch["input_ids"], batch["attention_mask"], strict=True)]  # fmt: skip
    whole = [[*p.history, *action] for p in pairs for action in (p.chosen, p.rejected)]
    assert sorted(rows) == sorted(whole)
    real = sum(map(len, whole))
    # The reference reads every pair once, before training.
    assert log.ledger.context_tokens == real
    assert log.ledger.trained_tokens == real * len(seen)


def test_training_raises_the_chosen_answer_over_the_rejected(
    pairs, make_model, word_tokenizer, study, make_log
):
    model = make_model(word_tokenizer)

    def margins():
        return np.array(
            [logprob(model, p.history, p.chosen) - logprob(model, p.history, p.rejected)
             for p in pairs]
        )  # fmt: skip

    before = margins()
    train(model, word_tokenizer, pairs, study, make_log(budget=20000))
    assert (margins() > before).mean() > 0.8


def test_p35_a_batch_of_pairs_in_pieces_gives_the_update_of_the_whole(
    pairs, make_model, word_tokenizer, study, make_log, monkeypatch
):
    like_length, trained = loop._like_length, []
    assert len(pairs) % 5  # five pieces are of unequal size
    for pieces in (1, 4, 5):
        monkeypatch.setattr(loop, "_like_length", partial(like_length, pieces=pieces))
        model = make_model(word_tokenizer)
        log = make_log(budget=1, max_grad_norm=1e9)
        train(model, word_tokenizer, pairs, study, log, batch_size=len(pairs))
        trained.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert all((other - trained[0]).abs().max() < 1e-5 for other in trained[1:])
