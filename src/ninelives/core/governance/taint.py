"""Taint: where the data came from that a run has read, as labels. Folded from the run's own records.

An outcome of a step that reads outside data carries the step's labels (`StepBody.o`); a declassification says
which labels it removes. So each worker that loads the journal finds the same labels, without another write.
Labels only say where data came from, never what it says. The labels of a run that was started with tainted
data are labels of the run itself (`taint:web`), which a child gets from its parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from ninelives.core.errors import UsageError

RUN_LABEL = "taint:"
"""What the run's own label begins with that says: it was started with data of this origin."""
DECLASSIFY = "nl.declassify"
"""The name of the action that removes labels, for policies: `actions = ["nl.declassify"]`."""
NO_LABELS: frozenset[str] = frozenset()
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")


class TaintChange(Struct, frozen=True):
    """The labels that an outcome adds, and those that it removes."""

    adds: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()

    def with_labels(self, labels: Iterable[str]) -> TaintChange:
        """Return the change with more labels that it adds."""
        return TaintChange(tuple(sorted({*self.adds, *labels})), self.removes)


NO_CHANGE = TaintChange()


class Taint:
    """The labels of a turn's outcomes so far, each with the number of outcomes that had it."""

    __slots__ = ("counts", "requested")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.requested: dict[str, dict[str, int]] = {}
        """By step: how it stood when a person was first asked to approve a declassification."""

    @property
    def labels(self) -> frozenset[str]:
        """The labels that stand."""
        return frozenset(self.counts)

    def change(self, adds: Iterable[str], removes: Iterable[str] = ()) -> None:
        """Apply what an outcome says, in the order of the journal."""
        for label in removes:
            self.counts.pop(label, None)
        for label in adds:
            self.counts[label] = self.counts.get(label, 0) + 1

    def apply(self, change: TaintChange) -> None:
        """Apply what an outcome says that is about to be recorded."""
        self.change(change.adds, change.removes)

    def unchanged_since(self, counts: Mapping[str, int], labels: Iterable[str]) -> tuple[str, ...]:
        """Return those of some labels that no outcome has added since there were these counts."""
        return tuple(sorted(one for one in set(labels) if self.counts.get(one, 0) <= counts.get(one, 0)))


def of_run(labels: Mapping[str, str]) -> frozenset[str]:
    """Return the taint that a run's own labels say it was started with."""
    if not labels:
        return NO_LABELS
    return frozenset(name.removeprefix(RUN_LABEL) for name in labels if name.startswith(RUN_LABEL))


def run_labels(taint: Iterable[str]) -> dict[str, str]:
    """Return the labels of a run that is started with data of these origins."""
    return {f"{RUN_LABEL}{one}": "yes" for one in sorted(taint)}


def without_taint(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a run but those that say where its first data came from."""
    return {name: value for name, value in labels.items() if not name.startswith(RUN_LABEL)}


def check_labels(given: object, what: str) -> tuple[str, ...]:
    """Return labels as they were declared: one, or several. Raises UsageError; `what` says where."""
    if given is None:
        return ()
    labels = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    for one in labels:
        if not isinstance(one, str) or not _NAME.fullmatch(one):
            raise UsageError(
                f"{what}: {one!r} is no label",
                remedy='Write "web", for example: a-z, 0-9, dots, - and _; at most 40 characters',
            )
    return tuple(sorted(set(labels)))
