"""A log record as one line: of text for people, or of JSON for programs.

A line is at most `MOST_BYTES` long, so that a pipe takes it whole or not at all: lines of several processes
do not mix, and none is cut in the middle of its JSON.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import msgspec

from ninelives.core.clock import moment
from ninelives.core.secret import masked, masked_text
from ninelives.logs.fields import NAMES
from ninelives.views.escape import json_text, shortened, shown

MOST_BYTES = 4096
"""What Linux writes to a pipe in one piece (PIPE_BUF)."""

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode
_CUT, _SHORT = 1_000, 300
_OURS = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}
_FIRST = ("ts", "severity", "msg", "logger", "event", *NAMES)


class TextFormatter(logging.Formatter):
    """Time, level, message; the run and step after it, unless the message is about them already."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text: one line, and one for each line of a traceback."""
        line = f"{_time(record)} {record.levelname:<7} {shown(_message(record))}"
        known = vars(record)
        if known.get("run") and "event" not in known:
            step = f", {known['step']}" if known.get("step") else ""
            line += shown(f" [run {known['run']}{step}]")
        return "\n".join((line, *map(shown, self._stack(record).splitlines())))

    def _stack(self, record: logging.LogRecord) -> str:
        return masked_text(self.formatException(record.exc_info)) if record.exc_info else ""


class JsonFormatter(logging.Formatter):
    """One JSON object in one line: ts severity msg logger, then what is known of run and step."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON of at most `MOST_BYTES`, with a line break to come."""
        found: dict[str, Any] = {"ts": _time(record, "T"), "severity": record.levelname}
        found |= {"msg": _message(record), "logger": record.name}
        found |= {
            name: masked(value) for name, value in vars(record).items() if name not in _OURS and value != ""
        }
        if record.exc_info:
            found["exception"] = masked_text(self.formatException(record.exc_info))
        return fitted(found)


def fitted(fields: dict[str, Any]) -> str:
    """Return fields as one line of JSON that is not too long; what is long is cut, and `cut` says so."""
    text = _encoded(fields)
    if _fits(text):
        return text
    for most in (_CUT, _SHORT):
        cut = {name: _shorter(name, value, most) for name, value in fields.items()} | {"cut": True}
        text = _encoded(cut)
        if _fits(text):
            return text
    # Many fields of the user's own, then: keep those that we know.
    kept = {name: value for name, value in cut.items() if name in (*_FIRST, "cut")}
    return _encoded({name: _shorter(name, value, 100) for name, value in kept.items()})


def _fits(text: str) -> bool:
    return len(text if text.isascii() else text.encode()) < MOST_BYTES


def _shorter(name: str, value: Any, most: int) -> Any:
    if not isinstance(value, str):
        return value
    if name == "exception" and len(value) > most:
        return f"…{value[-most:]}"  # the last frames say the most
    return value if len(value) <= most else shortened(value, most)


def _encoded(fields: dict[str, Any]) -> str:
    return json_text(_ENCODE(fields))


def _message(record: logging.LogRecord) -> str:
    try:
        said = masked_text(record.getMessage())
        return said if said.isprintable() else said.encode(errors="backslashreplace").decode()
    except Exception as error:  # noqa: BLE001 (arguments that do not fit their format, or raise)
        return f"{record.msg} (its arguments could not be formatted: {error!r})"


def _time(record: logging.LogRecord, between: str = " ") -> str:
    return time_text(record.created, between)


def time_text(seconds: float, between: str = " ") -> str:
    """Return a time as lines of the log begin with it; `between` stands between date and time."""
    whole = int(seconds)
    return f"{_second(whole, between)}.{int((seconds - whole) * 1000):03}Z"


@lru_cache(maxsize=64)
def _second(seconds: int, between: str) -> str:
    return f"{moment(seconds * 1000):%Y-%m-%d{between}%H:%M:%S}"
