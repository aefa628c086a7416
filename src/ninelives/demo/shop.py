"""The demo's shop: a separate process with an HTTP service and an append-only ledger.

It knows nothing of Nine Lives. Requests with the same `Idempotency-Key` take effect once and get the first
answer again. The ledger holds every request for an effect, and whether it took effect. Without the key the
shop would pay again: `--forgetful` plants exactly that fault. The shop reports each request on standard
output, one JSON object per line, so that the director can kill at the worst moment. `POST /hold` holds back
the answer of the next effect until the caller is gone.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from contextlib import suppress
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ninelives.demo.children import end_with_parent

ANSWER_SECONDS = 0.02
ITEMS = ("kettle", "washing machine", "lamp", "dishwasher", "armchair", "monitor")
WAITED_FOR, TOO_LATE = ITEMS.index("lamp"), ITEMS.index("armchair")
CITIES = ("Riga", "Turin", "Ghent")

Answer = tuple[int, dict[str, Any]]


class Shop:
    """The shop's state. One lock makes an effect, its ledger line and the stored answer atomic."""

    def __init__(self, ledger: Path, *, is_forgetful: bool) -> None:
        self._lock = threading.Lock()
        self._ledger = ledger.open("a")
        self._is_forgetful = is_forgetful
        self._answers: dict[str, Answer] = {}
        self._refunded: dict[str, int] = {}
        self._technicians: dict[str, str] = {}
        self._holds = False

    def read(self, path: str) -> Answer:
        """Answer a GET request."""
        match path.strip("/").split("/"):
            case ["orders", order_id] if order_id[2:].isdigit():
                with self._lock:
                    return 200, self._order(order_id)
            case ["technicians", _]:
                return 200, {"times": ["Tuesday 9:00", "Thursday 14:00"]}
        return 404, {"error": f"no such path: {path}"}

    def act(self, path: str, key: str, asked: dict[str, Any]) -> tuple[Answer, bool]:
        """Take effect, once per key; return the answer and whether to hold it back."""
        with self._lock:
            known = None if self._is_forgetful else self._answers.get(key)
            answer = known or self._take_effect(path, key, asked)
            self._answers[key] = answer
            took_effect = known is None and answer[0] == 200
            line = {"path": path, **asked, "key": key, "status": answer[0], "effect": took_effect}
            self._ledger.write(json.dumps(line) + "\n")
            self._ledger.flush()
            is_held, self._holds = self._holds and took_effect, self._holds and not took_effect
            return answer, is_held

    def hold(self) -> None:
        """Hold back the answer of the next effect."""
        with self._lock:
            self._holds = True

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def _take_effect(self, path: str, key: str, asked: dict[str, Any]) -> Answer:
        order = str(asked["order_id"])
        number = blake2b(key.encode(), digest_size=3).hexdigest()
        if path == "/visits":
            self._technicians[order] = asked["at"]
            return 200, {"number": f"V-{number}", "order_id": order, "at": asked["at"]}
        if path != "/refunds":
            return 404, {"error": f"no such path: {path}"}
        if _kind(order) == TOO_LATE:
            return 422, {"error": "bought more than 90 days ago"}
        if not 0 < asked["cents"] <= _price(order):
            return 422, {"error": f"{asked['cents']} cents is not what was paid"}
        self._refunded[order] = self._refunded.get(order, 0) + asked["cents"]
        return 200, {"number": f"R-{number}", "order_id": order, "cents": asked["cents"]}

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
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if self.path == "/hold":
                shop.hold()
                self._answer(200, {})
                return
            time.sleep(ANSWER_SECONDS)
            (status, answer), is_held = shop.act(self.path, self.headers.get("Idempotency-Key", ""), asked)
            if is_held:
                report("held", asked)
                with suppress(OSError):
                    self.rfile.read(1)  # returns when the caller is gone
                return
            self._answer(status, answer)
            report("answered", asked)

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


def report(event: str, asked: dict[str, Any]) -> None:
    """Report an event to the director: one write per line, from any thread."""
    sys.stdout.write(json.dumps({"event": event, "order": asked.get("order_id", "")}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until the parent ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--forgetful", action="store_true")
    given = parser.parse_args()
    end_with_parent()
    shop = Shop(given.ledger, is_forgetful=given.forgetful)
    server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(shop))
    server.daemon_threads = True
    sys.stdout.write(json.dumps({"event": "open", "port": server.server_address[1]}) + "\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
