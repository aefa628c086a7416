"""The interpreter: agent code that does what a program says, through a face of the runtime.

Everything that code learns goes into `acc`, a digest, and each step is given `acc`: code that learns of
other outcomes, or in another order, asks for steps with other arguments. The same code runs over the real
runtime and over the oracle; it knows nothing of either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from hashlib import blake2b
from typing import Any, Protocol

from tests.replay.programs import (
    Call,
    Choice,
    Drawn,
    Dropped,
    Forked,
    Limited,
    Mapped,
    Named,
    Node,
    Program,
    Race,
    Slept,
    Tried,
)


class Face(Protocol):
    """What a program uses of a runtime."""

    async def call(self, role: str, label: str, x: str, trouble: str) -> Any:
        """Call a step."""

    def draw(self, what: str, label: str) -> str:
        """Draw the time or randomness, or write a line."""

    async def sleep(self, seconds: float) -> None:
        """Do as nl.sleep."""

    def gather(self, *arms: Coroutine[Any, Any, str]) -> Awaitable[list[str]]:
        """Do as nl.gather."""

    def map(self, step: Callable[[int], Awaitable[str]], items: range, limit: int) -> Awaitable[list[str]]:
        """Do as nl.map."""

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[None]:
        """Do as nl.timeout."""

    def branch(self, name: str) -> AbstractContextManager[None]:
        """Do as nl.branch."""


def fold(*parts: object) -> str:
    """Give the digest of what is known."""
    return blake2b(repr(parts).encode(), digest_size=6).hexdigest()


def told(error: BaseException) -> str:
    """Say what an error says: its class and message, and those inside a group."""
    inner = [told(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return f"{type(error).__name__}({error}){inner or ''}"


class Interpreter:
    """One turn of a program."""

    def __init__(self, program: Program, face: Face) -> None:
        self._face, self._is_shared = face, program.is_shared
        self._learnt: list[str] = []

    def _x(self, acc: str) -> str:
        return fold(acc, self._learnt) if self._is_shared else acc

    async def block(self, nodes: Sequence[Node], acc: str) -> str:
        for node in nodes:
            acc = await self._do(node, acc)
        return acc

    async def arm(self, nodes: Sequence[Node], acc: str, number: int) -> str:
        return await self.block(nodes, fold(acc, number))

    async def _call(self, role: str, label: str, acc: str, trouble: str = "") -> Any:
        try:
            value = await self._face.call(role, label, self._x(acc), trouble)
        except Exception as error:
            self._learnt.append(f"{label} {told(error)}")
            raise
        self._learnt.append(f"{label} {value!r}")
        return value

    async def _do(self, node: Node, acc: str) -> str:
        match node:
            case Call(label, role, trouble):
                return fold(acc, label, await self._call(role, label, acc, trouble or ""))
            case Drawn(label, what):
                return fold(acc, label, self._face.draw(what, label))
            case Slept(label, seconds):
                await self._face.sleep(seconds)
                self._learnt.append(f"{label} slept")
                return fold(acc, label)
            case Choice(label, yes, no):
                answer = await self._call("decision", label, acc)
                return await self.block(yes if answer[1] % 2 else no, fold(acc, answer))
            case Tried(label, inner):
                try:
                    return await self.block(inner, acc)
                except Exception as error:
                    return fold(acc, label, told(error))
            case Named(label, inner):
                with self._face.branch(label):
                    return await self.block(inner, acc)
            case Limited(label, seconds, inner):
                async with self._face.timeout(seconds):
                    return fold(label, await self.block(inner, acc))
            case Forked(label, how, arms):
                return fold(label, acc, await self._forked(how, arms, acc))
            case Mapped(label, role, items, limit):

                async def one(item: int) -> str:
                    return fold(await self._call(role, f"{label}.{item}", acc))

                return fold(label, await self._face.map(one, range(items), limit))
            case Race(label, arms):
                return fold(label, acc, await self._race(arms, acc))
            case Dropped(label, arm, meanwhile):
                return fold(label, await self._dropped(arm, meanwhile, acc))

    async def _forked(self, how: str, arms: Sequence[Sequence[Node]], acc: str) -> list[str]:
        running = [self.arm(arm, acc, number) for number, arm in enumerate(arms)]
        if how == "asyncio":
            tasks = [asyncio.ensure_future(one) for one in running]
            try:
                return list(await asyncio.gather(*tasks))
            finally:
                await _end(tasks)
        if how == "nl":
            return await self._face.gather(*running)
        if how == "settled":
            found = await asyncio.gather(*running, return_exceptions=True)
            return [told(one) if isinstance(one, BaseException) else one for one in found]
        async with asyncio.TaskGroup() as group:
            grouped = [group.create_task(one) for one in running]
        return [task.result() for task in grouped]

    async def _race(self, arms: Sequence[Sequence[Node]], acc: str) -> list[str]:
        tasks = [asyncio.create_task(self.arm(arm, acc, number)) for number, arm in enumerate(arms)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return [_outcome(task) if task.done() else "open" for task in tasks]
        finally:
            await _end(tasks)

    async def _dropped(self, arm: Sequence[Node], meanwhile: Sequence[Node], acc: str) -> list[str]:
        task = asyncio.create_task(self.arm(arm, acc, 0))
        try:
            acc = await self.block(meanwhile, acc)
        finally:
            await _end([task])
        return [acc, _outcome(task)]


async def _end(tasks: Sequence[asyncio.Task[str]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _outcome(task: asyncio.Task[str]) -> str:
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return told(error) if error is not None else task.result()
