"""Read a run's output from its journal: in order, verified, from any process."""

from __future__ import annotations

from typing import Any

from ninelives.core.errors import UsageError
from ninelives.core.journal.output import Output, first_record, items_of
from ninelives.core.model.run import Kind
from ninelives.core.values.codec import codec_for
from ninelives.engine.commit import large_bodies
from ninelives.store import Store


class OutputReader:
    """A position in a run's output; each read continues where the last one ended.

    Pruned output is gone: reading starts with the oldest item that is left.
    """

    def __init__(self, run: str, offset: int, type: Any) -> None:
        if offset < 0:
            raise UsageError(f"offset={offset!r}", run=run, remedy="Give the last item's offset, or 0")
        self._run, self._offset, self._codec = run, offset, codec_for(type, where="run.stream")
        self._since = first_record(offset)
        self.has_ended = False

    def read(self, store: Store) -> list[Output] | None:
        """Return new items; an empty list when the run has ended, None when more may come.

        Raises UnknownRun; Corrupt; Divergence when a value is not of the requested type.
        """
        journal = store.load_journal(self._run, since=self._since)
        emitted = large_bodies.whole(store, [one for one in journal.records if one.kind is Kind.OUTPUT])
        items = [item for one in emitted for item in items_of(one, self._codec, after=self._offset)]
        # Both from one read: a reader that sees the end has all of the output.
        self._since, self.has_ended = journal.run.length, journal.run.state.is_final
        return items if items or self.has_ended else None
