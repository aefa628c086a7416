"""Compute the four numbers from both stages, and compare them with their targets."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct, structs

from ninelives.chaos.findings.effects import executed_again
from ninelives.chaos.findings.metrics import Number, recovery_times
from ninelives.chaos.trial.trial import Trial
from ninelives.demo.board import TicketBoard


class DemoStage(Struct):
    """The observations of one stage: its trial and tickets, the shop's ledger and the model's bill."""

    trial: Trial
    board: TicketBoard
    ledger: list[dict[str, Any]]
    bill: list[dict[str, Any]]


class Savings(Struct, frozen=True):
    """Model calls and tokens that were paid, and those that a restart from scratch would add."""

    calls: int
    repeated: int
    tokens: int
    calls_saved: int
    tokens_saved: int


class DemoReport(Struct, frozen=True):
    """The result of the demo."""

    numbers: tuple[Number, ...]
    savings: Savings
    kills: int
    interrupted: int
    replayed: int

    @property
    def is_met(self) -> bool:
        """Whether every number meets its target."""
        return all(number.is_met for number in self.numbers)


def judge(calm: DemoStage, crashed: DemoStage, *, is_scripted: bool) -> DemoReport:
    """Compare the stage with crashes with the one without."""
    rows = crashed.board.rows.values()
    return DemoReport(
        numbers=(
            *_recovery_time(crashed.board),
            _duplicates(crashed),
            _consistency(calm, crashed, is_scripted=is_scripted),
            _recovery_rate(crashed.board),
        ),
        savings=_savings(crashed),
        kills=len(crashed.trial.faults),
        interrupted=sum(row.crashes for row in rows),
        replayed=sum(row.replayed for row in rows),
    )


def _recovery_time(board: TicketBoard) -> tuple[Number, ...]:
    suspects = [one for one in board.recoveries if one.is_suspect]
    first, *others = recovery_times([one for one in board.recoveries if not one.is_suspect] or suspects)
    if suspects:
        worst = max(one.seconds - one.load_seconds for one in suspects)
        note = f"{first.note}; {len(suspects)} killed twice in a row ran solo: {worst:.3f} s"
        first = structs.replace(first, note=note)
    return first, *others


def _effects(stage: DemoStage) -> Counter[tuple[str, str, str]]:
    """Count how often each effect happened, by the shop's ledger."""
    return Counter(
        (line["path"], line["order_id"], str(line.get("cents", line.get("at"))))
        for line in stage.ledger
        if line["effect"]
    )


def _duplicates(stage: DemoStage) -> Number:
    taken = _effects(stage)
    extra = taken.total() - len(taken) + len(executed_again(stage.trial))
    repeated = sum(not line["effect"] and line["status"] == 200 for line in stage.ledger)
    note = (
        f"the shop's ledger: {taken.total()} effects, {len(taken)} different; {repeated} repeated requests "
        "had no effect"
    )
    return Number("duplicate rate", f"{extra / max(1, len(taken)):.1%}", "0", extra == 0, note)


def _consistency(calm: DemoStage, crashed: DemoStage, *, is_scripted: bool) -> Number:
    results = [
        _comparable(reply, is_scripted) == _comparable(crashed.board.results.get(ticket), is_scripted)
        for ticket, reply in calm.board.results.items()
    ]
    has_same_effects, kept = _effects(calm) == _effects(crashed), crashed.board.checkpoints
    parts = [*results, has_same_effects, *kept]
    note = (
        f"{sum(results)} of {len(results)} results and {'all' if has_same_effects else 'NOT all'} effects as "
        f"without crashes; {sum(kept)} of {len(kept)} checkpoints unchanged"
    )
    return Number("consistency", f"{sum(parts) / len(parts):.1%}", "100%", all(parts), note)


def _comparable(reply: dict[str, Any] | None, is_scripted: bool) -> Any:
    """Return the part of a reply that must be equal; a real model may word its text differently."""
    return reply if is_scripted or reply is None else sorted(reply["done"])


def _recovery_rate(board: TicketBoard) -> Number:
    done, of = len(board.results), len(board.rows)
    note = f"{done} of {of} tickets completed"
    return Number("recovery rate", f"{done / of:.1%}", "100%", done == of, note)


def _savings(stage: DemoStage) -> Savings:
    """Compute savings from the model's bill. A restart from scratch pays again for each replayed decision.

    The agent's n-th decision, from 0, is requested with 1 + 2n messages.
    """
    calls = [(line["run"], line["messages"]) for line in stage.bill if line["event"] == "asked"]
    answers = [line for line in stage.bill if line["event"] == "answered"]
    tokens = {(line["run"], line["messages"]): line["tokens"] for line in answers}
    saved = [
        tokens.get((one.run, 1 + 2 * number), 0)
        for one in stage.board.recoveries
        for number in range(one.decisions)
    ]
    return Savings(
        calls=len(calls),
        repeated=len(calls) - len(set(calls)),
        tokens=sum(line["tokens"] for line in answers),
        calls_saved=len(saved),
        tokens_saved=sum(saved),
    )
