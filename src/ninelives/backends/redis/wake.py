"""Wake-ups: each store object blocks on a list of its own, and writers push to those that are empty.

A list is an ear: it is named where writers look (`wake` in `parts.lua`) until it is deaf, and named again
by whoever waits. What was pushed between two calls stays until it is popped. Nothing rests on a wake-up:
losing one costs a poll.
"""

from __future__ import annotations

import os
import secrets
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from ninelives.backends.redis.connection import Line, LineLost
from ninelives.core.errors import StoreError

_PAUSE_SECONDS, _DEAF_SECONDS, _RENEW_SECONDS = 0.2, 120, 20.0


class WakeUps:
    """Wait for wake-ups on one channel; for all threads of a store object."""

    def __init__(self, ears: bytes, tag: bytes, connect: Callable[[], Line]) -> None:
        self._ears, self._ear = ears, tag + b"ear:" + secrets.token_hex(8).encode()
        self._connect = connect
        self._line: Line | None = None
        self._renew_at = 0.0
        self._inner, self._outer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._turn = threading.Condition()
        self._reading = False
        self._generation = 0
        self._is_closed = False
        self._seen = threading.local()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for a wake-up since this thread's last call; its first call returns at once."""
        deadline = time.monotonic() + timeout_seconds
        with self._turn:
            while not self._is_closed:
                if self._line is not None and getattr(self._seen, "generation", -1) != self._generation:
                    self._seen.generation = self._generation
                    return True
                left = max(0.0, deadline - time.monotonic())
                if self._reading:
                    self._turn.wait(left)
                else:
                    self._read(left)
                seen = getattr(self._seen, "generation", -1)
                if left == 0.0 and (self._line is None or seen == self._generation):
                    return False
            return False

    def close(self) -> None:
        """Stop waiting; who waits is sent away."""
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
            os.write(self._outer, b"!")
            self._turn.wait_for(lambda: not self._reading)
            if self._line is not None:
                with suppress(LineLost):
                    self._line.ask([(b"ZREM", self._ears, self._ear), (b"DEL", self._ear)])
                self._line.close()
            self._turn.notify_all()
        os.close(self._inner)
        os.close(self._outer)

    def _read(self, timeout_seconds: float) -> None:
        """Wait on the line for all threads, without the lock."""
        self._reading = True
        line = self._line
        self._turn.release()
        woken = False
        try:
            if line is None:
                line = self._listen(timeout_seconds)
                woken = line is not None
            else:
                woken = self._renewed(line) or self._popped(line, timeout_seconds)
                line = None if line.is_lost else line
        except LineLost:
            # What was pushed while nobody was named is lost: look for work, then wait again.
            if line is not None:
                line.close()
            line, woken = None, True
        finally:
            self._turn.acquire()
            self._line = line
            self._reading = False
            self._generation += woken
            self._turn.notify_all()

    def _listen(self, timeout_seconds: float) -> Line | None:
        try:
            line = self._connect()
        except StoreError:
            _readable([self._inner], min(timeout_seconds, _PAUSE_SECONDS))
            return None
        self._renew_at = 0.0
        self._renewed(line)
        return line

    def _renewed(self, line: Line) -> bool:
        """Name our ear again from time to time; True if it was forgotten, and something may be missed."""
        if time.monotonic() < self._renew_at:
            return False
        ((seconds, _),) = line.ask([(b"TIME",)])
        (added,) = line.ask([(b"ZADD", self._ears, int(seconds) + _DEAF_SECONDS, self._ear)])
        if isinstance(added, RedisError):  # no memory, no right: then we are woken by the clock
            return False
        self._renew_at = time.monotonic() + _RENEW_SECONDS
        return bool(added)

    def _popped(self, line: Line, timeout_seconds: float) -> bool:
        (found,) = line.ask([(b"LPOP", self._ear)])
        if timeout_seconds <= 0.0 or found is not None:
            return isinstance(found, bytes)
        seconds = max(0.001, min(timeout_seconds, _RENEW_SECONDS))
        line.send([(b"BLPOP", self._ear, f"{seconds:.3f}")])
        if line.fileno() not in _readable([line.fileno(), self._inner], seconds + 5.0):
            if not self._is_closed:
                raise LineLost  # the server has not even said that the time is over
            line.close()
            return False
        return isinstance(line.answer(), list)


def _readable(fds: Sequence[int], timeout_seconds: float) -> list[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout_seconds * 1000)]
