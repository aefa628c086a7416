"""Runs that used an answer to another wording: effects are refused, or approvals name the answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import ninelives as nl
from ninelives.core.governance.verdicts import Ask
from ninelives.core.model.run import Kind
from ninelives.engine.step import approval
from tests.cache.test_hits import lives
from tests.governance.governed import Watching, governed
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_was_done() -> None:
    done.clear()


@nl.decision(name="e_ask", cache=nl.Cache(ttl=60, near="words", leads_to_effects=False))
async def ask(question: str) -> str:
    return f"the answer to {question}"


@nl.decision(name="e_ask_known", cache=nl.Cache(ttl=60, near="words", leads_to_effects=True))
async def ask_known(question: str) -> str:
    return f"the answer to {question}"


@nl.action(name="e_send")
async def send(text: str) -> str:
    done.append(text)
    return f"sent {text}"


@nl.action(name="e_once", resumable=False)
async def once(text: str) -> str:
    done.append(text)
    return f"sent {text}"


@nl.action(name="e_keyed", key="e:{text}")
def keyed(text: str) -> str:
    done.append(text)
    return f"sent {text}"


@nl.action(name="e_approved", approval=True)
async def approved(text: str) -> str:
    done.append(text)
    return f"sent {text}"


@nl.action(name="e_look", reads_only=True)
async def look() -> str:
    return "seen"


EFFECTS: dict[str, Any] = {"send": send, "once": once}
FIRST, OTHER = "What is it for?", "what is it for"


@nl.agent(name="e_acts")
async def acts(question: str, effect: str) -> str:
    text = await ask(question)
    assert await look() == "seen"
    try:
        return str(await EFFECTS[effect](text))
    except nl.Denied as no:
        return f"{no}"


@nl.agent(name="e_acts_plain")
def acts_plain(question: str) -> str:
    try:
        return keyed(asks_plainly(question))
    except nl.Denied as no:
        return f"{no}"


@nl.decision(name="e_ask_plain", cache=nl.Cache(ttl=60, near="words", leads_to_effects=False))
def asks_plainly(question: str) -> str:
    return f"the answer to {question}"


@pytest.mark.parametrize("effect", list(EFFECTS))
def test_an_effect_is_refused_after_an_answer_to_another_wording_and_only_then(effect: str) -> None:
    store = QuickStore()
    assert lives(store, acts, FIRST, effect, id="one").startswith("sent ")
    assert lives(store, acts, FIRST, effect, id="same words").startswith("sent ")
    said = lives(store, acts, OTHER, effect, id="two")
    assert len(done) == 2
    for part in (
        "e_ask[0] in run 'one'",
        FIRST,
        "leads_to_effects=True",
        "nl.declassify('cached'",
        "near=",
        "answer ",
    ):
        assert part in said, part
    # It is on record: whoever replays the run comes to the same, whatever is declared then.
    failures = [one for one in store.load_journal("two", since=0).records if one.kind is Kind.FAILURE]
    assert len(failures) == 1


def test_plain_functions_with_a_key_are_refused_too() -> None:
    store = QuickStore()
    assert lives(store, acts_plain, FIRST, id="one").startswith("sent ")
    assert "similar question" in lives(store, acts_plain, OTHER, id="two")
    assert len(done) == 1


def test_a_worker_that_takes_over_refuses_as_well_and_what_is_recorded_stands() -> None:
    stage = Stage()

    @nl.agent(name="e_dies")
    async def dies(question: str) -> str:
        await send("before")
        await ask(question)
        await stage.stop_here()
        try:
            return str(await send("after"))
        except nl.Denied as no:
            return no.what

    store = QuickStore()
    lives(store, acts, FIRST, "send", id="one")
    done.clear()

    async def main() -> Any:
        await first_life(stage, store, dies, OTHER)
        return await second_life(store, dies, OTHER)

    assert "answer" in run_async(main)
    assert done == ["before"]


def test_children_and_turns_are_refused_too() -> None:
    @nl.agent(name="e_child")
    async def child(question: str) -> str:
        return str(await ask(question)) if question else str(await send("by a child"))

    @nl.agent(name="e_parent")
    async def parent(question: str, way: str, turn: int = 0) -> Any:
        if turn:
            return await tried("in the next turn")
        if way == "up":
            await (await nl.spawn(child, question)).result()
            return await tried("after a child")
        await ask(question)
        if way == "turn":
            return nl.next_turn(question, way, 1)
        try:
            return await (await nl.spawn(child, "")).result()
        except nl.RunFailed as failed:
            return str(failed)

    async def tried(text: str) -> str:
        try:
            return str(await send(text))
        except nl.Denied as no:
            return str(no)

    store = QuickStore()
    lives(store, acts, FIRST, "send", id="one")
    done.clear()
    for way in ("up", "down", "turn"):
        said = lives(store, parent, OTHER, way, id=way)
        assert "lead to no effects: answer " in said, way
    assert done == []


def test_a_person_who_has_checked_it_lifts_it() -> None:
    @nl.agent(name="e_checked")
    async def checked(question: str) -> str:
        text = await ask(question)
        await nl.declassify("cached", why="a person has read it")
        return str(await send(text))

    store = QuickStore()
    lives(store, acts, FIRST, "send", id="one")
    assert lives(store, checked, OTHER, id="two").startswith("sent ")


def test_undoing_goes_on() -> None:
    undone: list[str] = []

    @nl.action(name="e_undo")
    async def undo(text: str) -> None:
        undone.append(text)

    @nl.agent(name="e_undoing")
    async def undoing(question: str) -> None:
        nl.on_failure(undo, "it")
        await ask(question)
        raise nl.Permanent("no")

    store = QuickStore()
    lives(store, acts, FIRST, "send", id="one")
    with pytest.raises(nl.RunFailed):
        lives(store, undoing, OTHER, id="two")
    assert undone == ["it"]


@pytest.mark.parametrize("by_policy", [False, True])
def test_where_effects_are_permitted_an_approval_names_the_answer(by_policy: bool) -> None:
    @nl.agent(name="e_asks_person")
    async def agent(question: str) -> str:
        text = await ask_known(question)
        return str(await (send(text) if by_policy else approved(text)))

    async def asked(question: str, id: str) -> Any:
        policy = Watching({"e_send": Ask(to="")} if by_policy else {})
        async with governed(store, policy) if by_policy else nl.Runtime(store) as rt:
            run = await rt.start(agent, question, id=id)
            await rt.work(until_idle=True)
            (item,) = await rt.inbox()
            evidence = msgspec.json.decode(store.list_inbox(run=id, limit=5)[0].body).get("evidence", {})
            await item.approve(by="ann")
            await rt.work(until_idle=True)
            assert (await run.result(timeout=10)).startswith("sent ")
            return evidence.get("cached answers")

    store = QuickStore()
    assert run_async(lambda: asked(FIRST, "one")) is None
    assert run_async(lambda: asked(FIRST, "same")) is None
    named = run_async(lambda: asked(OTHER, "two"))
    assert "e_ask_known[0] in run 'one'" in named
    assert FIRST in named


def test_the_labels_are_for_policies() -> None:
    store = QuickStore()

    @nl.agent(name="e_judged")
    async def judged(question: str) -> str:
        return str(await send(await ask_known(question)))

    async def main(question: str, id: str) -> list[frozenset[str]]:
        policy = Watching()
        async with governed(store, policy) as rt:
            await rt.run(judged, question, id=id)
        return [call.taint for call in policy.judged if call.action == "e_send"]

    assert run_async(lambda: main(FIRST, "one")) == [frozenset()]
    (labels,) = run_async(lambda: main(OTHER, "two"))
    assert "cached.known" in labels
    assert len(labels) == 2


def test_an_undecorated_call_is_refused_too() -> None:
    @nl.agent(name="e_raw")
    async def raw(question: str) -> str:
        text = await ask(question)
        try:
            return str(await send.raw(text))
        except nl.Denied as no:
            return no.what

    store = QuickStore()
    lives(store, acts, FIRST, "send", id="one")
    done.clear()
    assert "lead to no effects" in lives(store, raw, OTHER, id="two")
    assert done == []


def test_the_refusal_is_what_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    store = QuickStore()
    lives(store, acts, FIRST, "send", id="one")
    monkeypatch.setattr(approval, "refuses", lambda *_: False)
    assert lives(store, acts, OTHER, "send", id="two").startswith("sent ")
