"""Stores with an audit log, and what is in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import msgspec

from ninelives.core.journal.answers import Answer, Says, Taken
from ninelives.core.model.commit import End
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.governance.audit_log import merkle, tiles
from tests.contract.benches import Bench
from tests.contract.makers import new_item


def logged(store: Any) -> list[dict[str, Any]]:
    """Return all entries of the log, after checking that each tile continues the one before."""
    found: list[dict[str, Any]] = []
    frontier: list[bytes] = []
    for stored in tiles.tiles_from(store, 0):
        assert stored.tile.first == len(found)
        for entry in stored.tile.entries:
            frontier = merkle.grown(frontier, len(found), merkle.leaf_hash(bytes(entry)))
            found.append(msgspec.json.decode(entry))
        assert stored.tile.hashes == frontier
    ids = [one["id"] for one in found]
    assert len(set(ids)) == len(ids)
    return found


def of_kind(store: Any, kind: str) -> list[dict[str, Any]]:
    """Return the facts of the entries of a kind."""
    return [one["facts"] for one in logged(store) if one["kind"] == kind]


def answered(bench: Bench, run: RunRow, by: str = "ada") -> RunRow:
    """Return a run that was asked for an approval, and has taken it."""
    item = f"item of {run.id} at {run.length}"
    body = msgspec.json.encode({"item": item, "kind": "approval", "is_open": True})
    run = bench.write(run, body, kind=Kind.ASKED, opens=[new_item(item)])
    taken = Taken(item, ItemKind.APPROVAL, by, 7, Answer(Says.APPROVED, note="fine"))
    return bench.write(run, msgspec.json.encode(taken), kind=Kind.ANSWER, closes=[item])


def ended(bench: Bench, run: RunRow, state: Any = State.COMPLETED) -> RunRow:
    """Return a run after its end."""
    return bench.write(run, b'{"v":1}', kind=Kind.END, change=End(state))


def killed(work: Callable[[], object]) -> bool:
    """Do something in a process of its own; return whether it was killed."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
