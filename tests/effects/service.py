"""A pretended payment service, in a process of its own: it counts what it did, whoever died meanwhile.

It takes one connection after the other, in the order in which they came: what was sent before a question is
done before the question is answered. It may know idempotency keys or not, and it can drop its reply.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, urlsplit


class Service:
    """The service, as seen from a test; its ledger is a file."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.effects.service", str(ledger)], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def effects(self, order: str) -> int:
        """Return how often something was done for an order, once all that was sent has been handled."""
        asyncio.run(ask(self.port, "/paid", order=order))
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        return sum(json.loads(line)["order"] == order for line in lines)


async def ask(port: int, path: str, **query: str) -> dict[str, Any]:
    """Ask the service; the connection is its own. Raises ConnectionError when there is no reply."""
    reader, writer = await send(port, path, **query)
    return await receive(reader, writer)


async def send(port: int, path: str, **query: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request, and do not wait for the reply."""
    from urllib.parse import urlencode

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path}?{urlencode(query)} HTTP/1.0\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
    """Read the reply."""
    reply = await reader.read()
    writer.close()
    if not reply:
        raise ConnectionResetError("the service dropped its reply")
    found: dict[str, Any] = json.loads(reply.partition(b"\r\n\r\n")[2])
    return found


class _Handler(BaseHTTPRequestHandler):
    done: ClassVar[dict[str, dict[str, Any]]] = {}
    count = 0
    ledger = Path()

    def do_GET(self) -> None:
        """Pay, or say what was paid."""
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/paid":
            paid = [one for one in self.done.values() if one["order"] == asked["order"]]
            self._reply({"paid": paid})
            return
        known = self.done.get(asked["key"]) if asked.get("dedup") else None
        receipt = known or self._pay(asked)
        if not asked.get("drop"):
            self._reply(receipt)

    def _pay(self, asked: dict[str, str]) -> dict[str, Any]:
        kind = type(self)
        kind.count += 1
        receipt = {"order": asked["order"], "number": kind.count}
        self.done[asked["key"] if asked.get("dedup") else f"#{kind.count}"] = receipt
        with self.ledger.open("a") as file:
            file.write(json.dumps(receipt) + "\n")
        return receipt

    def _reply(self, told: dict[str, Any]) -> None:
        body = json.dumps(told).encode()
        try:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            return  # the caller is gone

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until we are killed; the port is the first line that we say."""
    _Handler.ledger = Path(sys.argv[1])
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    server.request_queue_size = 64
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
