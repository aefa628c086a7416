"""Escalations: a person lets a run go on, or gives it up; an answer counts once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import Corrupt
from ninelives.core.journal.answers import Says, read_taken
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Journal, Kind, State
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life

Person = Callable[[nl.InboxItem], Awaitable[None]]


class Diverging:
    """A run that stopped after `charge(7)`; whether the code asks for that again is up to the test."""

    def __init__(self) -> None:
        self.stage, self.store, self.cents = Stage(), QuickStore(), 7

        @nl.action(name="charge")
        async def charge(cents: int) -> str:
            return str(self.stage.did(f"charged {cents}"))

        @nl.action(name="ship")
        async def ship() -> str:
            await self.stage.stop_here()
            return str(self.stage.did("shipped"))

        @nl.agent(name="shop")
        async def shop() -> str:
            return await charge(self.cents) + ", " + await ship()

        self.agent = shop

    async def diverge(self) -> None:
        """Let the code ask for something else than was recorded."""
        await first_life(self.stage, self.store, self.agent)
        self.cents = 8
        await self.escalates()

    async def escalates(self) -> None:
        """Go on, and be stopped."""
        with pytest.raises(nl.RunEscalated):
            await second_life(self.store, self.agent)

    async def answer(self, person: Person) -> None:
        """Let a person answer the one open item."""
        async with nl.Runtime(self.store) as rt:
            (item,) = await rt.inbox("run")
            await person(item)

    def state(self) -> State:
        """Return where the run is."""
        row = self.store.read_run("run")
        assert row is not None
        return row.state

    def answers(self) -> list[tuple[str, Says, str]]:
        """Return what the journal says of answers."""
        records = self.store.load_journal("run", since=0).records
        taken = [read_taken(record) for record in records if record.kind is Kind.ANSWER]
        return [(one.by, one.answer.says, one.answer.note) for one in taken]


def test_a_run_goes_on_after_retry_when_the_code_was_put_back() -> None:
    run = Diverging()

    async def main() -> Any:
        await run.diverge()
        await run.answer(lambda item: item.retry(by="ada", note="put back"))
        run.cents = 7
        return await second_life(run.store, run.agent)

    assert run_async(main) == "charged 7, shipped"
    assert run.stage.executed == ["shipped"]
    assert run.answers() == [("ada", Says.RETRY, "put back")]
    assert run.store.list_inbox(run="run") == []


def test_a_run_whose_code_was_not_put_back_is_asked_about_again() -> None:
    run = Diverging()

    async def main() -> Any:
        await run.diverge()
        for _ in range(3):
            await run.answer(lambda item: item.retry(by="ada"))
            await run.escalates()
            assert len(run.store.list_inbox(run="run")) == 1
        run.cents = 7
        await run.answer(lambda item: item.retry(by="bob"))
        return await second_life(run.store, run.agent)

    assert run_async(main) == "charged 7, shipped"
    assert [by for by, _, _ in run.answers()] == ["ada", "ada", "ada", "bob"]


def test_a_run_that_is_given_up_fails_with_the_evidence() -> None:
    run = Diverging()

    async def main() -> None:
        await run.diverge()
        await run.answer(lambda item: item.fail(by="ada", note="too late"))
        with pytest.raises(nl.RunFailed) as failed:
            await second_life(run.store, run.agent)
        cause = failed.value.__cause__
        assert isinstance(cause, nl.Divergence)
        for part in ("cents: 7 → 8", "ada gave the run up", "too late"):
            assert part in str(cause)

    run_async(main)
    assert run.state() is State.FAILED
    assert run.stage.executed == []
    assert run.answers() == [("ada", Says.FAIL, "too late")]


def test_an_escalation_is_answered_once_and_only_with_what_fits() -> None:
    run = Diverging()

    async def main() -> None:
        await run.diverge()
        async with nl.Runtime(run.store) as rt:
            (item,) = await rt.inbox()
            assert (item.kind, item.run, item.takes) == (
                ItemKind.DIVERGENCE,
                "run",
                (Says.RETRY, Says.FAIL),
            )
            assert "cents: 7 → 8" in item.asked.what
            for wrong in (item.approve, item.deny):
                with pytest.raises(nl.UsageError, match="It takes retry, fail"):
                    await wrong(by="ada")
            with pytest.raises(nl.UsageError, match="It takes retry, fail"):
                await item.answer(5)
            with pytest.raises(nl.UsageError, match="It takes retry, fail"):
                await item.settle(happened=True, result=5)
            (twin,) = await rt.inbox()
            await item.retry(by="ada")
            await item.retry(by="ada")
            with pytest.raises(nl.StaleAnswer, match="by ada"):
                await twin.fail(by="bob")
            assert await rt.inbox() == []
            (seen,) = await rt.inbox(answered=True)
            assert seen.answered is not None
            assert (seen.answered.says, seen.by) == (Says.RETRY, "ada")

    run_async(main)


def test_plain_code_answers_too() -> None:
    run = Diverging()
    run_async(run.diverge)
    with nl.Runtime(run.store).sync() as rt:
        (item,) = rt.inbox("run")
        assert item.item.kind is ItemKind.DIVERGENCE
        item.fail(by="ada")
        rt.work(until_idle=True)
        with pytest.raises(nl.RunFailed):
            rt.get("run").result()


class DamagedStore(QuickStore):
    """A store whose journals cannot be read while `is_damaged`."""

    is_damaged = False

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Find damage, or read."""
        if self.is_damaged:
            raise Corrupt("record 2 is not what was written", run=run)
        return super().load_journal(run, since=since)


@pytest.mark.parametrize("says", ["retry", "fail"])
def test_damage_is_settled_by_a_person(says: str) -> None:
    run = Diverging()
    store = run.store = DamagedStore()

    async def main() -> Any:
        await first_life(run.stage, store, run.agent)
        store.is_damaged = True
        await run.escalates()
        (item,) = store.list_inbox(run="run")
        assert item.kind is ItemKind.DAMAGE
        await run.answer(lambda item: item.retry(by="ada"))
        await run.escalates()
        if says == "fail":
            await run.answer(lambda item: item.fail(by="ada"))
            async with nl.Runtime(store) as rt:
                await rt.work(until_idle=True)
            return run.state()
        await run.answer(lambda item: item.retry(by="bob"))
        store.is_damaged = False
        return await second_life(store, run.agent)

    assert run_async(main) == ("charged 7, shipped" if says == "retry" else State.FAILED)


def test_another_divergence_takes_the_place_of_the_one_that_was_answered() -> None:
    run = Diverging()

    async def main() -> None:
        await run.diverge()
        run.cents = 9  # another deploy, which diverges in another way
        await run.answer(lambda item: item.retry(by="ada"))
        await run.escalates()
        (item,) = run.store.list_inbox(run="run")
        assert b"7 \xe2\x86\x92 9" in item.body

    run_async(main)
