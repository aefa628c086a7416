"""Bits flip, files are cut short, old backups come back: what is read is what was written, or an error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import Kind
from ninelives.stores.sqlite import SqliteStore
from tests.crash import specimen
from tests.crash.damage import Sweep, copied, look, truth_of
from tests.crash.disk import Writer
from tests.crash.forkserver import ForkServer
from tests.crash.programme import sweep
from tests.crash.specimen import RUNS, SEED
from tests.crash.stores import scratch


@pytest.fixture(scope="module")
def specimens(server: ForkServer) -> Iterator[dict[str, Path]]:
    with scratch() as home:
        yield specimen.prepare(server, home)


@pytest.mark.parametrize(
    ("kind", "file", "how"),
    [
        *(
            (kind, file, how)
            for how in ("flip", "cut")
            for kind, file in (
                ("torn", "runs.db"),
                ("torn", "runs.db-wal"),
                ("torn", "runs.db-anchor"),
                ("closed", "runs.db"),
            )
        ),
        ("closed", "runs.db", "index"),
        ("closed", "runs.db", "rows"),
    ],
)
def test_damage_never_reads_wrong_and_never_silently_missing(
    server: ForkServer, specimens: dict[str, Path], home: Path, kind: str, file: str, how: str
) -> None:
    found = sweep(server, specimens[kind], home, file, how, count=80)
    assert found["violations"] == []
    assert found["refused_at_open"] + found["found_at_read"] > 12


def test_a_damaged_record_costs_its_own_run_only(specimens: dict[str, Path], home: Path) -> None:
    target = home / "one"
    copied(specimens["closed"], target)
    truth = truth_of(target, SEED, RUNS)
    copied(specimens["closed"], target)
    image = (target / "runs.db").read_bytes()
    victim = max(
        (record for record in truth["journal run-0"].records if record.kind is Kind.RESULT),
        key=lambda record: len(record.body),
    )
    at = image.index(victim.body[:64]) + 32
    (target / "runs.db").write_bytes(image[:at] + bytes([image[at] ^ 1]) + image[at + 1 :])
    tally = Sweep()
    look(target, SEED, RUNS, truth, "one byte of a record", tally)
    assert tally.violations == []
    assert (tally.found_at_read, tally.went_on) == (1, 1)
    copied(specimens["closed"], target)
    (target / "runs.db").write_bytes(image[:at] + bytes([image[at] ^ 1]) + image[at + 1 :])
    store = SqliteStore(target / "runs.db")
    try:
        with pytest.raises(Corrupt):
            store.load_journal("run-0", since=0)
        others = {f"run-{number}": store.load_journal(f"run-{number}", since=0) for number in (1, 2, 3)}
    finally:
        store.close()
    assert others == {run: truth[f"journal {run}"] for run in others}


def test_an_edit_by_another_program_is_found_by_the_chain(specimens: dict[str, Path], home: Path) -> None:
    copied(specimens["closed"], home / "edited")
    SqliteStore(home / "edited" / "runs.db").close()
    other = apsw.Connection(str(home / "edited" / "runs.db"))
    other.execute("UPDATE records SET body = x'00' WHERE seq = 1 AND run = 1")
    other.close()
    store = SqliteStore(home / "edited" / "runs.db")
    with pytest.raises(Corrupt, match="run-0"):
        store.load_journal("run-0", since=0)
    assert [fault.run for fault in store.verify()] == ["run-0"]
    store.close()


def test_a_deleted_log_is_detected(specimens: dict[str, Path], home: Path) -> None:
    copied(specimens["torn"], home / "copy")
    (home / "copy" / "runs.db-wal").unlink()
    with pytest.raises(Corrupt, match="lost its tail"):
        SqliteStore(home / "copy" / "runs.db")


def test_an_old_backup_of_the_database_alone_is_detected(specimens: dict[str, Path], home: Path) -> None:
    copied(specimens["torn"], home / "copy")
    (home / "copy" / "runs.db-wal").unlink()
    shutil.copyfile(specimens["backup"] / "runs.db", home / "copy" / "runs.db")
    with pytest.raises(Corrupt, match="lost its tail"):
        SqliteStore(home / "copy" / "runs.db")


def test_a_copy_without_an_anchor_is_taken_as_it_is(specimens: dict[str, Path], home: Path) -> None:
    copied(specimens["backup"], home / "copy")
    store = SqliteStore(home / "copy" / "runs.db")
    assert store.verify() == []
    store.close()
    assert (home / "copy" / "runs.db-anchor").exists()


def test_an_old_backup_beside_the_current_log_is_detected(server: ForkServer, home: Path) -> None:
    def write(name: str) -> None:
        for number in range(20):
            death = server.run(
                "tests.crash.disk:steady",
                home=str(home),
                ledger=str(home / "ledger"),
                name=f"{name}-{number}",
            )
            death.result()

    write("before")
    specimen.empty_log(home / "runs.db")
    old = (home / "runs.db").read_bytes()
    write("between")
    specimen.empty_log(home / "runs.db")
    write("after")
    (home / "runs.db").write_bytes(old)
    with pytest.raises(Corrupt):
        SqliteStore(home / "runs.db").close()


def test_a_vanished_database_is_detected(specimens: dict[str, Path], home: Path) -> None:
    copied(specimens["torn"], home / "copy")
    (home / "copy" / "runs.db").unlink()
    with pytest.raises(Corrupt, match="is gone"):
        SqliteStore(home / "copy" / "runs.db")


def test_a_database_and_log_put_back_beside_a_newer_anchor_are_detected(home: Path) -> None:
    writer = Writer(home, home / "ledger", "living")
    writer.append()
    old = {name: (home / name).read_bytes() for name in ("runs.db", "runs.db-wal")}
    for _ in range(5):
        writer.append()
    writer.store.close()
    again = SqliteStore(home / "runs.db")
    again.close()
    for name, image in old.items():
        (home / name).write_bytes(image)
    with pytest.raises(Corrupt, match="lost its tail"):
        SqliteStore(home / "runs.db")


@pytest.mark.parametrize(
    ("mutant", "kind", "file", "how", "count"),
    [
        ("nothing_checked", "closed", "runs.db", "flip", 80),
        ("rows_unchecked", "closed", "runs.db", "rows", 60),
        ("structure_unchecked", "closed", "runs.db", "index", 150),
        ("anchor_ignored", "torn", "runs.db-wal", "flip", 40),
        ("anchor_ignored", "torn", "runs.db-wal", "cut", 40),
    ],
)
def test_planted_bugs_turn_the_damage_red(
    server: ForkServer,
    specimens: dict[str, Path],
    home: Path,
    mutant: str,
    kind: str,
    file: str,
    how: str,
    count: int,
) -> None:
    found = sweep(server, specimens[kind], home, file, how, count=count, mutant=mutant)
    assert found["violations"] != []
