"""Receivers of notices: a real HTTP server and a real mail server, which behave as a test wants."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Answer = tuple[int, dict[str, str]]
HANG: Answer = (0, {})
DROP: Answer = (-1, {})
TRICKLE: Answer = (-2, {})
TRICKLE_BODY: Answer = (-3, {})


class Received(NamedTuple):
    """A request: when, its headers in lower case, its body, and what it was answered."""

    at: float
    headers: dict[str, str]
    body: bytes
    status: int

    @property
    def id(self) -> str:
        return self.headers.get("webhook-id", "")

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["data"]
        return found


class Receiver:
    """An HTTP server; `answer` decides, by the number of the request and its headers, what it answers."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[Received] = []
        self.answer: Callable[[int, dict[str, str]], Answer] = lambda _number, _headers: (204, {})
        self.release = threading.Event()
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with lock:
                    status, extra = outer.answer(len(outer.requests), headers)
                    outer.requests.append(Received(time.monotonic(), headers, body, status))
                if (status, extra) == HANG:
                    outer.release.wait(30)
                    return
                if (status, extra) == DROP:
                    self.close_connection = True
                    return
                if (status, extra) == TRICKLE:
                    while not outer.release.wait(0.2):
                        self.wfile.write(b"X-Slow")  # never ends a line
                    return
                if (status, extra) == TRICKLE_BODY:
                    self.send_response(200)
                    self.send_header("connection", "close")
                    self.end_headers()
                    with suppress(OSError):
                        while not outer.release.wait(0.2):
                            self.wfile.write(b"x")  # never ends
                    return
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # the client hung up

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def counts(self) -> Counter[str]:
        """Return how often each id was taken."""
        return Counter(one.id for one in self.requests if 200 <= one.status < 300)

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


def is_signed(request: Received, secret: bytes) -> bool:
    """Verify a signature from the standard's text alone."""
    content = b".".join(
        [request.headers["webhook-id"].encode(), request.headers["webhook-timestamp"].encode(), request.body]
    )
    expected = base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()
    is_recent = abs(time.time() - int(request.headers["webhook-timestamp"])) < 300
    return is_recent and f"v1,{expected}" in request.headers["webhook-signature"].split(" ")


class MailServer:
    """A mail server without TLS; `code` is what it answers to the recipients."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], str]] = []
        self.code = 250
        self.greets = True
        self.release = threading.Event()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                if not outer.greets:
                    while not outer.release.wait(0.1):
                        self.wfile.write(b"2")  # a greeting that never ends
                    return
                self._say(220)
                to: list[str] = []
                while line := self.rfile.readline():
                    verb = line[:4].upper()
                    if verb == b"RCPT":
                        to.append(line.decode().strip())
                        self._say(outer.code)
                    elif verb == b"DATA":
                        self._say(354)
                        self._take(to)
                    elif verb == b"QUIT":
                        self._say(221)
                        return
                    else:
                        self._say(250)

            def _take(self, to: list[str]) -> None:
                lines = []
                while (line := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(line)
                outer.mails.append((to, b"".join(lines).decode()))
                self._say(250)

            def _say(self, code: int) -> None:
                self.wfile.write(f"{code} words\r\n".encode())

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # the client hung up

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
