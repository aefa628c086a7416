"""Lives as real processes over a file, killed with SIGKILL; `check` as the command that people type."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

import ninelives as nl
from ninelives.core.model.inbox import Item
from ninelives.core.model.run import RunRow, State
from ninelives.ops.check import CheckFinding, Fit
from ninelives.runtime import agent_loader
from tests.crash.forkserver import ForkServer
from tests.crash.killing import KillingStore, KillPoint, kill_self
from tests.crash.stores import address, open_at, open_brisk
from tests.edits import ledger
from tests.edits.ledger import Event, Ledger
from tests.edits.lives import (
    CALLS,
    MOST_ROUNDS,
    RUN,
    TURN,
    Kill,
    accept_divergence,
    answer_doubts,
    ends_turn,
    rehearsed,
)
from tests.edits.meaning import SIGNAL
from tests.edits.pairs import Pair
from tests.edits.programs import Block, Sleep, blocks_of, with_blocks

nl.Runtime  # noqa: B018 (names are loaded when first used: here, not in every child)
LIFE, GO_ON, CHECK = (f"tests.edits.processes:{name}" for name in ("life", "go_on", "rehearse"))


class EditServer(ForkServer):
    """The fork server, with what these lives import already imported."""

    def __init__(self) -> None:
        code = "import tests.edits.processes; from tests.crash.forkserver import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


class Processes:
    """Where the lives of a run are processes; `home` has the store, the ledger, and the code of each day.

    `by_command`: the check is what people type, which takes a second; else it is made in a child, too.
    """

    def __init__(self, server: ForkServer, home: Path, *, by_command: bool = False) -> None:
        self._server, self._home, self._by_command = server, home, by_command
        self.store = open_at(home)
        self.ledger = Ledger()
        self._code = home / "none.py"

    def load(self, source: str, name: str) -> None:
        """Let the code of the next life be this."""
        self._code = self._home / f"{name}.py"
        self._code.write_text(source)

    def check(self) -> CheckFinding:
        """Ask `ninelives check`."""
        if not self._by_command:
            found = self._server.run(CHECK, home=str(self._home), code=str(self._code)).result()
            return msgspec.convert(found, CheckFinding)
        target, url = str(self._code), address(self._home)
        command = [sys.executable, "-m", "ninelives", "check", target, "--store", url, "--json"]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert asked.returncode in (0, 1), asked.stderr
        problems = msgspec.convert(json.loads(asked.stdout)["problems"], list[CheckFinding])
        mine = [one for one in problems if one.run == RUN]
        return mine[0] if mine else CheckFinding(run=RUN, agent="agent", fit=Fit.FITS)

    def live(self, kill: Kill) -> bool:
        """Go on for as long as anything can; True if it died on the way."""
        death = self._server.run(
            LIFE, home=str(self._home), code=str(self._code), at=kill.at, number=kill.number
        )
        if not death.was_killed:
            death.result()
        self.ledger.events = ledger.read_file(self._home / "ledger")
        return death.was_killed

    def go_on(self) -> None:
        """Say of a run that diverged that it may go on."""
        self._server.run(GO_ON, home=str(self._home)).result()

    def row(self) -> RunRow:
        """Return the run."""
        found = self.store.read_run(RUN)
        assert found is not None
        return found

    def items(self) -> list[Item]:
        """Return what waits for a person."""
        return list(self.store.list_inbox(limit=1000))


class _KillingCalls(KillingStore):
    """A store that counts only the calls of which one is to kill."""

    def __init__(self, store: object, kill: Kill) -> None:
        side, self._call = CALLS.get(kill.at, ("before", ""))
        super().__init__(store, KillPoint(kill.number, side))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name == self._call:
            return self._trapped(name, found)
        if name == "commit" and self._call == TURN:
            trapped = self._trapped(name, found)
            return lambda batch: (trapped if ends_turn(batch) else found)(batch)
        return found


def hurried(pair: Pair) -> Pair:
    """Return the pair with sleeps that take no time."""

    def hurry(block: Block) -> Block:
        return tuple(
            replace(node, seconds=0)
            if isinstance(node, Sleep)
            else with_blocks(node, tuple(map(hurry, blocks_of(node))))
            for node in block
        )

    versions = tuple(
        replace(one, program=replace(one.program, block=hurry(one.program.block))) for one in pair.versions
    )
    return replace(pair, versions=versions)


def life(home: str, code: str, at: str, number: int) -> None:
    """Start or resume the run in this process, and die of it where that is asked for."""
    book = Ledger(Path(home) / "ledger")
    book.next_life()
    ledger.use(book)
    words = 0

    def heard(event: Event) -> None:
        nonlocal words
        words += event.fact == at
        if event.fact == at and words == number:
            kill_self()

    book.on_event = heard
    _load(code)
    store = _KillingCalls(open_brisk(Path(home)), Kill(cast("Any", at), number))
    asyncio.run(_live(cast("Any", store), book, is_brief=at == "rest"))


def _load(path: str) -> None:
    agent_loader.load(path)


async def _live(store: Any, book: Ledger, *, is_brief: bool) -> None:
    async with nl.Runtime(store) as rt:
        run = await rt.start("agent", id=RUN)
        for number in range(MOST_ROUNDS):
            await rt.work(until_idle=True)
            state = await run.status()
            if state.is_final or (state is State.ESCALATED and not await answer_doubts(rt, book)):
                return
            if is_brief:
                return
            row = store.read_run(RUN)
            if row.due_ms is not None:
                await asyncio.sleep(max(0, row.due_ms - store.now_ms()) / 1000)
            else:
                await run.signal("go", SIGNAL, id=f"{book.life}-{number}")
    raise AssertionError("the run does not end")


def rehearse(home: str, code: str) -> Any:
    """Check the run against code in this process."""
    _load(code)
    store = open_at(Path(home))
    row = store.read_run(RUN)
    assert row is not None
    return msgspec.to_builtins(rehearsed(store, row))


def go_on(home: str) -> None:
    """Say of a run that diverged that it may go on."""

    async def main() -> None:
        async with nl.Runtime(cast("Any", open_brisk(Path(home)))) as rt:
            await accept_divergence(rt)

    asyncio.run(main())
