"""`python -m tests.governance.halt_rounds --rounds 20`: how soon a halt holds, round after round.

In a round 50 agents of one worker process act every 5 ms: 20 do what is not resumable, 10 what a key
protects, 20 what may be repeated. Once all have acted, everything is halted. The store's records say whether
a protected action began after the halt's commit: none may. A ledger beside the store says when the other
bodies began: 99 % within 250 ms. A deaf worker gets no wake-ups: nothing begins once a renewal of its lease
has passed. Exits with 1 if any of it is otherwise.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ninelives.core.model.run import Kind, NewRun
from ninelives.governance.halt_changes import Selectors, halt
from tests.crash.stores import DURABLE, AnyStore, address, open_at, scratch
from tests.workers.test_workers import ROOT, until

EVERYTHING = Selectors(everything=True)
PROTECTED = ("pay", "charge")
P99_MS = 250.0
LEASE_SECONDS, DEAF_LEASE_SECONDS, SPARE_SECONDS = 10.0, 3.0, 1.0
QUIET_SECONDS = 1.5


def begin(store: AnyStore, **agents: int) -> list[str]:
    """Create so many runs of each agent."""
    names = [f"{agent}-{number}" for agent, count in agents.items() for number in range(count)]
    store.create_runs(
        [NewRun(id=one, agent=one.partition("-")[0], fingerprint=b"f", body=b"{}") for one in names]
    )
    return names


def lines(ledger: Path, *kinds: str) -> list[tuple[str, str, int, int]]:
    """Return what was done: the step, the run, the number and the time."""
    split = (one.split() for one in ledger.read_text().splitlines())
    found = [(one[0], one[1], int(one[2]), int(one[3])) for one in split]
    return [one for one in found if not kinds or one[0] in kinds]


def have_all_acted(ledger: Path, names: list[str], after_ns: int = 0) -> bool:
    """Return whether each of these runs has acted since a moment."""
    acted = {run for _, run, _, at_ns in lines(ledger) if at_ns > after_ns}
    return acted.issuperset(names)


def starts(store: AnyStore, names: list[str]) -> set[tuple[str, str]]:
    """Return the protected calls that have begun, by what the store has."""
    return {
        (name, record.step)
        for name in names
        for record in store.load_journal(name).records
        if record.kind is Kind.INTENT and any(f"#{step}#" in record.step for step in PROTECTED)
    }


def are_quiet(ledger: Path, seconds: float) -> bool:
    """Return whether nothing was done for some time."""
    return time.time() - ledger.stat().st_mtime > seconds


def late(ledger: Path, at_ns: int) -> list[float]:
    """Wait until nothing acts any more; return how many ms after a moment resumable bodies began, sorted."""
    until(lambda: are_quiet(ledger, QUIET_SECONDS))
    return sorted((when - at_ns) / 1e6 for *_, when in lines(ledger, "look") if when > at_ns)


def p99(values: list[float]) -> float:
    """Return what 99 % of some sorted values are at most."""
    return values[min(len(values) - 1, int(len(values) * 0.99))] if values else 0.0


def command(home: Path, ledger: Path, lease_seconds: float, *words: str) -> list[str]:
    """Return what starts a worker process of `halt_agents`."""
    worker = [sys.executable, "-m", "tests.governance.halt_agents", address(home), str(ledger)]
    return [*worker, str(lease_seconds), *words]


def play(home: Path, *, is_deaf: bool = False) -> tuple[int, list[float]]:
    """Play a round; return how many protected actions began too late, and when the other bodies did."""
    agents = {"looker": 20} if is_deaf else {"payer": 20, "charger": 10, "looker": 20}
    lease_seconds, words = (DEAF_LEASE_SECONDS, ("deaf",)) if is_deaf else (LEASE_SECONDS, ())
    store = open_at(home)
    with tempfile.TemporaryDirectory() as beside:
        ledger = Path(beside, "ledger")
        ledger.touch()
        names = begin(store, **agents)
        child = subprocess.Popen(command(home, ledger, lease_seconds, *words), cwd=ROOT)
        try:
            until(lambda: have_all_acted(ledger, names))
            halt(store, EVERYTHING, reason="a round", by="ada")
            at_ns, begun = time.time_ns(), starts(store, names)
            found = late(ledger, at_ns)
            return len(starts(store, names) - begun), found
        finally:
            child.kill()
            child.wait()
            store.close()


def main() -> int:
    """Play rounds on each store, or on one; print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.governance.halt_rounds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--store", choices=DURABLE, action="append")
    asked = parser.parse_args()
    faults = list[str]()
    for kind in asked.store or DURABLE:
        protected, heard, deaf = 0, list[float](), list[float]()
        for _ in range(asked.rounds):
            with scratch(kind) as home:
                began, found = play(home)
                protected, heard = protected + began, heard + found
            with scratch(kind) as home:
                deaf += play(home, is_deaf=True)[1]
        heard.sort()
        bound_ms = (DEAF_LEASE_SECONDS / 3 + SPARE_SECONDS) * 1000
        if protected:
            faults.append(f"{kind}: {protected} protected actions began after the halt")
        if p99(heard) >= P99_MS:
            faults.append(f"{kind}: of {len(heard)} other bodies 99 % began within {p99(heard):.0f} ms")
        if max(deaf, default=0.0) > bound_ms:
            faults.append(f"{kind}: without wake-ups a body began {max(deaf):.0f} ms after the halt")
        print(
            f"{kind}: {asked.rounds} rounds of 50 agents, {protected} protected actions after the halt; "
            f"{len(heard):,} other bodies, 99 % within {p99(heard):.0f} ms; "
            f"without wake-ups the last after {max(deaf, default=0.0):,.0f} of {bound_ms:,.0f} ms"
        )
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
