"""Damage: bits flipped and files cut short, one at a time, in copies of a store whose truth is known.

After each, everything is read through the public protocol. Each part comes out exactly as it was, or with
one of our errors; never otherwise, and never silently not at all. Runs that can still be read can be
appended to.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import NineLivesError, StoreError
from ninelives.core.journal import chain
from ninelives.core.model.commit import Commit, Outcome
from ninelives.core.model.run import Kind, RunQuery, RunRow, State
from ninelives.core.model.session import Fate
from tests.crash import mutants
from tests.crash.stores import AnyStore, open_at
from tests.crash.workload import all_keys, run_ids

_INDEXES = "type = 'index' OR sql LIKE '%WITHOUT ROWID%'"
_ROWS = "name IN ('store', 'runs', 'keys', 'items', 'signals', 'sessions', 'waiters')"
FILES = ("runs.db", "runs.db-wal", "runs.db-anchor")
Truth = dict[str, Any]


class Sweep(Struct):
    """What a series of damages came to."""

    damages: int = 0
    refused_at_open: int = 0
    found_at_read: int = 0
    harmless: int = 0
    went_on: int = 0
    appended: int = 0
    violations: list[str] = []


def parts_of(store: AnyStore, seed: int, runs: int, blobs: list[bytes]) -> dict[str, Callable[[], Any]]:
    """Return how to read each part of a store; together, all that is in it."""
    parts: dict[str, Callable[[], Any]] = {
        "list": lambda: store.list_runs(RunQuery(limit=1000)),
        "inbox": lambda: store.list_inbox(answered=True, limit=1000),
        "open items": store.list_inbox,
        "sessions": lambda: [replace(one, left_ms=0, fate=Fate.LIVES) for one in store.list_sessions()],
    }
    for id_ in [*run_ids(runs), "doomed"]:
        parts[f"row {id_}"] = partial(store.read_run, id_)
        parts[f"journal {id_}"] = partial(store.load_journal, id_, since=0)
        parts[f"turn {id_}"] = partial(store.load_journal, id_)
        parts[f"items {id_}"] = partial(store.list_inbox, run=id_, answered=True)
    for key in all_keys(seed, runs):
        parts[f"key {key}"] = partial(store.read_keys, [key])
    for digest in blobs:
        parts[f"blob {digest.hex()}"] = partial(store.get_blobs, [digest])
    return parts


def truth_of(home: Path, seed: int, runs: int) -> Truth:
    """Read everything that is in a sound store."""
    store = open_at(home)
    try:
        blobs = sorted(
            {
                digest
                for id_ in run_ids(runs)
                for record in store.load_journal(id_, since=0).records
                for digest in record.blobs
            }
        )
        return {name: read() for name, read in parts_of(store, seed, runs, blobs).items()}
    finally:
        store.close()


def copied(source: Path, target: Path) -> None:
    """Copy a store's files as they lie there, without those of the processes that use it."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700)
    for name in FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
            (target / name).chmod(0o600)


def flip(home: Path, name: str, rng: Random) -> str:
    """Flip one bit of a file; returns what was done."""
    image = bytearray((home / name).read_bytes())
    at, bit = rng.randrange(reach(name, image)), rng.randrange(8)
    image[at] ^= 1 << bit
    (home / name).write_bytes(image)
    return f"bit {bit} of byte {at} of {name} flipped"


def flip_in(which: str, home: Path, name: str, rng: Random) -> str:
    """Flip one bit of what some tables or indexes say, by their first pages; returns what was done."""
    with closing(sqlite3.connect(f"file:{home / name}?immutable=1", uri=True)) as tool:
        roots = [page for (page,) in tool.execute(f"SELECT rootpage FROM sqlite_schema WHERE {which}")]
        ((size,),) = tool.execute("PRAGMA page_size").fetchall()
    image = bytearray((home / name).read_bytes())
    filled = [page for page in roots if _said(image, page, size) < page * size]
    page, bit = rng.choice(filled), rng.randrange(8)
    at = rng.randrange(_said(image, page, size), page * size)
    image[at] ^= 1 << bit
    (home / name).write_bytes(image)
    return f"bit {bit} of byte {at} of {name} (page {page}) flipped"


def _said(image: bytearray, page: int, size: int) -> int:
    """Return where the cells of a page begin."""
    header = (page - 1) * size
    return header + (int.from_bytes(image[header + 5 : header + 7]) or 65536)


def cut(home: Path, name: str, rng: Random) -> str:
    """Cut a file short, half of the time at a page; returns what was done."""
    image = (home / name).read_bytes()
    at = rng.randrange(reach(name, image))
    if rng.random() < 0.5:
        at -= at % 4096
    (home / name).write_bytes(image[:at])
    return f"{name} cut to {at} of {len(image)} bytes"


DAMAGES: dict[str, Callable[[Path, str, Random], str]] = {
    "flip": flip,
    "index": partial(flip_in, _INDEXES),
    "rows": partial(flip_in, _ROWS),
    "cut": cut,
}


def reach(name: str, image: bytes | bytearray) -> int:
    """Return how far a file means anything: a log has old frames and zeros behind its end."""
    if not name.endswith("-wal"):
        return len(image)
    page_bytes, salts = int.from_bytes(image[8:12]), image[16:24]
    end = 32
    while image[end + 8 : end + 16] == salts:
        end += 24 + page_bytes
    return end


def look(home: Path, seed: int, runs: int, truth: Truth, done: str, sweep: Sweep) -> None:
    """Read everything from a damaged store and compare it with the truth."""
    sweep.damages += 1
    try:
        store = open_at(home)
    except StoreError:
        sweep.refused_at_open += 1
        return
    except BaseException as error:
        sweep.violations.append(f"{done}: open raised {error!r}")
        return
    try:
        blobs = [bytes.fromhex(name.removeprefix("blob ")) for name in truth if name.startswith("blob ")]
        found = {name: _read(read) for name, read in parts_of(store, seed, runs, blobs).items()}
        errors = {name for name, value in found.items() if isinstance(value, StoreError)}
        for name, value in found.items():
            if name not in errors and value != truth[name]:
                sweep.violations.append(f"{done}: {name} reads wrong: {_brief(value, truth[name])}")
        sweep.found_at_read += bool(errors)
        sweep.harmless += not errors
        sound = [id_ for id_ in run_ids(runs) if not {f"row {id_}", f"journal {id_}"} & errors]
        sweep.went_on += bool(errors) and bool(sound)
        _append(store, [truth[f"row {id_}"] for id_ in sound], done, sweep)
    finally:
        with suppress(StoreError):
            store.close()


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except NineLivesError as error:
        return error if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"leaked {error!r}"


def _append(store: AnyStore, rows: list[RunRow], done: str, sweep: Sweep) -> None:
    for row in rows:
        if row.state is not State.RUNNING:
            continue
        records = chain.seal(row.length, row.head, [(Kind.LOG, "log", 5, b"goes on", ())], row.epoch)
        one = Commit(run=row.id, epoch=row.epoch, length=row.length, head=row.head, records=records)
        try:
            (verdict,) = store.commit([one])
            after = store.load_journal(row.id, since=0)
        except StoreError:
            continue
        except Exception as error:
            sweep.violations.append(f"{done}: appending to {row.id} raised {error!r}")
            continue
        if verdict.outcome is not Outcome.COMMITTED or after.records[-1] != records[0]:
            sweep.violations.append(f"{done}: {row.id} was sound and took no record: {verdict}")
        sweep.appended += 1


def _brief(found: Any, wanted: Any) -> str:
    return f"{str(found)[:150]} where {str(wanted)[:150]} was written"


def sweep(
    source: str,
    home: str,
    seed: int,
    runs: int,
    file: str,
    count: int,
    *,
    how: str = "flip",
    mutant: str = "",
) -> dict[str, Any]:
    """Damage a file so many times, each in a fresh copy; a task of the fork server."""
    from msgspec import to_builtins

    rng = Random(f"{seed}/{file}/{how}")
    target = Path(home) / "damaged"
    copied(Path(source), target)
    truth = truth_of(target, seed, runs)
    mutants.plant(mutant)
    tally = Sweep()
    for _ in range(count):
        copied(Path(source), target)
        done = DAMAGES[how](target, file, rng)
        look(target, seed, runs, truth, done, tally)
    tally.violations = tally.violations[:20]
    return dict(to_builtins(tally))


def lose_log(home: str, *, mutant: str = "") -> list[str]:
    """Write, be killed, lose the log, open again; a task of the fork server. Returns violations."""
    from tests.crash import disk, judge, processes
    from tests.crash.ledger import read

    told = Path(home) / "ledger"
    code = processes.collect(processes.fork(lambda: disk.steady(home, str(told), mutant=mutant)))
    if code != 0:
        return [f"the writer ended with {code}"]
    log = Path(home) / "runs.db-wal"
    log.write_bytes(bytes(log.stat().st_size))
    mutants.plant(mutant)
    try:
        open_at(Path(home)).close()
    except StoreError:
        return []
    return judge.judged(Path(home), list(read(told)))
