"""The names of all keys. Each begins with the deployment's hash tag, so that all are in one slot.

Ids are data: they come last, or between NULs, which no id may contain, and are never part of a pattern.
"""

from __future__ import annotations

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
        self.log = tag + b"log"
        self.blobs, self.referred = tag + b"blobs", tag + b"referred"
        self.ended, self.pruned = tag + b"ended", tag + b"pruned"
        self.work, self.output = tag + b"ears:work", tag + b"ears:output"
        self.lineage = tag + b"lineage"  # histories of servers, each with its first count of writes
        self.claims = tag + b"claims"  # session -> the mark of its last claim
        self.workers, self.awaited = tag + b"workers", tag + b"awaited"
        self.long = tag + b"long"  # live runs of two turns or more, which `prune` shortens

    def run(self, run: str) -> Name:
        """Return the key of a run's row."""
        return self.tag + b"run:" + run.encode()

    def journal(self, run: str) -> Name:
        """Return the key of a run's records."""
        return self.tag + b"journal:" + run.encode()

    def signals(self, run: str) -> Name:
        """Return the key of the signals that a run has not taken."""
        return self.tag + b"signals:" + run.encode()

    def sent(self, run: str) -> Name:
        """Return the key of the count of a run's signals, and of those that have an id."""
        return self.tag + b"sent:" + run.encode()

    def items_of(self, run: str) -> Name:
        """Return the key of the items of a run."""
        return self.tag + b"items:" + run.encode()

    def holds(self, run: str) -> Name:
        """Return the key of the business keys that a run has ever reserved."""
        return self.tag + b"holds:" + run.encode()

    def waits(self, run: str) -> Name:
        """Return the key of the business keys that a run waits for."""
        return self.tag + b"waits:" + run.encode()

    def waiters(self, key: str) -> Name:
        """Return the key of the runs that wait for a business key."""
        return self.tag + b"waiters:" + key.encode()

    def refers(self, run: str) -> Name:
        """Return the key of the blobs that a run's journal refers to."""
        return self.tag + b"refers:" + run.encode()

    def children(self, run: str) -> Name:
        """Return the key of a run's child runs."""
        return self.tag + b"children:" + run.encode()

    def log_of(self, run: str) -> Name:
        """Return the key of the recovery log entries of a run."""
        return self.tag + b"log:" + run.encode()

    def blob(self, digest: bytes) -> Name:
        """Return the key of a blob's content."""
        return self.tag + b"blob:" + digest.hex().encode()

    def in_state(self, state: State) -> Name:
        """Return the key of the runs that are in a state."""
        return self.tag + b"state:" + state.value.encode()

    def labelled(self, name: str, value: str) -> Name:
        """Return the key of the runs that have a label."""
        return self.tag + b"\0".join((b"label:" + name.encode(), value.encode()))

    def owned(self, session: str) -> Name:
        """Return the key of the runs that a session owns."""
        return self.tag + b"owned:" + session.encode()

    def lanes(self, queue: str, agent: str, *, alone: bool) -> Name:
        """Return the key of an agent's lanes in a queue: its waiting runs by host and priority."""
        return self.tag + b"\0".join((b"lanes:" + _flag(alone), queue.encode(), agent.encode()))

    def lane(self, queue: str, agent: str, *, alone: bool, field: bytes) -> Name:
        """Return the key of one lane, named by its field in `lanes`: its runs by when they fall due."""
        return self.tag + b"\0".join((b"lane:" + _flag(alone), queue.encode(), agent.encode(), field))

    def lanes_of(self, run: RunRow) -> Name:
        """Return the key of the lanes that include a run's lane."""
        return self.lanes(run.queue, run.agent, alone=deaths.is_suspect(run))

    def lane_of(self, run: RunRow) -> Name:
        """Return the key of a run's lane."""
        return self.lane(run.queue, run.agent, alone=deaths.is_suspect(run), field=lane_field(run))


def lane_field(run: RunRow) -> bytes:
    """Return the field of a run's lane among its agent's lanes: its priority, and its host if any."""
    return f"{run.priority}\0{run.pin or ''}".encode()


def lane_member(run: RunRow) -> bytes:
    """Return a run's member in its lane: of those that fall due at once, the oldest sorts first."""
    return f"{run.number:020d}{run.id}".encode()


def _flag(alone: bool) -> bytes:
    return b"1" if alone else b"0"
