"""One process of a trial: load the user's code, work on the run, and exit or be killed.

Its output is the ledger; when it exits by itself, its last line is the run's state. It also answers inbox
items in a person's place: approvals with yes, doubts by what the effect recorder saw.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET, Raw

from ninelives.chaos.ledger import Ledger, What
from ninelives.chaos.process.clock import SkippedTime
from ninelives.chaos.process.effect_recorder import EffectRecorder
from ninelives.chaos.process.fault_injection import FaultInjector, FaultyStore, trace_line
from ninelives.chaos.process.step_probe import StepProbe
from ninelives.chaos.protocol import RUN, FaultMoment, LifeSettings, Settlement
from ninelives.core.errors import NineLivesError, RunError, StoreUnavailable, UsageError
from ninelives.core.journal.answers import Answer, Says, read_item_body
from ninelives.core.journal.replay import read_body
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.model.session import Cause, Evidence
from ninelives.engine.commit import large_bodies
from ninelives.engine.commit.committer import end_process
from ninelives.engine.hooks import observe_process
from ninelives.engine.machine import host
from ninelives.engine.spec.registry import Agent, location_of
from ninelives.runtime import ProcessOptions, Runtime, target
from ninelives.runtime.inbox import give
from ninelives.runtime.script import insist
from ninelives.store import Store
from ninelives.stores.open import open_store

EXIT_USAGE, EXIT_STORE, EXIT_TERM = 2, 4, 143
_VALUE_CHARACTERS = 400
_OUTCOMES = (Kind.RESULT, Kind.FAILURE, Kind.SIGNAL, Kind.WITHDRAWN)
_BY = "ninelives chaos"
_LIVES = 1_000
"""`lives` of every agent: a death injected by chaos does not mean that the run kills its workers."""


def live(settings: LifeSettings) -> None:
    """Run this process. Never returns."""
    os.chdir(settings.tree)
    os.environ.update(settings.environment)
    random.seed()  # a forked process would draw the same numbers as its siblings
    ledger = Ledger(Path(settings.home) / "ledger", settings.number)
    ledger.write(What.STARTED, data={"pid": os.getpid()})
    injector = FaultInjector(settings.fault, ledger)
    proxy = settings.environment.get("http_proxy", "")
    recorder = EffectRecorder(ledger, Path(settings.tree), Path(settings.original), proxy)
    observe_process(StepProbe(ledger, injector, recorder))
    recorder.install()
    if settings.fault is not None and settings.fault.moment is FaultMoment.LINE:
        trace_line(
            settings.fault.line.replace(settings.original + os.sep, settings.tree + os.sep, 1), injector
        )
    try:
        agent = target.agent(settings.target)
        args, kwargs = target.arguments(agent, settings.words, settings.named)
    except UsageError as error:
        ledger.write(What.USAGE, text=str(error))
        os._exit(EXIT_USAGE)
    recorder.is_ready = True
    ledger.write(What.READY, location=recorder.shown(location_of(agent.function)))
    try:
        time = SkippedTime(Path(settings.home))
        store = open_store(settings.url, clock=time)
        code = asyncio.run(_Life(settings, ledger, injector, store, time).main(agent, args, kwargs))
    except NineLivesError as error:
        ledger.write(What.USAGE, text=f"{type(error).__name__}: {error}")
        code = EXIT_STORE
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Life:
    """This process's work on the run."""

    def __init__(
        self, settings: LifeSettings, ledger: Ledger, injector: FaultInjector, store: Store, time: SkippedTime
    ) -> None:
        self._settings, self._ledger, self._injector, self._store = settings, ledger, injector, store
        self._time, self._signals = time, settings.people.signals
        self._is_terminated = False

    async def main(self, agent: Agent, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Work on the run until it ends or needs a person; return the exit code."""
        faulty = cast("Store", FaultyStore(self._store, self._injector))  # our own reads bypass it
        options = ProcessOptions(
            fatal=end_process, is_dedicated=True, clock=self._time, lives=_LIVES, is_logged=False
        )
        runtime = Runtime(faulty, lease_seconds=self._settings.lease_seconds, process=options)
        self._injector.ended = lambda: self._log_unused(runtime)
        self._woken = runtime.read_news  # not `notify`: it would call `_person_is_needed`, which calls this
        async with runtime:
            self._report_dead()
            self._settle()
            working = asyncio.create_task(self._work(runtime, agent, args, kwargs))
            waiting = asyncio.create_task(runtime.until(self._person_is_needed))
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop, working)
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            for task in (working, waiting):
                task.cancel()
            await asyncio.wait({working, waiting})
            if not working.cancelled() and (error := working.exception()) is not None:
                raise error
            if not self._is_terminated:
                self._log_state()
        return EXIT_TERM if self._is_terminated else 0

    async def _work(
        self, runtime: Runtime, agent: Agent, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        with suppress(RunError):  # how it ended is read from the store
            await insist(runtime, agent.name, args, RUN, kwargs)

    def _stop(self, working: asyncio.Task[None]) -> None:
        self._is_terminated = True
        working.cancel()

    def _report_dead(self) -> None:
        """Report dead processes to the store, as a supervisor does. On SQLite a released lock proves it."""
        if self._settings.url.startswith("sqlite:"):
            return
        here = host()
        for session in self._store.list_sessions():
            if session.pid in self._settings.dead and session.host == here:
                evidence = {session.id: Evidence(is_gone=True, signal=signal.SIGKILL)}
                self._store.end_sessions([session.id], Cause.DIED, evidence=evidence)

    # People -------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Answer the doubts for which the recorder knows what happened."""
        known = {one.step: one for one in self._settings.settlements}
        for item in self._store.list_inbox(run=RUN) if known else ():
            settlement = known.get(item.step)
            if item.kind is ItemKind.DOUBT and settlement is not None:
                give(self._store, item, _answer_for(item, settlement), by=_BY)

    async def _person_is_needed(self) -> bool | None:
        try:
            return self._answer()
        except StoreUnavailable:
            return None

    def _answer(self) -> bool | None:
        """Answer what can be answered; True when the run waits for something else and cannot continue."""
        row = self._store.read_run(RUN)
        if row is None or row.state is not State.CHECKPOINTED:
            return None
        items = self._store.list_inbox(run=RUN)
        left = [item for item in items if not self._answers(item)]
        if left and row.due_ms is None:
            return True
        if not items and not self._time.skip(self._store) and not self._signal():
            return True
        self._woken()
        return None

    def _answers(self, item: Item) -> bool:
        """Answer an item if we know the answer; return whether we did."""
        people = self._settings.people
        if item.kind is ItemKind.APPROVAL:
            give(self._store, item, Answer(Says.APPROVED), by=_BY)
        elif item.kind is ItemKind.QUESTION and people.answer:
            give(self._store, item, Answer(Says.VALUE, Raw(people.answer.encode())), by=_BY)
        else:
            return False
        return True

    def _signal(self) -> bool:
        """Send the given signals, each once per trial (the id dedups them); False when none is left."""
        signals, self._signals = self._signals, ()
        for number, (name, body) in enumerate(signals):
            self._store.send_signal(RUN, name, body.encode(), id=f"chaos-{number}")
        return bool(signals)

    # Results ------------------------------------------------------------------------------------

    def _log_unused(self, runtime: Runtime) -> None:
        execution = runtime.executions.get(RUN)
        if execution is not None and execution.replay.left:
            for record in execution.replay.unclaimed():
                self._ledger.write(What.UNUSED, step=record.step)

    def _log_state(self) -> None:
        row = self._store.read_run(RUN)
        if row is None:
            return
        journal = self._store.load_journal(RUN, since=0)
        records = large_bodies.whole(self._store, journal.records)
        turn, outcomes, end = 0, [], {}
        for record in records:
            if record.kind is Kind.TURN:
                turn += 1
            elif record.kind in _OUTCOMES:
                body = read_body(record)
                value = _short(bytes(body.v or body.e or b""))
                outcomes.append([turn, record.kind, record.step, body.f, value])
            elif record.kind is Kind.END:
                body = read_body(record)
                end = {"result": _text(bytes(body.v or b"")), "error": _text(bytes(body.e or b""))}
        data = {"state": row.state, "waits": row.waits, "journal": outcomes, "inbox": self._inbox(row), **end}
        self._ledger.write(What.STATE, data=data)

    def _inbox(self, row: RunRow) -> list[dict[str, str]]:
        return [
            {"kind": item.kind, "step": item.step, "what": read_item_body(item).what}
            for item in (self._store.list_inbox(run=RUN) if not row.state.is_final else ())
        ]


def _answer_for(item: Item, settlement: Settlement) -> Answer:
    if not settlement.happened and not read_item_body(item).happened:
        return Answer(Says.NOT_HAPPENED)
    value = Raw(settlement.value.encode()) if settlement.value else UNSET
    return Answer(Says.HAPPENED, value)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _short(data: bytes) -> str:
    text = _text(data)
    if len(text) <= _VALUE_CHARACTERS:
        return text
    return f"{text[:200]}… ({len(text)}, {blake2b(data, digest_size=8).hexdigest()})"
