"""All that one scrape reads of a store, and a source of readings that does not hang or die with the store."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ninelives.core.errors import NineLivesError, StoreAway, StoreBroken, StoreError, UsageError
from ninelives.core.model.counter import Counter
from ninelives.core.model.document import HALTS, Document
from ninelives.core.model.gauges import Gauges
from ninelives.core.model.session import Session
from ninelives.governance.budgets.standings import ratios, standings
from ninelives.governance.enforced import PREFIX as GOVERNED
from ninelives.ops.metrics import reports
from ninelives.stores import url as urls
from ninelives.stores.open import open_store
from ninelives.stores.presence import is_there
from ninelives.views.documents import listing

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

LIMIT_SECONDS = 5.0
"""How long a scrape waits for the store. Prometheus gives up after 10 seconds, and would learn nothing."""


class Reading(Struct, frozen=True, kw_only=True):
    """What a store said at one scrape."""

    kind: str
    identity: str
    schema: int
    gauges: Gauges
    counters: tuple[Counter, ...]
    documents: tuple[Document, ...]
    sessions: tuple[Session, ...]
    budgets: Mapping[tuple[str, str, str], float]
    free_bytes: int | None
    took_seconds: float


def read(store: AnyStore) -> Reading:
    """Read all that metrics show, without a journal. Raises StoreError."""
    began = time.monotonic()
    path, gauges = urls.path_of(store.url), store.gauges()
    return Reading(
        kind=store.url.partition(":")[0],
        identity=store.identity,
        schema=store.migrate()[1],
        gauges=gauges,
        counters=tuple(store.read_counters()),
        documents=(
            *store.read_documents(reports.AUDIT, limit=1),
            *listing(store, reports.COPIES),
            *store.read_documents(reports.NOTICES, limit=1),
            *store.read_documents(HALTS, limit=1),
            *listing(store, reports.BREAKERS),
            *store.read_documents(reports.AUDIT_LOG_STATE, limit=1),
            *store.read_documents(reports.AUDIT_LOG_FOLLOWER, limit=1),
            *store.read_documents(GOVERNED),
        ),
        sessions=tuple(store.list_sessions()),
        budgets=ratios(standings(store, gauges.at_ms)),
        free_bytes=shutil.disk_usage(Path(path).resolve().parent).free if path is not None else None,
        took_seconds=time.monotonic() - began,
    )


class _Job:
    """One reading under way, on a thread of its own."""

    def __init__(self, work: Callable[[], Reading]) -> None:
        self.ended = threading.Event()
        self.reading: Reading | None = None
        self.error: NineLivesError | OSError | None = None
        # A daemon: a store that hangs must not keep the process from ending.
        threading.Thread(target=self._run, args=(work,), name="ninelives-metrics", daemon=True).start()

    def _run(self, work: Callable[[], Reading]) -> None:
        try:
            self.reading = work()
        except (NineLivesError, OSError) as error:
            self.error = error
        finally:
            self.ended.set()


class ReadingSource:
    """Reads one store again and again. Stateless: several processes give the same numbers.

    Scrapes that come while one is read share its reading. A store that failed is opened again at the next
    scrape; one that hangs costs one thread, however many scrapes ask.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: AnyStore | None = None
        self._file: tuple[int, int] | None = None
        self._job: _Job | None = None
        self._changing = threading.Lock()

    def open(self) -> None:
        """Open the store. Raises UsageError when there is none; StoreError when it cannot be used."""
        self._store = self._opened()

    def _require_same(self) -> None:
        """Raise StoreBroken if the file that is open is not the one at that path any more."""
        if self._file != _file_at(self._url):
            raise StoreBroken("the store's file was removed or replaced")

    def _opened(self) -> AnyStore:
        if self._url == "memory:":
            raise UsageError("memory: is a store of another process", remedy="Name one with --store")
        if not is_there(self._url):
            where = urls.path_of(self._url) or urls.shown(self._url)
            raise UsageError(f"there is no store at {where}", remedy="Name one with --store")
        self._file = _file_at(self._url)
        return open_store(self._url)

    def read(self, limit_seconds: float = LIMIT_SECONDS) -> Reading:
        """Return a reading. Raises NineLivesError, OSError; StoreAway after the limit."""
        with self._changing:
            if self._job is None or self._job.ended.is_set():
                self._job = _Job(self._work)
            job = self._job
        if not job.ended.wait(limit_seconds):
            raise StoreAway(f"the store has not answered within {limit_seconds:g} s")
        if job.reading is None:
            raise job.error or StoreError("the store cannot be read")
        return job.reading

    def _work(self) -> Reading:
        try:
            if self._store is None:
                self._store = self._opened()
            self._require_same()
            return read(self._store)
        except (NineLivesError, OSError):
            broken, self._store = self._store, None
            if broken is not None:
                with suppress(NineLivesError, OSError):
                    broken.close()
            raise


def _file_at(url: str) -> tuple[int, int] | None:
    """Return which file a SQLite store is now; None for a server, or if there is none."""
    path = urls.path_of(url)
    try:
        found = Path(path).stat() if path is not None else None
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None
