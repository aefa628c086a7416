"""A recording HTTP proxy: the user's requests pass through it, and it logs them.

Plain HTTP is recorded whole; TLS is tunnelled, so only its host is known. If the machine already has a proxy,
requests are forwarded to it. Responses are streamed. Connections are used once, so each request has its own
client port, which identifies the step that sent it.
"""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from msgspec import Struct

_CONNECT_SECONDS, _IDLE_SECONDS = 30.0, 600.0
_KEPT_BYTES = 64 * 1024
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
     "trailer", "transfer-encoding", "upgrade"}
)  # fmt: skip
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


class ProxyRequest(Struct, frozen=True):
    """A recorded request. `port` is the client's; `sent` holds its first bytes, head and body."""

    at: float
    port: int
    method: str
    target: str
    digest: str = ""
    sent: bytes = b""


class Proxy:
    """A proxy on this machine, as a context manager."""

    def __init__(self) -> None:
        self._requests: list[ProxyRequest] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._requests.append))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make programs use this proxy."""
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        ways = {f"{scheme}_proxy": url for scheme in ("http", "https", "all")} | {"no_proxy": ""}
        return ways | {name.upper(): value for name, value in ways.items()}

    def since(self, moment: float) -> list[ProxyRequest]:
        """Return the requests since a moment."""
        return [one for one in self._requests if one.at >= moment]


def _handler(note: Callable[[ProxyRequest], None]) -> type[BaseHTTPRequestHandler]:
    class ProxyHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: requests are recorded elsewhere."""

        def do_CONNECT(self) -> None:
            """Tunnel to a host."""
            self.close_connection = True
            note(ProxyRequest(time.monotonic(), self.client_address[1], "CONNECT", self.path))
            host, _, port = self.path.rpartition(":")
            try:
                upstream = _tunnel(host.strip("[]"), int(port))
            except (OSError, ValueError) as error:
                self.send_error(502, str(error))
                return
            self.send_response(200)
            self.end_headers()
            with upstream:
                _relay(self.connection, upstream)

        def pass_on(self) -> None:
            """Record a request, forward it, and return the response."""
            self.close_connection = True
            body = _body(self)
            head = f"{self.requestline}\r\n{self.headers}".encode(errors="replace")
            digest = blake2b(body, digest_size=8).hexdigest()
            sent = (head + body)[:_KEPT_BYTES]
            note(
                ProxyRequest(time.monotonic(), self.client_address[1], self.command, self.path, digest, sent)
            )
            try:
                _forward(self, body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                with suppress(OSError):
                    self.send_error(502, f"{type(error).__name__}: {error}")

    for method in _METHODS:
        setattr(ProxyHandler, f"do_{method}", ProxyHandler.pass_on)
    return ProxyHandler


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in handler.headers.get("Transfer-Encoding", ""):
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    parts = []
    while size := int(handler.rfile.readline().split(b";")[0] or b"0", 16):
        parts.append(handler.rfile.read(size))
        handler.rfile.readline()
    while handler.rfile.readline().strip():
        pass
    return b"".join(parts)


def _forward(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    url = urlsplit(handler.path)
    if url.scheme != "http" or not url.hostname:
        handler.send_error(400, "this is a proxy: it accepts only http:// URLs")
        return
    upstream = _upstream("http", url.hostname)
    address = upstream or (url.hostname, url.port or 80)
    path = handler.path if upstream else url._replace(scheme="", netloc="").geturl() or "/"
    connection = http.client.HTTPConnection(*address, timeout=_IDLE_SECONDS)
    try:
        connection.putrequest(handler.command, path, skip_host=True, skip_accept_encoding=True)
        for name, value in handler.headers.items():
            if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                connection.putheader(name, value)
        if body or handler.command in ("POST", "PUT", "PATCH"):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        _answer(handler, connection.getresponse())
    finally:
        connection.close()


def _answer(handler: BaseHTTPRequestHandler, response: http.client.HTTPResponse) -> None:
    handler.send_response_only(response.status, response.reason)
    for name, value in response.getheaders():
        if name.lower() not in _HOP_BY_HOP:
            handler.send_header(name, value)
    handler.send_header("Connection", "close")
    handler.end_headers()
    while data := response.read1(65536):
        handler.wfile.write(data)


def _upstream(scheme: str, host: str) -> tuple[str, int] | None:
    """Return the machine's configured proxy for a host, if any."""
    known = getproxies()
    if scheme not in known or proxy_bypass(host):
        return None
    url = urlsplit(known[scheme] if "://" in known[scheme] else f"http://{known[scheme]}")
    return (url.hostname, url.port or 80) if url.hostname else None


def _tunnel(host: str, port: int) -> socket.socket:
    upstream = _upstream("https", host)
    connected = socket.create_connection(upstream or (host, port), timeout=_CONNECT_SECONDS)
    if upstream is not None:
        connected.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = connected.recv(4096)
            if not data:
                break
            answer += data
        if b" 200 " not in answer.partition(b"\r\n")[0] + b" ":
            connected.close()
            raise OSError(f"the machine's proxy refuses {host}: {answer[:100]!r}")
    return connected


def _relay(left: socket.socket, right: socket.socket) -> None:
    """Copy data both ways until one side closes."""
    others = {left: right, right: left}
    while True:
        ready, _, _ = select.select([left, right], [], [], _IDLE_SECONDS)
        if not ready:
            return
        for one in ready:
            try:
                data = one.recv(65536)
                if data:
                    others[one].sendall(data)
            except OSError:
                return
            if not data:
                return
