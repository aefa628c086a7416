"""Export everything stored of a run into one file that needs no store, for debugging.

The file is written whole or not at all, and no file is ever overwritten (`stores.durable_files`). It holds
what the journal holds, so only its owner may read it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import chain as concatenate
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from ninelives import __version__
from ninelives.core.clock import moment
from ninelives.core.errors import UsageError
from ninelives.core.journal import chain
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Record
from ninelives.core.secret import masked_json
from ninelives.engine.commit import large_bodies
from ninelives.store import Store
from ninelives.stores.durable_files import new_file
from ninelives.stores.encrypted.marker import stored_in
from ninelives.views import records_text, sessions
from ninelives.views.escape import json_text
from ninelives.views.masking import masked_journal, masked_records

FORMAT, VERSION = "ninelives-snapshot", 2
_NAME_CHARACTERS = 100


def take(store: Store, run: str) -> dict[str, Any]:
    """Return everything stored of a run, with its chain verified. Raises UnknownRun; Corrupt."""
    kept = stored_in(store).load_journal(run, since=0)
    row = kept.run
    # A snapshot may be all that is left of a run: it must say for itself that it was whole.
    chain.verify(row.id, row.base_check, kept.first, kept.records, length=row.length, head=row.head)
    loaded = masked_journal(store.load_journal(run, since=0))
    row = loaded.run
    living = sessions.seen(store)
    return {
        "format": FORMAT,
        "version": VERSION,
        "ninelives": __version__,
        "store": store.url,
        "taken_at": moment(store.now_ms()),
        "run": _plain(row),
        "session": living.get(row.session) if row.session is not None else None,
        "chain": {
            "verified": True,
            "first": loaded.first,
            "before": row.base_check.hex(),
            "length": row.length,
            "head": row.head.hex(),
        },
        "records": [
            _record(whole, kept)
            for whole, kept in zip(
                masked_records(large_bodies.whole(store, loaded.records)), loaded.records, strict=True
            )
        ],
        "blobs": {digest.hex(): _blob(content) for digest, content in _blobs(store, loaded.records).items()},
        "signals": [_signal(signal) for signal in loaded.signals],
        "items": [_item(item) for item in loaded.items],
    }


def write(snapshot: dict[str, Any], out: Path | None) -> Path:
    """Write a snapshot to a file that does not exist yet; return its path.

    Without a path: a file in the working directory, named after the run and its last record. Raises
    UsageError when the file exists or cannot be written.
    """
    text = json_text(msgspec.json.encode(snapshot), pretty=True) + "\n"
    row = snapshot["run"]
    for path in iter([out]) if out is not None else _free_names(row["id"], row["length"]):
        try:
            with new_file(path.absolute()) as file:
                file.write(text.encode())
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror}", remedy="Name another file with --out"
            ) from None
        return path
    raise UsageError(f"{out} exists, and snapshots never overwrite", remedy="Name another file with --out")


def _free_names(run: str, length: int) -> Iterator[Path]:
    # A run's id is data and may be "../../etc": it never becomes a path.
    safe = re.sub(r"[^A-Za-z0-9_.\-]", "_", run)[:_NAME_CHARACTERS].lstrip(".-") or "run"
    first = Path(f"{safe}-{length - 1}.json")
    return concatenate([first], (Path(f"{safe}-{length - 1}.{again}.json") for again in count(2)))


def _record(record: Record, kept: Record) -> dict[str, Any]:
    branch, step, number = records_text.step_parts(record.step)
    return {
        "seq": record.seq,
        "at": moment(record.at_ms),
        "at_ms": record.at_ms,
        "kind": record.kind,
        "step_kind": record.step_kind,
        "epoch": record.epoch,
        "took_ms": record.took_ms,
        "id": record.step,
        "branch": branch,
        "step": step,
        "number": number,
        "body": records_text.readable(record.body),
        "body_base64": b64encode(record.body).decode(),
        "body_is_blob": record.body != kept.body,
        "blobs": [digest.hex() for digest in record.blobs],
        "check": record.check.hex(),
    }


def _blobs(store: Store, records: Sequence[Record]) -> dict[bytes, bytes]:
    wanted = {digest for record in records for digest in record.blobs}
    return store.get_blobs(wanted) if wanted else {}


def _blob(content: bytes) -> dict[str, Any]:
    content = masked_json(content)
    return {"body": records_text.readable(content), "body_base64": b64encode(content).decode()}


def _signal(signal: Signal) -> dict[str, Any]:
    return _plain(signal) | {"body": records_text.readable(signal.body)}


def _item(item: Item) -> dict[str, Any]:
    return _plain(item) | {
        "body": records_text.readable(item.body),
        "answer": records_text.readable(item.answer),
    }


def _plain(row: msgspec.Struct) -> dict[str, Any]:
    return {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in structs.asdict(row).items()
    }
