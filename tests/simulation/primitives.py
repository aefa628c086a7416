"""`threading`, `time` and `queue` for code that runs on the machine: what waits lets virtual time pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

from tests.simulation.machine import Machine, Thread

T = TypeVar("T")


class Lock:
    """As `threading.Lock`."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._is_held = machine, False
        self._waiting: deque[Thread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, waiting for it if asked to."""
        while self._is_held:
            if not blocking:
                return False
            self._waiting.append(self._machine.current)
            woken = self._machine.block(None if timeout < 0 else timeout)
            if not woken:
                self._waiting.remove(self._machine.current)
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        """Let it go."""
        self._is_held = False
        if self._waiting:
            self._machine.wake(self._waiting.popleft())

    def locked(self) -> bool:
        """Tell whether somebody has it."""
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Condition(Lock):
    """As `threading.Condition`; nobody here takes it twice."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._sleeping: list[Thread] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Let go until somebody notifies us, or the time is over."""
        me = self._machine.current
        self._sleeping.append(me)
        self.release()
        woken = self._machine.block(timeout)
        if not woken:
            self._sleeping.remove(me)
        self.acquire()
        return woken

    def notify(self, n: int = 1) -> None:
        """Wake who waits."""
        woken, self._sleeping = self._sleeping[:n], self._sleeping[n:]
        for thread in woken:
            self._machine.wake(thread)

    def notify_all(self) -> None:
        """Wake all who wait."""
        self.notify(len(self._sleeping))


class Event:
    """As `threading.Event`."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._is_set = machine, False
        self._waiting: list[Thread] = []

    def is_set(self) -> bool:
        """Tell whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake who waits."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            self._machine.wake(thread)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or the time is over."""
        if not self._is_set:
            me = self._machine.current
            self._waiting.append(me)
            if not self._machine.block(timeout):
                self._waiting.remove(me)
        return self._is_set


class SimpleQueue(Generic[T]):
    """As `queue.SimpleQueue`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._items: deque[T] = deque()
        self._waiting: deque[Thread] = deque()

    def put(self, item: T) -> None:
        """Put something in."""
        self._items.append(item)
        if self._waiting:
            self._machine.wake(self._waiting.popleft())

    def get(self) -> T:
        """Take something out; wait for it."""
        while not self._items:
            self._waiting.append(self._machine.current)
            self._machine.block(None)
        return self._items.popleft()


class Local:
    """As `threading.local`."""

    def __init__(self, machine: Machine) -> None:
        object.__setattr__(self, "_machine", machine)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._machine.current.data[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self._machine.current.data[name] = value


class StartedLater:
    """As `threading.Thread`, of the process that makes it."""

    def __init__(
        self, machine: Machine, *, target: Callable[[], object], name: str = "", daemon: bool = True
    ) -> None:
        self._machine, self._target, self._name = machine, target, name
        self._thread: Thread | None = None

    def start(self) -> None:
        """Let it run."""
        self._thread = self._machine.spawn(self._machine.current.process, self._target, self._name)

    def join(self) -> None:
        """Wait for its end."""
        while self._thread is not None and not self._thread.is_done:
            self._thread.waiters.append(self._machine.current)
            self._machine.block(None)


class Threading:
    """The module `threading`, as far as the engine uses it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def Lock(self) -> Lock:  # noqa: N802 (as there)
        """Make a lock."""
        return Lock(self._machine)

    def Condition(self) -> Condition:  # noqa: N802
        """Make a condition."""
        return Condition(self._machine)

    def Event(self) -> Event:  # noqa: N802
        """Make an event."""
        return Event(self._machine)

    def Thread(self, **options: Any) -> StartedLater:  # noqa: N802
        """Make a thread."""
        return StartedLater(self._machine, **options)

    def get_ident(self) -> int:
        """Number the thread that asks."""
        return id(self._machine.current)

    def get_native_id(self) -> int:
        """Number it as the machine's kernel would."""
        return self.get_ident()


class Time:
    """The module `time`, as far as the engine uses it, by the clock of the process that asks."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return self._machine.current.process.seconds()

    def time(self) -> float:
        """Return the wall clock."""
        return self._machine.current.process.now_ms() / 1000

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._machine.block(seconds)
