"""Short ways to build what the stores are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ninelives.core.governance.accounts import AccountOp, Requirement
from ninelives.core.journal import chain
from ninelives.core.model.commit import Change, Commit
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.key import KeyOp, ReserveKey
from ninelives.core.model.run import Kind, NewRun, RunRow, StepKind
from ninelives.core.model.session import NewSession
from ninelives.core.model.totals import Tally
from ninelives.store import WHOLE, Fault, Maintenance, Sample, Store, VerifiedPart

AGENTS = {"helper": 100}


class AnyStore(Store, Maintenance, Protocol):
    """What every backend is: both protocols."""


def new_run(id: str = "r1", agent: str = "helper", **fields: object) -> NewRun:
    """Return a run to be created."""
    given: dict[str, object] = {"fingerprint": b"f", "body": b"{}"} | fields
    return NewRun(id=id, agent=agent, **given)  # type: ignore[arg-type]


def new_session(id: str = "s1", **fields: object) -> NewSession:
    """Return a session to be registered."""
    given: dict[str, object] = {"host": "here", "pid": 1} | fields
    return NewSession(id=id, **given)  # type: ignore[arg-type]


def new_item(id: str = "i1", digest: bytes = b"d", **fields: object) -> NewItem:
    """Return an item to be opened."""
    given: dict[str, object] = {"kind": ItemKind.APPROVAL, "step": "refund#0", "body": b"?"} | fields
    return NewItem(id=id, digest=digest, **given)  # type: ignore[arg-type]


def append(
    run: RunRow,
    *bodies: bytes,
    kind: Kind = Kind.RESULT,
    blobs: tuple[bytes, ...] = (),
    keys: Sequence[KeyOp] = (),
    opens: Sequence[NewItem] = (),
    closes: Sequence[str] = (),
    takes: Sequence[int] = (),
    change: Change | None = None,
    at_ms: int = 5,
    step_kind: StepKind | None = None,
    took_ms: int | None = None,
    tally: Tally | None = None,
    requires: Sequence[Requirement] = (),
    accounts: Sequence[AccountOp] = (),
) -> Commit:
    """Return a commit of one record per body, sealed onto the run as its owner knows it."""
    records = [(kind, f"step#{n}", at_ms, body, blobs, step_kind, took_ms) for n, body in enumerate(bodies)]
    return Commit(
        run=run.id,
        epoch=run.epoch,
        length=run.length,
        head=run.head,
        records=chain.seal(run.length, run.head, records, run.epoch),
        tally=tally,
        keys=tuple(keys),
        opens=tuple(opens),
        closes=tuple(closes),
        takes=tuple(takes),
        change=change,
        requires=tuple(requires),
        accounts=tuple(accounts),
    )


def reserve(
    key: str = "k", *, resumable: bool = True, action: str = "refund", fp: bytes = b"a"
) -> ReserveKey:
    """Return the reservation of a key."""
    return ReserveKey(key, action, fp, resumable)


def walked(store: AnyStore, limit: int, sample: Sample = WHOLE) -> tuple[list[Fault], list[VerifiedPart]]:
    """Verify everything in parts of this size; return the faults, and the parts."""
    parts = [store.verify_part(limit=limit, sample=sample)]
    while parts[-1].position:
        parts.append(store.verify_part(parts[-1].position, limit=limit, sample=sample))
    return [fault for part in parts for fault in part.faults], parts


def damage_in(store: AnyStore) -> list[Fault]:
    """Return the faults of a store but duplicates: records made by hand may repeat a step."""
    return [fault for fault in store.verify() if not fault.duplicate]
