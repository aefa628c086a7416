"""Compute the four numbers from both stages, and compare them with their targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ninelives.demo.director import DemoStage

RECOVERY_SECONDS = 1.0
ASKED_RECOVERY_SECONDS = 30.0


class Number(Struct, frozen=True):
    """A measured number, its target, and whether the target is met."""

    name: str
    value: str
    target: str
    is_met: bool
    note: str
    amount: float | None = None
    """The value as a number: seconds, or a share of 1; None when nothing was measured."""


class Savings(Struct, frozen=True):
    """Model calls and tokens that were paid, and those that a restart from scratch would add."""

    asked: int
    asked_again: int
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
    return DemoReport(
        numbers=(
            *_recovery_time(crashed),
            _duplicates(crashed),
            _consistency(calm, crashed, is_scripted=is_scripted),
            _recovery_rate(crashed),
        ),
        savings=_savings(crashed),
        kills=len(crashed.kills),
        interrupted=sum(row.crashes for row in crashed.rows),
        replayed=sum(row.replayed for row in crashed.rows),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _recovery_time(stage: DemoStage) -> tuple[Number, Number]:
    count = len(stage.recoveries)
    if not count:
        missing = Number("recovery time", "none", "at least one", False, "nothing was interrupted")
        return missing, missing
    suspects = [one.seconds - one.python_seconds for one in stage.recoveries if one.is_suspect]
    ours = [one.seconds - one.python_seconds for one in stage.recoveries if not one.is_suspect] or suspects
    whole = [one.seconds for one in stage.recoveries]
    solo = f"; {len(suspects)} killed twice in a row ran solo: {max(suspects):.3f} s" if suspects else ""
    return (
        Number(
            "recovery time p99",
            f"{percentile(ours, 0.99):.3f} s",
            f"< {RECOVERY_SECONDS:g} s",
            percentile(ours, 0.99) < RECOVERY_SECONDS,
            f"kill to new step, without starting Python; median {percentile(ours, 0.5):.3f} s"
            f" of {len(ours)}{solo}",
        ),
        Number(
            "with Python's start",
            f"{percentile(whole, 0.99):.3f} s",
            f"< {ASKED_RECOVERY_SECONDS:g} s",
            percentile(whole, 0.99) < ASKED_RECOVERY_SECONDS,
            f"the same, including Python's start; median {percentile(whole, 0.5):.3f} s",
        ),
    )


def effects(stage: DemoStage) -> Counter[tuple[str, str, str]]:
    """Count how often each effect happened, by the shop's ledger."""
    return Counter(_effect(line) for line in stage.ledger if line["effect"])


def _effect(line: dict[str, Any]) -> tuple[str, str, str]:
    return line["path"].strip("/"), line["order_id"], str(line.get("cents", line.get("at")))


def _duplicates(stage: DemoStage) -> Number:
    taken = effects(stage)
    extra = taken.total() - len(taken) + _asked_though_recorded(stage)
    repeated = sum(not line["effect"] and line["status"] == 200 for line in stage.ledger)
    return Number(
        "duplicate rate",
        f"{extra / max(1, len(taken)):.1%}",
        "0",
        extra == 0,
        f"the shop's ledger: {taken.total()} effects, {len(taken)} different; {repeated} repeated requests "
        "had no effect",
    )


def _asked_though_recorded(stage: DemoStage) -> int:
    """Count decisions that were already recorded at the kill but requested again: there must be none.

    The agent's n-th decision, from 0, is requested with 1 + 2n messages.
    """
    return sum(
        line["event"] == "asked"
        and line["run"] == recovery.run
        and line["messages"] < 1 + 2 * recovery.decisions
        for recovery in stage.recoveries
        for line in stage.bill[recovery.billed :]
    )


def _consistency(calm: DemoStage, crashed: DemoStage, *, is_scripted: bool) -> Number:
    tickets = [row.id for row in calm.rows]
    same = sum(
        _comparable(calm.results.get(one), is_scripted) == _comparable(crashed.results.get(one), is_scripted)
        and calm.results.get(one) is not None
        for one in tickets
    )
    has_same_effects = effects(calm) == effects(crashed)
    kept = crashed.checkpoints - crashed.changed_checkpoints
    parts = [*([1.0] * same), *([0.0] * (len(tickets) - same)), float(has_same_effects)]
    parts += [1.0] * kept + [0.0] * crashed.changed_checkpoints
    return Number(
        "consistency",
        f"{sum(parts) / len(parts):.1%}",
        "100%",
        all(parts),
        f"{same} of {len(tickets)} results and {'all' if has_same_effects else 'NOT all'} effects as without "
        f"crashes; {kept} of {crashed.checkpoints} checkpoints unchanged",
    )


def _comparable(reply: Any, is_scripted: bool) -> Any:
    """Return the part of a reply that must be equal; a real model may word its text differently."""
    return reply if is_scripted or reply is None else sorted(reply.done)


def _recovery_rate(stage: DemoStage) -> Number:
    done = sum(row.id in stage.results for row in stage.rows)
    return Number(
        "recovery rate",
        f"{done / len(stage.rows):.1%}",
        "100%",
        done == len(stage.rows),
        f"{done} of {len(stage.rows)} tickets completed",
    )


def _savings(stage: DemoStage) -> Savings:
    """Compute savings from the model's bill. A restart from scratch pays again for each replayed decision."""
    tokens: dict[tuple[str, int], int] = {}
    for line in stage.bill:
        if line["event"] == "answered":
            tokens[line["run"], line["messages"]] = line["tokens"]
    asked = [(line["run"], line["messages"]) for line in stage.bill if line["event"] == "asked"]
    saved = [
        tokens.get((recovery.run, 1 + 2 * number), 0)
        for recovery in stage.recoveries
        for number in range(recovery.decisions)
    ]
    return Savings(
        asked=len(asked),
        asked_again=len(asked) - len(set(asked)),
        tokens=sum(line["tokens"] for line in stage.bill if line["event"] == "answered"),
        calls_saved=len(saved),
        tokens_saved=sum(saved),
    )
