"""Answers that do not count, in every known way, and those that do."""

import gzip
import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from tests.rewards.judge_cases import FLAT, GROUPS, ask, batch
from tests.rewards.judge_server import (
    answer,
    dripping,
    endless,
    first,
    hang_up,
    honest,
    in_group,
    reset,
    saying,
    send,
    sending,
    sleeping,
    truncated,
)

from agent_rl.rewards import judge as judging
from agent_rl.rewards import judge_client
from agent_rl.rewards.judge_text import Fault, read_answer

# Answers that do not count


def _with(scores, **changed):
    return answer(scores | changed)


def _entries(scores, *more):
    entries = [{"id": name, "score": score} for name, score in scores.items()]
    return json.dumps({"scores": [*entries, *more]})


MISBEHAVIOURS = {
    "a label is missing": ("missing", saying(lambda s: answer(dict(list(s.items())[1:])))),
    "no label at all": ("missing", saying(lambda s: '{"scores": []}')),
    "a label too many": ("extra", saying(lambda s: _with(s, T99=0.5))),
    "other labels": ("extra", saying(lambda s: answer({k.lower(): v for k, v in s.items()}))),
    "Cyrillic label": ("extra", saying(lambda s: answer(s).replace("T", "Т"))),
    "full-width label": ("extra", saying(lambda s: answer(s).replace("T", "Ｔ"))),
    "label with a blank": ("extra", saying(lambda s: answer({k + " ": v for k, v in s.items()}))),
    "a label twice": ("duplicate", saying(lambda s: _entries(s, {"id": "T1", "score": 0.5}))),
    "a key twice": ("malformed", saying(lambda s: answer(s).replace('"id"', '"id": 1, "id"'))),
    "above 1": ("out of range", saying(lambda s: _with(s, T1=1.01))),
    "below 0": ("out of range", saying(lambda s: _with(s, T1=-0.01))),
    "percent": ("out of range", saying(lambda s: answer({k: 100 * v + 2 for k, v in s.items()}))),
    "overflow": ("out of range", saying(lambda s: _with(s, T1=2).replace(" 2}", " 1e999}"))),
    "NaN": ("malformed", saying(lambda s: _with(s, T1=float("nan")))),
    "Infinity": ("malformed", saying(lambda s: _with(s, T1=float("inf")))),
    "-Infinity": ("malformed", saying(lambda s: _with(s, T1=float("-inf")))),
    "boolean": ("malformed", saying(lambda s: _with(s, T1=True))),
    "numeric text": ("malformed", saying(lambda s: _with(s, T1="0.5"))),
    "null score": ("malformed", saying(lambda s: _with(s, T1=None))),
    "list score": ("malformed", saying(lambda s: _with(s, T1=[0.5]))),
    "number as a label": ("malformed", saying(lambda s: _entries({}, {"id": 1, "score": 0.5}))),
    "entry is no object": ("malformed", saying(lambda s: _entries(s, ["T1", 0.5]))),
    "bare list": ("malformed", saying(lambda s: json.dumps(list(s.values())))),
    "scores as object": ("malformed", saying(lambda s: json.dumps({"scores": s}))),
    "no scores": ("malformed", saying(lambda s: json.dumps({"ranking": list(s)}))),
    "prose": ("malformed", saying(lambda s: "T1 is the best, I would say 0.9.")),
    "prose around": ("malformed", saying(lambda s: f"Here you are: {answer(s)}")),
    "prose around a fence": ("malformed", saying(lambda s: f"So:\n```json\n{answer(s)}\n```")),
    "two objects": ("malformed", saying(lambda s: answer(s) + "\n" + answer(s))),
    "half an object": ("malformed", saying(lambda s: answer(s)[:-5])),
    "unfinished thought": ("malformed", saying(lambda s: "<think> " + answer(s))),
    "very deep": ("malformed", saying(lambda s: "[" * 100_000)),
    "very long number": ("malformed", saying(lambda s: _with(s, T1=7).replace("7", "7" * 9999))),
    "truncated": ("truncated", truncated),
    "null content": ("empty", saying(lambda s: None)),
    "empty content": ("empty", saying(lambda s: "")),
    "content in parts": ("malformed", saying(lambda s: [{"type": "text", "text": answer(s)}])),
    "no choice": ("empty", sending(b'{"choices": []}')),
    "no choices": ("malformed", sending(b'{"id": "x"}')),
    "choice is no object": ("malformed", sending(b'{"choices": [null]}')),
    "no message": ("malformed", sending(b'{"choices": [{"finish_reason": "stop"}]}')),
    "error with 200": ("malformed", sending(b'{"error": {"message": "overloaded"}}')),
    "HTML with 200": ("malformed", sending(b"<html>Welcome</html>", Content_Type="text/html")),
    "nothing with 200": ("malformed", sending(b"")),
    "no UTF-8": ("malformed", sending(b"\xff\xfe")),
    "packed": ("malformed", sending(gzip.compress(b"{}"), Content_Encoding="gzip")),
    "400": ("http", sending(b"{}", status=400)),
    "401": ("http", sending(b"{}", status=401)),
    "404": ("http", sending(b"{}", status=404)),
    "429": ("http", sending(b"{}", status=429, Retry_After="0")),
    "500": ("http", sending(b"{}", status=500)),
    "503": ("http", sending(b"<html>busy</html>", status=503)),
    "redirect": ("http", sending(b"", status=307, Location="/v1/chat/completions")),
    "hangs up": ("connection", hang_up),
    "reset in the middle": ("connection", reset),
    "no HTTP": ("connection", lambda handler, request: handler.wfile.write(b"SSH-2.0-x\r\n\r\n")),
    "endless": ("too large", endless),
}  # fmt: skip


@pytest.fixture
def short_pauses(monkeypatch):
    monkeypatch.setattr(judging, "_PAUSE", 0.001)


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_bad_answer_is_counted_retried_and_never_used(name, short_pauses):
    reason, bad = MISBEHAVIOURS[name]
    said, requests = ask(in_group("room 1", bad), attempts=2, concurrency=6)
    assert said.faults == {reason: 4}  # two orders, two attempts each
    assert said.invalid.tolist() == (GROUPS == 1).tolist()
    assert said.scores == pytest.approx(np.where(GROUPS == 1, 0, FLAT))
    assert np.isnan(said.by_order[GROUPS == 1]).all()
    assert (said.requests, said.retries) == (8, 2) and len(requests) == 8


SLOW = {
    "at first": sleeping(1.0),
    "in its head": dripping(head=True),
    "in its body": dripping(head=False),
}


@pytest.fixture
def patient(monkeypatch):
    """On a busy machine even the connection may take longer than the short times of a test."""
    monkeypatch.setattr(judge_client, "CONNECT_SHARE", 1.0)


@pytest.mark.parametrize("where", SLOW)
def test_a_slow_judge_is_timed_out_and_asked_again(where, patient):
    said, _ = ask(SLOW[where], batch()[3:5], timeout=0.2)
    assert said.faults == {"timeout": 4} and said.invalid.all() and not said.scores.any()
    assert (said.requests, said.retries) == (4, 2)


def test_a_judge_that_is_slow_once_is_believed_and_others_are_not_held_up(patient):
    slow_once = in_group("room 1", first(1, sleeping(2.0)))
    said, _ = ask(slow_once, timeout=0.4, attempts=20, concurrency=6)
    assert said.scores == pytest.approx(FLAT) and not said.invalid.any()
    # On a busy machine an honest answer may come too late as well, and is asked for again.
    assert said.faults.keys() == {"timeout"} and said.faults["timeout"] >= 2


RECOVERING = ["a label is missing", "truncated", "HTML with 200", "429", "reset in the middle"]


@pytest.mark.parametrize("name", RECOVERING)
def test_a_judge_that_recovers_is_believed_and_its_faults_are_counted(name, short_pauses):
    reason, bad = MISBEHAVIOURS[name]
    said, requests = ask(first(1, bad), attempts=3)
    assert said.scores == pytest.approx(FLAT) and not said.invalid.any()
    assert (said.requests, said.retries, said.faults) == (12, 6, {reason: 6})
    assert len({request.body["seed"] for request in requests}) == 12  # each try has a fresh seed


def test_a_repeated_question_is_the_same_question():
    _, requests = ask(first(2, MISBEHAVIOURS["prose"][1]), attempts=3)
    asked = [json.dumps(request.body["messages"]) for request in requests]
    assert len(asked) == 18 and {asked.count(question) for question in asked} == {3}


def test_one_order_without_an_answer_makes_the_whole_group_invalid():
    trajectories = batch()[3:5]
    shown_first = ask(honest, trajectories)[1][0].question["attempts"][0]

    def behave(handler, request):
        if request.question["attempts"][0]["steps"] == shown_first["steps"]:
            return send(handler, b"?")
        return honest(handler, request)

    said, _ = ask(behave, trajectories, attempts=2)
    assert said.faults == {"malformed": 2}
    assert said.invalid.all() and not said.scores.any() and np.isnan(said.by_order).all()


def test_every_reason_is_counted_under_its_own_name():
    bad = in_group("room 0", truncated, in_group("room 1", sending(b"?")))
    said, _ = ask(bad, attempts=1)
    assert said.faults == {"malformed": 2, "truncated": 2}
    assert said.retries == 0


def test_a_timeout_holds_for_the_whole_request(patient):
    started = time.perf_counter()
    ask(dripping(head=True), batch()[3:5], timeout=0.3, attempts=1, orders=1)
    assert time.perf_counter() - started < 15.0  # its bytes come for 30 seconds


@pytest.mark.parametrize(
    ("asked", "paused"), [("", 0.25), ("1", 1.0), ("3600", 30.0), ("soon", 0.25)]
)
def test_a_busy_server_is_left_alone_as_long_as_it_asks_within_the_timeout(
    monkeypatch, asked, paused
):
    pauses = []
    monkeypatch.setattr(judging, "_PAUSE", 0.25)
    monkeypatch.setattr(judge_client.Endpoint, "pause", lambda _, seconds: pauses.append(seconds))
    busy = sending(b"", status=429, **({"Retry_After": asked} if asked else {}))
    ask(first(1, busy), batch()[3:5], orders=1)
    assert pauses == [paused]


# Answers that count


@pytest.mark.parametrize(
    "wrap",
    [
        "{}",
        "\n  {}\n",
        "```json\n{}\n```",
        "```\n{}\n```",
        "<think>T1 is best. {{}} ```</think>\n\n{}",
        "It got far.</think>```json\n{}\n```",
    ],
)
def test_an_answer_may_stand_in_a_fence_or_after_a_thought(wrap):
    assert read_answer(wrap.format(answer({"T2": 1, "T1": 0.25})), ["T1", "T2"]) == [0.25, 1.0]


def test_an_answer_may_hold_reasons_besides():
    text = '{"note": "close", "scores": [{"id": "T1", "score": 0, "why": "lost"}]}'
    assert read_answer(text, ["T1"]) == [0.0]


@limits(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["T1", "T2", "T3", "t1", "Т1", ""]),
        st.one_of(st.floats(), st.integers(-1, 2), st.booleans(), st.text(max_size=3), st.none()),
        max_size=4,
    ),
    st.text(max_size=3),
)
def test_whatever_is_answered_is_refused_or_gives_exactly_what_it_says(scores, around):
    try:
        read = read_answer(around + answer(scores), ["T1", "T2"])
    except Fault:
        numbers = {k: v for k, v in scores.items() if type(v) in (int, float) and 0 <= v <= 1}
        assert around.strip() or numbers.keys() != {"T1", "T2"} or numbers != scores
    else:
        assert set(scores) == {"T1", "T2"} and read == [scores["T1"], scores["T2"]]
