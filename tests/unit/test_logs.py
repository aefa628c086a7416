"""What is logged of runs, with which fields, and that no log can stop a worker."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import Control
from ninelives.logs.fields import RunFields
from ninelives.logs.formats import MOST_BYTES, JsonFormatter, TextFormatter, fitted
from ninelives.logs.log_format import LogFormat
from ninelives.logs.output import LogPrinter, PipeHandler, set_up, with_field

QUICK = nl.Retry(attempts=3, base_seconds=0.01)


class Kept(logging.Handler):
    """Keeps every record as JSON."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[dict[str, Any]] = []
        self.setFormatter(JsonFormatter())
        self.addFilter(RunFields())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))

    def events(self) -> list[tuple[str, str]]:
        return [(line["severity"], line["event"]) for line in self.lines if "event" in line]


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, root, ours = Kept(), logging.getLogger(), logging.getLogger("ninelives")
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    yield handler
    ours.setLevel(logging.NOTSET)
    root.removeHandler(handler)


def run(agent: Any, *args: Any, id: str = "r") -> Any:
    async def main() -> Any:
        async with nl.Runtime("memory:") as rt:
            return await rt.run(agent, *args, id=id)

    return asyncio.run(main())


def test_a_run_without_trouble_logs_its_start_and_its_end(kept: Kept) -> None:
    @nl.action(name="logs.fine", resumable=True)
    async def fine() -> int:
        return 1

    @nl.agent(name="logs.calm")
    async def calm() -> int:
        return sum([await fine() for _ in range(20)])

    assert run(calm) == 20
    assert kept.events() == [("INFO", "started"), ("INFO", "completed")]
    assert {line["run"] for line in kept.lines} == {"r"}
    assert all(line["agent"] == "logs.calm" and line["epoch"] == 1 and line["session"] for line in kept.lines)


def test_each_retry_is_logged_with_step_attempt_reason_and_time(kept: Kept) -> None:
    @nl.decision(name="logs.think", retry=QUICK)
    async def think() -> str:
        raise ConnectionError("provider away\nfor now")

    @nl.agent(name="logs.outage")
    async def outage() -> str:
        return await think()

    with pytest.raises(nl.NineLivesError):
        run(outage)
    retried = [line for line in kept.lines if line.get("event") == "retried"]
    assert [(one["attempt"], one["of"], one["step"]) for one in retried] == [
        (1, 3, "logs.think[0]"),
        (2, 3, "logs.think[0]"),
    ]
    assert retried[0]["reason"] == "ConnectionError: provider away\nfor now"
    assert retried[0]["next_attempt"] >= retried[0]["ts"]
    assert "\n" not in retried[0]["msg"]
    failed = kept.lines[-1]
    assert (failed["severity"], failed["event"], failed["step"]) == ("ERROR", "failed", "logs.think[0]")
    assert "provider away" in failed["reason"]


def test_a_handled_failure_is_not_the_reason_of_another(kept: Kept) -> None:
    @nl.decision(name="logs.poor", retry=QUICK)
    async def poor() -> str:
        raise ConnectionError("away")

    @nl.agent(name="logs.other")
    async def other() -> None:
        with suppress(ConnectionError):
            await poor()
        raise ValueError("something else")

    with pytest.raises(nl.NineLivesError):
        run(other)
    failed = kept.lines[-1]
    assert failed["event"] == "failed"
    assert failed["reason"] == "ValueError: something else"
    assert "step" not in failed


def test_a_question_to_a_person_is_logged(kept: Kept) -> None:
    @nl.action(name="logs.pay", approval=True)
    async def pay(cents: int) -> str:
        return "paid"

    @nl.agent(name="logs.buyer")
    async def buyer() -> str:
        return await pay(5)

    async def main() -> None:
        async with nl.Runtime("memory:") as rt:
            handle = await rt.start(buyer, id="b")
            working = asyncio.create_task(rt.work(1))
            while not (items := await rt.inbox()):  # noqa: ASYNC110 (the store has no event for it)
                await asyncio.sleep(0.01)
            await items[0].approve(by="me")
            assert await handle.result() == "paid"
            working.cancel()

    asyncio.run(main())
    assert kept.events() == [("INFO", "started"), ("WARNING", "asked"), ("INFO", "completed")]
    asked = kept.lines[1]
    assert (asked["step"], asked["kind"], asked["run"]) == ("logs.pay[0]", "approval", "b")


def test_lines_of_the_user_and_of_nl_log_carry_run_and_step(kept: Kept) -> None:
    mine = logging.getLogger("logs.mine")

    @nl.action(name="logs.body")
    async def body() -> None:
        nl.log.warning("from a step")
        # A user's own field named as ours must neither raise nor be overwritten.
        mine.warning("mine", extra={"run": "other", "colour": "red"})

    @nl.agent(name="logs.talks")
    async def talks() -> None:
        nl.log.info("from the agent")
        await body()

    run(talks)
    mine.warning("outside")
    said = {line["msg"]: line for line in kept.lines}
    assert said["from a step"]["step"] == "logs.body[0]"
    assert said["from a step"]["attempt"] == 1
    assert said["from the agent"]["run"] == "r"
    assert "step" not in said["from the agent"]
    assert (said["mine"]["run"], said["mine"]["colour"], said["mine"]["agent"]) == (
        "other",
        "red",
        "logs.talks",
    )
    assert "run" not in said["outside"]


# Formats ------------------------------------------------------------------------------------------


def record(message: str, **known: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "x", "levelname": "INFO", "levelno": 20, "msg": message, **known})
    RunFields().filter(made)
    return made


def test_text_has_time_level_message_and_run() -> None:
    line = TextFormatter().format(record("hello\x1b[31m", run="r", step="a[0]", created=1_794_936_039.15))
    assert line == "2026-11-17 17:20:39.150Z INFO    hello\\x1b[31m [run r, a[0]]"


def test_a_line_of_json_is_never_too_long_and_always_whole() -> None:
    known = {f"field{number}": "€" * 900 for number in range(30)}
    line = JsonFormatter().format(record("x" * 100_000, run="r", **known))
    found = json.loads(line)
    assert len(line.encode()) < MOST_BYTES
    assert (found["run"], found["cut"], found["msg"][:5]) == ("r", True, "xxxxx")


def test_a_long_traceback_keeps_its_end() -> None:
    def deep(left: int) -> None:
        if not left:
            raise ValueError("at the bottom")
        deep(left - 1)

    try:
        deep(300)
    except ValueError:
        line = JsonFormatter().format(record("oops", exc_info=sys.exc_info()))
    assert len(line.encode()) < MOST_BYTES
    assert json.loads(line)["exception"].endswith("ValueError: at the bottom")


def test_arguments_that_do_not_fit_their_format_are_logged_all_the_same() -> None:
    assert "could not be formatted" in JsonFormatter().format(record("%d", args=("x",)))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"ts":"now","msg":"a\\u202eb","big":123456789012345678901.50}', None),
        ('{"msg":"theirs","worker":"seven"}', "seven"),
    ],
)
def test_a_workers_json_keeps_its_fields_and_gets_the_worker(line: str, expected: str | None) -> None:
    found = json.loads(with_field(line, 3))
    assert found.pop("worker") == (expected or 3)
    assert found == {name: value for name, value in json.loads(line).items() if name != "worker"}


@pytest.mark.parametrize("line", ["plain", "[1]", '"text"', "17", "{", "", "{}", '{"a":1} trailing'])
def test_any_other_output_of_a_worker_becomes_json_too(line: str) -> None:
    found = json.loads(with_field(line, 3))
    assert isinstance(found, dict)
    if line != "{}":
        assert (found["msg"], found["worker"]) == (line, 3)


def test_fitted_leaves_short_fields_as_they_are() -> None:
    assert json.loads(fitted({"a": 1, "b": "ä"})) == {"a": 1, "b": "ä"}


# A log that is full, closed or not read -----------------------------------------------------------


def test_a_full_pipe_loses_lines_and_says_so_and_never_waits() -> None:
    reader, writer = os.pipe()
    handler = PipeHandler(writer)
    handler.setFormatter(JsonFormatter())
    for number in range(5_000):
        handler.emit(record(f"line {number} {'x' * 500}"))  # far more than the pipe holds
    os.set_blocking(reader, False)
    first = os.read(reader, 1 << 20)
    handler.emit(record("there is room again"))
    handler.emit(record("and again"))
    *_, note, last, again = [json.loads(line) for line in (first + os.read(reader, 1 << 20)).splitlines()]
    assert "lines of this log were lost" in note["msg"]
    assert [last["msg"], again["msg"]] == ["there is room again", "and again"]
    os.close(reader)
    handler.emit(record("nobody reads"))  # raises nothing
    os.close(writer)


def test_a_printer_that_is_not_read_drops_lines_and_never_waits() -> None:
    gate, printed = threading.Event(), []

    def write(line: str) -> None:
        gate.wait()
        printed.append(line)

    printer = LogPrinter(LogFormat.JSON, write)
    for number in range(10_500):
        printer.report(f"line {number}")
    gate.set()
    printer.close()
    found = [json.loads(line)["msg"] for line in printed]
    assert found[0] == "line 0"
    assert any("lines of this log were lost" in line for line in found)


FILLED = """
import os, resource, sys, threading
from ninelives.logs.log_format import LogFormat
from ninelives.logs.output import LogPrinter, print_line

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
tried = threading.Semaphore(0)

def write(line):
    try:
        print_line(line)
    finally:
        tried.release()

printer = LogPrinter(LogFormat.JSON, write)
for number in range(20):
    printer.report(f"line {number}")
for _ in range(20):
    tried.acquire()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
printer.report("there is room again")
printer.close()
"""


def test_a_printer_whose_disk_was_full_says_how_many_lines_were_lost(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as stderr:
        subprocess.run([sys.executable, "-c", FILLED], stderr=stderr, check=True)
    *kept, room, note = log.read_text().splitlines()
    whole = [line for line in kept if line.endswith("}")]
    assert 0 < len(whole) < 20
    assert len(kept) - len(whole) <= 1  # the line at which the disk became full has an end
    assert json.loads(room)["msg"] == "there is room again"
    assert json.loads(note)["msg"] == f"{20 - len(whole)} lines of this log were lost: it was full"


WORKER = """
import logging, os, resource
from ninelives.logs.formats import JsonFormatter
from ninelives.logs.output import PipeHandler

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
handler = PipeHandler(2)
handler.setFormatter(JsonFormatter())
logging.getLogger().addHandler(handler)
for number in range(20):
    logging.warning("line %d", number)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
logging.warning("there is room again")
"""


def test_a_worker_whose_disk_was_full_says_how_many_lines_were_lost(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as stderr:
        subprocess.run([sys.executable, "-c", WORKER], stderr=stderr, check=True)
    *kept, note, room = log.read_text().splitlines()
    whole = [line for line in kept if line.endswith("}")]
    assert len(kept) - len(whole) <= 1
    assert json.loads(note)["msg"] == f"{20 - len(whole)} lines of this log were lost: it was full"
    assert json.loads(room)["msg"] == "there is room again"


def test_a_printer_that_is_closed_raises_nothing() -> None:
    def write(line: str) -> None:
        raise BrokenPipeError

    printer = LogPrinter(LogFormat.TEXT, write)
    printer.on_output(1, "lost")
    printer.close()


# Set-up in a worker -------------------------------------------------------------------------------


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """Return the root logger without the handlers of pytest."""
    logger, ours = logging.getLogger(), logging.getLogger("ninelives")
    before = list(logger.handlers)
    logger.handlers.clear()
    try:
        yield logger
    finally:
        logger.handlers[:] = before
        ours.setLevel(logging.NOTSET)


def test_logging_that_the_code_has_set_up_stays() -> None:
    own = logging.StreamHandler(sys.stderr)
    with bare_root() as root:
        root.addHandler(own)
        set_up(LogFormat.TEXT)
        assert root.handlers == [own]
    assert any(isinstance(one, RunFields) for one in own.filters)


def test_with_json_only_handlers_of_the_terminal_are_replaced(tmp_path: Path) -> None:
    kept = logging.FileHandler(tmp_path / "own.log", delay=True)
    with bare_root() as root:
        root.addHandler(kept)
        root.addHandler(logging.StreamHandler(sys.stdout))
        set_up(LogFormat.JSON)
        assert [type(one) for one in root.handlers] == [logging.FileHandler, PipeHandler]
    kept.close()


@nl.action(name="logs.pay")
async def pay(cents: int) -> int:
    return cents


@nl.agent(name="logs.paying")
async def paying() -> str:
    try:
        await pay(9)
    except nl.Denied:
        return str(await pay(5))
    return "paid"


@nl.policy
def small_only(call: nl.Call) -> nl.Allow | nl.Deny:
    return nl.Deny("too much") if call.args.get("cents", 0) > 5 else nl.Allow()


def test_what_is_denied_and_what_is_held_is_logged_once(kept: Kept) -> None:
    async def main() -> None:
        async with nl.Runtime("memory:", policy=small_only) as rt:
            halt = await rt.halt(action="logs.pay", reason="look", by="ada")
            run = await rt.start(paying, id="r")
            for _ in range(2):  # it asks again, and is held again
                await rt.work(until_idle=True)
                await rt.list()
                rt.store.control_run("r", Control.WAKE)
            await rt.unhalt(halt.id, by="ada")
            await rt.work(until_idle=True)
            assert await run.result() == "5"

    asyncio.run(main())
    said = [(one["severity"], one["event"], one.get("step")) for one in kept.lines if "event" in one]
    assert said == [
        ("INFO", "started", None),
        ("WARNING", "held", "logs.pay[0]"),
        ("WARNING", "denied", "logs.pay[0]"),
        ("INFO", "completed", None),
    ]
    held, denied = (one for one in kept.lines if one.get("event") in ("held", "denied"))
    assert "run r (logs.paying) logs.pay[0] waits until the halt " in held["msg"]
    assert denied["reason"] == "the policy denies it: too much"
