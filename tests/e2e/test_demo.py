"""The demo, as newcomers see it: it meets its targets, it says so, and it can fail."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.values.retry import Reason, classify
from ninelives.demo import model
from ninelives.demo.kills import Moment, plan
from ninelives.demo.model import Choice, Message
from ninelives.demo.shop import Shop

COMMAND = (sys.executable, "-W", "error", "-m", "ninelives.demo")
NUMBERS = ("recovery time p99", "duplicate rate", "consistency", "recovery rate")
LIMIT_SECONDS = 60


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "TMPDIR": str(tmp_path), "COLUMNS": "140"}


def run(environ: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, env=environ
    )


def test_without_a_terminal_it_prints_plain_lines_and_meets_its_targets(
    environ: dict[str, str], tmp_path: Path
) -> None:
    done = run(environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    # Up to nine: a quick machine has done all tickets before the last ones.
    assert len(re.findall(r"kill -9 \d+", done.stdout)) >= 3
    assert re.search(r"ticket-\d recovered in \d+ ms .* [1-9]\d* steps replayed", done.stdout)
    for number in NUMBERS:
        assert re.search(rf"^{number} .* met ", done.stdout, re.MULTILINE), number
    assert re.search(r"Not paid twice: [1-9]\d* calls, [1-9]\d* tokens", done.stdout)
    assert "All targets met" in done.stdout
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_shop_that_forgets_keys_is_found_out(environ: dict[str, str]) -> None:
    done = run(environ, "--fault", "forgetful-shop", "--kills", "4")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^duplicate rate .* MISSED ", done.stdout, re.MULTILINE)
    assert re.search(r"^Missed: .*duplicate rate", done.stdout, re.MULTILINE)
    assert re.search(r"^recovery rate +100.0% .* met ", done.stdout, re.MULTILINE)


def test_the_numbers_can_be_had_as_json(environ: dict[str, str]) -> None:
    done = run(environ, "--json", "--seed", "1", "--tickets", "3", "--kills", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["is_met"] is True
    assert told["kills"] == 2
    assert {number["name"] for number in told["numbers"]} >= set(NUMBERS)
    assert told["savings"]["calls_saved"] >= 0


def test_on_a_terminal_it_shows_a_live_table(environ: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "--tickets", "3", "--kills", "3"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environ, "TERM": "xterm-256color", "LINES": "40"},
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = _read_all(ours)
        assert process.wait(LIMIT_SECONDS) == 0, shown
    assert shown.count("recovery") > 10, "the table was drawn again and again"
    for part in ("│ ticket-1", "crashed", "replayed", "\x1b[", "(number 1)", "Results", "All targets met"):
        assert part in shown, part


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_every_process_and_leaves_nothing(
    environ: dict[str, str], tmp_path: Path, signum: int
) -> None:
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, text=True, env={**environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if re.search(r"kill -9 \d", line))
        assert _children(tmp_path)
        process.send_signal(signum)
        rest = process.stdout.read()
        assert process.wait(LIMIT_SECONDS) == 130, rest
    assert "nothing is left behind" in rest
    assert list(tmp_path.iterdir()) == []
    assert _children(tmp_path) == []


def test_a_wrong_call_is_refused(environ: dict[str, str]) -> None:
    done = run(environ, "--kills", "0")
    assert done.returncode == 2
    assert "give 1 or more" in done.stderr


def _read_all(terminal: int) -> str:
    read = bytearray()
    with open(terminal, "rb", buffering=0) as screen:
        try:
            while piece := screen.read(65536):
                read += piece
        except OSError:  # Linux says so when the other side is closed
            pass
    return read.decode(errors="replace")


def _children(home: Path) -> list[str]:
    """Return the process ids that have this directory in their environment."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if process.name.isdigit() and f"TMPDIR={home}".encode() in environment:
            found.append(process.name)
    return found


# The moments, the shop ------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [1, 3, 9, 20])
def test_a_seed_draws_the_same_kills_and_the_worst_is_among_them(kills: int) -> None:
    drawn = plan(kills, Random(7))
    assert drawn == plan(kills, Random(7))
    assert len(drawn) == kills
    assert Moment.EFFECT in {strike.moment for strike in drawn}
    assert drawn[0].moment is not Moment.RECOVERY


def test_every_kind_of_moment_is_drawn() -> None:
    assert {strike.moment for strike in plan(12, Random(3))} == set(Moment)


def test_the_shop_takes_effect_once_per_key_and_writes_down_both() -> None:
    shop = Shop()
    asked = {"order_id": "A-1001", "cents": 500}
    first = shop.act("/refunds", "key-1", asked)
    assert shop.act("/refunds", "key-1", asked) == first
    assert shop.read("/orders/A-1001")[1]["refunded_cents"] == 500
    shop.act("/refunds", "key-2", asked)
    assert shop.read("/orders/A-1001")[1]["refunded_cents"] == 1000
    assert [line["effect"] for line in shop.ledger] == [True, False, True]


def test_the_shop_refuses_what_came_too_late() -> None:
    shop = Shop()
    status, answer = shop.act("/refunds", "key", {"order_id": "A-1041", "cents": 100})
    assert status == 422
    assert "90 days" in answer["error"]


# A real model, against a pretended provider ----------------------------------------------------------

ASKED = [Message("customer", "Where is A-1001?")]
USED = {"order_id": "A-1001"}


class Provider(ThreadingHTTPServer):
    """Answers every request alike, and keeps what it was asked."""

    status = 200
    answer: bytes = b"{}"
    asked: dict[str, Any]
    headers: dict[str, str]
    path = ""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Provider)
        server.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.headers, server.path = {name.lower(): value for name, value in self.headers.items()}, self.path
        self.send_response(server.status)
        self.end_headers()
        self.wfile.write(server.answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def environ_of(server: Provider, name: str) -> dict[str, str]:
    address = f"http://127.0.0.1:{server.server_address[1]}"
    return {f"{name}_API_KEY": "secret", f"{name}_BASE_URL": address}


def test_openai_is_made_to_choose_a_tool(server: Provider) -> None:
    called = {"function": {"name": "order_status", "arguments": json.dumps(USED)}}
    told = {"choices": [{"message": {"tool_calls": [called]}}], "usage": {"total_tokens": 321}}
    server.answer = json.dumps(told).encode()
    choice, tokens = model.ask_provider(ASKED, environ_of(server, "OPENAI"))
    assert (choice, tokens) == (Choice("order_status", order_id="A-1001"), 321)
    assert server.path == "/chat/completions"
    assert server.headers["authorization"] == "Bearer secret"
    assert server.asked["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in server.asked["tools"]] == list(model.TOOLS)
    assert "Where is A-1001?" in server.asked["messages"][-1]["content"]


def test_anthropic_is_made_to_choose_a_tool(server: Provider) -> None:
    parts = [{"type": "text", "text": "…"}, {"type": "tool_use", "name": "order_status", "input": USED}]
    told = {"content": parts, "usage": {"input_tokens": 300, "output_tokens": 21}}
    server.answer = json.dumps(told).encode()
    choice, tokens = model.ask_provider(ASKED, environ_of(server, "ANTHROPIC"))
    assert (choice, tokens) == (Choice("order_status", order_id="A-1001"), 321)
    assert server.path == "/v1/messages"
    assert server.headers["x-api-key"] == "secret"
    assert server.asked["tool_choice"]["type"] == "any"
    assert [tool["name"] for tool in server.asked["tools"]] == list(model.TOOLS)


@pytest.mark.parametrize(
    ("status", "reason"), [(429, Reason.RATE_LIMITED), (503, Reason.TRANSIENT), (401, Reason.PERMANENT)]
)
def test_a_providers_refusal_is_classed_by_its_status(server: Provider, status: int, reason: Reason) -> None:
    server.status, server.answer = status, b'{"error": "no"}'
    with pytest.raises(model.ModelError, match=f"openai answers {status}: .*no") as caught:
        model.ask_provider(ASKED, environ_of(server, "OPENAI"))
    assert classify(caught.value) is reason


def test_a_provider_that_cannot_be_reached_is_asked_again() -> None:
    with Provider(("127.0.0.1", 0), Handler) as gone:
        environ = environ_of(gone, "ANTHROPIC")
    with pytest.raises(ConnectionError, match="anthropic cannot be reached") as caught:
        model.ask_provider(ASKED, environ)
    assert classify(caught.value) is Reason.TRANSIENT


def test_a_refused_key_is_said_before_anything_is_killed(server: Provider, environ: dict[str, str]) -> None:
    server.status, server.answer = 401, b'{"error": "invalid x-api-key"}'
    done = run({**environ, **environ_of(server, "ANTHROPIC")}, "--tickets", "1", "--kills", "1")
    assert done.returncode == 1
    assert "the demo failed" in done.stdout
    assert "anthropic answers 401" in done.stdout
    assert "invalid x-api-key" in done.stdout


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"choices": []}', b'{"content": []}'])
def test_an_answer_that_chooses_nothing_fails_for_good(data: bytes) -> None:
    with pytest.raises(nl.Permanent, match="chose none"):
        model.parse_answer(data)


def test_without_a_key_the_script_answers() -> None:
    assert model.provider({}) == "scripted"
    assert model.provider({"OPENAI_API_KEY": "secret"}) == "openai"
    assert model.provider({"ANTHROPIC_API_KEY": "secret"}) == "anthropic"
    assert model.scripted(ASKED) == Choice("order_status", order_id="A-1001")
