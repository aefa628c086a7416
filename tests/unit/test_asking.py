"""Questions and approvals: asked once, answered once, bound to exactly what was shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, make_dataclass
from typing import Any

import msgspec
import pytest

import ninelives as nl
from ninelives.core.journal.answers import Answer, Says, read_taken
from ninelives.core.model.inbox import ItemKind, ItemState
from ninelives.core.model.run import Kind, State
from ninelives.runtime.inbox import find, give
from ninelives.views.records_text import preview
from tests.replay.lifetimes import QuickStore, run_async

Person = Callable[[nl.InboxItem], Awaitable[None]]


@dataclass
class Order:
    id: str
    cents: int = 5

    def __post_init__(self) -> None:
        if self.cents < 0:
            raise ValueError("cents are not negative")


class Office:
    """A store, the agents that work over it, and what was executed."""

    def __init__(self) -> None:
        self.store, self.did = QuickStore(), list[Any]()

    async def work(self) -> None:
        """Work until nothing can be worked on."""
        async with nl.Runtime(self.store) as rt:
            await rt.work(until_idle=True)

    async def begin(self, agent: Any, *args: Any) -> None:
        """Start a run and work until it waits."""
        async with nl.Runtime(self.store) as rt:
            await rt.start(agent, *args, id="run")
            await rt.work(until_idle=True)

    async def answer(self, person: Person) -> None:
        """Let a person answer the one open item, while nobody works."""
        async with nl.Runtime(self.store) as rt:
            (item,) = await rt.inbox("run")
            await person(item)

    async def end(self) -> Any:
        """Work to the end, and return the result."""
        async with nl.Runtime(self.store) as rt:
            await rt.work(until_idle=True)
            return await (await rt.get("run")).result(timeout=10)

    @property
    def state(self) -> State:
        """Return where the run is."""
        row = self.store.read_run("run")
        assert row is not None
        return row.state

    def taken(self) -> list[tuple[str, Says]]:
        """Return whose answers the journal has taken."""
        records = self.store.load_journal("run", since=0).records
        found = [read_taken(record) for record in records if record.kind is Kind.ANSWER]
        return [(one.by, one.answer.says) for one in found]

    def items(self) -> list[ItemState]:
        """Return the states of all items ever opened."""
        return [item.state for item in self.store.list_inbox(run="run", answered=True)]


async def asked(rt: nl.Runtime, what: str) -> nl.InboxItem:
    """Wait until something is asked."""

    async def found() -> nl.InboxItem | None:
        return next((item for item in await rt.inbox() if item.asked.what == what), None)

    return await rt.until(found)


@pytest.fixture
def office() -> Office:
    """Return an empty office."""
    return Office()


# Questions ---------------------------------------------------------------------------------------


def test_a_question_is_answered_while_nobody_works(office: Office) -> None:
    @nl.agent(name="asker")
    async def asker() -> str:
        colour = await nl.ask("Which colour?", ["red", "blue"], to="ada")
        return f"{colour}, {await nl.ask('Why?')}"

    async def main() -> Any:
        await office.begin(asker)
        assert office.state is State.CHECKPOINTED
        row = office.store.read_run("run")
        assert row is not None
        assert row.waits == "for ada: Which colour?"
        await office.answer(lambda item: item.answer("blue", by="ada"))
        await office.work()
        await office.answer(lambda item: item.answer("so", by="bob"))
        return await office.end()

    assert run_async(main) == "blue, so"
    assert office.taken() == [("ada", Says.VALUE), ("bob", Says.VALUE)]
    assert office.items() == [ItemState.ANSWERED] * 2


def test_a_question_is_answered_while_a_worker_waits(office: Office) -> None:
    @nl.agent(name="asker")
    async def asker() -> str:
        first, second = await asyncio.gather(nl.ask("A?"), nl.ask("B?"))
        return first + second

    async def person(rt: nl.Runtime) -> None:
        for text in ("b", "a"):
            await (await asked(rt, f"{text.upper()}?")).answer(text)

    async def main() -> Any:
        async with nl.Runtime(office.store) as rt:
            result, _ = await asyncio.gather(rt.run(asker, id="run"), person(rt))
            return result

    assert run_async(main) == "ab"


def test_an_answer_must_fit_the_type_before_it_is_accepted(office: Office) -> None:
    @nl.agent(name="asker")
    async def asker() -> Order:
        return await nl.ask("Which order?", type=Order)

    async def main() -> Any:
        await office.begin(asker)
        async with nl.Runtime(office.store) as rt:
            (item,) = await rt.inbox()
            assert item.asked.schema["title"] == "Order"
            for wrong in ("o", {"id": 5}, {"id": "o", "more": 1}, None):
                with pytest.raises(nl.UsageError, match="does not fit"):
                    await item.answer(wrong)
            with pytest.raises(nl.UsageError, match="It takes answer"):
                await item.approve()
        assert office.items() == [ItemState.OPEN]
        await office.answer(lambda item: item.answer({"id": "o", "cents": -1}, by="ada"))
        await office.work()  # the schema could not know, the type does: it is asked again
        async with nl.Runtime(office.store) as rt:
            (item,) = await rt.inbox()
            assert "cents are not negative" in item.asked.evidence["asked again"]
        await office.answer(lambda item: item.answer(Order("o", 7), by="ada"))
        return await office.end()

    assert run_async(main) == Order("o", 7)
    assert office.taken() == [("ada", Says.VALUE)]


def test_an_answer_whose_field_was_renamed_is_a_divergence(office: Office) -> None:
    old, new = (make_dataclass("Plan", [("who", str), (name, int, 0)]) for name in ("paid", "cents"))
    kinds = [old]

    @nl.agent(name="asker")
    async def asker() -> str:
        plan: Any = await nl.ask("Which plan?", type=kinds[-1])
        await nl.receive("go")
        return repr(plan)

    async def main() -> Any:
        await office.begin(asker)
        await office.answer(lambda item: item.answer(old("bob", 5)))
        await office.work()
        kinds.append(new)
        async with nl.Runtime(office.store) as rt:
            await (await rt.get("run")).signal("go")
        with pytest.raises(nl.RunEscalated, match="the recorded Plan has 'paid'"):
            await office.end()

    run_async(main)


@pytest.mark.parametrize(("default", "result"), [("red", "red"), (None, "TimedOut")])
def test_after_its_time_a_question_has_its_default(office: Office, default: Any, result: str) -> None:
    @nl.agent(name="asker")
    async def asker() -> str:
        try:
            if default is None:
                return await nl.ask("Which?", timeout=0.2)
            return await nl.ask("Which?", ["red", "blue"], timeout=0.2, default=default)
        except nl.TimedOut:
            return "TimedOut"

    async def main() -> Any:
        async with nl.Runtime(office.store) as rt:
            return await rt.run(asker, id="run")

    assert run_async(main) == result
    assert office.items() == [ItemState.CLOSED]
    assert office.taken() == ([("", Says.VALUE)] if default else [])


def test_the_deadline_of_a_question_is_kept_over_lives(office: Office) -> None:
    @nl.agent(name="asker")
    async def asker() -> str:
        return await nl.ask("Which?", timeout=3600, default="none")

    async def main() -> None:
        await office.begin(asker)
        (first,) = office.store.list_inbox()
        row = office.store.read_run("run")
        assert row is not None
        assert row.due_ms == first.deadline_ms
        office.store.send_signal("run", "wake", b"1")
        await office.work()
        assert office.store.list_inbox() == [first]

    run_async(main)


def test_another_question_at_the_same_place_takes_its_place(office: Office) -> None:
    words = ["Red?"]

    @nl.agent(name="asker")
    async def asker() -> str:
        return await nl.ask(words[0])

    async def main() -> Any:
        await office.begin(asker)
        for text in ("Blue?", "Red?"):
            words[0] = text
            office.store.send_signal("run", "wake", b"1")
            await office.work()
        (item,) = office.store.list_inbox()
        assert b"Red?" in item.body
        await office.answer(lambda item: item.answer("yes"))
        return await office.end()

    assert run_async(main) == "yes"
    assert office.items() == [ItemState.CLOSED, ItemState.CLOSED, ItemState.ANSWERED]


def test_another_question_than_was_answered_is_asked(office: Office) -> None:
    words = ["Red?"]

    @nl.agent(name="asker")
    async def asker() -> str:
        return await nl.ask(words[0]) + await nl.ask("Sure?")

    async def main() -> None:
        await office.begin(asker)
        await office.answer(lambda item: item.answer("yes"))
        await office.work()
        words[0] = "Blue?"
        await office.answer(lambda item: item.answer("sure"))
        await office.work()
        await office.answer(lambda item: item.answer("no"))
        assert await office.end() == "nosure"

    run_async(main)


def test_a_question_that_is_cancelled_leaves_the_inbox(office: Office) -> None:
    @nl.agent(name="asker")
    async def asker() -> str:
        try:
            async with nl.timeout(0.1):
                return await nl.ask("Which?")
        except nl.TimedOut:
            return await nl.ask("And now?")

    async def main() -> Any:
        async with nl.Runtime(office.store) as rt:
            await rt.start(asker, id="run")
            working = asyncio.create_task(rt.work())
            item = await asked(rt, "And now?")
            assert len(await rt.inbox()) == 1
            await item.answer("well")
            result = await (await rt.get("run")).result(10)
            working.cancel()
            return result

    assert run_async(main) == "well"
    assert office.items() == [ItemState.CLOSED, ItemState.ANSWERED]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"options": []}, "one or more"),
        ({"options": "red"}, "one or more"),
        ({"default": "x"}, "without timeout"),
        ({"timeout": -1}, "is no time"),
        ({"options": ["a"], "timeout": 1, "default": "b"}, "none of the options"),
        ({"type": int, "timeout": 1, "default": "b"}, r"default"),
        ({"type": int, "options": [1, "b"]}, r"options\[1\]"),
        ({"type": object.__new__}, "cannot be stored"),
        ({"to": "\n"}, "not printable"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_happens(
    office: Office, options: dict[str, Any], why: str
) -> None:
    @nl.agent(name="asker")
    async def asker() -> None:
        await nl.ask("Which?", **options)

    async def main() -> None:
        async with nl.Runtime(office.store) as rt:
            with pytest.raises(nl.RunFailed, match=why):
                await rt.run(asker, id="run")

    run_async(main)
    assert office.items() == []


# Approvals ---------------------------------------------------------------------------------------


class Till(Office):
    """An office with an action that a person must approve."""

    def __init__(self, approval: Any = True) -> None:
        super().__init__()
        self.order = Order("o", 500)

        @nl.action(name="refund", approval=approval)
        async def refund(order: Order, currency: str = "EUR") -> str:
            self.did.append(order.cents)
            return f"refunded {order.cents}"

        @nl.agent(name="cash-desk")
        async def till() -> str:
            return await refund(self.order)

        self.agent = till


def test_an_action_waits_for_a_yes_to_exactly_its_arguments() -> None:
    till = Till()

    async def main() -> Any:
        await till.begin(till.agent)
        assert (till.state, till.did) == (State.CHECKPOINTED, [])
        async with nl.Runtime(till.store) as rt:
            (item,) = await rt.inbox()
            assert (item.kind, item.takes) == (ItemKind.APPROVAL, (Says.APPROVED, Says.DENIED))
            shown = {name: msgspec.json.decode(value) for name, value in item.asked.arguments.items()}
            assert shown == {"order": {"id": "o", "cents": 500}, "currency": "EUR"}
            await item.approve(by="ada")
        return await till.end()

    assert run_async(main) == "refunded 500"
    assert till.did == [500]
    assert till.taken() == [("ada", Says.APPROVED)]


def test_a_no_is_raised_and_recorded() -> None:
    till = Till()

    async def main() -> None:
        await till.begin(till.agent)
        await till.answer(lambda item: item.deny(by="ada", note="not today"))
        for _ in range(2):
            with pytest.raises(nl.RunFailed) as failed:
                await till.end()
            assert isinstance(failed.value.__cause__, nl.Denied)
            assert "ada denied it, saying: not today" in str(failed.value)

    run_async(main)
    assert till.did == []


def test_a_no_counts_once_a_retried_run_asks_again() -> None:
    till = Till()

    async def main() -> Any:
        await till.begin(till.agent)
        await till.answer(lambda item: item.deny(by="ada"))
        await till.work()
        async with nl.Runtime(till.store) as rt:
            await (await rt.get("run")).retry()
        await till.work()
        await till.answer(lambda item: item.approve(by="bob"))
        return await till.end()

    assert run_async(main) == "refunded 500"
    assert till.taken() == [("ada", Says.DENIED), ("bob", Says.APPROVED)]


def test_an_answer_may_be_given_again_by_the_runs_name() -> None:
    till = Till()
    run_async(lambda: till.begin(till.agent))
    for _ in range(2):
        item = find(till.store, "run")
        assert give(till.store, item, Answer(Says.APPROVED), "ada").by == "ada"
    with pytest.raises(nl.StaleAnswer):
        give(till.store, find(till.store, "run"), Answer(Says.DENIED), "ada")
    with pytest.raises(nl.StaleAnswer, match="there is no inbox item 'other'"):
        find(till.store, "other")


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_yes_to_other_arguments_is_void(is_answered: bool) -> None:
    till = Till()

    async def main() -> Any:
        await till.begin(till.agent)
        if is_answered:
            await till.answer(lambda item: item.approve(by="ada"))
        else:
            till.store.send_signal("run", "wake", b"1")
        till.order = Order("o", 900)
        await till.work()
        assert till.did == []
        async with nl.Runtime(till.store) as rt:
            (item,) = await rt.inbox()
            assert b"900" in bytes(item.asked.arguments["order"])
            await item.approve(by="bob")
        return await till.end()

    assert run_async(main) == "refunded 900"
    assert till.did == [900]
    assert till.taken() == [("bob", Says.APPROVED)]
    asked = [one for one in till.store.load_journal("run", since=0).records if one.kind is Kind.ASKED]
    told = [preview(record, 500) for record in asked]
    assert [text.rpartition("; void: ")[2][:15] for text in told if "void" in text] == (
        ["approved by ada"] if is_answered else []
    )


def test_only_what_the_predicate_names_needs_a_person() -> None:
    def is_large(order: Order, currency: str = "EUR") -> bool:
        return order.cents > 100

    async def main() -> None:
        small = Till(is_large)
        small.order = Order("o", 50)
        await small.begin(small.agent)
        assert await small.end() == "refunded 50"
        assert small.items() == []
        large = Till(nl.Approval(when=is_large, to="ops"))
        await large.begin(large.agent)
        (item,) = large.store.list_inbox()
        assert item.to == "ops"

    run_async(main)


@pytest.mark.parametrize("default", [False, True])
def test_after_its_time_an_approval_has_its_default(default: bool) -> None:
    till = Till(nl.Approval(timeout=0.1, default=default))

    async def main() -> Any:
        async with nl.Runtime(till.store) as rt:
            return await rt.run(till.agent, id="run")

    if default:
        assert run_async(main) == "refunded 500"
    else:
        with pytest.raises(nl.RunFailed, match="no answer came in time"):
            run_async(main)
    assert till.taken() == [("", Says.APPROVED if default else Says.DENIED)]
    assert till.items() == [ItemState.CLOSED]


def test_plain_functions_can_be_approved(office: Office) -> None:
    @nl.action(name="refund", approval=True)
    def refund(cents: int) -> str:
        office.did.append(cents)
        return "refunded"

    @nl.agent(name="cash-desk")
    def till() -> str:
        return f"{refund(5)}, {nl.sync.ask('Why?')}"

    async def main() -> Any:
        await office.begin(till)
        await office.answer(lambda item: item.approve())
        await office.work()
        await office.answer(lambda item: item.answer("so"))
        return await office.end()

    assert run_async(main) == "refunded, so"
    assert office.did == [5]


def test_an_action_with_a_key_is_approved_before_its_key_is_reserved(office: Office) -> None:
    @nl.action(name="refund", resumable=False, key="refund:{order}", approval=True)
    async def refund(order: str, cents: int) -> str:
        office.did.append(cents)
        return nl.key()

    @nl.agent(name="cash-desk")
    async def till() -> str:
        return await refund("o-7", 5)

    async def main() -> Any:
        await office.begin(till)
        async with nl.Runtime(office.store) as rt:
            (item,) = await rt.inbox()
            assert item.asked.key == "refund:o-7"
            assert office.store.read_keys(["refund:o-7"]) == {}
            await item.approve(by="ada")
        return await office.end()

    assert run_async(main) == "refund:o-7"
    assert office.did == [5]
    assert office.taken() == [("ada", Says.APPROVED)]


def test_what_needs_approval_cannot_hide_in_a_step(office: Office) -> None:
    @nl.action(name="refund", approval=True)
    async def refund() -> None:
        office.did.append("refunded")

    @nl.action(name="outer")
    async def outer() -> None:
        await refund()

    @nl.agent(name="cash-desk")
    async def till() -> None:
        await outer()

    async def main() -> None:
        async with nl.Runtime(office.store) as rt:
            with pytest.raises(nl.RunFailed, match="cannot be carried out inside another step"):
                await rt.run(till, id="run")

    run_async(main)
    assert office.did == []


def test_wrong_declarations_are_refused() -> None:
    async def body() -> None: ...

    for wrong in ("yes", 5, nl.Approval(timeout=0)):
        with pytest.raises(nl.UsageError):
            nl.action(name="x", approval=wrong)(body)  # type: ignore[arg-type]
    with pytest.raises(nl.UsageError, match="decision"):
        nl.decision(name="x", approval=True)(body)  # type: ignore[call-overload]
