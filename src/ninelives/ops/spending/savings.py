"""What recoveries saved, and what crashes cost: from the recovery log and the journals, nothing estimated.

The comparison is an agent that begins again from its first line after each death. Each recovery that found a
step recorded saved its execution once: a run that was killed three times saved its first step three times.

- Steps, decisions, tokens and seconds come from the recovery log, exact for what is in it. A worker that dies
  within a fraction of a second after a takeover may take its entry along; that recovery is then not counted.
- Models come from the journals of those runs: what was pruned has tokens, and no model. A decision that was
  recorded without usage counts as a decision without tokens.
- Actions that must not be repeated: how each start that a death had left open was settled, by the journals.
- Not counted, because nothing records it: results that a run got from another run's business key.

Reads only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt, UnknownRun
from ninelives.core.journal.recovery_log import Recovery
from ninelives.core.journal.replay import read_body
from ninelives.core.journal.settlement import read_start
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.run import Kind, Record, StepKind
from ninelives.core.values.token_usage import Usage, total
from ninelives.governance.budgets.prices import Price

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

_PAGE = 500
_DAY_MS = 86_400_000


class ModelSavings(Struct, frozen=True, kw_only=True):
    """Tokens that a model was not paid for again; `price` is None if it is not known."""

    model: str
    decisions: int
    tokens_in: int
    tokens_out: int
    price: float | None


class Settled(Struct, frozen=True, kw_only=True):
    """Starts of non-resumable actions that came into doubt: found done and not repeated; found not done, and
    started again; put before a person.
    """

    not_repeated: int = 0
    started_again: int = 0
    people: int = 0


class Day(Struct, frozen=True, kw_only=True):
    """What one day saved; `at_ms` is its beginning, in UTC."""

    at_ms: int
    recoveries: int
    steps: int
    tokens: int


class SavingsReport(Struct, frozen=True, kw_only=True):
    """What was saved, and what crashes cost, since a moment. Field names are stable: programs read them.

    `money` is the sum of all known prices, None if there is none; `unpriced_tokens` are those without one.
    `person_hours` and `person_money` are `recoveries` times what the caller stated, else None. Of the costs:
    `redone` are bodies begun again, by kind; `lost_seconds` is how long runs stood still, from the notice of
    a death to their next progress.
    """

    since_ms: int
    until_ms: int
    agent: str | None
    runs: int
    recoveries: int
    steps: int
    step_seconds: float
    decisions: int
    tokens: int
    models: tuple[ModelSavings, ...]
    money: float | None
    unpriced_tokens: int
    person_hours: float | None
    person_money: float | None
    settled: Settled
    redone: dict[str, int]
    lost_seconds: float
    disk_bytes: int
    days: tuple[Day, ...]


def read_savings(
    store: AnyStore,
    *,
    since_ms: int,
    agent: str | None = None,
    price: Price | None = None,
    manual_minutes: float | None = None,
    minute_price: float | None = None,
) -> SavingsReport:
    """Read what was saved since a moment. Raises Corrupt when the recovery log is damaged."""
    until_ms = store.read_clock()
    found = [(at, run, one) for at, run, one in _recoveries(store, since_ms) if agent in (None, one.agent)]
    by_run: defaultdict[str, list[Recovery]] = defaultdict(list)
    for _, run, one in found:
        by_run[run].append(one)
    journals = {run: _records(store, run) for run in by_run}
    models = _models(by_run, journals, price)
    tokens = sum(one.tokens for _, _, one in found)
    priced = [one for one in models if one.price is not None]
    minutes = None if manual_minutes is None else manual_minutes * len(found)
    return SavingsReport(
        since_ms=since_ms,
        until_ms=until_ms,
        agent=agent,
        runs=len(by_run),
        recoveries=len(found),
        steps=sum(one.replayed for _, _, one in found),
        step_seconds=sum(one.saved_ms for _, _, one in found) / 1000,
        decisions=sum(one.decisions for _, _, one in found),
        tokens=tokens,
        models=models,
        money=sum(one.price or 0.0 for one in priced) if priced else None,
        unpriced_tokens=max(0, tokens - sum(one.tokens_in + one.tokens_out for one in priced)),
        person_hours=None if minutes is None else minutes / 60,
        person_money=None if minutes is None or minute_price is None else minutes * minute_price,
        settled=_settled(journals.values(), since_ms),
        redone=_redone([one for _, _, one in found]),
        lost_seconds=sum(one.stood_still_ms or 0 for _, _, one in found) / 1000,
        disk_bytes=store.stats().disk_bytes,
        days=_days([(at, one) for at, _, one in found], since_ms, until_ms),
    )


def _recoveries(store: AnyStore, since_ms: int) -> Iterator[tuple[int, str, Recovery]]:
    """Yield recoveries, newest first: those that found something recorded, or made progress."""
    before: int | None = None
    while True:
        page = store.read_log(before=before, limit=_PAGE)
        for entry in page:
            if entry.at_ms < since_ms:
                return
            if entry.kind is Happening.RECOVERED:
                yield entry.at_ms, entry.run, msgspec.json.decode(entry.body, type=Recovery)
        if len(page) < _PAGE:
            return
        before = page[-1].seq


def _records(store: AnyStore, run: str) -> Sequence[Record]:
    try:
        return store.load_journal(run, since=0).records
    except (UnknownRun, Corrupt):
        return ()  # forgotten, or damaged: its tokens are known, its models are not


def _models(
    by_run: dict[str, list[Recovery]], journals: dict[str, Sequence[Record]], price: Price | None
) -> tuple[ModelSavings, ...]:
    """Return what was saved by model: each decision once for each recovery that found it recorded."""
    calls: Counter[str] = Counter()
    used: defaultdict[str, list[Usage]] = defaultdict(list)
    for run, recoveries in by_run.items():
        for usage, times in _decided(journals[run], recoveries):
            calls[usage.model] += times
            used[usage.model] += [usage] * times
    return tuple(_saved(model, calls[model], used[model], price) for model in sorted(calls))


def _saved(model: str, decisions: int, used: list[Usage], price: Price | None) -> ModelSavings:
    whole = total(used) or Usage(model=model)
    prices = [price(one) for one in used] if price is not None and model else [None]
    known = [one for one in prices if one is not None]
    return ModelSavings(
        model=model,
        decisions=decisions,
        tokens_in=whole.tokens_in,
        tokens_out=whole.tokens_out,
        price=float(sum(known)) if len(known) == len(prices) else None,
    )


def _decided(records: Sequence[Record], recoveries: Sequence[Recovery]) -> Iterator[tuple[Usage, int]]:
    turns = [record.seq for record in records if record.kind is Kind.TURN]
    for record in records:
        if record.kind is not Kind.RESULT or record.step_kind is not StepKind.DECISION or not record.body:
            continue
        # Of its own turn only: a recovery replays no turn before the one that was under way.
        until = next((seq for seq in turns if seq > record.seq), None)
        times = sum(
            record.seq < one.records and (until is None or one.records <= until) for one in recoveries
        )
        usage = read_body(record).usage
        if times and usage is not None:
            yield usage, times


def _settled(journals: Iterable[Sequence[Record]], since_ms: int) -> Settled:
    not_repeated = started_again = people = 0
    for records in journals:
        doubted: set[str] = set()
        for record in records:
            if record.kind is Kind.DOUBT and record.at_ms >= since_ms and record.body:
                people += bool(read_start(record).i)
                doubted.add(record.step)
            elif record.kind is Kind.VOIDED and record.step in doubted:
                started_again += 1
                doubted.discard(record.step)
            elif record.kind is Kind.RESULT and record.step in doubted:
                not_repeated += 1
                doubted.discard(record.step)
    return Settled(not_repeated=not_repeated, started_again=started_again, people=people)


def _redone(recoveries: Sequence[Recovery]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in recoveries:
        total.update(one.redone_kinds or ({"resumable": len(one.redone)} if one.redone else {}))
    return {kind: number for kind, number in sorted(total.items()) if kind not in ("once", "keyed")}


def _days(found: Sequence[tuple[int, Recovery]], since_ms: int, until_ms: int) -> tuple[Day, ...]:
    by_day: defaultdict[int, list[Recovery]] = defaultdict(list)
    for at_ms, one in found:
        by_day[at_ms // _DAY_MS].append(one)
    return tuple(
        Day(
            at_ms=day * _DAY_MS,
            recoveries=len(by_day[day]),
            steps=sum(one.replayed for one in by_day[day]),
            tokens=sum(one.tokens for one in by_day[day]),
        )
        for day in range(since_ms // _DAY_MS, until_ms // _DAY_MS + 1)
    )
