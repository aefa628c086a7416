"""The judge finds what it is there to find: each planted misdeed is seen, and an innocent ledger is not."""

from __future__ import annotations

import pytest

from tests.fleet.judge import judge
from tests.fleet.ledger import Entry, Fact

STARTED = Entry(Fact.STARTED, "r")
INNOCENT = [
    STARTED,
    Entry(Fact.CLAIMED, "r", epoch=1, length=1, pid=1),
    Entry(Fact.BEGIN, "r", "0", pid=1),
    Entry(Fact.BEGIN, "r", "0", pid=2),  # not recorded yet: it may begin again
    Entry(Fact.COMMITTED, "r", epoch=1, length=3, pid=1),
    Entry(Fact.CLAIMED, "r", epoch=3, length=3, pid=2),
    Entry(Fact.COMMITTED, "r", epoch=1, length=3, pid=1),  # told late, written before
    Entry(Fact.TOLD, "r", "0", pid=2),
    Entry(Fact.WAKES, pid=1),
    Entry(Fact.EFFECT, "r", "0", pid=1),  # a body that had begun may land late
    Entry(Fact.BEGIN, "r", "0", pid=1, thread=2),  # admitted before it stood still
    Entry(Fact.BEGIN, "r", "2", pid=2, start=1),  # in doubt: its process is gone, and it had not happened
    Entry(Fact.BEGIN, "r", "2", pid=3, start=2),
    Entry(Fact.EFFECT, "r", "2", pid=3, start=2),
    Entry(Fact.BEGIN, "r", "3", pid=2, start=1),
    Entry(Fact.BEGIN, "r", "3", pid=3, start=2),
]


def test_an_innocent_ledger_is_innocent() -> None:
    assert judge(INNOCENT, {"r": 7}, {"r": 7}) == []


@pytest.mark.parametrize(
    ("more", "result", "words"),
    [
        (STARTED, "lost", "I1"),
        (STARTED, "running", "I6"),
        (STARTED, 8, "I7"),
        (Entry(Fact.BEGIN, "r", "0", pid=3), 7, "I2"),
        (Entry(Fact.COMMITTED, "r", epoch=1, length=4, pid=1), 7, "stale write"),
        (Entry(Fact.BEGIN, "r", "1", pid=1), 7, "body after the lease"),
        (Entry(Fact.BEGIN, "r", "2", pid=4, start=3), 7, "began although start 2 had taken effect"),
        (Entry(Fact.EFFECT, "r", "2", pid=2, start=1), 7, "took effect after start 2"),
        (Entry(Fact.BEGIN, "r", "3", pid=2, start=1), 7, "began after start 2"),
        (Entry(Fact.EFFECT, "r", "3", pid=2, start=1), 7, "landed although it was said not to have happened"),
    ],
)
def test_each_misdeed_is_seen(more: Entry, result: object, words: str) -> None:
    found = judge([*INNOCENT, more], {"r": 7}, {"r": result})
    assert found
    assert all(words in one for one in found)
