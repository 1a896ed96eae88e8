"""One question to a chat model behind an OpenAI-compatible endpoint.

Requests go to the configured address and nowhere else: no redirects, no proxies and no
credentials of the environment other than the named key. The key stands in one header and in no
message.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from functools import partial

import httpx2 as httpx

from agent_rl.config import JudgeConfig
from agent_rl.errors import UserError
from agent_rl.rewards.judge_text import Fault

MAX_BYTES = 4 * 2**20
"""Most bytes of a reply that are read; a full answer with its reasoning is far below."""

CONNECT_SHARE = 0.5
"""Share of a request's time within which the server must take the connection, so that a host that
drops packets is told from a slow answer."""

_REFUSALS = {
    401: "the key was refused; set the environment variable that reward.judge.key_variable names",
    403: "the key has no access; check the key and reward.judge.model",
    404: "there is no such address or model; check reward.judge.url and reward.judge.model",
}


class Endpoint:
    """Where a judge answers.

    Args:
        config: address, model, key and bounds.

    Raises: UserError when the address is not a plain base address, or the key is named but not set.
    """

    def __init__(self, config: JudgeConfig) -> None:
        self.address = f"{_base(config.url)}/chat/completions"
        self._config = config
        self._headers = {"Accept-Encoding": "identity", **_authorisation(config.key_variable)}
        # Made once: reading the certificates takes longer than a request to a local server.
        self._tls = httpx.create_ssl_context(trust_env=False)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._cancels: set[Callable[[], object]] = set()

    def ask(self, messages: list[dict[str, str]], seed: int) -> bytes:
        """Body of the reply to one request.

        The request may take ``timeout`` seconds in all, however slowly its bytes arrive.

        Raises: Fault with the reason ``timeout``, ``unreachable``, ``connection``, ``http`` or
            ``too large``.
        """
        body = {
            "model": self._config.model,
            "messages": messages,
            "temperature": 0,
            "seed": seed,
            "max_tokens": self._config.max_answer_tokens,
        }
        # An event loop per request: a task can be stopped in the middle of a read, a thread cannot.
        return asyncio.run(self._ask(body))

    def pause(self, seconds: float) -> None:
        """Wait between two requests, or until :meth:`stop`."""
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """Cancel the requests under way in other threads, and all later ones."""
        with self._lock:
            self._stopped.set()
            for cancel in self._cancels:
                cancel()

    async def _ask(self, body: dict[str, object]) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        with self._lock:
            if self._stopped.is_set():
                raise asyncio.CancelledError
            self._cancels.add(cancel)
        try:
            return await self._ask_in_time(body)
        finally:
            # Under the lock, so that no loop is called that is closed already.
            with self._lock:
                self._cancels.discard(cancel)

    async def _ask_in_time(self, body: dict[str, object]) -> bytes:
        deadline = asyncio.timeout(self._config.timeout)
        try:
            async with deadline:
                return await self._post(body)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if deadline.expired():
                raise Fault("timeout") from None
            hopeless = f"no connection ({str(error) or type(error).__name__})"
            raise Fault(
                "unreachable",
                hopeless=f"{hopeless}; start the server or correct reward.judge.url",
            ) from None
        except (TimeoutError, httpx.TimeoutException):
            raise Fault("timeout") from None
        except httpx.TransportError:
            raise Fault("connection") from None

    async def _post(self, body: dict[str, object]) -> bytes:
        connect = min(self._config.timeout * CONNECT_SHARE, 10.0)
        timeout = httpx.Timeout(self._config.timeout, connect=connect)
        async with (
            httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=timeout) as client,
            client.stream("POST", self.address, json=body, headers=self._headers) as response,
        ):
            _check_status(response)
            received = bytearray()
            async for chunk in response.aiter_raw():
                received += chunk
                if len(received) > MAX_BYTES:
                    raise Fault("too large")
            return bytes(received)


def _check_status(response: httpx.Response) -> None:
    status = response.status_code
    if 200 <= status < 300:
        return
    hopeless = _REFUSALS.get(status, "")
    if 300 <= status < 400:
        hopeless = "redirects are not followed; set reward.judge.url to where the server is"
    pause = response.headers.get("Retry-After", "")
    raise Fault(
        "http",
        hopeless=f"status {status}: {hopeless}" if hopeless else "",
        pause=float(pause) if pause.isascii() and pause.isdigit() else 0.0,
    )


def _base(url: str) -> str:
    """The base address without a slash at its end."""
    try:
        parsed = httpx.URL(url.strip())
        plain = parsed.scheme in ("http", "https") and parsed.host and not parsed.userinfo
    except httpx.InvalidURL:
        plain = False
    if not plain or "?" in url or "#" in url:
        # The address is not repeated: what it holds too much may be a key.
        raise UserError(
            "reward.judge.url is no base address; set it to scheme, host and path alone, e.g. "
            "http://localhost:8000/v1, and name a key in reward.judge.key_variable"
        )
    return str(parsed).rstrip("/")


def _authorisation(variable: str) -> dict[str, str]:
    if not variable:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(
            f"reward.judge.key_variable names the environment variable {variable!r}, which is not "
            "set; set it to the judge's key, or leave the name empty for a server without keys"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(
            f"the environment variable {variable!r} of reward.judge.key_variable holds no key: it "
            "has blanks or characters that no header can carry; set it to the key alone"
        )
    return {"Authorization": f"Bearer {key}"}
