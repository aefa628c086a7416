"""Doubts that a person settles: each answer counts once, and what is known to have happened stays so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Raw

import ninelives as nl
from ninelives.core.errors import StoreUnavailable
from ninelives.core.journal.answers import Answer, Says, read_taken, write_answer
from ninelives.core.model.key import Key
from ninelives.core.model.run import Kind
from ninelives.core.model.session import Session
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life
from tests.unit.test_once import DEADLINE_SECONDS, until_escalated


def payer(tries: list[int], returns: Any = int, **options: Any) -> Any:
    """Return an agent whose payment is in doubt the first time."""

    @nl.action(name="pay", resumable=False, returns=returns, **options)
    async def pay(order: str) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("gone")
        return 8

    @nl.agent(name="payer")
    async def agent() -> Any:
        return await pay("order-1")

    return agent


def taken(store: QuickStore) -> list[tuple[str, Says]]:
    """Return which items' answers were taken, in order."""
    records = store.load_journal("run", since=0).records
    found = [read_taken(record) for record in records if record.kind is Kind.ANSWER]
    return [(one.item, one.answer.says) for one in found]


@pytest.mark.parametrize("key", [None, "pay:{order}"])
@pytest.mark.parametrize("happened", [True, False])
def test_a_doubt_that_was_given_up_is_asked_anew_by_a_retry(happened: bool, key: str | None) -> None:
    store, tries = QuickStore(), list[int]()
    agent = payer(tries, **({} if key is None else {"key": key}))

    async def main() -> tuple[list[str], Any]:
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent, id="run")
            items = []
            for _ in range(2):
                item = await until_escalated(rt)
                items.append(item.id)
                await item.fail(by="ann")
                await rt.work(until_idle=True)
                with pytest.raises(nl.RunFailed, match="ann gave it up"):
                    await run.result(DEADLINE_SECONDS)
                await run.retry()
            item = await until_escalated(rt)
            assert item.asked.evidence["given up before by"] == "ann"
            await item.settle(happened=happened, by="bob", **({"result": 7} if happened else {}))
            await rt.work(until_idle=True)
            return [*items, item.id], await run.result(DEADLINE_SECONDS)

    asked, result = run_async(main)
    assert len(set(asked)) == 3
    says = Says.HAPPENED if happened else Says.NOT_HAPPENED
    assert taken(store) == [(asked[0], Says.FAIL), (asked[1], Says.FAIL), (asked[2], says)]
    assert result == (7 if happened else 8)
    assert len(tries) == (1 if happened else 2)


def test_a_given_up_doubt_is_asked_anew_in_the_same_life() -> None:
    store, tries = QuickStore(), list[int]()

    @nl.action(name="pay", resumable=False, key="pay:{order}")
    async def pay(order: str) -> int:
        tries.append(1)
        raise OSError("gone")

    @nl.agent(name="payer")
    async def agent() -> int:
        try:
            return await pay("order-1")
        except nl.InDoubt:
            return await pay("order-1")

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent, id="run")
            first = await until_escalated(rt)
            await first.fail(by="ann")
            second = await until_escalated(rt)
            assert second.id != first.id
            await second.settle(happened=True, result=5, by="bob")
            await rt.work(until_idle=True)
            return await run.result(DEADLINE_SECONDS)

    assert run_async(main) == 5
    assert tries == [1]


@pytest.mark.parametrize("wrong", [{}, {"result": "seven"}])
def test_a_result_that_does_not_fit_is_refused_where_it_is_given(wrong: dict[str, Any]) -> None:
    tries: list[int] = []
    agent = payer(tries)

    async def main() -> Any:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(agent, id="run")
            item = await until_escalated(rt)
            with pytest.raises(nl.UsageError, match="does not fit"):
                await item.settle(happened=True, by="ann", **wrong)
            (same,) = await rt.inbox()
            assert (same.id, same.state) == (item.id, "open")
            await same.settle(happened=True, result=7, by="ann")
            await rt.work(until_idle=True)
            return await run.result(DEADLINE_SECONDS)

    assert run_async(main) == 7
    assert tries == [1]


def test_an_action_without_a_result_happened_without_one() -> None:
    agent = payer([], returns=None)

    async def main() -> Any:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(agent, id="run")
            item = await until_escalated(rt)
            await item.settle(happened=True, by="ann")
            await rt.work(until_idle=True)
            return await run.result(DEADLINE_SECONDS)

    assert run_async(main) is None


def test_that_it_happened_stays_said_when_only_its_result_does_not_fit() -> None:
    store, tries = QuickStore(), list[int]()
    agent = payer(tries)

    def say(item: Any, answer: Answer, by: str) -> None:
        """Answer past the checks: the code has changed, or the schema could not say it."""
        store.answer_item(item.id, digest=item._item.digest, body=write_answer(answer), by=by)

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent, id="run")
            say(await until_escalated(rt), Answer(Says.HAPPENED, Raw(b'"seven"')), "ann")
            item = await until_escalated(rt)
            assert "What did pay give? It happened." in item.asked.what
            assert "ann says that it happened" in item.asked.evidence["verify"]
            assert Says.NOT_HAPPENED not in item.takes
            with pytest.raises(nl.UsageError, match="known to have happened"):
                await item.settle(happened=False, by="eve")
            say(item, Answer(Says.NOT_HAPPENED), "eve")
            item = await until_escalated(rt)
            await item.settle(happened=True, result=7, by="ann")
            await rt.work(until_idle=True)
            return await run.result(DEADLINE_SECONDS)

    assert run_async(main) == 7
    assert tries == [1]
    assert [says for _, says in taken(store)] == [Says.HAPPENED, Says.NOT_HAPPENED, Says.HAPPENED]


class Unsteady(QuickStore):
    """A store of which some reads fail at first."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self.failing, self.left = failing, 0

    def _fail(self, name: str) -> None:
        if self.failing == name and self.left:
            self.left -= 1
            raise StoreUnavailable("not there", remedy="Wait")

    def read_session(self, session: str) -> Session | None:
        """Fail, or read."""
        self._fail("read_session")
        return super().read_session(session)

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Fail, or read."""
        self._fail("read_keys")
        return super().read_keys(keys)


@pytest.mark.parametrize("failing", ["read_session", "read_keys"])
def test_a_store_that_is_not_there_for_a_while_fails_no_run_that_settles_a_doubt(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ninelives.engine.run.execution.UNAVAILABLE_SECONDS", 0.01)
    stage, store = Stage(), Unsteady(failing)

    @nl.action(name="pay", resumable=False, key="pay:{order}", verify=lambda order: nl.Happened(7))
    async def pay(order: str) -> int:
        await stage.stop_here()
        return 8

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay("order-1")

    async def main() -> Any:
        await first_life(stage, store, agent)
        store.left = 3
        return await second_life(store, agent)

    assert run_async(main) == 7
    assert store.left == 0
