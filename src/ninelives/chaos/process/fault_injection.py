"""Inject faults from inside: the process kills, stops or terminates itself, or its store fails.

`FaultyStore` wraps any store without knowing its methods. A kill before a call means the call never started;
a kill after it means the call took effect but the caller never got the answer. Every fault is written to the
ledger before it fires.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ninelives.chaos.ledger import OUTCOMES, Ledger, What
from ninelives.chaos.protocol import FaultKind, FaultMoment, InjectedFault, step_in
from ninelives.core.errors import StoreBroken, StoreUnavailable
from ninelives.core.model.commit import Commit, Outcome
from ninelives.core.step_ids import step_text

REFUSALS = 2
"""How often a full disk refuses each write before it accepts it."""
_SIGNALS = {FaultKind.KILL: signal.SIGKILL, FaultKind.STOP: signal.SIGSTOP, FaultKind.TERM: signal.SIGTERM}
_QUIET = frozenset({"now_ms", "wait_for_work", "wait_for_output", "close", "read_news", "read_run"})
"""Calls at which no fault fires: they wait, or only read."""
_CALL_SECONDS = 5.0
_NEVER_CUT = frozenset({"now_ms", "wait_for_work", "wait_for_output", "close"})


class FaultInjector:
    """Fires its fault once, at the first point of its moment that was not passed before."""

    def __init__(self, fault: InjectedFault | None, ledger: Ledger) -> None:
        self._fault, self._ledger = fault, ledger
        self._gate = threading.Lock()
        self._has_fired, self._reached = False, 0
        self._cut_until = 0.0
        self._full_until = time.monotonic() + (fault.seconds if fault is not None else 0.0)
        self._tries: Counter[str] = Counter()
        self._calls = threading.Condition()
        self._calling: set[int] = set()
        self._is_stopping = False
        self.ended: Callable[[], None] = lambda: None
        """Called when the store has committed the run's end."""

    def reach(self, moment: FaultMoment, *names: str) -> None:
        """Report a moment; fire the fault if it belongs here. Raises StoreUnavailable, StoreBroken."""
        fault = self._fault
        if fault is None or fault.moment is not moment or fault.kind is FaultKind.FULL:
            return
        new = [name for name in names if fault.fits(name)]
        if not new:
            return
        with self._gate:
            if self._has_fired:
                return
            self._reached += 1
            if self._reached <= fault.skip:
                return
            self._has_fired = True
            if fault.kind is FaultKind.STOP:
                self._wait_for_calls()
            if fault.kind is FaultKind.KILL and fault.seconds:
                threading.Timer(fault.seconds, self._signal, (fault, new)).start()
                return
            if fault.kind in _SIGNALS:
                self._signal(fault, new)
                self._is_stopping = False
                return
            self._note(fault, new)
        if fault.kind is FaultKind.LOST:
            raise StoreBroken("the store's answer was lost after a commit", remedy="End the process")
        self._cut_until = time.monotonic() + fault.seconds
        self.check_cut()

    def check_cut(self) -> None:
        """Raise StoreUnavailable while the store is cut off."""
        if time.monotonic() < self._cut_until:
            raise StoreUnavailable("the store cannot be reached", remedy="It will be back shortly")

    def _refuse(self, labels: Sequence[str]) -> None:
        """Simulate a full disk: refuse the first few attempts of each write."""
        fault, name = self._fault, labels[0]
        if fault is None or fault.kind is not FaultKind.FULL or name in fault.passed:
            return
        if time.monotonic() > self._full_until:
            return
        with self._gate:
            self._tries[name] += 1
            if self._tries[name] > REFUSALS:
                return
            if self._tries[name] == 1:
                self._note(fault, labels)
        raise StoreUnavailable("the disk is full", remedy="The run continues when there is space")

    def _signal(self, fault: InjectedFault, names: Sequence[str]) -> None:
        self._note(fault, names)
        os.kill(os.getpid(), _SIGNALS[fault.kind])

    def _note(self, fault: InjectedFault, names: Sequence[str]) -> None:
        self._ledger.write(
            What.FAULT, kind=fault.kind.name, target=fault.moment.name, step=names[0], data={"passed": names}
        )

    # The store ----------------------------------------------------------------------------------

    def _wait_for_calls(self) -> None:
        """Wait until no store call is running, and block new ones: a stopped process must hold no locks."""
        with self._calls:
            self._is_stopping = True
            self._calls.wait_for(lambda: not self._calling - {threading.get_ident()}, _CALL_SECONDS)

    @contextmanager
    def calling(self, name: str) -> Iterator[None]:
        """Mark a store call as running."""
        if name in _NEVER_CUT:
            yield
            return
        with self._calls:
            self._calls.wait_for(lambda: not self._is_stopping, _CALL_SECONDS)
            self._calling.add(threading.get_ident())
        try:
            yield
        finally:
            with self._calls:
                self._calling.discard(threading.get_ident())
                self._calls.notify_all()

    def calls(self, name: str, args: tuple[Any, ...]) -> None:
        """Fire the faults that belong before a store call."""
        if name not in _NEVER_CUT:
            self.check_cut()
        if name not in _QUIET:
            self.reach(FaultMoment.BEFORE, *_labels(name, args))
        if name == "commit":
            self._refuse(_labels(name, args))

    def called(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        """Log a commit, and fire the faults that belong after a store call."""
        if name == "commit":
            done = [
                commit
                for commit, verdict in zip(args[0], answer, strict=True)
                if verdict.outcome is Outcome.COMMITTED
            ]
            records = [
                [record.kind, step_in(commit.run, record.step)]
                for commit in done
                for record in commit.records
            ]
            if ["end", ""] in records:
                self.ended()
            self._ledger.write(What.STORED, data={"records": records})
            progress = [step_text(step) or kind for kind, step in records if kind in OUTCOMES]
            self.reach(FaultMoment.PROGRESS, *progress)
        if name not in _QUIET:
            self.reach(FaultMoment.AFTER, *_labels(name, args))


class FaultyStore:
    """Any store, with the fault injector around its calls."""

    def __init__(self, store: object, injector: FaultInjector) -> None:
        self._store, self._injector = store, injector
        self._wrapped: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found
        if name not in self._wrapped:
            self._wrapped[name] = self._around(name, found)
        return self._wrapped[name]

    def _around(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        injector = self._injector

        def call(*args: Any, **kwargs: Any) -> Any:
            injector.calls(name, args)
            with injector.calling(name):
                answer = method(*args, **kwargs)
            injector.called(name, args, answer)
            return answer

        return call


def _labels(name: str, args: tuple[Any, ...]) -> list[str]:
    if name != "commit":
        return [name]
    batch: Sequence[Commit] = args[0]
    return [label for commit in batch for label in _labels_of(commit)]


def _labels_of(commit: Commit) -> list[str]:
    steps = [(record.kind, step_in(commit.run, record.step)) for record in commit.records]
    labels = [f"{kind} {step_text(step)}".strip() for kind, step in steps]
    return labels or [type(commit.change).__name__.lower()]


def trace_line(line: str, injector: FaultInjector) -> None:
    """Report the moment LINE to the injector before each execution of that line, in any thread."""
    file, _, number = line.rpartition(":")
    wanted = int(number)

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno == wanted:
            injector.reach(FaultMoment.LINE, f"{Path(file).name}:{wanted}")
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return local if event == "call" and frame.f_code.co_filename == file else None

    threading.settrace(trace)
    sys.settrace(trace)
