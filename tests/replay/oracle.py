"""The oracle: what a program comes to when the outcomes of a journal are told in their order.

It shares no code with the engine: branches are named by the documented rule, outcomes are delivered one at
a time, each when the code has come to rest. It executes no body; a call without an outcome never returns.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from typing import Any

import msgspec

from ninelives.core.errors import TimedOut
from ninelives.core.ids import step_id
from ninelives.core.model.run import Kind, Record
from ninelives.core.values.codec import codec_for
from ninelives.core.values.exceptions import decode_error
from tests.replay.agents import Listed, Reading
from tests.replay.interpreter import Interpreter
from tests.replay.programs import Program

RETURNS: dict[str, Any] = {
    "action": float,
    "read": Reading,
    "decision": Any,
    "plain_decision": Any,
    "nested": dict[str, float],
    "plain": float,
}


class Wrong(AssertionError):
    """The journal cannot have come from a run that never crashed."""


class _Branch:
    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: Counter[str] = Counter()
        self.children: Counter[str] = Counter()

    def child(self, name: str) -> _Branch:
        number = self.children[name]
        self.children[name] += 1
        return _Branch(f"{self.name}/{name}" + (f".{number}" if number else ""))

    def step(self, name: str) -> str:
        number = self.calls[name]
        self.calls[name] += 1
        return step_id(self.name, name, number)


_BRANCH: ContextVar[_Branch] = ContextVar("branch")


class Oracle:
    """One turn, told from its journal; both a face for the interpreter and the loop under it."""

    def __init__(self, program: Program, records: tuple[Record, ...], drawn: Mapping[str, str]) -> None:
        self._program, self._drawn = program, drawn
        self._outcomes = {
            one.step: one for one in records if one.kind in (Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN)
        }
        self._order = sorted(
            one.seq
            for one in self._outcomes.values()
            if one.kind is not Kind.WITHDRAWN and "#now#" not in one.step
        )
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.asked: dict[str, tuple[str, str]] = {}
        self._loop = asyncio.new_event_loop()

    def tell(self, turn: int, acc: str) -> str:
        """Return what the turn comes to. Raises what the program raises; Wrong."""
        self._loop.set_task_factory(_make_task)
        context = copy_context()
        context.run(_BRANCH.set, _Branch(""))
        code = Interpreter(self._program, self).block(self._program.turns[turn], acc)
        task = asyncio.Task(code, loop=self._loop, context=context)
        asyncio.set_event_loop(self._loop)
        try:
            self._rest()
            for seq in self._order:
                if task.done():
                    break
                told = self._waiting.pop(seq, None)
                if told is None:
                    raise Wrong(f"record {seq} was told to nobody when its turn came")
                if not told.done():
                    told.set_result(None)
                    self._rest()
            if not task.done():
                raise Wrong("all outcomes were told and the program has not ended")
            return task.result()
        finally:
            self._close(task)

    def _rest(self) -> None:
        ready: Any = self._loop
        while ready._ready:
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()

    def _close(self, task: asyncio.Task[str]) -> None:
        for one in asyncio.all_tasks(self._loop):
            one.cancel()
        self._rest()
        if task.done() and not task.cancelled():
            task.exception()
        asyncio.set_event_loop(None)
        self._loop.close()

    async def _turn_of(self, record: Record | None) -> None:
        told: asyncio.Future[None] = self._loop.create_future()
        if record is not None and record.kind is not Kind.WITHDRAWN:
            self._waiting[record.seq] = told
        await told

    # The face -----------------------------------------------------------------------------------

    async def call(self, role: str, label: str, x: str, trouble: str) -> Any:
        if not self._program.is_async:
            role = "plain_decision" if role == "decision" else "plain"
        self.asked[label] = (x, trouble)
        record = self._outcomes.get(_BRANCH.get().step(role))
        if record is not None:
            self._check(record, label, x)
        await self._turn_of(record)
        assert record is not None
        body = msgspec.json.decode(record.body, type=dict[str, msgspec.Raw])
        if record.kind is Kind.FAILURE:
            raise decode_error(bytes(body["e"]), raises=(Listed,))
        return codec_for(RETURNS[role]).decode(bytes(body["v"]))

    def _check(self, record: Record, label: str, x: str) -> None:
        known = msgspec.json.decode(record.body)["a"]
        asked = {"label": f'"{label}"', "x": f'"{x}"'}
        if {name: known.get(name) for name in asked} != asked:
            raise Wrong(f"record {record.seq} is {known}, and the program asks for {asked}")

    def draw(self, what: str, label: str) -> str:
        if what in ("log", "progress"):
            return ""
        if what == "now":
            step = _BRANCH.get().step("now")
            if step not in self._outcomes:
                raise Wrong(f"the time at {label} is not in the journal")
        return self._drawn.get(label, "never drawn")

    async def sleep(self, seconds: float) -> None:
        await self._turn_of(self._outcomes.get(_BRANCH.get().step("sleep")))

    async def gather(self, *arms: Coroutine[Any, Any, str]) -> list[str]:
        tasks = [asyncio.ensure_future(one) for one in arms]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def map(self, step: Callable[[int], Awaitable[str]], items: range, limit: int) -> list[str]:
        places = asyncio.Semaphore(limit)

        async def one(item: int) -> str:
            async with places:
                return await step(item)

        one.__qualname__ = "map.<locals>.one"
        return await self.gather(*(one(item) for item in items))

    @asynccontextmanager
    async def timeout(self, seconds: float) -> Any:
        step = _BRANCH.get().step("timeout")
        task, record = asyncio.current_task(), self._outcomes.get(step)
        assert task is not None
        before, has_fired = task.cancelling(), False

        def fire(told: asyncio.Future[None]) -> None:
            nonlocal has_fired
            if not told.cancelled():
                has_fired = True
                task.cancel()

        told: asyncio.Future[None] = self._loop.create_future()
        told.add_done_callback(fire)
        if record is not None:
            self._waiting[record.seq] = told
        try:
            yield
        except asyncio.CancelledError:
            if has_fired and task.uncancel() <= before:
                raise TimedOut(
                    f"not done within {seconds:g} s", run=f"r{self._program.seed}", step=step
                ) from None
            raise
        finally:
            told.cancel()

    def branch(self, name: str) -> AbstractContextManager[None]:
        return _named(name)


@contextmanager
def _named(name: str) -> Iterator[None]:
    token = _BRANCH.set(_Branch(f"{_BRANCH.get().name}/={name}"))
    try:
        yield
    finally:
        _BRANCH.reset(token)


def _make_task(loop: asyncio.AbstractEventLoop, code: Any, *, context: Any = None, **options: Any) -> Any:
    context = context.copy() if context is not None else copy_context()
    context.run(_BRANCH.set, _BRANCH.get().child(code.__qualname__.replace("<locals>.", "")))
    return asyncio.Task(code, loop=loop, context=context, **options)
