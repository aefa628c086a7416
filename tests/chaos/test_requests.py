"""Requests are seen, whoever sends them: with the action's key a repetition is none."""

from __future__ import annotations

import http.client
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ninelives.chaos.trial.proxy import Proxy
from tests.chaos.commands import Ran, chaos

AGENTS = Path(__file__).parent / "planted" / "requests.py"


class Shop(BaseHTTPRequestHandler):
    """Says yes to everything."""

    def do_POST(self) -> None:
        """Take what is sent."""
        said = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def shop() -> Iterator[int]:
    """A server; gives its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def run(home: Path, agent: str, port: int) -> Ran:
    shutil.copy(AGENTS, home)
    words = (f"{AGENTS.name}:{agent}", "--at", "every-step", "--seconds", "1", "--json")
    return chaos(home, *words, SHOP_URL=f"http://127.0.0.1:{port}")


def line(mark: str) -> int:
    (found,) = [n for n, text in enumerate(AGENTS.read_text().splitlines(), 1) if text.endswith(mark)]
    return found


def test_a_request_with_its_key_may_come_again(shop: int, tmp_path: Path) -> None:
    report = run(tmp_path, "keyed", shop).report
    assert report["findings"] == []
    assert report["kills"] >= 2
    assert {one["name"]: one["value"] for one in report["numbers"]}["duplicate rate"] == "0.0%"


def test_a_request_without_its_key_is_named(shop: int, tmp_path: Path) -> None:
    ran = run(tmp_path, "keyless", shop)
    (finding,) = ran.report["findings"]
    assert ran.code == 1
    assert "POST http://127.0.0.1" in finding["what"]
    assert "mails" in finding["what"]
    assert (finding["step"], finding["line"]) == ("notify[0]", line("  # MISTAKE"))


def test_a_request_of_another_program_is_seen_by_the_proxy(shop: int, tmp_path: Path) -> None:
    ran = run(tmp_path, "by_program", shop)
    (finding,) = ran.report["findings"]
    assert ran.code == 1
    assert (finding["step"], finding["line"]) == ("receipt[0]", line("  # MISTAKE too"))
    assert "receipts was sent 2 times" in finding["what"]


def test_the_proxy_passes_on_what_it_notes(shop: int) -> None:
    with Proxy() as proxy:
        address = proxy.environment["http_proxy"].removeprefix("http://")
        sender = http.client.HTTPConnection(address, timeout=30)
        sender.request("POST", f"http://127.0.0.1:{shop}/a?b=c", b"12", {"Idempotency-Key": "k"})
        assert sender.getresponse().read() == b"12"
        chunks = iter([b"3", b"45"])
        again = http.client.HTTPConnection(address, timeout=30)
        again.request("POST", f"http://127.0.0.1:{shop}/chunked", chunks, encode_chunked=True, headers={
            "Transfer-Encoding": "chunked"})  # fmt: skip
        assert again.getresponse().read() == b"345"
        tunnelled = http.client.HTTPConnection(address, timeout=30)
        tunnelled.set_tunnel("127.0.0.1", shop)
        tunnelled.request("POST", "/hidden", b"6")
        assert tunnelled.getresponse().read() == b"6"
        for one in (sender, again, tunnelled):
            one.close()
        noted = proxy.since(0.0)
    assert [(one.method, one.target) for one in noted] == [
        ("POST", f"http://127.0.0.1:{shop}/a?b=c"),
        ("POST", f"http://127.0.0.1:{shop}/chunked"),
        ("CONNECT", f"127.0.0.1:{shop}"),
    ]
    assert b"Idempotency-Key: k" in noted[0].sent


def test_the_proxy_says_that_nobody_is_there() -> None:
    with socket.socket() as taken, Proxy() as proxy:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        sender = http.client.HTTPConnection(
            proxy.environment["http_proxy"].removeprefix("http://"), timeout=30
        )
        sender.request("GET", f"http://127.0.0.1:{taken.getsockname()[1]}/")
        assert sender.getresponse().status == 502
        sender.close()
