"""Runs into a file, while their store is in use.

A run is read at one moment. Blobs follow: a run that is pruned meanwhile is read again. The file is written
whole or not at all, and no file is ever overwritten; only its owner may read it (mode 0600), since it holds
what the journals hold.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from ninelives import __version__
from ninelives.core.errors import Corrupt, UnknownRun, UsageError
from ninelives.core.model.capsule import Capsule
from ninelives.ops.transfer.file import BlobLine, Footer, Header, write
from ninelives.store import Maintenance, Progress, Store
from ninelives.stores.durable_files import new_file
from ninelives.stores.encrypted.marker import stored_in
from ninelives.stores.store_id import store_id

_AT_ONCE = 16
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class WholeStore(Store, Maintenance, Protocol):
    """A store that runs are read from or written to: all have both protocols."""


def header_of(store: WholeStore) -> Header:
    """Return the header of a file with runs of this store."""
    _, schema = store.migrate()
    return Header(
        store=store_id(store),
        schema=schema,
        at_ms=store.read_clock(),
        ninelives=__version__,
    )


def parts(
    store: WholeStore, runs: Iterable[str], known: set[bytes], *, is_needed: bool = True
) -> Iterator[BlobLine | Capsule]:
    """Yield each run's capsule, after its blobs that are not among those known.

    A run that does not exist raises UnknownRun; unless it `is_needed`, it is left out, since it was pruned.
    """
    kept = stored_in(store)
    for run in runs:
        try:
            capsule, contents = _read(kept, run, known)
        except UnknownRun:
            if is_needed:
                raise
            continue
        yield from contents
        known.update(capsule.blobs)
        yield capsule


def _read(store: WholeStore, run: str, known: set[bytes]) -> tuple[Capsule, list[BlobLine]]:
    capsule = store.export_run(run)
    while True:
        try:
            wanted = [digest for digest in capsule.blobs if digest not in known]
            found: dict[bytes, bytes] = {}
            for start in range(0, len(wanted), _AT_ONCE):
                found |= store.get_blobs(wanted[start : start + _AT_ONCE])
            return capsule, [BlobLine(digest.hex(), content) for digest, content in found.items()]
        except Corrupt:
            # Pruned since it was read, with its blobs; if it is as it was, a blob is really lost.
            again = store.export_run(run)
            if again == capsule:
                raise
            capsule = again


def export(
    store: WholeStore,
    runs: Sequence[str],
    target: Path,
    progress: Progress | None = None,
    *,
    is_needed: bool = True,
) -> Footer:
    """Write runs to a new file. Raises UsageError when the file exists; UnknownRun; Corrupt."""

    def counted() -> Iterator[str]:
        for done, run in enumerate(runs):
            if progress is not None:
                progress(done, len(runs))
            yield run

    with file_to_write(target) as draft:
        footer = write(draft, header_of(store), parts(store, counted(), set(), is_needed=is_needed))
    if progress is not None:
        progress(len(runs), len(runs))
    return footer


@contextmanager
def file_to_write(target: Path) -> Iterator[BinaryIO]:
    """Yield a new file, as `new_file`, and say in words of the command why it cannot be written.

    Raises UsageError when the name is taken, or what is yielded cannot be written.
    """
    is_open = False
    try:
        with new_file(target) as file:
            is_open = True
            yield file
    except FileExistsError:
        raise UsageError(
            f"{target} exists", remedy="Name a new file, or remove that one first: none is overwritten"
        ) from None
    except OSError as error:
        if is_open and error.errno not in _FULL:
            raise
        remedy = "Free space on that disk, or name a file on another one; nothing was written"
        raise UsageError(
            f"{target} cannot be written: {error.strerror}", remedy=remedy if is_open else "Name another file"
        ) from error
