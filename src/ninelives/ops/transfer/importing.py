"""Runs from a file into a store.

The whole file is read and checked first: one that was cut or changed imports nothing. Then each run is one
transaction. If we die here: the runs before are there; importing the file again continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from ninelives.core.errors import BadFile, UsageError
from ninelives.core.model.capsule import Capsule, Imported
from ninelives.ops.transfer.export import WholeStore
from ninelives.ops.transfer.file import BlobLine, Footer, Reader
from ninelives.store import Progress
from ninelives.stores.encrypted.marker import mark_if_encrypted, stored_in


class RefusedRun(Struct, frozen=True):
    """A run that the store does not take, and why."""

    run: str
    error: UsageError


def check(path: Path) -> Footer:
    """Read a file to its end. Raises BadFile, and what a store would refuse of its runs."""
    with _opened(path) as reader:
        for _ in reader.parts():
            pass
    if reader.footer is None:
        raise BadFile(f"{path} has no last line")
    return reader.footer


def import_file(
    store: WholeStore, path: Path, progress: Progress | None = None, *, whole: Footer | None = None
) -> Iterator[Imported | RefusedRun]:
    """Import the runs of a file, each by itself; yield what became of each.

    `whole` is what `check` returned for the file, if the caller has checked it already. Unfinished runs are
    held back (`core.rules.capsules`). Raises BadFile before anything is imported.
    """
    whole, done, store = whole or check(path), 0, stored_in(store)
    with _opened(path) as reader:
        for part in reader.parts():
            if isinstance(part, BlobLine):
                # CRASH: a blob that nothing refers to, which `prune` removes.
                store.put_blobs([part.content])
                continue
            yield _import(store, part)
            done += 1
            if progress is not None:
                progress(done, whole.runs)
    if reader.footer != whole:
        raise BadFile(f"{path} was changed while it was read", remedy="Import it again")


def _import(store: WholeStore, capsule: Capsule) -> Imported | RefusedRun:
    try:
        mark_if_encrypted(store, [capsule])
        # CRASH: the run is there, with its keys, or nothing of it is.
        (imported,) = store.import_runs([capsule])
    except UsageError as error:
        return RefusedRun(capsule.run.id, error)
    return imported


@contextmanager
def _opened(path: Path) -> Iterator[Reader]:
    try:
        source = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", remedy="Name the file") from error
    with source:
        yield Reader(source, str(path), path.stat().st_size)


def is_held(imported: Imported) -> bool:
    """Return whether an imported run waits for a person to resume it."""
    return imported.is_new and imported.run.paused and not imported.run.state.is_final
