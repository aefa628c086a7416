"""What `ninelives audit …` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from ninelives.cli.options import EXIT_FAILED, command, interval_ms, opened
from ninelives.cli.output import bar, emit, emit_json, say
from ninelives.cli.stopping import stopped_by_signals
from ninelives.core.errors import BadFile, LeaseLost, StoreUnavailable, UsageError
from ninelives.governance.audit_log import entries, proofs, tiles
from ninelives.governance.audit_log.anchoring import anchors, heads
from ninelives.governance.audit_log.anchoring.git_anchor import GitAnchor
from ninelives.governance.audit_log.follower import Follower, catch_up
from ninelives.governance.audit_log.verification.verify import AuditLogReport
from ninelives.governance.audit_log.verification.verify import verify as verified
from ninelives.runtime.inbox import login
from ninelives.views.counted import counted
from ninelives.views.escape import shown

if TYPE_CHECKING:
    from ninelives.governance.audit_log.anchoring.anchors import Objects
    from ninelives.governance.audit_log.anchoring.heads import TreeHead
    from ninelives.ops.periodic import Turn
    from ninelives.stores.open import AnyStore

STDOUT = "-"
FOLLOWER = "audit-log"
"""The name of the periodic work, and of the companion, that follows the journals."""
_LAPSE_SECONDS = 20.0
_SHOWN = 50


def switch(url: str, *, is_on: bool, by: str | None, reason: str, as_json: bool) -> None:
    """Switch the log on or off."""
    word = "on" if is_on else "off"
    with opened(url) as store:
        facts = {"by": by or login(), "reason": reason} if reason else {"by": by or login()}
        changed = entries.switch(store, on=is_on, **facts)
        added = catch_up(store) if is_on else 0
        state, _ = tiles.read_state(store)
        size = entries.log_size(store)
    if as_json:
        log = state.log if state is not None else ""
        emit_json({"log": log, "is_on": is_on, "changed": changed, "entries": size})
        return
    emit(f"the audit log is {word}" + ("" if changed else " already"))
    if is_on and changed:
        say(f"{counted(added, 'entry', 'entries')} about what is in the store")
        words = command(["audit", "follow"], url)
        say(f"`up` and `worker` follow what comes; restart those that run, or keep this running: {words}")


def follow(url: str, every: str, *, is_once: bool, as_json: bool) -> None:
    """Follow the journals until a signal stops it, or once."""
    seconds = interval_ms("--every", every) / 1000
    with opened(url) as store:
        if is_once:
            with bar("following", as_json=as_json) as progress:
                added = catch_up(store, progress=progress)
            if as_json:
                emit_json({"added": added, "entries": entries.log_size(store)})
            else:
                emit(f"{counted(added, 'entry', 'entries')} added")
            return
        follower, turns = Follower(store), _periodic(store, seconds)

        def work(turn: Turn) -> None:
            with turn.renewed():
                follower.follow()

        with stopped_by_signals() as stopped:
            turns.repeat(work, stopped.wait)


def anchor(url: str, to: Sequence[str], key: Path | None, every: str, *, as_json: bool) -> None:
    """Anchor the log's tree head, once or at an interval."""
    seconds = interval_ms("--every", every) / 1000 if every else None
    signing = heads.signing_key(key) if key is not None else None
    with opened(url) as store:
        targets = [_opened_anchor(one) for one in to if one != STDOUT]

        def once() -> None:
            catch_up(store)
            head = anchors.head_of(store)
            if STDOUT in to:
                emit(heads.write_note(head, signing).decode())
            for target in targets:
                is_new = anchors.anchor(store, target, head, signing)
                _say_anchored(target.url, head, is_new=is_new, as_json=as_json, out=STDOUT not in to)

        if seconds is None:
            once()
            return
        with stopped_by_signals() as stopped:
            while True:
                try:
                    once()
                except (LeaseLost, StoreUnavailable) as error:
                    say(f"not anchored, trying again: {error}")
                if stopped.wait(seconds):
                    return


def verify(url: str, given: Sequence[str], public_key: Path | None, *, as_json: bool) -> None:
    """Verify the log; exit 1 if anything was found."""
    key = heads.public_key(public_key) if public_key is not None else None
    anchored = [one for where in given for one in _anchored(where)]
    if key is not None and not anchored:
        raise UsageError("--public-key needs something that is signed", remedy="Give --anchor as well")
    with opened(url) as store, bar("verifying", as_json=as_json) as progress:
        found = verified(store, anchored, key, progress)
    if as_json:
        emit_json(found)
    else:
        _print(found, has_anchors=bool(given), has_key=key is not None)
    if found.findings:
        raise typer.Exit(EXIT_FAILED)


def prove(url: str, name: str, given: Sequence[str], since: Path | None) -> None:
    """Print a proof of inclusion, or of consistency, as JSON."""
    if bool(name) is (since is not None):
        raise UsageError("prove needs a run or an entry, or --since", remedy="Give exactly one of them")
    with opened(url) as store, bar("reading", as_json=False) as progress:
        now = anchors.head_of(store)
        head = _newest(given, now) if given else now
        proof: Any
        if since is None:
            proof = proofs.prove(store, head, name, progress)
        else:
            old = heads.read_note(_content(since), str(since)).head
            proof = proofs.prove_continues(store, old, head, progress)
    emit(msgspec.json.format(msgspec.json.encode(proof)).decode())


def export(url: str, to: Path | None) -> None:
    """Write all entries, one on each line: to a new file, or to stdout."""
    with opened(url) as store:
        head = anchors.head_of(store)
        lines = (bytes(one) for stored in tiles.tiles_from(store, 0) for one in stored.tile.entries)
        if to is None or str(to) == "-":
            for line in lines:
                emit(line.decode())
        else:
            _write(to, lines)
    say(f"{counted(head.size, 'entry', 'entries')} of the log {head.log}; root {head.root.hex()}")


def _write(to: Path, lines: Iterator[bytes]) -> None:
    from ninelives.ops.transfer.export import file_to_write

    with file_to_write(to) as file:
        for line in lines:
            file.write(line + b"\n")


def _opened_anchor(where: str) -> Objects:
    """Open what keeps tree heads. A plain path is a directory. Raises UsageError."""
    if where.startswith("git:"):
        return GitAnchor(where.removeprefix("git:"))
    from ninelives.ops.replication.opening import is_bucket, open_bucket

    return open_bucket(where if is_bucket(where) else f"file://{Path(where).absolute()}")


def _anchored(where: str) -> list[tuple[str, bytes]]:
    """Return the tree heads that are anchored somewhere: of a file, that one. Raises UsageError."""
    if Path(where).is_file():
        return [(where, _content(Path(where)))]
    target = _opened_anchor(where)
    found = list(anchors.notes(target))
    if not found:
        raise UsageError(
            f"nothing is anchored at {target.url}", remedy="Was it removed? See `ninelives audit anchor --to`"
        )
    return [(f"{name} at {target.url}", content) for name, content in found]


def _newest(given: Sequence[str], now: TreeHead) -> TreeHead:
    """Return the largest tree head of this log that is anchored somewhere. Raises UsageError."""
    found = []
    for where in given:
        for name, content in _anchored(where):
            head = heads.read_note(content, name).head
            if head.log == now.log:
                found.append(head)
    if not found:
        raise UsageError(
            "nothing of this log is anchored there", remedy="Anchor it: `ninelives audit anchor`"
        )
    return max(found, key=lambda one: one.size)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadFile(f"{str(path)!r} cannot be read: {error.strerror}") from error


def _say_anchored(where: str, head: TreeHead, *, is_new: bool, as_json: bool, out: bool) -> None:
    if as_json and out:
        emit_json({"anchor": where, "size": head.size, "root": head.root.hex(), "is_new": is_new})
        return
    done = "anchored" if is_new else "anchored before"
    (emit if out else say)(shown(f"{counted(head.size, 'entry', 'entries')} {done} at {where}"))


def _print(found: AuditLogReport, *, has_anchors: bool, has_key: bool) -> None:
    for one in found.findings[:_SHOWN]:
        emit(shown(f"{one.where}: {one.what}"))
    if len(found.findings) > _SHOWN:
        emit(f"and {len(found.findings) - _SHOWN:,} more; --json has all")
    said = counted(len(found.findings), "finding") if found.findings else "all as it was written"
    parts = [counted(found.entries, "entry", "entries"), counted(found.runs, "run")]
    parts.append(f"{counted(found.effects, 'start')} of what must not be done twice")
    if has_anchors:
        parts.append(f"{counted(found.heads, 'tree head')}, the first {found.anchored:,} entries anchored")
    emit(f"{said} ({', '.join(parts)})")
    if not has_anchors:
        say("no anchor was given: a log that was cut or written again as a whole verifies, too")
    elif not has_key:
        say("signatures were not checked: no --public-key was given")
    if not found.is_on:
        say("the audit log is off")


def _periodic(store: AnyStore, seconds: float) -> Any:
    from ninelives.ops.periodic import Periodic

    return Periodic(store, FOLLOWER, seconds, lapse_seconds=_LAPSE_SECONDS)
