"""A machine of virtual time: processes, threads of theirs, and one clock that moves when all of them wait.

Threads are greenlets: one runs at a time, and it goes on until it waits. Who is next is decided by the time
at which it is due and, among equals, by the seed; so the same seed gives the same history. A killed process
is never given the processor again: none of its code learns of it, no `finally` runs, as after SIGKILL.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

START_MS = 1_700_000_000_000


class Stuck(AssertionError):
    """Nothing is due any more, and the simulation has not come to its end."""


class Process:
    """A process: what it is called, whether it lives, until when it stands still, and its own clocks."""

    def __init__(self, machine: Machine, name: str, *, wall_ms: int = 0, rate: float = 1.0) -> None:
        self.machine, self.name, self.wall_ms, self.rate = machine, name, wall_ms, rate
        self.is_dead = False
        self.ended_at: float | None = None
        self.paused_until = 0.0
        self.cut_off_until = 0.0
        self.loop: asyncio.BaseEventLoop | None = None
        self.stop: Callable[[], object] = lambda: None
        self.ended: list[Callable[[], None]] = []

    @property
    def boot_id(self) -> str:
        """Name the boot of the machine that the process is on."""
        return self.name

    def now_ms(self) -> int:
        """Return the process's wall clock."""
        return START_MS + self.wall_ms + self.boot_ms()

    def boot_ms(self) -> int:
        """Return milliseconds since boot, by the process's clock."""
        return int(self.seconds() * 1000)

    def seconds(self) -> float:
        """Return seconds since boot, by the process's clock."""
        return self.machine.now * self.rate

    def die(self, _: object = None) -> None:
        """End here and now; does not return to who belongs to the process."""
        if not self.is_dead:
            self.is_dead, self.ended_at = True, self.machine.now
            for tell in self.ended:
                tell()
        if self.machine.current.process is self:
            self.machine.block(None)


class Thread:
    """A thread of a process."""

    __slots__ = ("data", "greenlet", "is_done", "is_ready", "loop", "name", "number", "process", "waiters")

    def __init__(self, process: Process, name: str) -> None:
        self.process, self.name, self.number = process, name, 0
        self.greenlet: greenlet | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_ready = self.is_done = False
        self.waiters: list[Thread] = []
        self.data: dict[str, Any] = {}


class Machine:
    """Runs threads in virtual time."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.rng = Random(f"order {seed}")
        self._heap: list[tuple[float, float, int, Thread, int]] = []
        self._count = 0
        self._threads: list[Thread] = []
        self._hub = getcurrent()
        self._is_torn = False
        self.complaints: list[str] = []
        self._outside = Thread(Process(self, "hub"), "hub")
        self.current = self._outside

    def spawn(self, process: Process, target: Callable[[], object], name: str) -> Thread:
        """Start a thread."""
        if self._is_torn:
            raise GreenletExit
        thread = Thread(process, name)
        thread.greenlet = greenlet(lambda: self._main(thread, target), self._hub)
        self._threads.append(thread)
        self._schedule(thread, self.now)
        return thread

    def _main(self, thread: Thread, target: Callable[[], object]) -> None:
        try:
            target()
        except GreenletExit:
            return
        finally:
            thread.is_done = True
            if not self._is_torn:
                for waiter in thread.waiters:
                    self.wake(waiter)

    def block(self, seconds: float | None) -> bool:
        """Let others run until we are woken (True) or the time is over (False)."""
        thread = self.current
        if self._is_torn:
            raise GreenletExit
        thread.number += 1
        thread.is_ready = False
        if seconds is not None:
            self._schedule(thread, self.now + max(0.0, seconds))
        self._hub.switch()
        if self._is_torn:
            raise GreenletExit
        return thread.is_ready

    def wake(self, thread: Thread) -> None:
        """Let a thread go on that waits."""
        if not thread.is_ready and not thread.is_done:
            thread.is_ready = True
            self._schedule(thread, self.now)

    def _schedule(self, thread: Thread, when: float) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, self.rng.random(), self._count, thread, thread.number))

    def run(self, until: Callable[[], bool], limit_seconds: float) -> None:
        """Run until the condition holds. Raises Stuck when nothing is due, or the time is over."""
        while not until():
            if not self._heap:
                raise Stuck("nothing is due any more")
            when, _, _, thread, number = heapq.heappop(self._heap)
            if number != thread.number or thread.is_done or thread.process.is_dead:
                continue
            if thread.process.paused_until > when:
                self._schedule(thread, thread.process.paused_until)
                continue
            if when > limit_seconds:
                raise Stuck(f"{when:.0f} s have passed")
            self.now = max(self.now, when)
            self._switch(thread)

    def _switch(self, thread: Thread) -> None:
        if thread.greenlet is None:
            return
        self.current = thread
        events._set_running_loop(thread.loop)
        try:
            thread.greenlet.switch()
        finally:
            events._set_running_loop(None)
            self.current = self._outside

    def tear_down(self) -> None:
        """Unwind all that is left; whatever it still tries to do raises."""
        self._is_torn = True
        for thread in self._threads:
            if thread.greenlet is not None and not thread.greenlet.dead and thread.greenlet:
                self.current = thread
                events._set_running_loop(thread.loop)
                try:
                    thread.greenlet.throw(GreenletExit)
                finally:
                    events._set_running_loop(None)
                    self.current = self._outside
        self._threads.clear()
        self._heap.clear()
