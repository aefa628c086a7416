"""`ninelives snapshot`: write down all that is stored of a run."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ninelives.cli.options import existing
from ninelives.cli.output import emit, emit_json
from ninelives.core.ids import check_id
from ninelives.ops.snapshot import take, write
from ninelives.stores.open import open_store
from ninelives.views.escape import shown
from ninelives.views.position import unknown


def snapshot(url: str, run: str, out: Path | None, *, as_json: bool) -> None:
    """Take a snapshot, write it, and print where it is."""
    run = check_id(run, "run id")
    store = open_store(existing(url))
    try:
        if store.read_run(run) is None:
            raise unknown(run)
        taken = take(store, run)
    finally:
        store.close()
    path = write(taken, out)
    if as_json:
        told = {"path": str(path), "run": run, "records": len(taken["records"]), **taken["chain"]}
        emit_json(msgspec.json.encode(told))
    else:
        emit(shown(str(path)))
