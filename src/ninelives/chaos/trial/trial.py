"""Run one trial: one run of the agent from start to end, through as many processes as its scenario takes.

Every trial has its own store, working tree and ledger. It observes the run only from outside: by its
processes and by the ledger that they write.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ninelives.chaos.ledger import Ledger, LedgerLine, LedgerReader, What
from ninelives.chaos.protocol import FaultKind, FaultMoment, InjectedFault, LifeSettings, Settlement
from ninelives.chaos.trial.fork_server import ForkServer, ForkServers
from ninelives.chaos.trial.proxy import ProxyRequest
from ninelives.chaos.trial.scenarios import Scenario
from ninelives.chaos.trial.scratch_store import Url
from ninelives.chaos.trial.work_tree import Content, Tree
from ninelives.core.errors import NineLivesError, UsageError

POLL_SECONDS = 0.02
MOST_LIVES = 400
_OWN_DEATHS = 3
_SETTLEMENTS = 50
_SETTLED = ("completed", "failed", "cancelled")


class ChaosFailed(NineLivesError):
    """The campaign could not run."""


class TrialLife(Struct):
    """One process of a trial. Times are on the ledger's clock."""

    number: int
    began_at: float
    ended_at: float = 0.0
    code: int = 0
    how: str = ""


class Trial(Struct):
    """The observations of one run."""

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
    """How many doubts chaos answered in a person's place."""
    why: str = ""
    """Why the run did not end; empty if it did."""
    seconds: float = 0.0
    output: str = ""

    @property
    def faults(self) -> list[LedgerLine]:
        """The injected faults."""
        return [line for line in self.lines if line.what is What.FAULT]

    @property
    def has_ended(self) -> bool:
        """Whether the run reached a final state."""
        return self.state in _SETTLED


class Ground(Struct, frozen=True):
    """What all trials share: fork servers, a scratch directory, the user's tree, and the stores' URLs."""

    fork_servers: ForkServers
    home: Path
    tree: Tree
    settings: LifeSettings
    """What all processes get: the agent and its arguments, the answers of people, the environment."""
    url: Url
    limit_seconds: float
    """How long a run may take without faults."""
    requests: Callable[[float], list[ProxyRequest]] = lambda _: []
    """Returns the proxy's requests since a moment."""


class TrialStage:
    """Runs one trial."""

    def __init__(
        self,
        ground: Ground,
        scenario: Scenario,
        number: int,
        values: dict[str, str],
        follow: Callable[[list[LedgerLine]], None] = lambda _: None,
    ) -> None:
        self._ground, self._scenario, self._values = ground, scenario, values
        self._follow = follow  # called with the new ledger lines, as soon as they are read
        self._home = ground.home / f"trial-{number}"
        self._tree = self._home / "tree" / ground.tree.root.name
        ground.tree.copy(self._tree)
        self._reader, self._ledger = LedgerReader(self._home / "ledger"), Ledger(self._home / "ledger", 0)
        self.trial = Trial(scenario.name, number, time.monotonic())
        self.trial.lines = self._reader.lines
        self._settlements: tuple[Settlement, ...] = ()
        self._dead: list[int] = []

    def play(self, seconds: float, patience_seconds: float | None = None) -> Trial:
        """Run processes until the run has ended or cannot continue.

        No fault is injected after `seconds`. Then the run has `patience_seconds` to end; by default, as long
        as a calm run may take.
        """
        trial, scenario = self.trial, self._scenario
        patience = self._ground.limit_seconds if patience_seconds is None else patience_seconds
        deadline = trial.began_at + seconds + patience
        while not trial.has_ended and not trial.why:
            left = trial.began_at + seconds - time.monotonic()
            fault = None if left < 0 else scenario.fault(trial.lines, left)
            kill_after = None if left < 0 else scenario.kill_after_seconds()
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
        """Return the files that the run changed in its tree, without logs and rotated logs."""
        root = self._ground.tree.root
        logs = tuple(one.target for one in self.trial.lines if one.what is What.TOUCH and one.kind == "log")
        found = self._ground.tree.changes(self._tree)
        return {path: content for path, content in found.items() if not str(root / path).startswith(logs)}

    # Processes ----------------------------------------------------------------------------------

    def _live(self, fault: InjectedFault | None, kill_after: float | None, deadline: float) -> TrialLife:
        server, life, pid = self._begin(fault)
        killed_at = None if kill_after is None else life.began_at + kill_after
        while (code := server.gone(pid, self._patience(killed_at))) is None:
            now = time.monotonic()
            if killed_at is not None and now >= killed_at:
                self._ledger.write(What.FAULT, kind="KILL", target="TIME", data={"life": life.number})
                server.signal(pid, signal.SIGKILL)
                killed_at = None
            elif now > deadline:
                server.signal(pid, signal.SIGKILL)
                self.trial.why = "it did not end in time"
            elif self._is_stopped(life):
                self._take_over(server, pid, deadline)
        self._dead.append(pid)
        return self._end(life, code)

    def _begin(self, fault: InjectedFault | None) -> tuple[ForkServer, TrialLife, int]:
        number = len(self.trial.lives) + 1
        ground = self._ground
        settings = replace(
            ground.settings,
            number=number,
            home=str(self._home),
            tree=str(self._tree),
            original=str(ground.tree.root),
            url=ground.url(self.trial.number, self._home),
            lease_seconds=self._scenario.lease_seconds,
            fault=fault,
            settlements=self._settlements,
            dead=tuple(self._dead),
        )
        life = TrialLife(number, time.monotonic())
        self.trial.lives.append(life)
        server = ground.fork_servers.next()
        return server, life, server.begin(settings)

    def _end(self, life: TrialLife, code: int) -> TrialLife:
        life.ended_at, life.code = time.monotonic(), code
        self._read()
        return life

    def _read(self) -> list[LedgerLine]:
        new = self._reader.read()
        if new:
            self._follow(new)
        return new

    def _patience(self, killed_at: float | None) -> float:
        if killed_at is None:
            return POLL_SECONDS
        return max(0.0, min(POLL_SECONDS, killed_at - time.monotonic()))

    def _is_stopped(self, life: TrialLife) -> bool:
        return any(
            line.what is What.FAULT and line.kind == "STOP" and line.life == life.number
            for line in self._read()
        )

    def _take_over(self, stopped: ForkServer, pid: int, deadline: float) -> None:
        """Let another process continue the run while one is stopped; then resume the stopped one."""
        server, life, other = self._begin(None)
        while (code := server.gone(other, POLL_SECONDS)) is None:
            if time.monotonic() > deadline:
                server.signal(other, signal.SIGKILL)
        self._end(life, code)
        self._ledger.write(What.FAULT, kind="CONT", target="TIME")
        stopped.signal(pid, signal.SIGCONT)
        while stopped.gone(pid, POLL_SECONDS) is None:
            if time.monotonic() > deadline:
                stopped.signal(pid, signal.SIGKILL)

    # Results ------------------------------------------------------------------------------------

    def _judge(self, life: TrialLife, deadline: float) -> None:
        """Read what a process left in the ledger, and set `why` if no other process should follow."""
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
            trial.why = "it did not end in time"
        if not trial.why and len(trial.lives) >= MOST_LIVES:
            trial.why = f"it did not end within {MOST_LIVES} processes"

    def _take(self, state: LedgerLine) -> None:
        trial, data = self.trial, state.data
        trial.state, trial.journal, trial.inbox = data["state"], data["journal"], data["inbox"]
        trial.result, trial.error = data.get("result", ""), data.get("error", "")
        if trial.has_ended:
            return
        doubts = [item["step"] for item in trial.inbox if item["kind"] == "doubt"]
        if doubts and len(doubts) == len(trial.inbox) and trial.settled < _SETTLEMENTS:
            self._settlements = tuple(self._settlement(step) for step in doubts)
            trial.settled += len(doubts)
        else:
            items = "; ".join(f"{item['kind']}: {item['what']}" for item in trial.inbox)
            trial.why = self._shown(items or f"it is {trial.state}, and waits {data['waits']}")

    def _shown(self, text: str) -> str:
        """Translate paths in our copy of the tree into the user's tree."""
        return text.replace(str(self._tree), str(self._ground.tree.root))

    def _settlement(self, step: str) -> Settlement:
        """Answer an action in doubt, from what the effect recorder saw since its last start."""
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
        return "ended"
    return f"died by itself, with {'signal' if life.code < 0 else 'exit code'} {abs(life.code)}"


def describe(fault: LedgerLine) -> str:
    """Describe a fault and its point in words."""
    if fault.target == "TIME":
        return "killed" if fault.kind == "KILL" else "woken"
    where = f" ({fault.step})" if fault.step else ""
    return f"{FaultKind[fault.kind]} {FaultMoment[fault.target]}{where}"
