"""A conversation grows by deltas that equal the chat template's own encoding, or it is refused."""

import numpy as np
import pytest

from agent_rl.errors import UserError
from agent_rl.rollouts.chat import Chat

OBSERVATIONS = ("w1 w2", "w3", "", "w4 w4 w4 w4", "w5")
ACTIONS = ("w7", "w8 w9", "w1", "w2")

QWEN_LIKE = (
    "{%- set last = namespace(index=-1) -%}"
    "{%- for m in messages -%}{%- if m['role'] == 'user' -%}"
    "{%- set last.index = loop.index0 -%}{%- endif -%}{%- endfor -%}"
    "{%- for m in messages -%}{%- set text = m['content'] -%}"
    "{%- if m['role'] == 'assistant' and loop.index0 < last.index -%}"
    "{%- set text = text.split('</think>')[-1].lstrip('\n') -%}{%- endif -%}"
    "{{- '<|im_start|>' + m['role'] + '\n' + text + '<|im_end|>\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
CLOSES_DIFFERENTLY = (
    "{%- for m in messages -%}{{- '<|im_start|>' + m['role'] + '\n' + m['content'] -}}"
    "{%- if loop.last -%}{{- '<|im_end|>' -}}{%- else -%}{{- '<|im_start|>\n' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
NEVER_CLOSES = (
    "{%- for m in messages -%}{{- m['role'] + ': ' + m['content'] + '\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- 'assistant: ' -}}{%- endif -%}"
)


def conversation(observations, actions, instructions=""):
    messages = [{"role": "system", "content": instructions}] if instructions else []
    for index, observation in enumerate(observations):
        messages.append({"role": "user", "content": observation})
        if index < len(actions):
            messages.append({"role": "assistant", "content": actions[index]})
    return messages


def encoded(tokenizer, messages, answer):
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer)
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture(params=["word_tokenizer", "bpe"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("instructions", ["", "w0 w0"])
def test_p2_every_turn_extends_the_tokens_of_the_turns_before(tokenizer, instructions):
    Chat(tokenizer, instructions)
    before = []
    for turns in range(1, len(ACTIONS) + 1):
        prompt = conversation(OBSERVATIONS[:turns], ACTIONS[: turns - 1], instructions)
        ids = encoded(tokenizer, prompt, True)
        assert ids[: len(before)] == before
        answered = conversation(OBSERVATIONS[:turns], ACTIONS, instructions)
        before = encoded(tokenizer, answered, False)
        assert before[: len(ids)] == ids


@pytest.mark.parametrize("instructions", ["", "w0 w0"])
def test_p2_deltas_add_up_to_the_template_s_encoding_of_the_whole(tokenizer, instructions):
    chat = Chat(tokenizer, instructions)
    ids = [*chat.opening(OBSERVATIONS[0])]
    for action, observation in zip(ACTIONS, OBSERVATIONS[1:], strict=True):
        ids += [*chat.answer(action), *chat.observe(observation)]
    assert ids == encoded(tokenizer, conversation(OBSERVATIONS, ACTIONS, instructions), True)


def test_an_answer_that_was_cut_is_closed_by_the_next_delta(tokenizer):
    chat = Chat(tokenizer)
    assert chat.observe("w1", closed=False) == (chat.end_id, *chat.observe("w1"))


def test_reading_drops_the_closing_token_and_nothing_else(tokenizer):
    chat = Chat(tokenizer)
    assert chat.read(chat.answer("w3 w4")) == "w3 w4"
    assert chat.read(chat.answer("w3 w4")[:-1]) == "w3 w4"
    assert chat.read((chat.end_id,)) == ""
    twice = (*chat.answer("w3"), chat.end_id)
    assert tokenizer.decode([chat.end_id]) in chat.read(twice)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (QWEN_LIKE, "rewrites earlier turns"),
        (CLOSES_DIFFERENTLY, "rewrites earlier turns"),
        (NEVER_CLOSES, "does not close an answer"),
        (None, "no chat template"),
    ],
)
def test_p2_a_template_that_cannot_be_trained_on_is_refused(make_bpe, template, told):
    with pytest.raises(UserError, match=told) as refusal:
        Chat(make_bpe(template))
    assert "\n" not in str(refusal.value)


def test_p7_any_observation_has_a_delta_that_opens_an_answer(bpe):
    chat = Chat(bpe)
    header = bpe.encode("<|im_start|>assistant\n", add_special_tokens=False)
    rng = np.random.default_rng(0)
    pieces = np.array(["", "a", "\n", " ", "é", "{{ x }}", "<think>", "zq", "'", "\t", "</s>"])
    for _ in range(200):
        observation = "".join(rng.choice(pieces, size=rng.integers(0, 8)))
        delta = chat.observe(observation)
        assert list(delta[-len(header) :]) == header
        assert observation in bpe.decode(delta)
