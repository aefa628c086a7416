"""What models were used for, and what that costs: from the journals, by agent, day, model, step, run or tree.

A decision counts where it was paid: an answer that a replay delivered, or that a cache gave, counts nothing.
Tokens and models are on record; prices are not, so what is shown is what the price list of now says.

- The journal of a run that ended long ago may be pruned. Its row still has its tokens; they count under the
  day on which it ended, with no model and no step.
- A run that `next_turn` has carried on may have lost the journals of its early turns; the same holds.
- A fork's records before its point are the other run's, and count there only.

Reads only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import Struct

from ninelives.core.errors import Corrupt, UnknownRun
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Kind, Record, RunQuery, RunRow
from ninelives.core.values.token_usage import Usage, total
from ninelives.governance.budgets.prices import Price
from ninelives.store import Progress

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

By = Literal["agent", "day", "model", "step", "run", "tree"]
GROUPS: tuple[str, ...] = get_args(By)
LABEL = "label:"
UNKNOWN = ""
_PAGE = 500
_OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE})


class GroupUsage(Struct, frozen=True, kw_only=True):
    """What a group used. `name` is empty where it is not on record.

    `usd` is the sum of the known prices, None if there is none; `unpriced_tokens` are those without a price.
    """

    name: str
    calls: int
    tokens_in: int
    tokens_out: int
    cached: int
    usd: float | None
    unpriced_tokens: int


class UsageReport(Struct, frozen=True, kw_only=True):
    """What was used since a moment, most first. Field names are stable: programs read them."""

    since_ms: int
    until_ms: int
    by: str
    groups: tuple[GroupUsage, ...]
    total: GroupUsage


class _PaidCall(Struct, frozen=True):
    group: str
    usage: Usage
    calls: int = 1


def read_usage(
    store: AnyStore,
    *,
    since_ms: int,
    by: str = "agent",
    agent: str | None = None,
    run: str | None = None,
    labels: dict[str, str] | None = None,
    price: Price | None = None,
    progress: Progress | None = None,
) -> UsageReport:
    """Read what was used since a moment. Raises UnknownRun."""
    until_ms, found = store.read_clock(), defaultdict[str, list[_PaidCall]](list)
    query = RunQuery(agent=agent, labels=labels or {}, changed_since_ms=since_ms, limit=_PAGE)
    rows = list(_rows(store, query)) if run is None else _tree(store, run)
    roots: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        for one in _calls(store, row, since_ms, by, roots):
            found[one.group].append(one)
        if progress is not None:
            progress(number, len(rows))
    groups = [_used(name, calls, price) for name, calls in found.items()]
    groups.sort(key=lambda one: (-(one.usd or 0.0), -(one.tokens_in + one.tokens_out), one.name))
    everything = [call for calls in found.values() for call in calls]
    return UsageReport(
        since_ms=since_ms,
        until_ms=until_ms,
        by=by,
        groups=tuple(groups),
        total=_used("total", everything, price),
    )


def _rows(store: AnyStore, query: RunQuery) -> Iterator[RunRow]:
    after: int | None = None
    while page := store.list_runs(_after(query, after)):
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].number


def _after(query: RunQuery, after: int | None) -> RunQuery:
    return RunQuery(
        agent=query.agent,
        labels=query.labels,
        parent=query.parent,
        changed_since_ms=query.changed_since_ms,
        limit=_PAGE,
        after=after,
    )


def _tree(store: AnyStore, run: str) -> list[RunRow]:
    """Return a run and all that it has spawned, directly or not. Raises UnknownRun."""
    row = store.read_run(run)
    if row is None:
        raise UnknownRun(f"there is no run {run!r}", remedy="List runs with ninelives ps --all")
    found = [row]
    for one in found:
        found += _rows(store, RunQuery(parent=one.id))
    return found


def _calls(
    store: AnyStore, row: RunRow, since_ms: int, by: str, roots: dict[str, str]
) -> Iterator[_PaidCall]:
    """Return the paid calls of a run; what its row counts beyond its journal is one call of its own."""
    # Of runs without tokens, too: a body may have charged money alone, which no row says.
    try:
        records: tuple[Record, ...] = store.load_journal(row.id, since=0).records
    except (UnknownRun, Corrupt):
        records = ()  # forgotten meanwhile, or damaged: `store verify` says so
    read = written = 0
    before = _forked_at(records)
    for record in records:
        if record.seq <= before or record.kind not in _OUTCOMES or not record.body:
            continue
        usage = read_body(record).usage
        if usage is None:
            continue
        read, written = read + usage.tokens_in, written + usage.tokens_out
        if record.at_ms >= since_ms:
            yield _PaidCall(_group(store, row, record, usage, by, roots), usage)
    left = Usage(max(0, row.tokens_in - read), max(0, row.tokens_out - written))
    if left.tokens and row.changed_ms >= since_ms:
        yield _PaidCall(_group(store, row, None, left, by, roots), left, 0)


def _forked_at(records: tuple[Record, ...]) -> int:
    """Return the number of the last record that came from another run; -1 without any."""
    return max((record.seq for record in records if record.kind is Kind.FORKED), default=-1)


def _group(
    store: AnyStore, row: RunRow, record: Record | None, usage: Usage, by: str, roots: dict[str, str]
) -> str:
    if by == "agent":
        return row.agent
    if by == "model":
        return usage.model
    if by == "run":
        return row.id
    if by == "step":
        return parse_step_id(record.step)[1] if record is not None else UNKNOWN
    if by == "day":
        at_ms = record.at_ms if record is not None else row.changed_ms
        return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()
    if by == "tree":
        return _root(store, row, roots)
    return row.labels.get(by.removeprefix(LABEL), UNKNOWN)


def _root(store: AnyStore, row: RunRow, roots: dict[str, str]) -> str:
    """Return the run at the top of a run's tree; the highest that is still known."""
    path, one = [row.id], row
    while one.parent is not None and one.id not in roots:
        above = store.read_run(one.parent)
        if above is None:
            break
        one = above
        path.append(one.id)
    root = roots.get(one.id, one.id)
    roots.update(dict.fromkeys(path, root))
    return root


def _used(name: str, calls: list[_PaidCall], price: Price | None) -> GroupUsage:
    prices = [_price(one.usage, price) for one in calls]
    known = [found for found in prices if found is not None]
    summed = total([one.usage for one in calls]) or Usage()
    return GroupUsage(
        name=name,
        calls=sum(one.calls for one in calls),
        tokens_in=summed.tokens_in,
        tokens_out=summed.tokens_out,
        cached=summed.cached,
        usd=sum(known) if known else None,
        unpriced_tokens=sum(
            one.usage.tokens for one, found in zip(calls, prices, strict=True) if found is None
        ),
    )


def _price(usage: Usage, price: Price | None) -> float | None:
    if usage.usd is not None:
        return usage.usd / 1_000_000
    found = price(usage) if price is not None and usage.model else None
    return float(found) if found is not None else None
