"""Scoring calls of TRL's trainers: the fast pass gives the same numbers and the same gradient."""

import copy

import pytest
import torch
from tests.rollouts.test_decoders import OTHERS, SHAPES, build
from torch.utils.flop_counter import FlopCounterMode
from trl.trainer.utils import add_fused_lm_head

from agent_rl.training.fast_forward import IGNORE, add_fast_forward

FIELDS = ("log_probs", "entropy", "mean_logits", "is_top1")


def batch(padding, wanted, rows=5, length=14, seed=0):
    """Token ids, attention and labels of rows of unequal length."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 23, (rows, length), generator=generator)
    attention = torch.ones_like(ids)
    for row in range(1, rows):
        if padding in ("left", "both"):
            attention[row, :row] = 0
        if padding in ("right", "both"):
            attention[row, length - row :] = 0
    chosen = torch.rand(ids.shape, generator=generator) < wanted
    first = attention.cumsum(dim=1) == 1  # nothing stands before it
    labels = ids.masked_fill(~chosen | (attention == 0) | first, IGNORE)
    return ids, attention, labels


def patched(model, temperature, *, fast):
    model = copy.deepcopy(model).train()
    add_fused_lm_head(model, temperature=temperature, outputs=FIELDS)
    if fast:
        add_fast_forward(model, temperature)
    return model


def call(model, ids, attention, labels):
    return model(
        input_ids=ids, attention_mask=attention, labels=labels, use_cache=False, fused_lm_head=True
    )


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("padding", ["none", "left", "right", "both"])
@pytest.mark.parametrize(("temperature", "wanted"), [(1.0, 0.3), (0.7, 1.0), (1.5, 0.05)])
def test_p14_p35_scores_and_gradient_equal_trl_s_own(shape, padding, temperature, wanted):
    model = build(*shape)
    data = batch(padding, wanted)
    slow, fast = (patched(model, temperature, fast=f) for f in (False, True))
    expected, found = call(slow, *data), call(fast, *data)
    for name in FIELDS:
        apart = (found[name].float() - expected[name].float()).abs().max()
        assert apart < (2e-5 if name != "is_top1" else 1e-9), name
        assert found[name].shape == expected[name].shape
    assert (found.label_mask == expected.label_mask).all()
    assert abs(float((found.loss - expected.loss).detach())) < 2e-5
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(found.log_probs.shape, generator=generator)
    left = gradients(slow, (expected.log_probs * weights).sum())
    right = gradients(fast, (found.log_probs * weights).sum())
    for name, value in left.items():
        assert (right[name] - value).abs().max() < 1e-4 * max(1.0, float(value.abs().max())), name


def test_p35_a_batch_that_scores_nothing_has_a_gradient_of_exactly_0():
    fast = patched(build(), 1.0, fast=True)
    ids, attention, labels = batch("both", 0.5)
    found = call(fast, ids, attention, labels.fill_(IGNORE))
    assert not found.log_probs.any() and float(found.loss.detach()) == 0
    assert not any(g.any() for g in gradients(fast, found.log_probs.sum()).values())


def test_calls_that_do_not_score_stay_as_they_were():
    model = build()
    fast = patched(model, 0.7, fast=True)
    ids, attention, labels = batch("right", 1.0)
    expected = model(input_ids=ids, attention_mask=attention, labels=labels)
    found = fast(input_ids=ids, attention_mask=attention, labels=labels)
    assert torch.equal(found.logits, expected.logits) and torch.equal(found.loss, expected.loss)
    written = fast.eval().generate(ids[:1], max_new_tokens=3, do_sample=False)
    assert torch.equal(written, model.generate(ids[:1], max_new_tokens=3, do_sample=False))
    assert fast.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("case", ["adapters", "half precision", "dropout", "another architecture"])
def test_other_models_are_left_alone(case):
    model = OTHERS[case]()
    before = model.forward
    add_fast_forward(model)
    assert model.forward == before


def flops(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_the_last_layer_and_the_head_are_computed_for_scored_tokens_alone():
    """A budget in operations, not in seconds: one action token in twenty, a third padding."""
    model = build(layers=2)
    ids, attention, labels = batch("none", 0.05, rows=24, length=40)
    attention[::2, 14:] = 0
    labels[attention == 0] = IGNORE
    slow, fast = (patched(model, 1.0, fast=f) for f in (False, True))
    costs = [
        flops(lambda m=m: call(m, ids, attention, labels).log_probs.sum().backward())
        for m in (slow, fast)
    ]
    assert costs[1] < 0.5 * costs[0]
