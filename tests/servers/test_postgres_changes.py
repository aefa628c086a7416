"""The change feed on PostgreSQL: what a transaction took long to commit is not missed."""

from __future__ import annotations

import psycopg

from ninelives.core.model.capsule import Changes
from ninelives.stores.postgres import PostgresStore
from tests.clocks import SteppingClock
from tests.contract.makers import new_run
from tests.servers.postgres import shared_url

ENDING = "UPDATE {}.runs SET state = 'completed', due_ms = NULL, changed_ms = %s, ended_ms = %s WHERE id = %s"


def test_an_end_that_is_committed_late_is_listed(postgres_url: str) -> None:
    clock, schema = SteppingClock(), postgres_url.rpartition("=")[2]
    store = PostgresStore(postgres_url, clock=clock)
    store.create_runs([new_run("r1"), new_run("r2")])
    found = store.changed_runs()
    assert found.is_whole
    with psycopg.connect(shared_url()) as late, psycopg.connect(shared_url()) as quick:
        # It takes its time now, as every end does, and commits long after.
        now_ms = clock.now_ms()
        late.execute(ENDING.format(schema).encode(), (now_ms, now_ms, "r1"))
        for _ in range(60):
            quick.execute("SELECT txid_current()")
            quick.commit()
            clock.advance(60_000)
            found = store.changed_runs(found.cursor)
            assert not _is_final(found, "r1")
        late.commit()
        found = store.changed_runs(found.cursor)
        assert _is_final(found, "r1")
        found = store.changed_runs(found.cursor)
        assert not _is_final(found, "r1")  # nothing is open any more: it is not listed without end
    store.close()


def _is_final(found: Changes, run: str) -> bool:
    return any(mark.id == run and mark.is_final for mark in found.runs)
