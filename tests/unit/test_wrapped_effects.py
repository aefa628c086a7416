"""An effect on record that new code calls inside a decision or a read: the run is stopped, and not failed.

Where the code of the read shows the call, it is stopped before the read starts, and `check` says the same.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import Kind
from ninelives.engine.spec.inner_calls import steps_called
from ninelives.ops.check import Fit
from tests.unit.test_undo_identity import Undoing

DID: list[str] = []


@pytest.fixture
def edit() -> Undoing:
    """Return an edit with nothing done yet."""
    DID.clear()
    return Undoing()


@nl.action(name="wrapped_mail", aliases=["old_mail"])
async def mail(to: str) -> str:
    DID.append(f"mail {to}")
    return to


@nl.action(name="wrapped_pay", resumable=False)
async def pay(to: str) -> str:
    DID.append(f"pay {to}")
    return to


@nl.action(name="wrapped_post")
def post(to: str) -> str:
    DID.append(f"post {to}")
    return to


@nl.action(name="wrapped_look", reads_only=True)
async def look(to: str) -> str:
    DID.append(f"look {to}")
    return await mail(to)


async def helper(to: str) -> str:
    return await mail(to)


class Tools:
    """A place for a step."""

    send = mail


@nl.decision(name="wraps_direct")
async def direct(to: str) -> str:
    DID.append("asked")
    return await mail(to)


@nl.decision(name="wraps_protected")
async def protected(to: str) -> str:
    DID.append("asked")
    return await pay(to)


@nl.action(name="wraps_by_helper", reads_only=True)
async def by_helper(to: str) -> str:
    DID.append("asked")
    return await helper(to)


@nl.decision(name="wraps_by_read")
async def by_read(to: str) -> str:
    DID.append("asked")
    return await look(to)


@nl.decision(name="wraps_by_attribute")
async def by_attribute(to: str) -> str:
    DID.append("asked")
    return str(await Tools.send(to))


@nl.decision(name="wraps_by_inner")
async def by_inner(to: str) -> str:
    DID.append("asked")

    async def inner() -> str:
        return await mail(to)

    return await inner()


@nl.decision(name="wraps_plainly")
def plainly(to: str) -> str:
    DID.append("asked")
    return post(to)


@nl.decision(name="wraps_unseen")
async def unseen(to: str) -> str:
    tools = {"mail": mail}
    return await tools["mail"](to)


@nl.decision(name="wraps_unseen_protected")
async def unseen_protected(to: str) -> str:
    return str(await SimpleNamespace(send=pay).send(to))


@nl.decision(name="wraps_unseen_plain")
def unseen_plain(to: str) -> str:
    tools = [post]
    return tools[0](to)


@nl.decision(name="wraps_only_names")
async def only_names(to: str) -> str:
    return f"{to} {[mail, Tools.send, mail.raw]}"[:1]


@nl.decision(name="wraps_around_raw")
async def around_raw(to: str) -> str:
    return str(await mail.raw(to))


SEEN = {
    direct: mail,
    protected: pay,
    by_helper: mail,
    by_read: mail,
    by_attribute: mail,
    by_inner: mail,
    plainly: post,
}
UNSEEN = {unseen: mail, unseen_protected: pay, unseen_plain: post}


async def call(step: Any, to: str) -> Any:
    """Call a step, plain or async."""
    return await (asyncio.to_thread(step, to) if step in (post, plainly, unseen_plain) else step(to))


def lives(edit: Undoing, inner: Any, outer: Any) -> None:
    """Do an effect, and then call it inside a read instead."""

    async def before() -> None:
        await call(inner, "ann")
        await edit.stop()

    async def after() -> None:
        DID.clear()
        await call(outer, "ann")

    with pytest.raises(nl.RunEscalated):
        edit.make(before, after)
    (item,) = edit.store.list_inbox(run="run")
    assert b"is called inside the" in item.body
    assert b"from the agent, where its record is found" in item.body
    kinds = [one.kind for one in edit.store.load_journal("run", since=0).records]
    assert Kind.FAILURE not in kinds


@pytest.mark.parametrize("outer", SEEN, ids=lambda one: one.__name__)
@pytest.mark.parametrize("forgets", [False, True])
def test_a_read_whose_code_calls_an_effect_on_record_is_refused_before_it_starts(
    edit: Undoing, outer: Any, forgets: bool
) -> None:
    inner = SEEN[outer]
    if forgets:
        edit.options["forgets"] = ["wrapped_mail", "wrapped_pay", "wrapped_post"]
    lives(edit, inner, outer)
    assert edit.fit is Fit.DIVERGES
    assert "is called inside the" in edit.told
    assert DID == []


@pytest.mark.parametrize("outer", UNSEEN, ids=lambda one: one.__name__)
def test_a_call_that_the_code_does_not_show_stops_the_run_when_it_is_made(edit: Undoing, outer: Any) -> None:
    lives(edit, UNSEEN[outer], outer)
    assert edit.fit is Fit.FITS  # with a warning about the effect that is not called
    assert DID == []


@pytest.mark.parametrize("outer", [only_names, around_raw])
def test_a_read_that_only_names_an_effect_or_does_it_raw_is_not_refused(edit: Undoing, outer: Any) -> None:
    async def before() -> None:
        await mail("ann")
        await edit.stop()

    async def after() -> str:
        await outer("bob")
        return str(await mail("ann"))

    assert edit.make(before, after) == "ann"
    assert edit.fit is Fit.FITS


def test_a_read_that_calls_an_effect_is_refused_as_ever_where_none_is_on_record(edit: Undoing) -> None:
    async def before() -> None:
        await edit.stop()

    async def after() -> None:
        await direct("ann")

    with pytest.raises(nl.RunFailed, match="which may be repeated"):
        edit.make(before, after)


def test_steps_in_the_code_are_seen_in_nested_functions_and_closures() -> None:
    step = mail

    async def closure() -> None:
        await step("ann")
        await later("bob")

    async def later(to: str) -> None:
        await Tools.send(to)

    assert [one.name for one in steps_called(closure)] == ["wrapped_mail"]
    assert steps_called(only_names.raw) == ()
    assert steps_called(around_raw.raw) == ()
