"""The parts of the programme: the faults of each, on which store, and what must hold in spite of them."""

from __future__ import annotations

from msgspec import Struct

from tests.crash.stores import DURABLE, SERVED

INVARIANTS = {
    "I1": "no acknowledged run is lost",
    "I2": "no recorded step is executed again",
    "I3": "a non-resumable action takes effect at most once",
    "I4": "an unknown outcome is verified or put before a person",
    "I5": "the chain verifies, and a lost tail is seen",
    "I6": "no run is stuck",
    "I7": "the result is that of the run that never crashed",
}


CORES = 2
"""What the programme is made for; a part that keeps fewer busy has another beside it."""


class Part(Struct, frozen=True):
    """One campaign: a command, which gets `--report` in addition, and what is done by it."""

    name: str
    command: tuple[str, ...]
    faults: str
    invariants: tuple[str, ...]
    cores: int = CORES


def parts(scale: float = 1.0) -> list[Part]:
    """Return all parts; `scale` makes the programme shorter, for trying it out."""

    def times(count: int) -> str:
        return str(max(1, round(count * scale)))

    found = [
        Part(
            f"kills at every store call and at random, {store}",
            ("tests.crash", "--store", store, "--kills", times(9_200)),
            "SIGKILL before and after every call of the store; SIGKILL at random, also during recovery"
            + (
                "; at every system call of commits, creation and migration; power cuts; failed syncs; full "
                "disks; bit flips and truncation; forks and threads"
                if store == "sqlite"
                else "; zombies and twins; forks"
            ),
            ("I1", "I2", "I3", "I4", "I5", "I6", "I7"),
        )
        for store in DURABLE
    ]
    found += [
        Part(
            f"fleets, {store}",
            (
                *("tests.fleet", "--store", store, "--kills", times(120)),
                *("--zombies", times(24), "--jumps", times(16)),
            ),
            "workers and supervisors killed in every window, nested in recoveries; workers stopped past "
            "their lease, also between intent and effect, and woken; workers' wall clocks an hour ahead, an "
            "hour behind, ten times as fast",
            ("I1", "I2", "I3", "I4", "I6", "I7"),
        )
        for store in DURABLE
    ]
    found += [
        Part(
            f"races for a key, {store}",
            ("tests.effects", "--store", store),
            "SIGKILL of either of two processes at every call while both want one key",
            ("I3", "I4", "I6"),
            cores=1,
        )
        for store in DURABLE
    ]
    found += [
        Part(
            f"people, {store}",
            ("tests.people", "--store", store, "--every", "1" if store == "sqlite" else "3"),
            "SIGKILL before and after calls of the store while a person is asked and answers",
            ("I2", "I3", "I4", "I6"),
            cores=1,
        )
        for store in DURABLE
    ]
    found += [
        Part(
            f"the server killed, {store}",
            ("tests.servers", "--store", store, "--kills", times(50)),
            "SIGKILL of the store's own server under load of four workers",
            ("I1", "I2", "I3", "I6", "I7"),
        )
        for store in SERVED
    ]
    found += [
        Part(
            f"hosts cut off, {store}",
            ("tests.servers.partitions", "--store", store),
            "hosts in network namespaces, cut off both ways and one way; resets in the middle of answers",
            ("I1", "I2", "I3", "I6", "I7"),
            cores=1,
        )
        for store in SERVED
    ]
    found += [
        Part(
            f"soak, {store}",
            ("tests.fleet.soak", "--store", store, "--seconds", times(45)),
            "as many runs as there is time for, with kills: memory and open files of supervisor and workers",
            ("I1", "I2", "I3", "I6", "I7"),
        )
        for store in DURABLE
    ]
    found.append(
        Part(
            "random programs",
            ("tests.replay", "--seconds", times(150)),
            "random agents (branches, timers, failures, retries), killed at every call and round",
            ("I2", "I7"),
            cores=1,
        )
    )
    found.append(
        Part(
            "random edits",
            ("tests.edits", "--pairs", times(4_000), "--processes", times(60)),
            "random agents whose source is edited at random between two lives; killed at a commit, before "
            "and after an effect, or waiting; once more under the new code; in processes by SIGKILL",
            ("I2", "I3", "I4", "I6", "I7"),
            cores=1,
        )
    )
    found.append(
        Part(
            "simulation",
            ("tests.simulation", "--seeds", times(10_000)),
            "virtual time, a faulty store, many workers: kills, delays, lost replies, partitions, skew",
            ("I1", "I2", "I3", "I4", "I6", "I7"),
        )
    )
    found.append(
        Part(
            "planted bugs",
            ("tests.proof.planted",),
            "load-bearing lines broken on purpose: some test must turn red for each",
            tuple(INVARIANTS),
        )
    )
    return found
