"""`python -m tests.governance.budget_rounds --rounds 10000`: budgets under `kill -9`, judged by a ledger.

A round is a tenant with a budget of 1,000 tokens and twenty calls at once, in four runs that two or more
worker processes execute. Workers are killed at random, and one body in `--deadly` ends with its worker:
before it has spent anything, or after. So starts without an outcome are common, and must count as spent. A
call writes to a ledger, a file beside the store, what it spends. Over a round, the ledger never has more than
the budget, nor has the account; and the account has spent exactly once what each recorded start had reserved.
Exits with 1 if any round is otherwise.

`--planted BUG` plays with a bug that makes budgets wrong: the judge must find it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

import ninelives as nl
from ninelives.core.governance import accounts
from ninelives.core.governance.accounts import Account, Settle
from ninelives.core.governance.judged import released
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Kind, RunQuery, State
from ninelives.engine.step import reservations
from ninelives.governance.budgets import budgets
from tests.crash.stores import DURABLE, address, open_at, scratch

LIMIT, AMOUNT, RUNS, CALLS, CHUNK = 1000, 70, 4, 5, 50
DEADLY = 300
"""One body in so many ends with its worker, and all calls of that worker with it."""
POLICY = f"""
[policy]
name = "rounds"
default = "allow"

[[budget]]
name = "round"
scope = "label:round"
tokens = {LIMIT}
"""
LEDGER, POLICY_FILE = "ledger", "policy.toml"
_HOME: list[Path] = []
_CHANCE = random.SystemRandom()
_deadly = [DEADLY]


@nl.action(name="rounds.spend", cost=nl.Cost(tokens=AMOUNT))
async def spend(tenant: int, number: int) -> int:
    """Spend, and say so in the ledger first: a kill between loses no line."""
    doom = _CHANCE.randrange(2 * _deadly[0])
    if doom == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    ledger = os.open(_HOME[0] / LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, b"%d\n" % tenant)
    os.close(ledger)
    if doom == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0)
    nl.charge(tokens=AMOUNT)
    return number


@nl.agent(name="rounds.agent")
async def agent(tenant: int) -> int:
    """Make some calls at once; count those that were let through."""

    async def one(number: int) -> int:
        try:
            await spend(tenant, number)
        except nl.Denied:
            return 0
        return 1

    return sum(await asyncio.gather(*(one(number) for number in range(CALLS))))


def _compare_nothing() -> None:
    Account.standing = lambda self, meter: 0  # type: ignore[method-assign]


def _charge_twice() -> None:
    real = accounts.settled

    def settled(body: bytes | None, op: Settle) -> bytes:
        return real(real(body, op), Settle(op.account, {}, op.spent))

    accounts.settled = settled


def _charge_nothing() -> None:
    real = accounts.settled
    accounts.settled = lambda body, op: real(body, Settle(op.account, op.held, {}))


def _forget_starts() -> None:
    vars(reservations)["presumed"] = released
    vars(budgets)["at_least"] = lambda held, charged: {}


PLANTED: dict[str, Callable[[], None]] = {
    "starts-forgotten": _forget_starts,
    "limit-not-compared": _compare_nothing,
    "charged-twice": _charge_twice,
    "not-charged": _charge_nothing,
}
"""Bugs to plant in this process and those that it forks."""


class Verdict(Struct, frozen=True):
    """What the judge found: rounds, calls let through, starts that no outcome followed, faults."""

    rounds: int
    passed: int
    presumed: int
    faults: tuple[str, ...]


def rounds(home: Path, count: int, *, workers: int = 2, kill_every: float = 0.25, seed: int = 0) -> int:
    """Play so many rounds in a directory; return how often a worker was killed."""
    chance = random.Random(seed)
    (home / POLICY_FILE).write_text(POLICY, encoding="utf-8")
    (home / LEDGER).touch()
    kills, pause, spent = 0, kill_every, -1
    for first in range(0, count, CHUNK):
        tenants = range(first, min(count, first + CHUNK))
        _wait(_forked(lambda tenants=tenants: _start(home, tenants)))  # type: ignore[misc]
        alive = {_forked(lambda: _work(home)) for _ in range(workers)}
        next_kill = time.monotonic() + chance.uniform(0, 2 * pause)
        while alive:
            if time.monotonic() >= next_kill:
                victim = chance.choice(sorted(alive))
                os.kill(victim, signal.SIGKILL)
                os.waitpid(victim, 0)
                alive.remove(victim)
                alive.add(_forked(lambda: _work(home)))
                # On a busy machine workers may die before they have done anything: then they get more time.
                before, spent = spent, (home / LEDGER).stat().st_size
                pause = kill_every if spent > before else pause * 1.5
                kills += 1
                next_kill = time.monotonic() + chance.uniform(0, 2 * pause)
            for pid in sorted(alive):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended:
                    continue
                alive.remove(pid)
                if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                    alive.add(_forked(lambda: _work(home)))  # by its own body
                    kills += 1
                else:
                    assert status == 0, f"a worker ended with {status}"
            time.sleep(0.005)
    return kills


def judge(home: Path) -> Verdict:
    """Compare ledger, accounts and journals."""
    lines = (home / LEDGER).read_text().split()
    spent = Counter(map(int, lines))
    starts, passed, presumed, faults = Counter[int](), 0, 0, list[str]()
    tenants = defaultdict[int, int](int)
    store = open_at(home)
    try:
        after: int | None = None
        while page := store.list_runs(RunQuery(limit=500, after=after)):
            after = page[-1].number
            for run in page:
                tenant = int(run.labels["round"])
                tenants[tenant] += 1
                records = store.load_journal(run.id, since=0).records
                intents = [one for one in records if one.kind is Kind.INTENT]
                held = [found.held for one in intents if (found := read_body(one).j) is not None]
                starts[tenant] += sum(bool(one) for one in held)
                results = sum(one.kind is Kind.RESULT for one in records)
                passed += results
                presumed += len(held) - results
                if run.state is not State.COMPLETED:
                    faults.append(f"{run.id} is {run.state}")
        accounts = {one.name: one.body for one in store.read_documents("budget/", limit=len(tenants) + 1)}
        for tenant, runs in tenants.items():
            body = accounts.get(f"budget/round/all/label:round={tenant}", b"{}")
            faults += _faults(tenant, runs, spent[tenant], starts[tenant], msgspec.json.decode(body))
    finally:
        store.close()
    return Verdict(len(tenants), passed, presumed, tuple(faults))


def _faults(tenant: int, runs: int, lines: int, starts: int, account: dict[str, dict[str, int]]) -> list[str]:
    tokens = account.get("spent", {}).get("tokens", 0)
    found = []
    if runs != RUNS:
        found.append(f"round {tenant} has {runs} runs")
    if lines * AMOUNT > LIMIT:
        found.append(f"round {tenant}: the ledger has {lines * AMOUNT} of {LIMIT}")
    if tokens > LIMIT or account.get("reserved"):
        found.append(f"round {tenant}: the account ends with {account}")
    if tokens != starts * AMOUNT:
        found.append(f"round {tenant}: {starts} starts, and {tokens} were charged")
    if lines > starts or tokens < LIMIT - AMOUNT + 1:
        found.append(f"round {tenant}: {lines} lines, {starts} starts, {tokens} charged")
    return found


def _forked(main: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        main()
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)
    os._exit(0)


def _wait(pid: int) -> None:
    assert os.waitpid(pid, 0)[1] == 0


def _runtime(home: Path) -> nl.Runtime:
    _HOME[:] = [home]
    return nl.Runtime(address(home), policy=home / POLICY_FILE, lease_seconds=2)


def _start(home: Path, tenants: range) -> None:
    async def main() -> None:
        async with _runtime(home) as rt:
            for tenant in tenants:
                for number in range(RUNS):
                    named = f"round-{tenant}-{number}"
                    await rt.start(agent, tenant, id=named, labels={"round": str(tenant)})

    asyncio.run(main())


def _work(home: Path) -> None:
    async def main() -> None:
        unfinished = RunQuery(states=tuple(one for one in State if not one.is_final), limit=1)
        async with _runtime(home) as rt:
            working = asyncio.ensure_future(rt.work())
            while await rt.call(lambda store: store.list_runs(unfinished)):
                assert not working.done(), working
                await asyncio.sleep(0.02)
            working.cancel()

    asyncio.run(main())


def main() -> int:
    """Play rounds on each store, or on one; print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.governance.budget_rounds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--store", choices=DURABLE, action="append")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planted", choices=PLANTED)
    parser.add_argument(
        "--deadly", type=int, default=DEADLY, metavar="N", help="one body in N kills its worker"
    )
    asked = parser.parse_args()
    _deadly[0] = asked.deadly
    if asked.planted:
        PLANTED[asked.planted]()
    bad = 0
    for kind in asked.store or DURABLE:
        with scratch(kind) as home:
            began = time.monotonic()
            kills = rounds(home, asked.rounds, workers=asked.workers, seed=asked.seed)
            found = judge(home)
            took = time.monotonic() - began
            sys.stdout.write(
                f"{kind}: {found.rounds:,} rounds, {kills:,} kills, {found.passed:,} calls let through, "
                f"{found.presumed:,} starts presumed, {len(found.faults)} faults, {took:,.0f} s\n"
            )
            for fault in found.faults[:20]:
                sys.stdout.write(f"  {fault}\n")
            bad += len(found.faults)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
