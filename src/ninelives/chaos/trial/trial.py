"""A trial: one run of the user's agent, from its start to its end, through as many lives as its script takes.

Every trial has a store, a working tree and a ledger of its own. We see only what anyone could see from
outside: the processes that we start, and the ledger that they write.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ninelives.chaos.ledger import Ledger, LedgerLine, LedgerReader, What
from ninelives.chaos.protocol import InjectedFault, LifeOrder, People, Settlement
from ninelives.chaos.trial.fork_server import Cradles, ForkServer
from ninelives.chaos.trial.proxy import ProxyRequest
from ninelives.chaos.trial.scenarios import Scenario
from ninelives.chaos.trial.scratch_store import Url
from ninelives.chaos.trial.work_tree import Content, Tree
from ninelives.core.errors import NineLivesError, UsageError

LOOK_SECONDS = 0.02
MOST_LIVES = 400
_OWN_DEATHS = 3
_SETTLEMENTS = 50
_SETTLED = ("completed", "failed", "cancelled")


class ChaosFailed(NineLivesError):
    """The trials could not be carried out."""


class TrialLife(Struct):
    """One process of a trial. Times are those of the ledger."""

    number: int
    began_at: float
    ended_at: float = 0.0
    code: int = 0
    how: str = ""


class Trial(Struct):
    """What came of one run."""

    name: str
    number: int
    began_at: float
    lives: list[TrialLife] = field(default_factory=list)
    lines: list[LedgerLine] = field(default_factory=list)
    state: str = ""
    result: str = ""
    error: str = ""
    journal: list[list[Any]] = field(default_factory=list)
    inbox: list[dict[str, str]] = field(default_factory=list)
    changes: dict[str, Content] = field(default_factory=dict)
    requests: list[ProxyRequest] = field(default_factory=list)
    settled: int = 0
    """How many doubts were settled in a person's stead."""
    why: str = ""
    """Why it did not come to an end."""
    seconds: float = 0.0
    output: str = ""

    @property
    def faults(self) -> list[LedgerLine]:
        """Return the faults that were made."""
        return [line for line in self.lines if line.what is What.FAULT]

    @property
    def has_ended(self) -> bool:
        """Tell whether the run came to its end."""
        return self.state in _SETTLED


class TrialTarget(Struct, frozen=True):
    """Which agent, with which arguments."""

    name: str
    words: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


class Ground(Struct, frozen=True):
    """What trials stand on: processes, a scratch directory, the user's tree, and a store for each of them."""

    cradles: Cradles
    home: Path
    tree: Tree
    target: TrialTarget
    url: Url
    limit_seconds: float
    """How long a run may take without faults."""
    people: People = People()
    environment: dict[str, str] = {}
    requests: Callable[[float], list[ProxyRequest]] = lambda _: []
    """What came through the proxy since a moment."""


class TrialStage:
    """Carries out one trial."""

    def __init__(
        self,
        ground: Ground,
        script: Scenario,
        number: int,
        values: dict[str, str],
        ready: Callable[[], None] | None = None,
    ) -> None:
        self._ground, self._script, self._values = ground, script, values
        self._ready = ready  # called when the first life has loaded the code: what was asked for can be run
        self._home = ground.home / f"trial-{number}"
        self._tree = self._home / "tree" / ground.tree.root.name
        ground.tree.copy(self._tree)
        self._reader, self._ledger = LedgerReader(self._home / "ledger"), Ledger(self._home / "ledger", 0)
        self.trial = Trial(script.name, number, time.monotonic())
        self.trial.lines = self._reader.lines
        self._settlements: tuple[Settlement, ...] = ()
        self._dead: list[int] = []

    def play(self, seconds: float, patience_seconds: float | None = None) -> Trial:
        """Go on until the run has ended or cannot go on.

        After some seconds nothing befalls it any more; it has `patience_seconds` then to come to its end, or
        as long as it may take without faults.
        """
        trial, script = self.trial, self._script
        patience = self._ground.limit_seconds if patience_seconds is None else patience_seconds
        deadline = trial.began_at + seconds + patience
        while not trial.has_ended and not trial.why:
            left = trial.began_at + seconds - time.monotonic()
            fault = None if left < 0 else script.fault(trial.lines, left)
            kill_after = None if left < 0 else script.kill_after_seconds()
            life = self._live(fault, kill_after, deadline)
            self._judge(life, deadline)
        trial.seconds = time.monotonic() - trial.began_at
        trial.changes = self._changes()
        trial.requests = self._ground.requests(trial.began_at)
        output = self._home / "output"
        trial.output = output.read_text(errors="replace")[-4000:] if output.exists() else ""
        self._ledger.close()
        return trial

    def _changes(self) -> dict[str, Content]:
        """Return what the run has left in its tree; logs, and what they were renamed to, say how it went."""
        root = self._ground.tree.root
        logs = tuple(one.target for one in self.trial.lines if one.what is What.TOUCH and one.kind == "log")
        found = self._ground.tree.changes(self._tree)
        return {path: content for path, content in found.items() if not str(root / path).startswith(logs)}

    # Lives --------------------------------------------------------------------------------------

    def _live(self, fault: InjectedFault | None, kill_after: float | None, deadline: float) -> TrialLife:
        cradle, life, pid = self._begin(fault)
        killed_at = None if kill_after is None else life.began_at + kill_after
        while (code := cradle.gone(pid, self._patience(killed_at))) is None:
            now = time.monotonic()
            if killed_at is not None and now >= killed_at:
                self._ledger.write(What.FAULT, kind="KILL", target="TIME", data={"life": life.number})
                cradle.signal(pid, signal.SIGKILL)
                killed_at = None
            elif now > deadline:
                cradle.signal(pid, signal.SIGKILL)
                self.trial.why = "it did not come to its end in time"
            elif self._is_stopped(life):
                self._take_over(cradle, pid, deadline)
            self._tell_ready()
        self._dead.append(pid)
        return self._end(life, code)

    def _begin(self, fault: InjectedFault | None) -> tuple[ForkServer, TrialLife, int]:
        number = len(self.trial.lives) + 1
        ground = self._ground
        order = LifeOrder(
            number=number,
            target=ground.target.name,
            words=ground.target.words,
            named=ground.target.named,
            home=str(self._home),
            tree=str(self._tree),
            original=str(ground.tree.root),
            url=ground.url(self.trial.number, self._home),
            lease_seconds=self._script.lease_seconds,
            fault=fault,
            settlements=self._settlements,
            people=ground.people,
            dead=tuple(self._dead),
            environment=ground.environment,
        )
        life = TrialLife(number, time.monotonic())
        self.trial.lives.append(life)
        cradle = ground.cradles.next()
        return cradle, life, cradle.begin(order)

    def _end(self, life: TrialLife, code: int) -> TrialLife:
        life.ended_at, life.code = time.monotonic(), code
        self._reader.read()
        self._tell_ready()
        return life

    def _tell_ready(self) -> None:
        if self._ready is not None and any(line.what is What.READY for line in self._reader.lines):
            self._ready()
            self._ready = None

    def _patience(self, killed_at: float | None) -> float:
        if killed_at is None:
            return LOOK_SECONDS
        return max(0.0, min(LOOK_SECONDS, killed_at - time.monotonic()))

    def _is_stopped(self, life: TrialLife) -> bool:
        return any(
            line.what is What.FAULT and line.kind == "STOP" and line.life == life.number
            for line in self._reader.read()
        )

    def _take_over(self, stopped: ForkServer, pid: int, deadline: float) -> None:
        """Have another process carry the run on while one is stopped; then wake that one."""
        cradle, life, other = self._begin(None)
        while (code := cradle.gone(other, LOOK_SECONDS)) is None:
            if time.monotonic() > deadline:
                cradle.signal(other, signal.SIGKILL)
        self._end(life, code)
        self._ledger.write(What.FAULT, kind="CONT", target="TIME")
        stopped.signal(pid, signal.SIGCONT)
        while stopped.gone(pid, LOOK_SECONDS) is None:
            if time.monotonic() > deadline:
                stopped.signal(pid, signal.SIGKILL)

    # What came of it ----------------------------------------------------------------------------

    def _judge(self, life: TrialLife, deadline: float) -> None:
        """Look what a life has left behind, and decide whether there is to be another."""
        trial = self.trial
        self._settlements = ()
        for line in trial.lines:
            if line.what is What.USAGE and line.life == 1:
                raise UsageError(self._shown(line.text))
        states = [line for line in trial.lines if line.what is What.STATE]
        made = [
            line for line in trial.faults if line.life == life.number or line.data.get("life") == life.number
        ]
        life.how = _how(life, made)
        if states and states[-1].life >= life.number:
            self._take(states[-1])
        elif not made and life.code != 0 and not trial.why:
            own = [one for one in trial.lives if one.how.startswith("died by itself")]
            if len(own) >= _OWN_DEATHS:
                trial.why = f"its process {life.how}"
        if not trial.why and time.monotonic() > deadline:
            trial.why = "it did not come to its end in time"
        if not trial.why and len(trial.lives) >= MOST_LIVES:
            trial.why = f"it did not come to its end in {MOST_LIVES} lives"

    def _take(self, state: LedgerLine) -> None:
        trial, data = self.trial, state.data
        trial.state, trial.journal, trial.inbox = data["state"], data["journal"], data["inbox"]
        trial.result, trial.error = data.get("result", ""), data.get("error", "")
        if trial.has_ended:
            return
        doubts = [item["step"] for item in trial.inbox if item["kind"] == "doubt"]
        if doubts and len(doubts) == len(trial.inbox) and trial.settled < _SETTLEMENTS:
            self._settlements = tuple(self._looked_into(step) for step in doubts)
            trial.settled += len(doubts)
        else:
            said = "; ".join(f"{item['kind']}: {item['what']}" for item in trial.inbox)
            said = said or f"it is {trial.state}, and waits {data['waits']}"
            trial.why = self._shown(said)

    def _shown(self, text: str) -> str:
        """Name files as the user knows them, not in our copy of the tree."""
        return text.replace(str(self._tree), str(self._ground.tree.root))

    def _looked_into(self, step: str) -> Settlement:
        """Say what became of an action in doubt, by what the recorder has seen since it last began."""
        happened, value = False, ""
        for line in self.trial.lines:
            if line.step != step:
                continue
            if line.what is What.BEGIN:
                happened, value = False, ""
            elif line.what is What.EFFECT:
                happened = True
            elif line.what is What.END and line.kind == "returned":
                happened, value = True, line.text
        value = value or self._values.get(step, "")
        return Settlement(step=step, happened=happened, value=value if happened else "")


def _how(life: TrialLife, faults: list[LedgerLine]) -> str:
    if faults:
        return describe(faults[-1])
    if life.code == 0:
        return "came to its end"
    return f"died by itself, with {'signal' if life.code < 0 else 'exit code'} {abs(life.code)}"


def describe(fault: LedgerLine) -> str:
    """Say what a fault was, and where."""
    from ninelives.chaos.protocol import Deed, FaultMoment

    if fault.target == "TIME":
        return "killed" if fault.kind == "KILL" else "woken"
    where = f" ({fault.step})" if fault.step else ""
    return f"{Deed[fault.kind]} {FaultMoment[fault.target]}{where}"
