"""A process that writes to a store, and notes in a file what was acknowledged, and when."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from random import Random

from ninelives.core.model.commit import End, Outcome
from ninelives.core.model.key import SettleKey
from ninelives.core.model.run import RunRow, State
from ninelives.stores.open import open_store
from tests.contract.makers import AnyStore, append, new_run, new_session, reserve


def main(url: str, ledger: str, seed: str) -> None:
    """Write until killed. A line of the ledger: time, run, length, head, key or nothing."""
    store: AnyStore = open_store(url)
    rng, number = Random(seed), 0
    session = store.register_session(new_session(f"writer-{os.getpid()}", lease_ms=3_600_000)).id
    with Path(ledger).open("a", buffering=1) as lines:
        while True:
            number += 1
            (made,) = store.create_runs([new_run(f"run-{seed}-{number}", agent="a")], session=session)
            assert isinstance(made, RunRow)
            run = made
            for step in range(rng.randint(1, 12)):
                key = f"key-{seed}-{number}-{step}" if rng.random() < 0.3 else ""
                if key:
                    run = _written(store, run, keys=(reserve(key),))
                run = _written(store, run, keys=(SettleKey(key, b"{}"),) if key else ())
                lines.write(
                    f"{time.time_ns() // 1_000_000} {run.id} {run.length} {run.head.hex()} {key or '-'}\n"
                )
            if rng.random() < 0.7:
                _written(store, run, change=End(State.COMPLETED))


def _written(store: AnyStore, run: RunRow, **parts: object) -> RunRow:
    (verdict,) = store.commit([append(run, b'{"v": 1}', **parts)])  # type: ignore[arg-type]
    assert verdict.outcome is Outcome.COMMITTED, verdict
    row = store.read_run(run.id)
    assert row is not None
    return row


if __name__ == "__main__":
    main(*sys.argv[1:])
