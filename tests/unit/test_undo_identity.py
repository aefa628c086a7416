"""Compensations and step identity: an effect on record is not repeated by a registration that stands for it.

What counts is whether a registration is on record (code that ran made it, so it is called) or is new while
a recorded effect or an open start is unclaimed (it may be that very effect, so it is not written yet).

| the run | what becomes of it |
| --- | --- |
| unchanged code fails, also killed around its UNDOING record | all is undone, once |
| old code did the action as a step and registered it too | it is called, as that code meant it |
| new code fails before it calls what is on record, and registers nothing new | what is on record is undone |
| new code registers what was done, or started, and does not call it, and fails | stopped; so says `check` |
| the same, with the action renamed, by a plain `def` agent, or after `retry` | stopped; so says `check` |
| the same, and the run completes | it completes |
| the same, and it is cancelled, or its time limit ends it | it ends; the new registration is left out |
| the same, and the turn ends | stopped, as for every effect that a turn leaves behind |
| new code registers first, and then calls what is on record, perhaps behind a wait | registered, and undone |
| new code calls it and registers it too | registered, and undone |
| `forgets=` names the effect | registered, and called: the code says so |
| `nl.patched` keeps the old code for this run | the old code is played |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest

import ninelives as nl
from ninelives.core.model.run import Control, Kind, State
from ninelives.engine.spec.registry import STEPS
from ninelives.ops.check import Fit
from tests.edits.lives import rehearsed
from tests.replay.lifetimes import first_life, prove_gone, run_async, second_life
from tests.unit.test_children import until
from tests.unit.test_identity import Code, Edit


class Undoing(Edit):
    """An edit of code that registers compensations, with `check` between the two lives."""

    fit: Fit
    """What `check` said of the code after."""
    is_checking = False

    def make(self, before: Code, after: Code, *, does: Any = None) -> Any:
        """Run the code before up to its stop, check the code after, then run that; or do something else."""

        async def code() -> Any:
            return await (after if self.stage.is_second else before)()

        agent = nl.agent(name="edited")(code)
        run_async(lambda: first_life(self.stage, self.store, agent))
        prove_gone(self.store)
        if self.options:
            nl.agent(name="edited", **self.options)(code)
        row = self.store.read_run("run")
        assert row is not None
        self.is_checking = True
        found = rehearsed(self.store, row)
        self.is_checking = False
        self.fit, self.told = found.fit, f"{found.what} {found.remedy}"
        assert self.stage.executed == []
        return run_async(lambda: (does or second_life)(self.store, agent))

    def refused(self, before: Code, after: Code) -> str:
        """Expect a divergence in which nothing was executed, and that `check` says the same of it."""
        told = super().refused(before, after)
        assert self.fit is Fit.DIVERGES
        assert self.told == told
        assert Kind.UNDOING not in self.kinds()
        return told

    def kinds(self) -> list[Kind]:
        """Return the kinds of the run's records."""
        return [one.kind for one in self.store.load_journal("run", since=0).records]

    def state(self) -> State:
        """Return the run's state."""
        row = self.store.read_run("run")
        assert row is not None
        return row.state


@pytest.fixture
def edit() -> Undoing:
    """Return an edit with nothing done yet."""
    return Undoing()


# What new code registers instead of calling it ------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"resumable": False}, {"key": "mail-{x}"}])
def test_an_effect_that_is_registered_instead_of_called_stops_the_run_that_fails(
    edit: Undoing, options: dict[str, Any]
) -> None:
    mail = edit.step("mail", **options)

    async def before() -> None:
        await mail(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(mail, 1)
        raise ValueError("no")

    told = edit.refused(before, after)
    assert "registers the compensation 'mail' and fails (ValueError: no), but mail[0](x=1)" in told
    assert "Put the call of mail back" in told
    assert 'nl.patched("mail")' in told
    assert 'forgets=["mail"]' in told
    assert Kind.UNDO not in edit.kinds()


@pytest.mark.parametrize("options", [{}, {"resumable": False}])
def test_a_start_that_is_registered_instead_of_called_stops_the_run_that_fails(
    edit: Undoing, options: dict[str, Any]
) -> None:
    """Nobody is asked about it either: the call must be put back first."""
    pay = edit.stuck("pay", **options)

    async def before() -> None:
        await pay(1)

    async def after() -> None:
        nl.on_failure(pay, 1)
        raise ValueError("no")

    assert "it is not known what came of that" in edit.refused(before, after)


def test_an_effect_that_is_renamed_and_registered_instead_stops_the_run_that_fails(edit: Undoing) -> None:
    mail, letter = edit.step("mail"), edit.step("letter")

    async def before() -> None:
        await mail(1)
        await edit.stop()
        del STEPS["mail"]

    async def after() -> None:
        STEPS.pop("mail", None)
        nl.on_failure(letter, 1)
        raise ValueError("no")

    assert 'aliases=["mail"]' in edit.refused(before, after)


def test_an_effect_that_another_branch_registers_instead_stops_the_run_that_fails(edit: Undoing) -> None:
    mail, look = edit.step("mail"), edit.step("look", reads_only=True)

    async def before() -> None:
        await asyncio.gather(mail(1), look(1))
        await edit.stop()

    async def after() -> None:
        async def register() -> None:
            nl.on_failure(mail, 1)

        await asyncio.gather(register(), look(1))
        raise ValueError("no")

    edit.refused(before, after)


def test_a_plain_agent_is_stopped_likewise(edit: Undoing) -> None:
    mail = nl.action(lambda x: edit.stage.did(f"mail({x})"), name="plain_mail")

    def code() -> None:
        if edit.stage.is_second:
            nl.on_failure(mail, 1)
            raise ValueError("no")
        mail(1)
        asyncio.run_coroutine_threadsafe(edit.stage.stop_here(), loop).result()

    loop: Any = None

    async def first() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        await first_life(edit.stage, edit.store, agent)

    agent = nl.agent(name="edited")(code)
    run_async(first)
    with pytest.raises(nl.RunEscalated):
        run_async(lambda: second_life(edit.store, agent))
    assert edit.stage.executed == []


def test_the_new_registration_is_what_waits_not_those_on_record(edit: Undoing) -> None:
    """One is on record and asked for, the other stands for an effect: nothing is undone yet."""
    mail, refund = edit.step("mail"), edit.step("refund")

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(refund, 1)
        nl.on_failure(mail, 1)
        raise ValueError("no")

    edit.refused(before, after)
    assert edit.kinds().count(Kind.UNDO) == 1


def test_a_retried_run_is_stopped_likewise(edit: Undoing) -> None:
    mail = edit.step("mail")

    @nl.decision(name="think")
    async def think() -> None:
        raise nl.Permanent("no idea")

    async def code() -> None:
        if edit.stage.is_second:
            nl.on_failure(mail, 1)
        else:
            await mail(1)
        await think()

    agent = nl.agent(name="edited")(code)
    with pytest.raises(nl.RunFailed):
        run_async(lambda: second_life(edit.store, agent))
    edit.stage.is_second = True
    edit.stage.executed.clear()
    edit.store.control_run("run", Control.RETRY)
    with pytest.raises(nl.RunEscalated):
        run_async(lambda: second_life(edit.store, agent))
    assert edit.stage.executed == []


def test_a_turn_that_leaves_the_effect_behind_is_stopped_as_ever(edit: Undoing) -> None:
    mail = edit.step("mail")

    async def before() -> None:
        await mail(1)
        await edit.stop()

    async def after() -> Any:
        nl.on_failure(mail, 1)
        return nl.next_turn()

    assert "ends its turn" in edit.refused(before, after)


# What ends otherwise --------------------------------------------------------------------------------------


def test_a_run_that_completes_is_not_stopped(edit: Undoing) -> None:
    mail = edit.step("mail")

    async def before() -> None:
        await mail(1)
        await edit.stop()

    async def after() -> str:
        nl.on_failure(mail, 1)
        return "done"

    assert edit.make(before, after) == "done"
    assert edit.stage.executed == []


@pytest.mark.parametrize("is_parked", [True, False])
def test_a_run_that_is_cancelled_leaves_the_new_registration_out(edit: Undoing, is_parked: bool) -> None:
    mail, refund, look = edit.step("mail"), edit.step("refund"), edit.step("look", reads_only=True)

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(refund, 1)
        nl.on_failure(mail, 1)
        await look(1)
        await (nl.receive("go", type=int) if is_parked else asyncio.Event().wait())

    def has_come() -> bool:
        state = State.CHECKPOINTED if is_parked else State.RUNNING
        return edit.stage.executed == ["look(1)"] and edit.state() is state

    async def cancels(store: Any, _: Any) -> None:
        async with nl.Runtime(store) as rt:
            working = asyncio.create_task(rt.work())
            await until(has_come)
            store.control_run("run", Control.CANCEL)
            await until(lambda: edit.state() is State.CANCELLED)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    edit.make(before, after, does=cancels)
    assert edit.stage.executed == ["look(1)", "refund(1)"]


def test_a_run_that_its_time_limit_ends_leaves_the_new_registration_out(edit: Undoing) -> None:
    mail, refund = edit.step("mail"), edit.step("refund")
    edit.options["timeout"] = 0.3

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(refund, 1)
        nl.on_failure(mail, 1)
        await nl.receive("go", type=int)

    with pytest.raises(nl.RunFailed, match="did not end within"):
        edit.make(before, after)
    assert edit.stage.executed == ["refund(1)"]


# What is undone -------------------------------------------------------------------------------------------


def test_what_old_code_did_and_registered_is_undone_although_new_code_fails_before_both(
    edit: Undoing,
) -> None:
    """That code meant both; its registration is on record, and no life makes it new."""
    mail, refund = edit.step("mail"), edit.step("refund")

    async def before() -> None:
        await refund(1)
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.stage.executed == ["refund(1)"]


def test_unchanged_code_that_did_it_and_registers_it_is_undone(edit: Undoing) -> None:
    refund, mail = edit.step("refund"), edit.step("mail")

    async def code() -> None:
        nl.on_failure(refund, 1)
        await asyncio.gather(refund(1), mail(1))
        await edit.stop()
        nl.on_failure(mail, 1)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(code, code)
    assert edit.stage.executed == ["mail(1)", "refund(1)"]


def test_a_run_that_is_undoing_is_not_asked_again(edit: Undoing) -> None:
    """In the last stretch the code is not called, so every effect before it is unclaimed."""
    mail = edit.step("mail")

    async def refund(x: int) -> None:
        await edit.stage.stop_here()
        edit.stage.did(f"refund({x})")

    undo = nl.action(refund, name="refund")

    async def code() -> None:
        await mail(1)
        nl.on_failure(mail, 1)
        nl.on_failure(undo, 1)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(code, code)
    assert edit.fit is Fit.FITS
    assert edit.stage.executed == ["refund(1)", "mail(1)"]
    assert edit.kinds().count(Kind.UNDOING) == 1


def test_a_failure_before_the_record_of_undoing_is_undone_in_the_next_life(edit: Undoing) -> None:
    """The code is played to its failure again, and what it registers is on record."""
    mail, think = edit.step("mail"), edit.step("think", declare=nl.decision)

    async def code() -> None:
        await mail(1)
        nl.on_failure(mail, 2)
        await think(1)
        await edit.stop()
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(code, code)
    assert edit.stage.executed == ["mail(2)"]


@pytest.mark.parametrize("is_effect_next", [True, False])
def test_a_registration_before_what_is_on_record_is_written_when_that_is_called(
    edit: Undoing, is_effect_next: bool
) -> None:
    mail, pay, refund = edit.step("mail"), edit.step("pay"), edit.step("refund")

    async def before() -> None:
        await pay(1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(refund, 1)
        await pay(1)
        nl.on_failure(refund, 2)
        await mail(1)
        if is_effect_next:
            await mail(2)
        nl.on_failure(refund, 3)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    fresh = ["mail(2)"] if is_effect_next else []
    assert edit.stage.executed == [*fresh, "refund(3)", "refund(2)", "refund(1)"]
    records = edit.store.load_journal("run", since=0).records
    undos = [one.seq for one in records if one.kind is Kind.UNDO]
    if is_effect_next:
        assert undos[1] < max(one.seq for one in records if one.step == "#mail#1") < undos[2]


def test_what_is_called_and_registered_too_is_undone(edit: Undoing) -> None:
    mail = edit.step("mail")

    async def before() -> None:
        await mail(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(mail, 1)
        await mail(1)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.fit is Fit.FAILS_AS_BEFORE  # with the code's own error: nothing of it diverges
    assert edit.stage.executed == ["mail(1)"]


def test_an_effect_that_moved_behind_a_wait_is_found_there_and_the_registration_is_written(
    edit: Undoing,
) -> None:
    pay, refund = edit.step("pay"), edit.step("refund")

    async def before() -> None:
        await pay(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(refund, 1)
        await nl.sleep(0.2)
        await pay(1)
        await nl.sleep(0.2)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.stage.executed == ["refund(1)"]


def test_a_registration_is_written_while_a_read_waits_for_the_effect_behind_it(edit: Undoing) -> None:
    pay, mail, refund = edit.step("pay"), edit.step("mail"), edit.step("refund")
    sent = asyncio.Event()

    async def watch() -> None:
        await sent.wait()

    async def before() -> None:
        await pay(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(refund, 1)

        async def send() -> None:
            await pay(1)
            await mail(2)
            sent.set()

        await asyncio.gather(send(), nl.action(watch, name="watch", reads_only=True)())
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.stage.executed == ["mail(2)", "refund(1)"]


def test_a_registration_is_carried_into_the_next_turn_when_what_is_on_record_was_called(
    edit: Undoing,
) -> None:
    mail, refund = edit.step("mail"), edit.step("refund")
    is_next = False

    async def before() -> None:
        await mail(1)
        await edit.stop()

    async def after() -> Any:
        nonlocal is_next
        if is_next:
            raise ValueError("no")
        nl.on_failure(refund, 1)
        await mail(1)
        if not edit.is_checking:
            is_next = True
        return nl.next_turn()

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.stage.executed == ["refund(1)"]


@pytest.mark.parametrize("remedy", ["forgets", "patched"])
def test_what_is_meant_can_be_declared(edit: Undoing, remedy: str) -> None:
    mail = edit.step("mail")
    if remedy == "forgets":
        edit.options["forgets"] = ["mail"]

    async def before() -> None:
        await mail(1)
        await edit.stop()

    async def after() -> None:
        if remedy == "forgets" or nl.patched("mail"):
            nl.on_failure(mail, 1)
        else:
            await mail(1)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.stage.executed == (["mail(1)"] if remedy == "forgets" else [])


def test_a_retried_run_of_unchanged_code_is_undone(edit: Undoing) -> None:
    mail, refund, pay = edit.step("mail"), edit.step("refund"), edit.step("pay")

    @nl.decision(name="think")
    async def think() -> None:
        if not edit.stage.is_second:
            raise nl.Permanent("no idea")

    async def code() -> None:
        await mail(1)
        await think()
        nl.on_failure(refund, 1)
        await pay(1)
        raise ValueError("no")

    agent = nl.agent(name="edited")(code)
    with pytest.raises(nl.RunFailed):
        run_async(lambda: second_life(edit.store, agent))
    edit.stage.is_second = True
    edit.stage.executed.clear()
    edit.store.control_run("run", Control.RETRY)
    with pytest.raises(nl.RunFailed):
        run_async(lambda: second_life(edit.store, agent))
    assert edit.stage.executed == ["pay(1)", "refund(1)"]


# What cannot be called any more -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["waits", "fails", "completes", "in the next turn"])
def test_check_refuses_a_registered_action_that_is_gone_unless_the_run_completes(
    edit: Undoing, how: str
) -> None:
    mail, refund, is_next = edit.step("mail"), edit.step("refund"), False

    async def before() -> Any:
        nonlocal is_next
        if how == "in the next turn" and not is_next:
            nl.on_failure(refund, 1)
            is_next = True
            return nl.next_turn()
        if how != "in the next turn":
            nl.on_failure(refund, 1)
        await mail(1)
        return await edit.stop()

    async def after() -> str:
        STEPS.pop("refund", None)
        await mail(1)
        if how == "completes":
            return "done"
        if how == "fails":
            raise ValueError("no")
        await mail(2)
        raise ValueError("no")

    if how == "completes":
        assert edit.make(before, after) == "done"
        assert edit.fit is Fit.FITS
        return
    with pytest.raises(nl.RunEscalated):
        edit.make(before, after)
    assert edit.fit is Fit.DIVERGES
    assert "the compensation 'refund' is not declared in this code" in edit.told
    assert 'aliases=["refund"]' in edit.told


def test_check_refuses_a_registered_action_whose_parameter_is_gone(edit: Undoing) -> None:
    mail, refund = edit.step("mail"), edit.step("refund")

    async def changed(y: int = 0) -> None:
        edit.stage.did(f"refund({y})")

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()
        nl.action(changed, name="refund")

    async def after() -> None:
        nl.action(changed, name="refund")
        await mail(1)
        await mail(2)
        raise ValueError("no")

    with pytest.raises(nl.RunEscalated):
        edit.make(before, after)
    assert edit.fit is Fit.DIVERGES
    assert "the action 'refund' has no parameter 'x' any more" in edit.told
    assert edit.stage.executed == ["mail(2)"]


class Fragile(msgspec.Struct):
    """An argument whose own code raises when it is read later."""

    number: int = 1
    raises: ClassVar[type[BaseException] | None] = None

    def __post_init__(self) -> None:
        if Fragile.raises is not None:
            raise Fragile.raises("fragile")


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt])
def test_an_argument_whose_own_code_raises_stops_the_run_before_it_is_undone(
    edit: Undoing, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was skipped in silence, and the run ended as if all were undone."""
    mail, letter = edit.step("mail"), edit.step("letter")

    async def give_back(order: Fragile) -> None:
        edit.stage.did(f"refund({order.number})")

    refund = nl.action(give_back, name="refund")

    async def before() -> None:
        nl.on_failure(letter, 1)
        nl.on_failure(refund, Fragile())
        await mail(1)
        await edit.stop()

    async def after() -> None:
        monkeypatch.setattr(Fragile, "raises", None)
        nl.on_failure(letter, 1)
        nl.on_failure(refund, Fragile())
        monkeypatch.setattr(Fragile, "raises", raised)
        await mail(1)
        raise ValueError("no")

    with pytest.raises(nl.RunEscalated):
        edit.make(before, after)
    assert edit.stage.executed == []
    assert edit.fit is Fit.DIVERGES
    (item,) = edit.store.list_inbox(run="run")
    told = msgspec.json.decode(item.body)["what"]
    assert told == edit.told.removesuffix(" Fix the code of the argument's type, then retry")
    assert "the arguments of the action 'refund' cannot be read" in told
    assert f"{raised.__name__}('fragile'), raised by the argument 'order'" in told
    monkeypatch.setattr(Fragile, "raises", None)

    async def main() -> None:
        async with nl.Runtime(edit.store) as rt:
            (asked,) = await rt.inbox()
            await asked.retry(by="person")
            await rt.work(until_idle=True)

    run_async(main)
    assert edit.state() is State.FAILED
    assert edit.stage.executed == ["refund(1)", "letter(1)"]


def test_check_refuses_a_run_that_is_undoing_for_each_action_that_is_gone(edit: Undoing) -> None:
    mail = edit.step("mail")

    async def refund(x: int) -> None:
        await edit.stage.stop_here()
        STEPS.pop("mail", None)

    undo = nl.action(refund, name="refund")

    async def code() -> None:
        nl.on_failure(mail, 1)
        nl.on_failure(undo, 1)
        raise ValueError("no")

    async def gone(store: Any, _: Any) -> None:
        STEPS.pop("mail", None)
        row = store.read_run("run")
        found = await asyncio.to_thread(rehearsed, store, row)
        assert found.fit is Fit.DIVERGES
        assert "the compensation 'mail'" in found.what

    edit.make(code, code, does=gone)
    assert edit.fit is Fit.FITS


# Random edits -----------------------------------------------------------------------------------------------

CALLS, REGISTERS = ("call 1", "call 2"), ("register 1", "register 2")


def foretold(old: list[str], new: list[str]) -> tuple[list[str], bool]:
    """Return what new code does in a run in which old code was played, and whether the run is stopped then.

    Else it fails, and what is registered is called.
    """
    done, known = Counter(one for one in old if one in CALLS), [one for one in old if one in REGISTERS]
    unasked, waiting, executed = Counter(known), list[str](), list[str]()
    for one in new:
        if one in CALLS and done[one]:
            done[one] -= 1
        elif one in CALLS:
            if done.total() or (waiting and unasked.total()):
                return executed, True
            known, waiting = [*known, *waiting], []
            executed.append(one)
        elif unasked[one]:
            unasked[one] -= 1
        else:
            waiting.append(one)
        if not done.total() and not unasked.total():
            known, waiting = [*known, *waiting], []
    if waiting:
        return executed, True
    return executed + [one.replace("register", "call") for one in reversed(known)], False


def test_random_edits_do_what_the_rules_say() -> None:
    rng, fates = Random(16), Counter[bool]()
    for _ in range(200):
        old, new = (rng.choices(CALLS + REGISTERS, k=rng.randint(0, 4)) for _ in range(2))
        edit = Undoing()

        async def act(x: int) -> None:
            edit.stage.did(f"call {x}")  # noqa: B023 (called in this round)

        action = nl.action(act, name="undo-identity-act")

        async def play(code: list[str]) -> None:
            for one in code:
                if one in CALLS:
                    await action(int(one[-1]))  # noqa: B023
                else:
                    nl.on_failure(action, int(one[-1]))  # noqa: B023

        async def before() -> None:
            await play(old)  # noqa: B023
            await edit.stop()  # noqa: B023

        async def after() -> None:
            await play(new)  # noqa: B023
            raise ValueError("no")

        expected, is_stopped = foretold(old, new)
        with pytest.raises(nl.RunEscalated if is_stopped else nl.RunFailed):
            edit.make(before, after)
        assert edit.stage.executed == expected, (old, new)
        assert (edit.fit is Fit.DIVERGES) is (is_stopped and not expected), (old, new)
        fates[is_stopped] += 1
    assert min(fates.values()) > 50
