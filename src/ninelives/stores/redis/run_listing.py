"""Listing runs, newest first: read a label's index, or the indexes of all states together, in parts."""

from __future__ import annotations

from collections.abc import Iterator

from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.core.rules import validation
from ninelives.stores.redis.run_rows import peek_runs
from ninelives.stores.redis.transaction import Transaction

_PART = 100


def list_runs(tx: Transaction, query: RunQuery) -> list[RunRow]:
    """Return the matching runs; see `Store.list_runs`."""
    names = (query.agent, query.session, query.parent, *query.labels, *query.labels.values())
    if query.limit <= 0 or not all(validation.is_text(name) for name in names if name is not None):
        return []
    found: list[RunRow] = []
    for part in _candidates(tx, query):
        runs = peek_runs(tx, part)
        found += [run for run in runs.values() if _fits(run, query)]
        if len(found) >= query.limit:
            break
    return found[: query.limit]


def _candidates(tx: Transaction, query: RunQuery) -> Iterator[list[str]]:
    """Yield the ids of runs that may match, newest first."""
    names = tx.names
    if query.parent is not None:
        (flat,) = tx.ask([(b"HGETALL", names.children(query.parent))])
        born = [(int(number), name) for name, number in zip(flat[::2], flat[1::2], strict=True) if name]
        ordered = [name.decode() for _, name in sorted(born, reverse=True)]
        yield from (ordered[start : start + _PART] for start in range(0, len(ordered), _PART))
        return
    indexes = [names.in_state(state) for state in query.states or tuple(State)]
    if query.labels:
        indexes = [names.labelled(*next(iter(query.labels.items())))]
    below = b"+inf" if query.after is None else f"({query.after}"
    while True:
        commands = [
            (b"ZREVRANGEBYSCORE", index, below, b"-inf", b"WITHSCORES", b"LIMIT", 0, _PART)
            for index in indexes
        ]
        lists = tx.ask(commands)
        pairs = [
            (int(float(n)), name) for flat in lists for name, n in zip(flat[::2], flat[1::2], strict=True)
        ]
        # A list that was cut off may have more entries below its end, so only use numbers above it.
        floor = max((int(float(flat[-1])) for flat in lists if len(flat) == 2 * _PART), default=0)
        part = sorted((pair for pair in pairs if pair[0] >= floor), reverse=True)
        if not part:
            return
        yield [name.decode() for _, name in part]
        below = f"({part[-1][0]}"


def _fits(run: RunRow, query: RunQuery) -> bool:
    return (
        (not query.states or run.state in query.states)
        and query.agent in (None, run.agent)
        and (query.session is None or run.session == query.session)
        and (query.parent is None or run.parent == query.parent)
        and (query.after is None or run.number < query.after)
        and query.labels.items() <= run.labels.items()
    )
