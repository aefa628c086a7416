"""The recovery log's chain: whatever is changed, removed or moved is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import Happening, LogEntry, NewEntry

NEW = [NewEntry(kind=Happening.TAKEN, run=f"r{n}", session="s", body=b"{}") for n in range(4)]
LOG = recovery_log.seal(0, recovery_log.START, 7, NEW)


def test_a_log_that_nobody_touched_is_sound_however_it_was_appended() -> None:
    recovery_log.verify_all(LOG, length=4, head=LOG[-1].check)
    recovery_log.verify_all([], length=0, head=recovery_log.START)
    rest = recovery_log.seal(1, LOG[0].check, 7, NEW[1:])
    assert [LOG[0], *rest] == LOG


@pytest.mark.parametrize(
    "touch",
    [
        lambda log: [replace(log[0], body=b"[]"), *log[1:]],
        lambda log: [replace(log[0], kind=Happening.LEFT), *log[1:]],
        lambda log: [replace(log[0], run="r", session="0s"), *log[1:]],
        lambda log: [replace(log[0], at_ms=8), *log[1:]],
        lambda log: log[1:],
        lambda log: log[:-1],
        lambda log: [log[0], *log[2:]],
        lambda log: [log[1], log[0], *log[2:]],
        lambda log: [*log, *recovery_log.seal(4, log[-1].check, 7, NEW[:1])],
    ],
)
def test_a_log_that_was_touched_is_found(touch: Callable[[list[LogEntry]], list[LogEntry]]) -> None:
    with pytest.raises(Corrupt, match="recovery log"):
        recovery_log.verify_all(touch(LOG), length=4, head=LOG[-1].check)


def test_an_entry_is_verified_against_the_one_before_it() -> None:
    assert recovery_log.verify(LOG[0].check, LOG[1]) is LOG[1]
    with pytest.raises(Corrupt, match="entry 1"):
        recovery_log.verify(recovery_log.START, LOG[1])
