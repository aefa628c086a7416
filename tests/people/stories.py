"""What passes between a run and people, in stages; each is a process that may be killed at a store call.

The world is a ledger outside the store: the action appends a line to it. A story says how it must end;
however often a stage is killed and done again, it ends so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

import ninelives as nl
from ninelives.core.journal.answers import Answer, Says, read_taken
from ninelives.core.model.inbox import Item, ItemState
from ninelives.core.model.run import Kind
from ninelives.runtime.inbox import encoded, give
from tests.crash.killing import KillingStore, KillPoint, Side
from tests.crash.stores import open_at, open_brisk

RUN = "ticket-42"


class Stage(Struct, frozen=True):
    """A worker with some version of the code, or a person who says something."""

    who: Literal["worker", "person"]
    question: str = "Which account?"
    cents: int = 500
    says: Says = Says.APPROVED


class Ending(Struct, frozen=True):
    """How a story ends: the run, its result, what the ledger may hold, who was heard."""

    state: str
    result: str | None
    refunds: tuple[int, ...]
    answers: tuple[Says, ...]
    items: int


class Story(Struct, frozen=True):
    """Stages, how they end, and the agent of the run."""

    stages: tuple[Stage, ...]
    ending: Ending
    agent: str = "cashier"


WORK = Stage("worker")
ANSWER = Stage("person", says=Says.VALUE)
APPROVE = Stage("person", says=Says.APPROVED)
CHANGED = Stage("worker", cents=900)
DIVERGED = Stage("worker", question="Which currency?")

STORIES: dict[str, Story] = {
    "approved": Story(
        (WORK, ANSWER, WORK, APPROVE, WORK),
        Ending("completed", "refunded 500 to b", (500,), (Says.VALUE, Says.APPROVED), 2),
    ),
    "denied": Story(
        (WORK, ANSWER, WORK, Stage("person", says=Says.DENIED), WORK),
        Ending("completed", "denied", (), (Says.VALUE, Says.DENIED), 2),
    ),
    "voided": Story(
        (WORK, ANSWER, WORK, APPROVE, CHANGED, APPROVE, CHANGED),
        Ending("completed", "refunded 900 to b", (900,), (Says.VALUE, Says.APPROVED), 3),
    ),
    "mended": Story(
        (WORK, ANSWER, WORK, APPROVE, DIVERGED, Stage("person", says=Says.RETRY), WORK),
        Ending("completed", "refunded 500 to b", (500,), (Says.VALUE, Says.RETRY, Says.APPROVED), 3),
    ),
    "given up": Story(
        (WORK, ANSWER, WORK, APPROVE, DIVERGED, Stage("person", says=Says.FAIL), WORK),
        Ending("failed", None, (), (Says.VALUE, Says.FAIL), 3),
    ),
    "doubted": Story(
        (WORK, Stage("person", says=Says.HAPPENED), WORK),
        Ending("completed", "b", (), (Says.HAPPENED,), 1),
        "teller",
    ),
    "held": Story(
        (WORK, ANSWER, CHANGED, Stage("person", says=Says.RETRY), CHANGED),
        Ending("completed", "kept for b", (), (Says.RETRY, Says.VALUE), 2),
        "keeper",
    ),
}

_now = {"stage": WORK, "ledger": ""}


@nl.action(name="refund", approval=True)
async def refund(account: str, cents: int) -> str:
    """Do it, where everybody can see it."""
    line = f"{cents} {account} {nl.key()}\n".encode()
    ledger = os.open(str(_now["ledger"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(ledger, line)
    os.close(ledger)
    return f"refunded {cents} to {account}"


@nl.action(name="note down")
async def note(question: str) -> str:
    """Be an effect that new code may ask for otherwise."""
    return question


@nl.agent(name="cashier")
async def cashier() -> str:
    """Ask which account, then refund to it if a person agrees."""
    stage = cast("Stage", _now["stage"])
    await note(stage.question)
    account = await nl.ask("Which account?", ["a", "b"])
    try:
        return await refund(account, stage.cents)
    except nl.Denied:
        return "denied"


@nl.action(name="wire", resumable=False)
async def wire() -> str:
    """Be cut off: it is not known whether it happened."""
    raise ConnectionError("the line went dead")


@nl.agent(name="teller")
async def teller() -> str:
    """Do what only a person can tell of."""
    return await wire()


@nl.agent(name="keeper")
async def keeper() -> str:
    """Hold a file over a question; a later stage changes it."""
    nl.hold(nl.File(f"{_now['ledger']}.held"))
    return f"kept for {await nl.ask('Which account?', ['a', 'b'])}"


def play(home: str, story: str, first: int, last: int, call: int = 0, side: Side = "before") -> int:
    """Do stages of a story in this process, dying at a call of the store; returns how many there were."""
    point = KillPoint(call, side) if call else None
    opened = open_brisk(Path(home))
    store = KillingStore(opened, point)
    for stage in STORIES[story].stages[first:last]:
        if stage.who == "worker":
            _work(store, stage, home, STORIES[story].agent)
        else:
            _speak(store, stage)
    opened.close()
    return len(store.calls)


def _work(store: Any, stage: Stage, home: str, agent: str) -> None:
    _now.update(stage=stage, ledger=f"{home}/ledger")
    held = Path(f"{home}/ledger.held")
    if not held.exists() or held.read_text() != str(stage.cents):
        held.write_text(str(stage.cents))

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            await rt.start({"cashier": cashier, "teller": teller, "keeper": keeper}[agent], id=RUN)
            await rt.work(until_idle=True)

    asyncio.run(main())


def _speak(store: Any, stage: Stage) -> None:
    """Answer the one item that waits; who does not know whether it was heard says the same again."""
    items: Sequence[Item] = store.list_inbox(run=RUN, answered=True)
    waiting = [item for item in items if item.state is ItemState.OPEN] or list(items[-1:])
    gives = stage.says in (Says.VALUE, Says.HAPPENED)
    value = Answer(stage.says, encoded("b")) if gives else Answer(stage.says)
    (item,) = waiting
    give(store, item, value, by="ada")


def judge(home: str, story: str) -> list[str]:
    """Compare how it ended with how it must have ended; returns what is wrong."""
    ending, wrong = STORIES[story].ending, list[str]()
    store = open_at(Path(home))
    try:
        row = store.read_run(RUN)
        assert row is not None
        records = store.load_journal(RUN, since=0).records
        items = store.list_inbox(run=RUN, answered=True)
        faults = store.verify()
    finally:
        store.close()
    answers = tuple(read_taken(record).answer.says for record in records if record.kind is Kind.ANSWER)
    ledger = Path(home) / "ledger"
    lines = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
    found = Ending(
        row.state,
        _result(records[-1].body) if row.state == "completed" else None,
        tuple(sorted({int(cents) for cents, _, _ in lines})),
        answers,
        len(items),
    )
    if found != ending:
        wrong.append(f"it ended with {found}, not with {ending}")
    if len({key for _, _, key in lines}) > 1:
        wrong.append(f"the attempts had different keys: {lines}")
    if any(item.state is ItemState.OPEN for item in items):
        wrong.append("an item is still open")
    return wrong + [str(fault) for fault in faults]


def _result(body: bytes) -> str:
    return str(msgspec.json.decode(body)["v"])
