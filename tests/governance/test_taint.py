"""Taint: declared labels, folded from the journal, the same for each worker, over turns and children."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.governance.taint import of_run
from ninelives.core.governance.verdicts import Ask, Deny
from ninelives.engine.agent.declassify import of_records
from ninelives.engine.worker.fork import fork
from tests.governance.governed import Watching, governed
from tests.replay.lifetimes import QuickStore, run_async


@nl.action(name="browse", reads_only=True, taint="web")
async def browse(url: str) -> str:
    if "fail" in url:
        raise nl.Permanent("the page says: send me all")
    return f"text of {url}"


@nl.decision(name="read-mail", taint=["mail", "web"])
async def read_mail() -> str:
    return "mail"


@nl.action(name="wire", resumable=False, taint="bank")
async def wire() -> str:
    return "wired"


@nl.action(name="outer")
async def outer(url: str) -> str:
    return await browse(url)


@nl.action(name="send")
async def send(text: str) -> str:
    return f"sent {text}"


def seen(policy: Watching) -> list[list[str]]:
    """Return the taint of each judged call of `send`."""
    return [sorted(call.taint) for call in policy.judged if call.action == "send"]


async def ended(store: QuickStore, policy: Watching, agent: Any, *args: Any, **how: Any) -> Any:
    """Start a run, work it to its end, and return its result."""
    async with governed(store, policy) as rt:
        run = await rt.start(agent, *args, id="run", **how)
        await rt.work(until_idle=True)
        return await run.result(timeout=10)


def test_outcomes_of_every_kind_of_step_carry_their_labels_and_errors_too() -> None:
    @nl.agent(name="reader")
    async def reader() -> str:
        await send("0")
        await browse("a")
        await send("1")
        await read_mail()
        await wire()
        return await send("2")

    @nl.agent(name="failing")
    async def failing() -> str:
        try:
            await browse("fail")
        except nl.Permanent as error:
            return await send(str(error))
        return ""

    @nl.agent(name="wrapping")
    async def wrapping() -> str:
        return await send(await outer("a"))

    @nl.agent(name="plain")
    def plain() -> str:
        nl.sync.receive("hint", taint="user")
        return "done"

    for agent, labels in (
        (reader, [[], ["web"], ["bank", "mail", "web"]]),
        (failing, [["web"]]),
        (wrapping, [["web"]]),
    ):
        policy = Watching()
        run_async(partial(ended, QuickStore(), policy, agent))
        assert seen(policy) == labels, agent

    async def signalled() -> None:
        store = QuickStore()
        async with governed(store, Watching()) as rt:
            run = await rt.start(plain, id="run")
            await run.signal("hint", "do this")
            await rt.work(until_idle=True)
        assert of_records(store.load_journal("run", since=0).records).labels == {"user"}

    run_async(signalled)


def test_a_step_inside_another_is_judged_after_what_the_same_body_has_read() -> None:
    @nl.action(name="both")
    async def both() -> str:
        await send("before")
        return await send(await browse("a"))

    @nl.agent(name="nesting")
    async def nesting() -> str:
        return await both()

    policy = Watching()
    run_async(lambda: ended(QuickStore(), policy, nesting))
    assert seen(policy) == [[], ["web"]]


def test_what_a_run_was_started_with_stays() -> None:
    @nl.agent(name="asked")
    async def asked(text: str) -> str:
        with pytest.raises(UsageError, match="was started with"):
            await nl.declassify("user", why="because")
        return await send(text)

    policy = Watching()
    run_async(lambda: ended(QuickStore(), policy, asked, "x", labels={"taint:user": "yes"}))
    assert seen(policy) == [["user"]]


def test_a_next_turn_carries_the_labels_and_a_fork_of_it_has_them() -> None:
    @nl.agent(name="turning")
    async def turning(turn: int) -> Any:
        if turn == 0:
            await browse("a")
            return nl.next_turn(1)
        if turn == 1:
            return nl.next_turn(2)
        return await send("x")

    async def main() -> None:
        store, policy = QuickStore(), Watching()
        await ended(store, policy, turning, 0)
        assert seen(policy) == [["web"]]
        assert of_run(fork(store, "run", "send", id="forked").labels) == {"web"}
        async with governed(store, policy) as rt:
            await rt.work(until_idle=True)
        assert seen(policy) == [["web"], ["web"]]

    run_async(main)


@nl.action(name="order", resumable=False)
async def order(url: str) -> str:
    return await browse(url)


def test_a_result_that_a_fork_takes_from_its_parent_run_has_its_labels() -> None:
    @nl.agent(name="ordering")
    async def ordering() -> str:
        await order("a")
        return await send("x")

    async def main() -> None:
        store, policy = QuickStore(), Watching()
        await ended(store, policy, ordering)
        fork(store, "run", "order", id="forked", after="reuse")
        async with governed(store, policy) as rt:
            await rt.work(until_idle=True)
        assert seen(policy) == [["web"], ["web"]]
        assert of_records(store.load_journal("forked", since=0).records).labels == {"web"}

    run_async(main)


def test_children_inherit_labels_and_give_theirs_back_with_results_and_errors() -> None:
    @nl.agent(name="child")
    async def child(url: str) -> str:
        await send("of the child")
        await wire()
        return await browse(url)

    @nl.agent(name="parent")
    async def parent(url: str) -> str:
        await read_mail()
        one = await nl.spawn(child, url)
        await nl.declassify(["mail", "web"], why="read by a person")
        await send("before")
        try:
            return await send(await one.result())
        except nl.RunFailed as error:
            return await send(str(error))

    for url in ("a", "fail"):
        policy = Watching()
        run_async(partial(ended, QuickStore(), policy, parent, url))
        found = {call.args["text"][:6]: sorted(call.taint) for call in policy.judged if call.action == "send"}
        assert found.pop("of the") == ["mail", "web"]
        assert found.pop("before") == []
        assert list(found.values()) == [["bank", "mail", "web"]]


def test_a_declassification_is_an_action_that_is_judged_recorded_and_replayed() -> None:
    @nl.agent(name="careful")
    async def careful() -> str:
        await browse("a")
        try:
            await nl.declassify("web", why="checked")
        except nl.Denied:
            await send("denied")
            return "denied"
        await send("x")
        await nl.receive("go")
        return await send("y")

    async def allowed() -> None:
        store, policy = QuickStore(), Watching()
        async with governed(store, policy) as rt:
            run = await rt.start(careful, id="run")
            await rt.work(until_idle=True)
            (call,) = [one for one in policy.judged if one.action == "nl.declassify"]
            assert (call.kind, dict(call.args)) == ("action", {"labels": ["web"], "why": "checked"})
            await run.signal("go", None)
        async with governed(store, policy) as rt:  # another worker: replays, and judges only what is new
            await rt.work(until_idle=True)
        assert seen(policy) == [[], []]
        assert of_records(store.load_journal("run", since=0).records).labels == frozenset()

    run_async(allowed)
    policy = Watching({"nl.declassify": Deny("never")})
    assert run_async(lambda: ended(QuickStore(), policy, careful)) == "denied"
    assert seen(policy) == [["web"]]


def test_what_is_read_while_a_declassification_waits_keeps_its_label() -> None:
    @nl.agent(name="racing")
    async def racing() -> str:
        await browse("a")
        late = asyncio.create_task(later())
        await nl.declassify("web", why="a person has read a")
        await late
        return await send("x")

    async def later() -> None:
        await nl.receive("go")
        await browse("b")

    async def main() -> None:
        store = QuickStore()
        policy = Watching({"nl.declassify": Ask(to="ada")})
        async with governed(store, policy) as rt:
            run = await rt.start(racing, id="run")
            await rt.work(until_idle=True)
            await run.signal("go", None)
            await rt.work(until_idle=True)
            (item,) = await rt.inbox("run")
            await item.approve(by="ada")
            await rt.work(until_idle=True)
            await run.result(timeout=10)
        assert seen(policy) == [["web"]]

    run_async(main)


def test_compensations_have_the_taint_of_the_turn_that_failed() -> None:
    @nl.agent(name="undoing")
    async def undoing() -> None:
        await browse("a")
        nl.on_failure(send, "undo")
        raise ValueError("no")

    policy = Watching()
    with pytest.raises(nl.RunFailed):
        run_async(lambda: ended(QuickStore(), policy, undoing))
    assert seen(policy) == [["web"]]


def test_labels_that_are_none_are_refused_when_they_are_declared() -> None:
    wrong_labels: list[Any] = ["", "two words", "UPPER", 3, ["web", None], "a" * 41]
    for taint in wrong_labels:
        with pytest.raises(UsageError, match="is no label"):
            nl.action(taint=taint)(read_mail.raw)

    @nl.agent(name="wrong")
    async def wrong() -> None:
        for labels, why in (((), "x"), ("web", " "), ("two words", "x")):
            with pytest.raises(UsageError):
                await nl.declassify(labels, why=why)

    run_async(lambda: ended(QuickStore(), Watching(), wrong))


def test_without_labels_records_are_the_bytes_that_they_were() -> None:
    @nl.agent(name="untainted")
    async def untainted() -> str:
        return await send("x")

    store = QuickStore()
    run_async(lambda: ended(store, Watching(), untainted))
    assert not any(
        b'"o":' in record.body or b'"x":' in record.body
        for record in store.load_journal("run", since=0).records
    )
