"""The agents and steps under test: the interpreter over the real runtime.

Bodies append to the world's ledger when they start and when they end; what they return is new each time.
Their annotations are such that the recorded value is of another type than what the body returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any

import ninelives as nl
from tests.replay.interpreter import Interpreter, fold, told
from tests.replay.programs import Call, Choice, Drawn, Named, Node, Program, Slept, Tried, program_of
from tests.replay.world import World

WORLDS: dict[str, World] = {}
"""The world of each run of this process."""

RETRY = nl.Retry(attempts=3, base_seconds=0.0002, max_seconds=0.0005)


class Oops(Exception):
    """An error that is not in raises=."""


class Listed(Exception):
    """An error that is."""


ERRORS: dict[str, Callable[[str], Exception]] = {"value": ValueError, "oops": Oops, "listed": Listed}


@dataclass
class Reading:
    """What a read returns."""

    number: float
    label: str


class Body:
    """One execution of a step's body, as the world sees it."""

    def __init__(self, role: str, label: str, x: str) -> None:
        here = nl.info()
        self.world = WORLDS[here.run]
        self._tell = self.world.speaker()
        self._attempt = here.attempt
        self._about = {"turn": here.turn, "label": label, "role": role, "x": x, "key": nl.key()}
        self._tell("start", **self._about)
        self.pause = self.world.rng.choice((0, 0, 1, 2, 3, 0.0003, 0.0006, 0.001))

    def end(self, trouble: str) -> int:
        """Fail, or give an answer that was never given before."""
        answer = self.world.answer()
        if (
            trouble in ("value", "oops", "listed")
            or trouble in ("giveup", "cancel")
            or (trouble == "flaky" and self._attempt < 3)
        ):
            self._tell("failed", **self._about, value=str(answer))
            kinds: dict[str, Callable[[str], BaseException]] = {
                "value": ValueError,
                "oops": Oops,
                "listed": Listed,
                "cancel": asyncio.CancelledError,
            }
            raise kinds.get(trouble, nl.Transient)(f"no {answer}")
        self._tell("done", **self._about, value=str(answer))
        return answer


async def _body(role: str, label: str, x: str, trouble: str) -> int:
    body = Body(role, label, x)
    if isinstance(body.pause, float):
        await asyncio.sleep(body.pause)
    else:
        for _ in range(body.pause):
            await asyncio.sleep(0)
    return body.end(trouble)


@nl.action(retry=RETRY, raises=[Listed])
async def action(label: str, x: str, trouble: str = "") -> float:
    return await _body("action", label, x, trouble)


@nl.action(retry=RETRY, raises=[Listed], reads_only=True)
async def read(label: str, x: str, trouble: str = "") -> Reading:
    return Reading(await _body("read", label, x, trouble), label)


@nl.decision(retry=RETRY, raises=[Listed])
async def decision(label: str, x: str, trouble: str = ""):  # type: ignore[no-untyped-def]
    return (label, await _body("decision", label, x, trouble))


@nl.action(retry=RETRY, raises=[Listed])
async def nested(label: str, x: str, trouble: str = "") -> dict[str, float]:
    return {label: await action(label, x, trouble)}


@nl.action(retry=RETRY, raises=[Listed])
def plain(label: str, x: str, trouble: str = "") -> float:
    body = Body("plain", label, x)
    if isinstance(body.pause, float):
        time.sleep(body.pause)
    return body.end(trouble)


@nl.decision(retry=RETRY, raises=[Listed])
def plain_decision(label: str, x: str, trouble: str = ""):  # type: ignore[no-untyped-def]
    body = Body("decision", label, x)
    return (label, body.end(trouble))


ASYNC_STEPS: dict[str, Callable[[str, str, str], Awaitable[Any]]] = {
    "action": action,
    "read": read,
    "decision": decision,
    "nested": nested,
}


class LiveFace:
    """The runtime's own face."""

    def __init__(self) -> None:
        here = nl.info()
        self._turn, self._tell = here.turn, WORLDS[here.run].speaker()

    async def call(self, role: str, label: str, x: str, trouble: str) -> Any:
        self._tell("asked", turn=self._turn, label=label, role=role, x=x)
        try:
            if role == "plain":
                return await asyncio.to_thread(plain, label, x, trouble)
            return await ASYNC_STEPS[role](label, x, trouble)
        except asyncio.CancelledError:
            label = ""
            raise
        finally:
            if label:
                self._tell("told", turn=self._turn, label=label)

    def call_plain(self, role: str, label: str, x: str, trouble: str) -> Any:
        role = "decision" if role == "decision" else "plain"
        self._tell("asked", turn=self._turn, label=label, role=role, x=x)
        try:
            return (plain_decision if role == "decision" else plain)(label, x, trouble)
        finally:
            self._tell("told", turn=self._turn, label=label)

    def draw(self, what: str, label: str) -> str:
        value = ""
        if what == "now":
            value = nl.now().isoformat()
        elif what == "uuid":
            value = str(nl.uuid())
        elif what == "random":
            value = repr(nl.random())
        elif what == "log":
            nl.log.info(label)
        else:
            nl.progress(1, note=label)
        self._tell("drawn", turn=self._turn, label=label, role=what, value=value)
        return value

    async def sleep(self, seconds: float) -> None:
        await nl.sleep(seconds)

    def gather(self, *arms: Coroutine[Any, Any, str]) -> Awaitable[list[str]]:
        return nl.gather(*arms)

    def map(self, step: Callable[[int], Awaitable[str]], items: range, limit: int) -> Awaitable[list[str]]:
        return nl.map(step, items, limit=limit)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[None]:
        return nl.timeout(seconds)

    def branch(self, name: str) -> AbstractContextManager[None]:
        return nl.branch(name)


async def _turn(seed: int, turn: int, acc: str) -> Any:
    program = program_of(seed)
    acc = await Interpreter(program, LiveFace()).block(program.turns[turn], acc)
    return nl.next_turn(seed, turn + 1, acc) if turn + 1 < len(program.turns) else acc


def _plain_turn(seed: int, turn: int, acc: str) -> Any:
    program = program_of(seed)
    acc = PlainInterpreter(program, LiveFace()).block(program.turns[turn], acc)
    return nl.next_turn(seed, turn + 1, acc) if turn + 1 < len(program.turns) else acc


class PlainInterpreter:
    """The interpreter for plain `def` agents: one branch, one thing after the other."""

    def __init__(self, program: Program, face: LiveFace) -> None:
        self._face, self._is_shared = face, program.is_shared
        self._learnt: list[str] = []

    def block(self, nodes: tuple[Node, ...], acc: str) -> str:
        for node in nodes:
            acc = self._do(node, acc)
        return acc

    def _call(self, role: str, label: str, acc: str, trouble: str = "") -> Any:
        x = fold(acc, self._learnt) if self._is_shared else acc
        try:
            value = self._face.call_plain(role, label, x, trouble)
        except Exception as error:
            self._learnt.append(f"{label} {told(error)}")
            raise
        self._learnt.append(f"{label} {value!r}")
        return value

    def _do(self, node: Node, acc: str) -> str:
        match node:
            case Call(label, role, trouble):
                return fold(acc, label, self._call(role, label, acc, trouble or ""))
            case Drawn(label, what):
                return fold(acc, label, self._face.draw(what, label))
            case Slept(label, seconds):
                nl.sync.sleep(seconds)
                self._learnt.append(f"{label} slept")
                return fold(acc, label)
            case Choice(label, yes, no):
                answer = self._call("decision", label, acc)
                return self.block(yes if answer[1] % 2 else no, fold(acc, answer))
            case Tried(label, inner):
                try:
                    return self.block(inner, acc)
                except Exception as error:
                    return fold(acc, label, told(error))
            case Named(label, inner):
                with self._face.branch(label):
                    return self.block(inner, acc)
        raise AssertionError(f"not for a plain agent: {node}")


@nl.agent(name="replay-async-strict")
async def async_strict(seed: int, turn: int, acc: str) -> str:
    result: str = await _turn(seed, turn, acc)
    return result


@nl.agent(name="replay-async-pipelined", durability="pipelined")
async def async_pipelined(seed: int, turn: int, acc: str) -> str:
    result: str = await _turn(seed, turn, acc)
    return result


@nl.agent(name="replay-plain-strict")
def plain_strict(seed: int, turn: int, acc: str) -> str:
    result: str = _plain_turn(seed, turn, acc)
    return result


@nl.agent(name="replay-plain-pipelined", durability="pipelined")
def plain_pipelined(seed: int, turn: int, acc: str) -> str:
    result: str = _plain_turn(seed, turn, acc)
    return result
