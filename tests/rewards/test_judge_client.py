"""A judge's endpoint: servers that are not there or refuse, other hosts, and the key."""

import logging
import socket
import time

import pytest
from tests.rewards.judge_cases import FLAT, GROUPS, SEED, ask, batch, episode, settings
from tests.rewards.judge_server import JudgeServer, honest, in_group, sending, sleeping

from agent_rl.errors import UserError
from agent_rl.rewards import judge as judging
from agent_rl.rewards import judge_client
from agent_rl.rewards.judge import judge

KEY = "sk-secret-2718281828"


@pytest.fixture
def short_pauses(monkeypatch):
    monkeypatch.setattr(judging, "_PAUSE", 0.001)


# Servers that are not there


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_closed_port_is_one_clear_message():
    url = f"http://127.0.0.1:{closed_port()}/v1"
    with pytest.raises(UserError, match=r"no connection.*reward\.judge\.url") as error:
        judge(batch(), settings(url), SEED)
    assert f"{url}/chat/completions" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "key was ref"), (403, "access"), (404, "or model"), (308, "redirect")],
)
def test_a_server_that_refuses_everything_is_one_clear_message(status, said, short_pauses):
    with (
        JudgeServer(sending(b"no", status=status, Location="/elsewhere")) as server,
        pytest.raises(UserError, match=rf"none of 12 requests: status {status}.*{said}"),
    ):
        judge(batch(), settings(server.url), SEED)


def test_a_server_that_refuses_everything_is_given_up_early(short_pauses):
    many = [episode(group, f"It is {n}") for group in range(60) for n in (0, 1)]
    with JudgeServer(sending(b"no", status=401)) as server, pytest.raises(UserError):
        judge(many, settings(server.url, concurrency=1), SEED)
    assert len(server.requests) < 30  # of 240


def test_requests_under_way_are_stopped_when_the_server_is_given_up(short_pauses):
    many = [episode(group, f"It is {n}") for group in range(8) for n in (0, 1)]
    refuses = sending(b"no", status=401)
    slow_later = in_group("room 4", sleeping(20.0), in_group("room 5", sleeping(20.0), refuses))
    started = time.perf_counter()
    with JudgeServer(slow_later) as server, pytest.raises(UserError, match="401"):
        judge(many, settings(server.url, concurrency=16, timeout=30.0), SEED)
    assert time.perf_counter() - started < 15.0


def test_faults_that_time_may_mend_are_no_error_of_the_user(short_pauses):
    said, _ = ask(sending(b"", status=500))
    assert said.invalid.all() and said.faults == {"http": 12}
    said, _ = ask(in_group("room 1", sending(b"", status=401)))
    assert said.invalid.tolist() == (GROUPS == 1).tolist()


def test_no_other_host_and_no_proxy_is_ever_asked(monkeypatch, short_pauses):
    with JudgeServer(honest) as other, JudgeServer(honest) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.url)
        said = judge(batch(), settings(server.url), SEED)
        assert said.scores == pytest.approx(FLAT)
        to_other = sending(b"", status=307, Location=f"{other.url}/chat/completions")
        said, _ = ask(in_group("room 1", to_other))
        assert said.faults == {"http": 4}
    assert other.requests == []


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{KEY}@127.0.0.1/v1",
        f"http://127.0.0.1/v1?key={KEY}",
        f"http://127.0.0.1/v1#{KEY}",
        f"http:///{KEY}",
        f"http://127.0.0.1:{KEY}/v1",
        f"ftp://{KEY}/v1",
        KEY,
    ],
)
def test_an_address_that_is_more_than_a_base_is_refused_and_not_repeated(url):
    with pytest.raises(UserError, match="base address") as error:
        judge(batch(), settings(url), SEED)
    assert KEY not in str(error.value)


def test_packed_replies_which_could_unfold_without_bound_are_not_asked_for():
    _, requests = ask(honest)
    assert {request.headers["Accept-Encoding"] for request in requests} == {"identity"}


# The key


def test_the_key_is_sent_in_one_header_and_nowhere_else(monkeypatch, caplog):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    said, requests = ask(honest, key_variable="JUDGE_KEY")
    for request in requests:
        assert request.headers.pop("Authorization") == f"Bearer {KEY}"
        assert KEY not in repr(request)
    assert KEY not in repr(said) and KEY not in caplog.text


def test_without_a_key_no_header_is_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, requests = ask(honest)
    assert all("Authorization" not in request.headers for request in requests)


@pytest.mark.parametrize("status", [401, 302])
def test_a_refused_key_is_not_in_the_message_even_if_the_server_repeats_it(
    monkeypatch, status, short_pauses
):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    body = f"wrong key {KEY}".encode()
    with (
        JudgeServer(sending(body, status=status, Location=f"/{KEY}")) as server,
        pytest.raises(UserError) as error,
    ):
        judge(batch(), settings(server.url, key_variable="JUDGE_KEY"), SEED)
    assert KEY not in str(error.value) and error.value.__cause__ is None


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_named_key_that_is_not_set_is_one_clear_message(monkeypatch, value):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("JUDGE_KEY", value)
    with pytest.raises(UserError, match="'JUDGE_KEY', which is not set"):
        judge(batch(), settings("http://127.0.0.1:9/v1", key_variable="JUDGE_KEY"), SEED)


@pytest.mark.parametrize("value", [f"{KEY}\nX-Evil: 1", f"{KEY}é", f"Bearer {KEY}"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(monkeypatch, value):
    monkeypatch.setenv("JUDGE_KEY", value)
    with pytest.raises(UserError, match="'JUDGE_KEY'") as error:
        judge(batch(), settings("http://127.0.0.1:9/v1", key_variable="JUDGE_KEY"), SEED)
    assert KEY not in str(error.value)


def test_an_endless_reply_is_read_up_to_the_bound_only(monkeypatch):
    monkeypatch.setattr(judge_client, "MAX_BYTES", 1000)
    said, _ = ask(sending(b" " * 1001), attempts=1)
    assert said.faults == {"too large": 6}
    said, _ = ask(sending(b" " * 1000), attempts=1)
    assert said.faults == {"malformed": 6}
