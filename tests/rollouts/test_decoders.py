"""Reading on row by row: what a decoder answers is what the model says to each row's whole text."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from agent_rl.rollouts.decoders import CacheDecoder, LlamaDecoder, make_decoder
from agent_rl.rollouts.llama import fits

SIZES = {
    "vocab_size": 23,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
SHAPES = [(1, 4), (2, 4), (3, 2), (2, 1)]
"""Layers, heads of keys."""


def build(layers=2, key_heads=4, kind=LlamaForCausalLM, config=LlamaConfig, **other):
    shape = {"num_hidden_layers": layers, "num_key_value_heads": key_heads, **SIZES, **other}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config(**shape))
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, 0, 0.3)
            else:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model.eval()


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def model(request):
    return build(*request.param)


@torch.no_grad()
def alone(model, texts):
    """(rows, V) logits after each text, read by itself with transformers."""
    rows = [model(input_ids=torch.tensor([text])).logits[0, -1] for text in texts]
    return torch.stack(rows)


def decoders(model, rows):
    return [LlamaDecoder(model, rows), CacheDecoder(model)]


def check(model, decoder, texts, added):
    """Append to every text and compare the answers where something was appended."""
    for text, ids in zip(texts, added, strict=True):
        text.extend(ids)
    with torch.inference_mode():
        found = decoder.read(added)
    read = [row for row, ids in enumerate(added) if ids]
    expected = alone(model, [texts[row] for row in read])
    assert (found[read] - expected).abs().max() < 2e-5


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_p14_p61_every_row_is_answered_as_if_it_were_read_alone(model, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    rows = int(rng.integers(1, 9))
    longest = int(rng.choice([1, 3, 30]))
    both = [(decoder, [[] for _ in range(rows)]) for decoder in decoders(model, rows)]
    for step in range(int(rng.integers(1, 7))):
        # At first every row must have a token: a row without text has no answer.
        counts = rng.integers(0 if step else 1, longest + 1, rows)
        counts[rng.integers(rows)] = longest
        added = [rng.integers(0, 23, count).tolist() for count in counts]
        kept = np.flatnonzero(rng.random(rows) < 0.7)
        for number, (decoder, texts) in enumerate(both):
            check(model, decoder, texts, added)
            if len(kept):
                decoder.keep(kept.tolist())
                both[number] = decoder, [texts[row] for row in kept]
        rows = len(kept) or rows


def test_long_texts_outgrow_the_buffers_they_began_with(model):
    for decoder in decoders(model, 2):
        texts = [[], []]
        for width in (60, 3, 1, 1, 1, 100, 200):
            check(
                model, decoder, texts, [list(range(20)) * (width // 20) + [1] * (width % 20), [2]]
            )


def test_p61_rows_that_remain_keep_their_text_when_most_have_left(model):
    for decoder in decoders(model, 20):
        texts = [[] for _ in range(20)]
        check(model, decoder, texts, [[row, *range(row % 5)] for row in range(20)])
        for kept in ([*range(0, 20, 3)], [1, 4, 5], [2]):  # 7 rows, then 3, then 1
            decoder.keep(kept)
            texts = [texts[row] for row in kept]
            check(model, decoder, texts, [[7] for _ in kept])


def test_p41_weights_that_change_in_mid_text_count_at_once(model):
    changed = copy.deepcopy(model)
    for decoder in decoders(changed, 1):
        changed.load_state_dict(model.state_dict())
        with torch.inference_mode():
            decoder.read([[3, 4]])
        with torch.no_grad():
            changed.lm_head.weight.mul_(2)
        with torch.inference_mode():
            found = decoder.read([[5]])
        assert (found - 2 * alone(model, [[3, 4, 5]])).abs().max() < 4e-5


def test_dropout_never_acts_and_the_mode_stays():
    model = build(attention_dropout=0.5).train()
    decoder = make_decoder(model, 1)
    assert isinstance(decoder, CacheDecoder)
    with torch.inference_mode():
        found = decoder.read([[1, 2, 3]])
    assert model.training
    assert (found - alone(model.eval(), [[1, 2, 3]])).abs().max() < 2e-5


def with_adapters():
    from peft import LoraConfig, get_peft_model

    return get_peft_model(build(), LoraConfig(r=2, target_modules=["q_proj"]))


def with_hook():
    model = build()
    model.model.layers[0].register_forward_hook(lambda module, inputs, output: output)
    return model


class Own(LlamaForCausalLM):
    pass


OTHERS = {
    "biases of attention": lambda: build(attention_bias=True),
    "biases of the MLP": lambda: build(mlp_bias=True),
    "another activation": lambda: build(hidden_act="gelu"),
    "stretched positions": lambda: build(
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    ),
    "dropout": lambda: build(attention_dropout=0.1),
    "half precision": lambda: build().to(torch.bfloat16),
    "double precision": lambda: build().double(),
    "adapters": with_adapters,
    "a hook": with_hook,
    "a class of its own": lambda: build(kind=Own),
    "another architecture": lambda: build(kind=Qwen2ForCausalLM, config=Qwen2Config),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_the_fast_pass_does_not_compute_goes_through_transformers(case):
    model = OTHERS[case]()
    assert not fits(model)
    assert isinstance(make_decoder(model, 1), CacheDecoder)


def test_other_rotary_bases_and_norms_are_the_model_s_own():
    model = build(
        rope_parameters={"rope_type": "default", "rope_theta": 50.0}, rms_norm_eps=0.1, head_dim=6
    )
    assert fits(model)
    for decoder in decoders(model, 1):
        check(model, decoder, [[]], [[3, 1, 4, 1, 5]])


def test_attention_computed_eagerly_is_the_same(model):
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    assert fits(eager)
    check(eager, LlamaDecoder(eager, 1), [[]], [[3, 1, 4]])
