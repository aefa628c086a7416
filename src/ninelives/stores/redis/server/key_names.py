"""The names of all keys. Each begins with the deployment's hash tag, so that all are in one slot.

Ids are data: they come last, or between NULs, which no id may contain, and are never part of a pattern.
"""

from __future__ import annotations

from collections.abc import Callable

from ninelives.core.model.run import RunRow, State
from ninelives.core.rules import deaths

Name = bytes


class Names:
    """The keys of one deployment."""

    def __init__(self, prefix: str) -> None:
        self.tag = tag = f"{{{prefix}}}:".encode()
        self.identity = b""  # the store's id, once it is known; every write requires it to be the same
        self.store = tag + b"store"  # version, id, counters, the recovery log's head
        self.writers = tag + b"writers"  # connection -> its count of writes
        self.sessions, self.live = tag + b"sessions", tag + b"live"
        self.items, self.inbox, self.all_items = tag + b"items", tag + b"inbox", tag + b"all-items"
        self.keys = tag + b"keys"
        self.documents, self.document_names = tag + b"documents", tag + b"document-names"
        self.counters = tag + b"counters"
        self.log = tag + b"log"
        self.blobs, self.referred = tag + b"blobs", tag + b"referred"
        self.ended, self.pruned = tag + b"ended", tag + b"pruned"
        self.work, self.output = tag + b"ears:work", tag + b"ears:output"
        self.lineage = tag + b"lineage"  # histories of servers, each with its first count of writes
        self.claims = tag + b"claims"  # session -> the mark of its last claim
        self.workers, self.awaited = tag + b"workers", tag + b"awaited"
        self.changed = tag + b"changed"  # runs by the count of writes of their last change but appends
        self.long = tag + b"long"  # live runs of two turns or more, which `prune` shortens

        # By a run's id: its row, its records, the signals that it has not taken, the count of all its signals
        # with the ids of those that have one, its items, the business keys that it ever reserved and those
        # that it waits for, the blobs of its journal, its child runs, its entries in the recovery log.
        self.run, self.journal = _by_id(tag + b"run:"), _by_id(tag + b"journal:")
        self.signals, self.sent = _by_id(tag + b"signals:"), _by_id(tag + b"sent:")
        self.items_of, self.refers = _by_id(tag + b"items:"), _by_id(tag + b"refers:")
        self.holds, self.waits = _by_id(tag + b"holds:"), _by_id(tag + b"waits:")
        self.children, self.log_of = _by_id(tag + b"children:"), _by_id(tag + b"log:")
        self.waiters = _by_id(tag + b"waiters:")  # by a business key: the runs that wait for it
        self.owned = _by_id(tag + b"owned:")  # by a session: the runs that it owns

    def blob(self, digest: bytes) -> Name:
        """Return the key of a blob's content."""
        return self.tag + b"blob:" + digest.hex().encode()

    def in_state(self, state: State) -> Name:
        """Return the key of the runs that are in a state."""
        return self.tag + b"state:" + state.value.encode()

    def labelled(self, name: str, value: str) -> Name:
        """Return the key of the runs that have a label."""
        return self.tag + b"\0".join((b"label:" + name.encode(), value.encode()))

    def lanes(self, queue: str, agent: str, *, solo: bool) -> Name:
        """Return the key of an agent's lanes in a queue: its waiting runs by host and priority."""
        return self.tag + b"\0".join((b"lanes:" + _flag(solo), queue.encode(), agent.encode()))

    def lane(self, queue: str, agent: str, *, solo: bool, field: bytes) -> Name:
        """Return the key of one lane, named by its field in `lanes`: its runs by when they fall due."""
        return self.tag + b"\0".join((b"lane:" + _flag(solo), queue.encode(), agent.encode(), field))

    def lanes_of(self, run: RunRow) -> Name:
        """Return the key of the lanes that include a run's lane."""
        return self.lanes(run.queue, run.agent, solo=deaths.is_suspect(run))

    def lane_of(self, run: RunRow) -> Name:
        """Return the key of a run's lane."""
        return self.lane(run.queue, run.agent, solo=deaths.is_suspect(run), field=lane_field(run))


def lane_field(run: RunRow) -> bytes:
    """Return the field of a run's lane among its agent's lanes: its priority, and its host if any."""
    return f"{run.priority}\0{run.pin or ''}".encode()


def lane_member(run: RunRow) -> bytes:
    """Return a run's member in its lane: of those that fall due at once, the oldest sorts first."""
    return f"{run.number:020d}{run.id}".encode()


def _by_id(prefix: bytes) -> Callable[[str], Name]:
    return lambda name: prefix + name.encode()


def _flag(solo: bool) -> bytes:
    return b"1" if solo else b"0"
