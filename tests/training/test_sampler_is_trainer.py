"""On the first update the trainer's log-probabilities are those that the sampler stored.

Token by token, through the whole path: the engine's lock-step cache on one side, the padded batches
of the trainer on the other. ``test_grpo.py`` holds whole runs to the same limit and shows that a
wrong temperature, a shift or stale weights stop them.
"""

import numpy as np
import pytest
import torch

from agent_rl.rewards import scoring

LIMIT = 1e-4
UNEQUAL = (3, 0, 6, 1)
"""Instances of the stub: episodes of 1 to 4 turns whose first texts differ in length."""


@pytest.fixture
def everyone_lives(monkeypatch):
    """Rewards that leave no group dead: the stub's own outcome is the same for all members."""

    def scores(config, facts):
        rng = np.random.default_rng(0)
        return np.where(facts.alive, rng.normal(size=facts.alive.shape), 0.0)

    monkeypatch.setattr(scoring, "rewards", scores)


@pytest.fixture
def first_update(
    make_model, word_tokenizer, grpo_arm, make_log, make_trainer, everyone_lives, sample
):
    """Plays with a model, then gives (stored, trainer's) log-probabilities per micro-batch."""

    def run(played_at, trained_at, micro_batches=1):
        model, log = make_model(word_tokenizer), make_log()
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        played = sample(model, UNEQUAL, temperature=played_at)
        arm = grpo_arm(temperature=trained_at, micro_batches=micro_batches)
        trainer = make_trainer(model, arm, played, log)
        pairs = []
        for batch in trainer._collect([0] * 16):
            trainer._compute_loss(trainer.model, batch)
            mask = batch["tool_mask"].bool()
            pairs.append((batch["old_per_token_logps"][mask], trainer._last_logprobs[mask], batch))
        return played, pairs

    return run


def farthest(pairs):
    return max(float((stored - found).abs().max()) for stored, found, _ in pairs)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_p40_stored_logprobs_are_the_trainer_s_at_every_token(
    first_update, temperature, micro_batches
):
    played, pairs = first_update(temperature, temperature, micro_batches)
    assert len({len(trajectory.turns) for trajectory in played}) == 4
    lengths = [len(set(batch["completion_mask"].sum(dim=1).tolist())) for _, _, batch in pairs]
    assert max(lengths) > (6 if micro_batches == 1 else 1)  # unequal episodes share a batch
    if micro_batches == 1:
        (_, _, whole), *_ = pairs
        assert not whole["prompt_mask"].all() and not whole["completion_mask"].all()
    # Every stored log-probability is compared, each once, and none is trivially 0.
    stored = np.sort(np.concatenate([old.numpy() for old, _, _ in pairs]))
    known = np.concatenate([t.logprobs[t.mask == 1] for t in played])
    assert np.array_equal(stored, np.sort(known)) and (known < -1e-3).mean() > 0.9
    assert farthest(pairs) < LIMIT


@pytest.mark.parametrize(("played_at", "trained_at"), [(1.5, 1.0), (1.0, 1.5), (0.7, 1.5)])
def test_p40_at_another_temperature_they_are_far_apart(first_update, played_at, trained_at):
    assert farthest(first_update(played_at, trained_at)[1]) > 100 * LIMIT
