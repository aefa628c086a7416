"""Runs that retry a step, grouped by the kind of their error: `HTTPError`, whatever request it names.

A text may have a request's id, a time or an address in it, so that no two are equal. Runs that retry together
are one trouble all the same. What differs is said of the group: each text and how often, or how many texts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct

from ninelives.core.errors import NineLivesError
from ninelives.core.model.run import RunRow, State
from ninelives.core.model.totals import Retrying, read_retrying
from ninelives.core.step_ids import step_text
from ninelives.store import Store

_MOST_TEXTS, _TEXT_CHARACTERS = 3, 80


class RetryGroup(Struct, frozen=True, kw_only=True):
    """The runs of one agent that retry one step for one kind of error."""

    agent: str
    step: str
    error: str
    runs: tuple[tuple[Retrying, RunRow], ...]

    @property
    def said(self) -> str:
        """Return what the errors say."""
        return common_text(known.error for known, _ in self.runs)

    def since_ms(self, store: Store) -> int:
        """Return when the run with the most attempts began the step, from its journal; else from its row."""
        known, row = max(self.runs, key=lambda one: one[0].attempt)
        with suppress(NineLivesError):
            times = [one.at_ms for one in store.load_journal(row.id).records if one.step == known.step]
            if times:
                return min(times)
        return row.changed_ms


def grouped(rows: Iterable[RunRow]) -> list[RetryGroup]:
    """Return the runs that will try again by themselves, the largest groups first."""
    found: dict[tuple[str, str, str], list[tuple[Retrying, RunRow]]] = defaultdict(list)
    for row in rows:
        known = read_retrying(row.retrying)
        if known is not None and row.state is not State.ESCALATED and not row.paused:
            found[row.agent, _name_of(known.step), kind_of(known.error)].append((known, row))
    groups = [
        RetryGroup(agent=agent, step=step, error=error, runs=tuple(runs))
        for (agent, step, error), runs in found.items()
    ]
    return sorted(groups, key=lambda group: -len(group.runs))


def kind_of(error: str) -> str:
    """Return the type of an error, without its text."""
    return error.partition(":")[0]


def common_text(texts: Iterable[str]) -> str:
    """Return errors of one kind as one text: each with how often it is, if they are few."""
    counts = Counter(texts)
    (first, _), *others = counts.most_common()
    if not others:
        return first
    if len(counts) > _MOST_TEXTS:
        return f"{first} (and {len(others)} other texts)"
    kind = kind_of(first)
    said = (
        f"{text.partition(':')[2].strip()[:_TEXT_CHARACTERS] or text} ({number})"
        for text, number in counts.most_common()
    )
    return f"{kind}: {', '.join(said)}"


def _name_of(step: str) -> str:
    """Return a step's name without its count: the same error of think[0] and think[7] is one."""
    return step_text(step).rpartition("[")[0] or step
