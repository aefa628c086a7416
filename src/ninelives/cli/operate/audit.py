"""`ninelives store audit`: read and check everything that a store holds, gently, once or at an interval."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import typer

from ninelives.cli.options import EXIT_FAILED, interval_ms, opened
from ninelives.cli.output import bar, emit, say
from ninelives.cli.stopping import stopped_by_signals
from ninelives.core.errors import Corrupt, LeaseLost, UsageError
from ninelives.ops import audit as audits
from ninelives.ops.audit import Auditor, AuditResult
from ninelives.store import Fault, Progress
from ninelives.views.counted import counted
from ninelives.views.escape import shown

if TYPE_CHECKING:
    from ninelives.ops.periodic import Turn
    from ninelives.stores.open import AnyStore

_NICE = 10
_POLL_SECONDS = 0.5


def audit(url: str, every: str, rate: float, sample: str, *, as_json: bool) -> None:
    """Audit a store; with `every`, again and again until a signal stops it."""
    share, every_ms = _share(sample), interval_ms("--every", every) if every else 0
    with opened(url) as store:
        with suppress(OSError):
            os.nice(_NICE)  # what executes runs comes first
        if every:
            _repeat(store, every_ms / 1000, rate, share, as_json=as_json)
            return
        with bar("auditing", as_json=as_json) as progress:
            result = _once(store, rate, share, progress)
        _print(result, as_json=as_json)
    if result.faults:
        raise typer.Exit(EXIT_FAILED)


def _once(store: AnyStore, rate: float, share: float, progress: Progress) -> AuditResult:
    """Carry out one audit; if another process does, show how far it is, and return its result."""
    auditor = Auditor(store, rate=rate, share=share, progress=progress)
    began_ms = store.read_clock()
    periodic = auditor.periodic(0)
    while True:
        try:
            turn = periodic.begin(at_once=True)
            if turn is not None:
                return _carry_out(auditor, turn)
            last, walk = audits.read_last(store), audits.read_walk(store)
        except LeaseLost:
            continue
        except Corrupt as error:
            return _all_at_once(store, error, began_ms, progress)
        if last is not None and last.finished_ms >= began_ms and last.share >= share:
            return last
        if walk is not None and walk.of:
            progress(walk.at, walk.of)
        time.sleep(_POLL_SECONDS)


def _carry_out(auditor: Auditor, turn: Turn) -> AuditResult:
    try:
        result = auditor.carry_out(turn)
    except LeaseLost:
        raise
    except BaseException:
        with suppress(Exception):
            turn.fail("the audit was stopped", retry_ms=0)
        raise
    turn.succeed()
    return result


def _all_at_once(store: AnyStore, error: Corrupt, began_ms: int, progress: Progress) -> AuditResult:
    """Verify without documents: one of the audit's own is damaged, and no position can be kept."""
    say(f"{error}; everything is verified at once, and the result is not kept")
    found = store.verify(progress)
    twice: dict[str, int] = {}
    for fault in found:
        if fault.duplicate:
            twice[fault.duplicate] = twice.get(fault.duplicate, 0) + 1
    now_ms = store.read_clock()
    return AuditResult(
        started_ms=began_ms,
        finished_ms=now_ms,
        seconds=(now_ms - began_ms) / 1000,
        faults=len(found) or 1,
        duplicates=twice,
        found=tuple(found) or (Fault(None, error.what),),
    )


def _repeat(store: AnyStore, seconds: float, rate: float, share: float, *, as_json: bool) -> None:
    # An audit takes hours: a signal cuts it off, and the next process goes on where it was.
    with suppress(KeyboardInterrupt), stopped_by_signals(interrupts=True) as stopped:
        auditor = Auditor(store, rate=rate, share=share, sleep=stopped.wait)

        def work(turn: Turn) -> None:
            _print(auditor.carry_out(turn), as_json=as_json)

        auditor.periodic(seconds).repeat(work, stopped.wait)


def _print(result: AuditResult, *, as_json: bool) -> None:
    if as_json:
        emit(msgspec.json.encode(result).decode())
        return
    for fault in result.found:
        kind = f"proved duplicate ({fault.duplicate}): " if fault.duplicate else ""
        emit(shown(f"{fault.run or 'store'}: {kind}{fault.what}"))
    if result.faults > len(result.found):
        emit(f"and {result.faults - len(result.found):,} more")
    of = f"a sample of {result.share:.0%}: " if result.share < 1 else ""
    verdict = counted(result.faults, "fault") if result.faults else "no faults"
    read = f"{counted(result.runs, 'run')}, {counted(result.rows, 'row')}"
    emit(f"{verdict} ({of}{read}, {result.seconds:,.1f} s)")


def _share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        share = float(number) / 100 if text.endswith("%") else float("nan")
    except ValueError:
        share = float("nan")
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text!r}", remedy="Write a share above 0 and up to 100%, such as 5%")
    return share
