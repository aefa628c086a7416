"""What became of steps that a death interrupted, from the records after the takeover."""

from __future__ import annotations

import msgspec
import pytest

from ninelives.core.model.run import Kind, Record
from ninelives.views.interrupted import interrupted_text

STEP = "#place#0"
START = b'{"w":"session","n":0}'


def journal(*kinds: Kind, body: bytes = START) -> list[Record]:
    """Records of one step; the first one was there before the takeover."""
    return [
        Record(seq=1 + at, kind=kind, step=STEP, at_ms=0, body=body if kind is Kind.INTENT else b"{}")
        for at, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((Kind.INTENT, Kind.RESULT), "settled, and not executed again"),
        ((Kind.INTENT, Kind.FAILURE), "settled, and not executed again"),
        ((Kind.INTENT, Kind.DOUBT, Kind.ASKED, Kind.RESULT), "settled, and not executed again"),
        ((Kind.INTENT, Kind.VOIDED, Kind.INTENT, Kind.RESULT), "proved not done, and started again"),
        ((Kind.INTENT, Kind.DOUBT, Kind.ASKED), "in doubt"),
        ((Kind.INTENT, Kind.VOIDED), "proved not done"),
        ((Kind.INTENT,), "interrupted"),
    ],
)
def test_a_protected_action_is_said_to_be_repeated_only_if_it_was(
    kinds: tuple[Kind, ...], expected: str
) -> None:
    assert interrupted_text((STEP,), journal(*kinds), 2) == [f"{expected}: place[0]"]


def test_a_resumable_step_is_executed_again() -> None:
    records = journal(Kind.INTENT, Kind.RESULT, body=msgspec.json.encode({}))
    assert interrupted_text((STEP,), records, 2) == ["executed again: place[0]"]


def test_of_a_pruned_journal_nothing_is_claimed() -> None:
    assert interrupted_text((STEP, "#other#1"), [], 2) == ["interrupted: place[0], other[1]"]


def test_many_steps_are_cut() -> None:
    steps = [f"#step#{number}" for number in range(7)]
    (text,) = interrupted_text(steps, [], 2)
    assert text.endswith("step[4]…")
