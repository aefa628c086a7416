"""Serve metrics over HTTP: /metrics, and /livez and /readyz for probes.

Nothing is kept between two scrapes: the process may be killed at any moment, and several may run.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ninelives.core.errors import NineLivesError, UsageError
from ninelives.ops.metrics.reading import LIMIT_SECONDS, Reading, ReadingSource

_READY_SECONDS = 2.0
_SPARE_SECONDS = 0.5  # of the time that Prometheus gives a scrape, for the answer
_CLIENT_SECONDS = 30.0


class MetricsServer(ThreadingHTTPServer):
    """Answers scrapes of one store, each in a thread."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, source: ReadingSource, report: Callable[[str], None]) -> None:
        self.source, self._report, self._trouble = source, report, ""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host} port {port}: {error.strerror or error}",
                remedy="Choose another with --port or --host",
            ) from error

    def read(self, limit_seconds: float) -> tuple[Reading | None, str]:
        """Return a reading, or None and why there is none; what is wrong is reported once."""
        try:
            reading, trouble = self.source.read(limit_seconds), ""
        except (NineLivesError, OSError) as error:
            reading, trouble = None, f"{type(error).__name__}: {error}"
        if trouble != self._trouble:
            self._report(trouble or "the store answers again")
            self._trouble = trouble
        return reading, trouble

    def handle_error(self, *_: Any) -> None:
        """Report an error in an answer; a client that hung up, or sent no request, is no news."""
        error = sys.exception()
        if not isinstance(error, OSError):
            self._report(f"no answer to a scrape: {type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version, sys_version = "ninelives", ""
    timeout = _CLIENT_SECONDS

    def do_GET(self) -> None:
        """Answer one request."""
        path = self.path.partition("?")[0]
        if path in ("/metrics", "/"):
            self._metrics()
        elif path == "/livez":
            self._plain(HTTPStatus.OK, "ok")
        elif path == "/readyz":
            reading, trouble = self.server.read(_READY_SECONDS)
            is_ready = reading is not None
            self._plain(HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE, trouble or "ok")
        else:
            self._plain(HTTPStatus.NOT_FOUND, "see /metrics, /livez, /readyz")

    def _metrics(self) -> None:
        from ninelives.ops.metrics.exposition import exposed

        reading, _ = self.server.read(self._limit())
        body, headers = exposed(
            reading, self.headers.get("Accept", ""), self.headers.get("Accept-Encoding", "")
        )
        self._answer(HTTPStatus.OK, body, headers)

    def _limit(self) -> float:
        given = self.headers.get("X-Prometheus-Scrape-Timeout-Seconds", "")
        with suppress(ValueError):
            return min(LIMIT_SECONDS, max(_SPARE_SECONDS, float(given) - _SPARE_SECONDS))
        return LIMIT_SECONDS

    def _plain(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, f"{text}\n".encode(), {"Content-Type": "text/plain; charset=utf-8"})

    def _answer(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape every second is no news."""
