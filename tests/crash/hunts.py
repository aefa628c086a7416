"""The hunts: for each planted bug, the campaign that must turn red with it. A bug that survives is a hole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.crash import births, inside, mutants, powercut, specimen, syncs, syscalls
from tests.crash.campaign import CHECK, Campaign
from tests.crash.forkserver import ForkServer
from tests.crash.programme import FAIR_ENOUGH, sweep
from tests.crash.stores import scratch
from tests.crash.writers import Shares
from tests.proof.report import Result, judged

Hunt = Callable[[ForkServer, str, Path], list[str]]


def _duel(task: str) -> Hunt:
    def hunt(server: ForkServer, mutant: str, home: Path) -> list[str]:
        server.run(f"tests.crash.duels:{task}", home=str(home), mutant=mutant).result()
        return list(server.run(CHECK, home=str(home)).result())

    return hunt


def _damage(kind: str, file: str, how: str, count: int = 150) -> Hunt:
    def hunt(server: ForkServer, mutant: str, home: Path) -> list[str]:
        made = specimen.prepare(server, home)
        return list(sweep(server, made[kind], home, file, how, count=count, mutant=mutant)["violations"])

    return hunt


def _ack_first(server: ForkServer, mutant: str, _home: Path) -> list[str]:
    return Campaign(server, 1, mode="posted", mutant=mutant).at_every_call(every=6).violations


def _alone_first(server: ForkServer, mutant: str, _home: Path) -> list[str]:
    return Campaign(server, 1, mode="inline", mutant=mutant).at_every_call(every=6).violations


def _torn(server: ForkServer, mutant: str, _home: Path) -> list[str]:
    return inside.kill_commits(server, every=9, only="pwrite64", mutant=mutant)[1]


def _power(server: ForkServer, mutant: str, home: Path) -> list[str]:
    death = server.run("tests.crash.powercut:series", home=str(home), seed=1, cuts=20, mutant=mutant)
    return list(death.result()["violations"])


def _tail_lost(server: ForkServer, mutant: str, home: Path) -> list[str]:
    return list(server.run("tests.crash.damage:lose_log", home=str(home), mutant=mutant).result())


def _share(server: ForkServer, mutant: str, _home: Path) -> list[str]:
    with scratch(in_memory=False) as disk:
        told = server.run("tests.crash.writers:compete", home=str(disk), seconds=2, mutant=mutant).result()
    smallest = Shares(told["commits"], []).smallest
    return [f"the smallest share is {smallest:.2f}"] if smallest < FAIR_ENOUGH else []


def _wake(server: ForkServer, mutant: str, home: Path) -> list[str]:
    told = server.run("tests.crash.writers:wake", home=str(home), rounds=600, mutant=mutant).result()
    return [f"{told['timeouts']} wake-ups lost"] if told["timeouts"] else []


HUNTS: dict[str, Hunt] = {
    "sync_normal": _power,
    "ack_first": _ack_first,
    "alone_first": _alone_first,
    "torn_commit": _torn,
    "sync_retried": lambda server, mutant, _: syncs.fail_each(server, every=4, mutant=mutant)[1],
    "made_in_place": lambda server, mutant, _: births.kill_creation(
        server, every=25, only="pwrite64", mutant=mutant
    )[1],
    "migrated_in_pieces": lambda server, mutant, _: births.kill_migration(
        server, every=25, only="pwrite64", mutant=mutant
    )[1],
    "epoch_dropped": _duel("zombie"),
    "head_dropped": _duel("twins"),
    "keys_unguarded": _duel("rivals"),
    "locks_inherited": lambda server, mutant, home: list(
        server.run("tests.crash.forks:orphan", home=str(home), mutant=mutant).result()
    ),
    "rows_unchecked": _damage("closed", "runs.db", "rows", 60),
    "structure_unchecked": _damage("closed", "runs.db", "index", 150),
    "chain_unchecked": _damage("torn", "runs.db", "cut", 600),
    "nothing_checked": _damage("closed", "runs.db", "flip"),
    "anchor_ignored": _damage("torn", "runs.db-wal", "flip"),
    "counter_stands": _tail_lost,
    "turn_kept": _share,
    "wake_dropped": _wake,
}


def reason_not_to(mutant: str) -> str:
    """Say why a hunt cannot be held here; empty if it can."""
    if mutant == "sync_normal":
        return powercut.reason_not_to()
    if mutant in ("torn_commit", "sync_retried", "made_in_place", "migrated_in_pieces"):
        return syscalls.reason_not_to()
    return ""


CAUGHT_BY = {
    "sync_normal": "power cuts",
    "ack_first": "kill at every store call",
    "alone_first": "kill at every store call",
    "torn_commit": "killed at every system call of commits",
    "sync_retried": "failed syncs",
    "made_in_place": "killed while being made",
    "migrated_in_pieces": "killed while being migrated",
    "epoch_dropped": "forks and duels",
    "head_dropped": "forks and duels",
    "keys_unguarded": "forks and duels",
    "locks_inherited": "forks and duels",
    "turn_kept": "four writers",
    "wake_dropped": "wake-ups",
}
"""The section of `tests.crash` whose campaign a hunt is; that of all others is the damage to files."""


def hunt_all() -> Iterator[Result]:
    """Plant every bug and hunt it."""
    with ForkServer() as server:
        for mutant, hunt in HUNTS.items():
            name, by = mutant.replace("_", " "), CAUGHT_BY.get(mutant, "bit flips and truncation")
            if reason := reason_not_to(mutant):
                yield Result(name, "not run", reason)
                continue
            with scratch() as home:
                is_caught = bool(hunt(server, mutant, home))
            numbers = f"{mutants.meaning(mutant)} {'Caught' if is_caught else 'Not caught'} by {by}"
            yield judged(name, numbers, [] if is_caught else [f"the planted bug {mutant} survived"])
