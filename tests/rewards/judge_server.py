"""Chat models behind a real local server: an honest judge, biased ones, and ones that misbehave."""

import json
import socket
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Request:
    path: str
    headers: dict
    body: dict

    @property
    def question(self):
        """The document that the judge is shown."""
        return json.loads(self.body["messages"][1]["content"])

    @property
    def ids(self):
        return [attempt["id"] for attempt in self.question["attempts"]]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64  # with the default of 5, a burst of connections would wait a second


class JudgeServer:
    """Serves ``behave(handler, request)`` on a free port and keeps the requests."""

    def __init__(self, behave):
        self.requests, self._lock = [], threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["Content-Length"])
                received = self.rfile.read(length)
                if len(received) < length:
                    return  # the client gave up while it was sending
                request = Request(self.path, dict(self.headers), json.loads(received))
                with outer._lock:
                    outer.requests.append(request)
                try:
                    behave(self, request)
                except OSError:  # the client hung up, as it may
                    self.close_connection = True

            def do_GET(self):
                with outer._lock:
                    outer.requests.append(Request(self.path, dict(self.headers), {}))
                self.send_error(405)

            def log_message(self, *_):
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def send(handler, body, *, status=200, **headers):
    """Answer with bytes."""
    handler.send_response(status)
    for name, value in ({"Content-Length": str(len(body))} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def say(handler, content, finish="stop"):
    """Answer as an OpenAI-compatible server does."""
    message = {"role": "assistant", "content": content}
    reply = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    send(handler, json.dumps(reply).encode(), Content_Type="application/json")


def answer(scores):
    return json.dumps({"scores": [{"id": name, "score": score} for name, score in scores.items()]})


def honest_scores(request):
    """By the number in the text that each agent read last."""
    return {
        attempt["id"]: float(attempt["steps"][-1]["read"].split()[-1])
        for attempt in request.question["attempts"]
    }


def honest(handler, request):
    say(handler, answer(honest_scores(request)))


def biased(quality, first, last):
    """Adds a bonus that runs from ``first`` to ``last`` over the places shown."""

    def behave(handler, request):
        scores = honest_scores(request)
        step = (last - first) / (len(scores) - 1)
        say(
            handler,
            answer(
                {name: quality * s + first + step * i for i, (name, s) in enumerate(scores.items())}
            ),
        )

    return behave


def saying(text):
    """Says ``text(scores)``, where ``scores`` are the honest ones by label."""
    return lambda handler, request: say(handler, text(honest_scores(request)))


def sending(body, *, status=200, **headers):
    return lambda handler, request: send(handler, body, status=status, **headers)


def truncated(handler, request):
    say(handler, answer(honest_scores(request)), finish="length")


def hang_up(handler, request):
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def reset(handler, request):
    """Send half of a reply, then cut the connection with a reset."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    handler.connection.close()
    handler.close_connection = True


def endless(handler, request):
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def sleeping(seconds, then=honest):
    """Takes its time."""

    def behave(handler, request):
        time.sleep(seconds)
        then(handler, request)

    return behave


def dripping(head):
    """Sends a byte now and then: every read is quick, and the whole never ends."""

    def behave(handler, request):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        handler.wfile.write(b"X-Long: " if head else b"\r\n")
        for _ in range(600):
            time.sleep(0.05)
            handler.wfile.write(b"x")
            handler.wfile.flush()

    return behave


def in_group(word, bad, good=honest):
    """Misbehaves in the group whose start holds ``word`` and is honest in the others."""

    def behave(handler, request):
        (bad if word in request.question["start"] else good)(handler, request)

    return behave


def first(count, bad, good=honest):
    """Misbehaves in the first ``count`` requests of each question (a group in one order)."""
    seen, lock = {}, threading.Lock()

    def behave(handler, request):
        key = request.body["messages"][1]["content"]
        with lock:
            seen[key] = seen.get(key, 0) + 1
            turn = seen[key]
        (bad if turn <= count else good)(handler, request)

    return behave
