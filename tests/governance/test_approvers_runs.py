"""A call that two people of a role must approve: each answer that does not count leaves the run waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import ninelives as nl
from ninelives.core.errors import StaleAnswer
from ninelives.core.governance.verdicts import Ask
from ninelives.core.journal.answers import Answer, Says, read_item_body, read_taken, write_answer
from ninelives.core.model.inbox import Item, ItemState
from ninelives.core.model.run import Kind, State
from ninelives.core.model.session import Cause
from ninelives.governance.approvers.approvers import Approvers, check
from ninelives.governance.approvers.signing import requested, sign
from ninelives.governance.audit_log.entries import switch
from ninelives.governance.audit_log.tiles import tiles_from
from ninelives.views.inbox_text import entry, facts
from tests.crash.stores import AnyStore, open_at, open_brisk
from tests.governance.governed import Watching, governed
from tests.governance.keys import SshKey
from tests.replay.lifetimes import run_async

RUN, HOUR_MS = "refund-7", 3_600_000


@nl.action(name="approvers.refund", resumable=False)
async def refund(home: str, cents: int) -> str:
    """Do it, where everybody can see it."""
    with (Path(home) / "ledger").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{cents}\n")
    return f"refunded {cents}"


@nl.agent(name="approvers.cashier")
async def cashier(home: str) -> str:
    """Refund; a later version of the code refunds another amount."""
    cents = int((Path(home) / "cents").read_text())
    try:
        return await refund(home, cents)
    except nl.Denied as no:
        return f"denied: {no.what}"


class TakesAll:
    """Approvers of a worker that writes into journals what it likes."""

    def refresh(self, store: object) -> None:
        """Read nothing."""

    def refuses_answer(self, item: Item, **_: object) -> str | None:
        """Refuse nothing."""
        return None


async def work(home: Path, store: AnyStore, *, started_by: str = "carol", approvers: Any = None) -> None:
    """Be a worker whose policy asks two people of a role, until nothing can be worked on."""
    policy = Watching({"approvers.refund": Ask(to="role:ops", why="It is large.", approvals=2)})
    approvers = approvers or Approvers(check({"file": "approvers.toml"}, home), store.now_ms)
    async with governed(store, policy, approvers) as rt:
        await rt.start(cashier, str(home), id=RUN, labels={"started_by": started_by})
        await rt.work(until_idle=True)


class Office:
    """A store, and people who answer; workers come and go."""

    def __init__(self, home: Path) -> None:
        self.home, self.store = home, open_brisk(home)
        self.ada, self.bob, self.eve = (SshKey(home, name) for name in ("ada", "bob", "eve"))
        self.spare, self.carol = SshKey(home, "ada"), SshKey(home, "carol")
        (home / "cents").write_text("25000")
        self.write()

    def write(self, revoked: str = "") -> None:
        """Write the file of approvers; `revoked` has no role any more."""
        keys = {"ada": [self.ada, self.spare], "bob": [self.bob], "carol": [self.carol]}
        (self.home / "approvers.toml").write_text(
            "".join(
                f"[[person]]\nname = {name!r}\nroles = ['ops']\n"
                f"keys = {[key.public for key in those]}\nrevoked = {str(name == revoked).lower()}\n"
                for name, those in keys.items()
            )
        )

    def work(self, **how: Any) -> None:
        """Let a worker work in this process."""
        run_async(lambda: work(self.home, self.store, **how))

    @property
    def item(self) -> Item:
        """Return the one open item."""
        (item,) = self.store.list_inbox(run=RUN)
        return item

    def signed(self, key: SshKey, by: str, item: Item | None = None, **how: Any) -> Answer:
        """Return a signed yes."""
        at_ms = how.get("at_ms", self.store.now_ms())
        plain = Answer(how.get("says", Says.APPROVED))
        answer, text = requested(
            self.store, item or self.item, plain, by, at_ms=at_ms, valid_ms=how.get("valid_ms", HOUR_MS)
        )
        return sign(answer, text, key.file)

    def give(self, answer: Answer, by: str) -> None:
        """Give an answer to the open item, and let a worker take it or refuse it."""
        item = self.item
        self.store.answer_item(item.id, digest=item.digest, body=write_answer(answer), by=by)
        self.work()

    @property
    def taken(self) -> list[str]:
        """Return whose answers the run has taken."""
        records = self.store.load_journal(RUN, since=0).records
        return [read_taken(record).by for record in records if record.kind is Kind.ANSWER]

    def refused(self, answer: Answer, by: str, why: str) -> None:
        """Give an answer that must not count: the run waits on, unharmed, and people see why."""
        before, taken = self.item, self.taken
        self.give(answer, by)
        assert why in dict(facts(entry(self.item)))["asked again"]
        assert read_item_body(self.item).arguments == read_item_body(before).arguments
        assert self.taken == taken
        assert self.state is State.CHECKPOINTED
        assert not (self.home / "ledger").exists()

    @property
    def state(self) -> State:
        """Return where the run is."""
        row = self.store.read_run(RUN)
        assert row is not None
        return row.state

    def ended(self) -> str:
        """Return the run's result, once it has refunded exactly once."""
        end = self.store.load_journal(RUN, since=0).records[-1]
        assert (self.state, end.kind) == (State.COMPLETED, Kind.END)
        assert self.store.verify() == []
        return str(msgspec.json.decode(end.body)["v"])


@pytest.fixture
def office(ground: Path) -> Iterator[Office]:
    one = Office(ground)
    one.work()
    yield one
    one.store.close()


def test_what_does_not_count_is_refused_and_then_two_people_approve(office: Office) -> None:
    now_ms, other = office.store.now_ms(), replace(office.item, id="0123456789abcdef")
    office.refused(Answer(Says.APPROVED), "ada", "ada did not sign it")
    office.refused(office.signed(office.eve, "ada"), "ada", "belongs to no approver")
    office.refused(office.signed(office.ada, "bob"), "bob", "the key of ada signed it")
    office.refused(office.signed(office.ada, "ada", other), "ada", "another was signed")
    office.refused(office.signed(office.ada, "ada", replace(office.item, run="r-8")), "ada", "another was")
    office.refused(office.signed(office.ada, "ada", at_ms=now_ms - HOUR_MS), "ada", "before it was asked")
    office.refused(office.signed(office.ada, "ada", valid_ms=0), "ada", "it counted until")
    office.refused(office.signed(office.carol, "carol"), "carol", "carol may not answer this one")
    first = office.signed(office.ada, "ada")
    office.give(first, "ada")
    assert office.taken == ["ada"]
    office.refused(first, "ada", "ada has approved it already")
    office.refused(office.signed(office.spare, "ada"), "ada", "ada has approved it already")
    bobs = office.signed(office.bob, "bob")
    office.write(revoked="bob")
    office.refused(bobs, "bob", "bob as an approver is revoked")
    # Ada's answer stands: it was taken before.
    office.write(revoked="ada")
    office.give(office.signed(office.bob, "bob"), "bob")
    assert office.taken == ["ada", "bob"]
    assert office.ended() == "refunded 25000"
    assert (office.home / "ledger").read_text() == "25000\n"


def test_an_approval_that_was_written_into_the_journal_does_not_count(office: Office) -> None:
    forged = office.item
    plain = write_answer(Answer(Says.APPROVED))
    office.store.answer_item(forged.id, digest=forged.digest, body=plain, by="ada")
    office.work(approvers=TakesAll())
    assert office.taken == ["ada"]
    bobs = office.signed(office.bob, "bob")
    office.give(bobs, "bob")
    assert office.state is State.CHECKPOINTED
    assert "ada did not sign it" in dict(facts(entry(office.item)))["asked again"]
    assert not (office.home / "ledger").exists()
    office.give(office.signed(office.ada, "ada"), "ada")
    assert office.ended() == "refunded 25000"


def test_the_audit_log_says_once_who_may_approve(office: Office) -> None:
    switch(office.store, on=True)
    office.work()
    office.work()
    entries = [bytes(entry) for tile in tiles_from(office.store, 0) for entry in tile.tile.entries]
    assert sum(b'"kind":"approvers"' in entry and b'"carol":["ops"]' in entry for entry in entries) == 1


def test_an_approval_of_other_arguments_does_not_count_for_changed_code(office: Office) -> None:
    office.give(office.signed(office.ada, "ada"), "ada")
    answer, shown = office.signed(office.bob, "bob"), office.item
    office.store.answer_item(shown.id, digest=shown.digest, body=write_answer(answer), by="bob")
    (office.home / "cents").write_text("99000")
    office.work()
    assert read_item_body(office.item).evidence["asked again"] == (
        "its arguments, its key or the policy changed since it was asked before"
    )
    with pytest.raises(StaleAnswer):
        office.store.answer_item(office.item.id, digest=shown.digest, body=write_answer(answer), by="bob")
    office.refused(answer, "bob", "another was signed")
    office.give(office.signed(office.bob, "bob"), "bob")
    office.give(office.signed(office.ada, "ada"), "ada")
    assert office.ended() == "refunded 99000"


def test_a_signed_no_counts_and_an_unsigned_one_does_not(office: Office) -> None:
    office.refused(Answer(Says.DENIED), "mallory", "mallory did not sign it")
    office.give(office.signed(office.bob, "bob", says=Says.DENIED), "bob")
    assert office.ended().startswith("denied: bob denied it")
    assert not (office.home / "ledger").exists()


def test_an_answer_signed_for_another_store_does_not_count(office: Office, tmp_path: Path) -> None:
    other = open_at(tmp_path)
    answer, text = requested(
        other, office.item, Answer(Says.APPROVED), "ada", at_ms=office.store.now_ms(), valid_ms=HOUR_MS
    )
    other.close()
    office.refused(sign(answer, text, office.ada.file), "ada", "another was signed")


def test_what_was_taken_is_kept_when_its_worker_is_killed_before_the_second_approval(office: Office) -> None:
    first, item = office.signed(office.ada, "ada"), office.item
    office.store.answer_item(item.id, digest=item.digest, body=write_answer(first), by="ada")
    command = [sys.executable, "-c", _WORKER, str(office.home)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"asked the second\n"
        os.kill(worker.pid, 9)
    second = office.item
    assert (office.taken, second.state, second.id != item.id) == (["ada"], ItemState.OPEN, True)
    answer = office.signed(office.bob, "bob")
    office.store.answer_item(second.id, digest=second.digest, body=write_answer(answer), by="bob")
    office.store.end_sessions([one.id for one in office.store.list_sessions()], Cause.DIED)
    office.work()
    assert (office.taken, office.ended()) == (["ada", "bob"], "refunded 25000")


_WORKER = """
import asyncio, sys
from pathlib import Path
from tests.crash.stores import open_brisk
from tests.governance import test_approvers_runs as scene

async def main(home):
    store = open_brisk(home)
    working = asyncio.create_task(scene.work(home, store))
    while len(store.list_inbox(run=scene.RUN)) != 1:
        await asyncio.sleep(0.01)
    print("asked the second", flush=True)
    await working
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""
