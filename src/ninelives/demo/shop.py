"""The demo's shop: an HTTP service with a ledger, outside the process that is killed.

It knows nothing of Nine Lives. Requests with the same `Idempotency-Key` take effect once and get the first
answer again. The ledger holds every request for an effect, and whether it took effect. A forgetful shop does
not know the key and pays again: the demo must find that.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER_SECONDS = 0.02
ITEMS = ("kettle", "washing machine", "lamp", "dishwasher", "armchair", "monitor")
WAITED_FOR, TOO_LATE = ITEMS.index("lamp"), ITEMS.index("armchair")
CITIES = ("Riga", "Turin", "Ghent")

Answer = tuple[int, dict[str, Any]]


class Shop:
    """The shop's state. One lock makes an effect, its ledger line and the stored answer atomic."""

    def __init__(self, *, is_forgetful: bool = False) -> None:
        self._lock = threading.Lock()
        self.ledger: list[dict[str, Any]] = []
        self._is_forgetful = is_forgetful
        self._answers: dict[str, Answer] = {}
        self._refunded: dict[str, int] = {}
        self._technicians: dict[str, str] = {}

    def read(self, path: str) -> Answer:
        """Answer a GET request."""
        match path.strip("/").split("/"):
            case ["orders", order_id] if order_id[2:].isdigit():
                with self._lock:
                    return 200, self._order(order_id)
            case ["technicians", _]:
                return 200, {"times": ["Tuesday 9:00", "Thursday 14:00"]}
        return 404, {"error": f"no such path: {path}"}

    def act(self, path: str, key: str, body: dict[str, Any]) -> Answer:
        """Take effect, once per key; return the answer."""
        with self._lock:
            known = None if self._is_forgetful else self._answers.get(key)
            answer = known or self._take_effect(path, key, body)
            self._answers[key] = answer
            took_effect = known is None and answer[0] == 200
            line = {"path": path, **body, "key": key, "status": answer[0], "effect": took_effect}
            self.ledger.append(line)
            return answer

    def _take_effect(self, path: str, key: str, body: dict[str, Any]) -> Answer:
        order = str(body["order_id"])
        number = blake2b(key.encode(), digest_size=3).hexdigest()
        if path == "/visits":
            self._technicians[order] = body["at"]
            return 200, {"number": f"V-{number}", "order_id": order, "at": body["at"]}
        if path != "/refunds":
            return 404, {"error": f"no such path: {path}"}
        if _kind(order) == TOO_LATE:
            return 422, {"error": "bought more than 90 days ago"}
        if not 0 < body["cents"] <= _price(order):
            return 422, {"error": f"{body['cents']} cents is not what was paid"}
        self._refunded[order] = self._refunded.get(order, 0) + body["cents"]
        return 200, {"number": f"R-{number}", "order_id": order, "cents": body["cents"]}

    def _order(self, order: str) -> dict[str, Any]:
        return {
            "id": order,
            "item": ITEMS[_kind(order)],
            "status": "on its way" if _kind(order) == WAITED_FOR else "delivered",
            "cents": _price(order),
            "city": CITIES[int(order[2:]) % len(CITIES)],
            "refunded_cents": self._refunded.get(order, 0),
            "technician": self._technicians.get(order, ""),
        }


def _kind(order: str) -> int:
    return (int(order[2:]) - 1000) // 10 % len(ITEMS)


def _price(order: str) -> int:
    return 2900 + 1700 * _kind(order)


def make_handler(shop: Shop) -> type[BaseHTTPRequestHandler]:
    """Make the HTTP handler class of a shop."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(ANSWER_SECONDS)
            self._answer(*shop.read(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            time.sleep(ANSWER_SECONDS)
            self._answer(*shop.act(self.path, self.headers.get("Idempotency-Key", ""), body))

        def _answer(self, status: int, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            with suppress(OSError):  # the caller was killed
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: the ledger has it all."""

    return Handler


@contextmanager
def serving(shop: Shop) -> Iterator[str]:
    """Serve a shop on a thread; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), make_handler(shop)) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
