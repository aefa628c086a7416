"""A retried run and what its code did because a step had failed: it stands, and holds nothing up.

| the run, retried | what becomes of it |
| --- | --- |
| unchanged, and the step does not fail again | it goes on, whatever its error path had done |
| unchanged, and the step fails again, with the same mail | the mail on record is that mail |
| unchanged, and the step fails again, with another mail | that is sent, too: it is about another failure |
| an effect from before the failure is not called | stopped, as ever |
| the error path's step is not declared any more (it may be renamed) | stopped before the failed step |
| an effect that ran beside the failure is called with other arguments | stopped, before anything is done |
| a step that an edit puts in the place of the error path's, after a second failure | done: another failure |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

import ninelives as nl
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Control, Kind, State
from ninelives.engine.spec.registry import AGENTS, STEPS
from ninelives.ops.check import CheckFinding, Fit
from tests.edits.lives import rehearsed
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life

Code = Callable[[], Coroutine[Any, Any, Any]]


class Retried:
    """A run that fails, is checked, and is retried, perhaps with other code; and what its steps did."""

    def __init__(self) -> None:
        self.store, self.stage = QuickStore(), Stage()
        self.failing: set[str] = set()
        self.slow: set[str] = set()
        self.error: type[Exception] = nl.Permanent
        self.done: list[str] = []
        self.code: Code | None = None
        self.options: dict[str, Any] = {}
        self.found: CheckFinding | None = None

    def step(self, name: str, *, declare: Any = nl.action, **options: Any) -> Any:
        """Declare a step that does what it is called with, unless that is to fail or to last."""

        async def body(x: Any = 0) -> str:
            what = f"{name}({x})"
            self.done.append(what)
            if what in self.slow:
                await asyncio.Event().wait()
            if what in self.failing:
                raise self.error(f"no {what}")
            return what

        return declare(body, name=name, **options)

    def declare(self) -> Any:
        """Declare the agent."""

        async def code() -> Any:
            assert self.code is not None
            return await self.code()

        return nl.agent(name="retried", **self.options)(code)

    def fail(self, code: Code, *failing: str, slow: tuple[str, ...] = ()) -> list[str]:
        """Let the run fail; return what it did."""
        self.code, self.failing, self.slow = code, set(failing), set(slow)
        agent = self.declare()
        with pytest.raises(nl.RunFailed):
            run_async(lambda: second_life(self.store, agent))
        self.failing, self.slow = set(), set()
        done, self.done = self.done, []
        return done

    def check(self, code: Code | None = None) -> Fit:
        """Ask for the run to be retried, perhaps with other code, and return what `check` says."""
        self.code = code or self.code
        self.store.control_run("run", Control.RETRY)
        row = self.store.read_run("run")
        assert row is not None
        self.declare()
        self.found = rehearsed(self.store, row)
        assert self.done == []
        return self.found.fit

    def go_on(self) -> Any:
        """Let the run go on."""
        agent = self.declare()
        return run_async(lambda: second_life(self.store, agent))

    def retry(self, code: Code | None = None) -> Any:
        """Retry the run, which `check` says fits; return its result."""
        assert self.check(code) is Fit.FITS
        assert self.found is not None
        assert self.found.unreached == ()
        return self.go_on()

    def fail_again(self, *failing: str) -> list[str]:
        """Retry the run, which fails again; return what it did."""
        self.failing = set(failing)
        with pytest.raises(nl.RunFailed):
            self.retry()
        self.failing = set()
        done, self.done = self.done, []
        return done

    def refused(self, code: Code | None = None) -> str:
        """Retry the run, which is stopped before anything is done; so says `check`."""
        assert self.check(code) is Fit.DIVERGES
        with pytest.raises(nl.RunEscalated):
            self.go_on()
        assert self.done == []
        (item,) = self.store.list_inbox(run="run")
        assert item.kind is ItemKind.DIVERGENCE
        told = msgspec.json.decode(item.body)
        assert self.found is not None
        assert self.found.what == told["what"]
        return f"{told['what']} {told['remedy']}"


@pytest.fixture
def run() -> Retried:
    """Return a run that has not begun."""
    return Retried()


# Unchanged code -------------------------------------------------------------------------------------------

KINDS: list[dict[str, Any]] = [{}, {"resumable": False}, {"key": "mail-{x}"}, {"id": "{x}"}]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_an_effect_of_the_error_path_does_not_hold_up_a_retried_run(
    run: Retried, options: dict[str, Any]
) -> None:
    pay, mail, ship = run.step("pay"), run.step("mail", **options), run.step("ship")

    async def code() -> Any:
        await mail(0)
        try:
            await pay()
        except nl.Permanent:
            await mail(1)
            raise
        return await ship()

    assert run.fail(code, "pay(0)") == ["mail(0)", "pay(0)", "mail(1)"]
    assert run.retry() == "ship(0)"
    assert run.done == ["pay(0)", "ship(0)"]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_nor_does_it_where_the_failed_step_has_another_kind(run: Retried, options: dict[str, Any]) -> None:
    pay, mail, ship = run.step("pay", **options), run.step("mail"), run.step("ship")

    async def code() -> Any:
        try:
            await pay()
        except Exception:
            await mail(1)
            raise
        return await ship()

    if options.get("resumable") is False:
        run.error = nl.NotDone  # else a person is asked before the run can fail
    run.fail(code, "pay(0)")
    assert run.retry() == "ship(0)"
    assert run.done == ["pay(0)", "ship(0)"]


def test_a_decision_that_failed_may_decide_after_all(run: Retried) -> None:
    think, mail, ship = run.step("think", declare=nl.decision), run.step("mail"), run.step("ship")
    ask = run.step("ask", declare=nl.decision)

    async def code() -> Any:
        try:
            await think()
        except nl.Permanent as error:
            await mail(await ask(str(error)))
            raise
        return await ship()

    assert run.fail(code, "think(0)") == ["think(0)", "ask(no think(0))", "mail(ask(no think(0)))"]
    assert run.retry() == "ship(0)"
    assert run.done == ["think(0)", "ship(0)"]


def gathered(run: Retried, mail: Any) -> Code:
    """Return code in which an arm fails, both arms clean up, and so does what called them."""
    do = run.step("do")

    async def fails() -> None:
        await do("a")
        try:
            await do("b")
        except nl.Permanent:
            await asyncio.gather(mail("b failed"), mail("b failed indeed"))
            raise

    async def cancelled() -> Any:
        await do("x")
        try:
            await do("y")
        except asyncio.CancelledError:
            await mail("y cancelled")
            raise
        finally:
            await mail("y over")
        return await do("z")

    async def code() -> Any:
        try:
            return (await nl.gather(fails(), cancelled()))[1]
        except nl.Permanent:
            await mail("all failed")
            raise

    return code


def test_branches_that_failed_or_were_cancelled_and_cleaned_up_are_retried(run: Retried) -> None:
    mail = run.step("mail")
    done = run.fail(gathered(run, mail), "do(b)", slow=("do(y)",))
    assert sum(one.startswith("mail") for one in done) == 5
    assert run.retry() == "do(z)"
    assert sorted(run.done) == ["do(b)", "do(y)", "do(z)"]


def test_code_that_was_cancelled_in_a_timer_of_its_own_and_cleaned_up_is_retried(run: Retried) -> None:
    pay, mail, ship = run.step("pay"), run.step("mail"), run.step("ship")

    async def later() -> Any:
        try:
            await asyncio.sleep(0.1 if run.failing else 0.01)
        except asyncio.CancelledError:
            await mail("cancelled")
            raise
        return await ship()

    async def code() -> Any:
        return (await nl.gather(pay(), later()))[1]

    assert run.fail(code, "pay(0)") == ["pay(0)", "mail(cancelled)"]
    assert run.retry() == "ship(0)"
    assert run.done == ["pay(0)", "ship(0)"]


def test_a_time_limit_that_ended_the_run_is_given_another_chance_though_a_mail_was_sent(run: Retried) -> None:
    do, mail, ship = run.step("do"), run.step("mail"), run.step("ship")

    async def code() -> Any:
        try:
            async with nl.timeout(0.05):
                await do()
        except TimeoutError:
            await mail("late")
            raise
        return await ship()

    assert run.fail(code, slow=("do(0)",)) == ["do(0)", "mail(late)"]
    assert run.retry() == "ship(0)"
    assert run.done == ["do(0)", "ship(0)"]


def test_a_child_that_failed_is_retried_though_its_parent_and_it_had_sent_mails(run: Retried) -> None:
    pay, mail, ship = run.step("pay"), run.step("mail"), run.step("ship")

    @nl.agent(name="child")
    async def child() -> str:
        try:
            await pay()
        except nl.Permanent:
            await mail("child failed")
            raise
        return str(await ship(1))

    @nl.agent(name="notify")
    async def notify() -> None:
        await mail("by a child")

    async def code() -> Any:
        try:
            await (await nl.spawn(child)).result()
        except nl.RunFailed:
            await mail("parent failed")
            await nl.spawn(notify)
            raise
        return await ship(2)

    done = run.fail(code, "pay(0)")
    assert done[:3] == ["pay(0)", "mail(child failed)", "mail(parent failed)"]
    run.code = code
    assert run.check() is Fit.FITS
    run.done.clear()
    assert run.go_on() == "ship(2)"
    assert [one for one in run.done if one != "mail(by a child)"] == ["pay(0)", "ship(1)", "ship(2)"]


def test_a_turn_ends_although_the_error_path_of_a_failed_try_is_not_taken_again(run: Retried) -> None:
    pay, mail, ship = run.step("pay"), run.step("mail"), run.step("ship")

    async def code() -> Any:
        row = run.store.read_run("run")
        assert row is not None
        try:
            await pay(row.turn)
        except nl.Permanent:
            await mail(row.turn)
            raise
        return await ship() if row.turn else nl.next_turn()

    run.fail(code, "pay(0)")
    assert run.fail_again("pay(1)") == ["pay(0)", "pay(1)", "mail(1)"]
    assert run.retry() == "ship(0)"
    assert run.done == ["pay(1)", "ship(0)"]


def test_a_registration_behind_the_step_that_had_failed_is_made_and_undone(run: Retried) -> None:
    pay, mail, refund, ship = (run.step(one) for one in ("pay", "mail", "refund", "ship"))

    async def code() -> Any:
        try:
            await pay()
        except nl.Permanent:
            await mail()
            raise
        nl.on_failure(refund)
        return await ship()

    run.fail(code, "pay(0)")
    assert run.fail_again("ship(0)") == ["pay(0)", "ship(0)", "refund(0)"]


def test_a_retried_run_that_is_killed_goes_on(run: Retried) -> None:
    pay, mail, ship = run.step("pay"), run.step("mail"), run.step("ship")

    async def code() -> Any:
        try:
            await pay()
        except nl.Permanent:
            await mail()
            raise
        await ship(1)
        await nl.decision(run.stage.stop_here, name="stop")()
        return await ship(2)

    run.fail(code, "pay(0)")
    assert run.check() is Fit.FITS
    run.stage.is_second = False
    agent = run.declare()
    run_async(lambda: first_life(run.stage, run.store, agent))
    assert run.done == ["pay(0)", "ship(1)"]
    run.done.clear()
    row = run.store.read_run("run")
    assert row is not None
    found = rehearsed(run.store, row)
    assert (found.fit, found.unreached) == (Fit.FITS, ())
    assert run.go_on() == "ship(2)"
    assert run.done == ["ship(2)"]


# The error path again -------------------------------------------------------------------------------------


def test_the_same_mail_about_a_second_failure_is_the_one_on_record(run: Retried) -> None:
    pay, mail, ship = run.step("pay"), run.step("mail"), run.step("ship")

    async def code() -> Any:
        try:
            await pay()
        except nl.Permanent:
            await mail("failed")
            raise
        return await ship()

    run.fail(code, "pay(0)")
    for _ in range(3):
        assert run.fail_again("pay(0)") == ["pay(0)"]
    assert run.retry() == "ship(0)"
    assert run.done == ["pay(0)", "ship(0)"]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_another_mail_about_a_second_failure_is_sent(run: Retried, options: dict[str, Any]) -> None:
    pay, mail, ship = run.step("pay"), run.step("mail", **options), run.step("ship")
    times = 0

    async def code() -> Any:
        try:
            await pay()
        except nl.Permanent:
            await mail(f"failed {times} times")
            raise
        return await ship()

    assert run.fail(code, "pay(0)") == ["pay(0)", "mail(failed 0 times)"]
    for times in (1, 2):
        assert run.fail_again("pay(0)") == ["pay(0)", f"mail(failed {times} times)"]
    assert run.fail_again("pay(0)") == ["pay(0)"]  # the last mail again
    assert run.retry() == "ship(0)"
    assert run.done == ["pay(0)", "ship(0)"]


def test_failures_of_two_steps_one_after_the_other_are_both_got_over(run: Retried) -> None:
    do, mail = run.step("do"), run.step("do_mail")

    async def code() -> Any:
        for number in range(3):
            try:
                await do(number)
            except nl.Permanent:
                await mail(number)
                raise
        return await do("end")

    run.fail(code, "do(0)")
    assert run.fail_again("do(1)") == ["do(0)", "do(1)", "do_mail(1)"]
    assert run.fail_again("do(2)") == ["do(1)", "do(2)", "do_mail(2)"]
    assert run.retry() == "do(end)"
    assert run.done == ["do(2)", "do(end)"]


# Changed code ---------------------------------------------------------------------------------------------


def payment(run: Retried, mail: Any) -> Code:
    """Return code that sends a mail if its payment fails."""
    pay, ship = run.step("pay"), run.step("ship")

    async def code() -> Any:
        await ship("before")
        try:
            await pay()
        except nl.Permanent:
            await mail("failed")
            raise
        return await ship("after")

    return code


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_step_of_the_error_path_that_is_renamed_stops_the_run_before_the_failed_step(
    run: Retried, is_fixed: bool
) -> None:
    run.fail(payment(run, run.step("mail")), "pay(0)")
    del STEPS["mail"]
    run.failing = set() if is_fixed else {"pay(0)"}
    told = run.refused(payment(run, run.step("letter")))
    assert 'mail[0](x="failed"), which was done (record 3), was not called by this code' in told


@pytest.mark.parametrize("is_fixed", [True, False])
def test_with_an_alias_it_is_found(run: Retried, is_fixed: bool) -> None:
    run.fail(payment(run, run.step("mail")), "pay(0)")
    del STEPS["mail"]
    run.code = payment(run, run.step("letter", aliases=["mail"]))
    if is_fixed:
        assert run.retry() == "ship(after)"
        assert run.done == ["pay(0)", "ship(after)"]
    else:
        assert run.fail_again("pay(0)") == ["pay(0)"]


def test_forgets_lets_a_step_of_the_error_path_that_is_gone_go(run: Retried) -> None:
    run.fail(payment(run, run.step("mail")), "pay(0)")
    del STEPS["mail"]
    run.options["forgets"] = ["mail"]
    assert run.retry(payment(run, run.step("letter"))) == "ship(after)"


def test_a_child_of_the_error_path_whose_agent_is_renamed_stops_the_run(run: Retried) -> None:
    pay = run.step("pay")

    async def mail() -> None:
        return None

    def code_with(agent: Any) -> Code:
        async def code() -> Any:
            try:
                await pay()
            except nl.Permanent:
                await (await nl.spawn(agent)).result()
                raise

        return code

    run.fail(code_with(nl.agent(name="mail")(mail)), "pay(0)")
    del AGENTS["mail"]
    assert "spawn:mail[0](" in run.refused(code_with(nl.agent(name="letter")(mail)))


def test_an_effect_from_before_the_failure_stops_the_run_as_ever(run: Retried) -> None:
    mail = run.step("mail")
    run.fail(payment(run, mail), "pay(0)")
    pay, ship = STEPS["pay"], STEPS["ship"]

    async def code() -> Any:
        await pay()
        return await ship("after")

    assert 'ship[0](x="before"), which was done (record 1), was not called by this code' in run.refused(code)


def beside(run: Retried, mail: Any, to: int, *, moved: bool = False) -> Code:
    """Return code that pays and sends a mail beside it; or after it."""
    pay = run.step("pay")

    async def code() -> Any:
        arms = [pay()] if moved else [pay(), mail(to)]
        out = await asyncio.gather(*arms, return_exceptions=True)
        if isinstance(out[0], Exception):
            raise out[0]
        return await mail(to) if moved else out[1]

    return code


@pytest.mark.parametrize("options", KINDS[:3], ids=str)
def test_an_effect_beside_the_failure_is_not_done_with_other_arguments(
    run: Retried, options: dict[str, Any]
) -> None:
    mail = run.step("mail", **options)
    assert run.fail(beside(run, mail, 1), "pay(0)") == ["pay(0)", "mail(1)"]
    kinds = [one.kind for one in run.store.load_journal("run").records if one.step]
    assert kinds.index(Kind.FAILURE) < kinds.index(Kind.RESULT)
    run.refused(beside(run, mail, 2))


def test_nor_is_another_effect_done_in_its_place(run: Retried) -> None:
    mail, letter = run.step("mail"), run.step("letter")
    run.fail(beside(run, mail, 1), "pay(0)")
    run.refused(beside(run, letter, 1))


def test_nor_is_one_that_was_done_and_cancelled_before_its_delivery(run: Retried) -> None:
    pay, mail = run.step("pay"), run.step("mail")

    def code_with(x: int) -> Code:
        async def code() -> Any:
            return (await nl.gather(pay(), mail(x)))[1]

        return code

    assert run.fail(code_with(1), "pay(0)") == ["pay(0)", "mail(1)"]
    kinds = [one.kind for one in run.store.load_journal("run").records if one.step]
    assert kinds == [Kind.FAILURE, Kind.RESULT, Kind.WITHDRAWN]
    run.refused(code_with(2))


def test_unchanged_it_is_found(run: Retried) -> None:
    mail = run.step("mail")
    run.fail(beside(run, mail, 1), "pay(0)")
    assert run.retry() == "mail(1)"
    assert run.done == ["pay(0)"]


def test_an_effect_that_had_begun_before_the_failure_is_no_reaction_to_it(run: Retried) -> None:
    """Its start is on record before the failure: with other arguments it is refused wherever it is called."""
    ended = asyncio.Event()

    async def send(x: Any = 0) -> str:
        run.done.append(f"mail({x})")
        if run.failing:
            await ended.wait()
        return f"mail({x})"

    async def fail(x: Any = 0) -> str:
        run.done.append(f"pay({x})")
        while not any(one.kind is Kind.INTENT for one in run.store.load_journal("run").records):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        ended.set()
        raise nl.Permanent("no")

    mail, pay = nl.action(send, name="mail", resumable=False), nl.action(fail, name="pay")

    async def code() -> Any:
        out = await asyncio.gather(mail(1), pay(), return_exceptions=True)
        if isinstance(out[1], Exception):
            raise out[1]

    run.fail(code, "pay(0)")
    steps = [(one.kind, one.step) for one in run.store.load_journal("run").records if one.step]
    assert [kind for kind, _ in steps] == [Kind.INTENT, Kind.FAILURE, Kind.RESULT]
    del STEPS["pay"]
    run.refused(beside(run, mail, 2, moved=True))


def test_a_step_in_the_place_of_the_error_paths_is_done_if_the_step_fails_again(run: Retried) -> None:
    mail, letter = run.step("mail"), run.step("letter")
    run.fail(payment(run, mail), "pay(0)")
    run.code = payment(run, letter)
    assert run.fail_again("pay(0)") == ["pay(0)", "letter(failed)"]


def test_new_code_behind_the_step_that_had_failed_is_taken(run: Retried) -> None:
    mail, letter = run.step("mail"), run.step("letter")
    run.fail(payment(run, mail), "pay(0)")
    pay, ship = STEPS["pay"], STEPS["ship"]

    async def code() -> Any:
        await ship("before")
        try:
            await pay()
        except nl.Permanent:
            await mail("failed")
            raise
        if nl.patched("letter"):
            await letter()
        return await ship("after")

    assert run.retry(code) == "ship(after)"
    assert run.done == ["pay(0)", "letter(0)", "ship(after)"]


def test_a_run_whose_failed_step_is_gone_is_stopped_before_its_next_effect(run: Retried) -> None:
    """Nothing says that the mail was about what the code does no more."""
    mail = run.step("mail")
    run.fail(payment(run, mail), "pay(0)")
    ship = STEPS["ship"]

    async def code() -> Any:
        await ship("before")
        return await mail("done")

    assert "mail" in run.refused(code)
    row = run.store.read_run("run")
    assert row is not None
    assert row.state is State.ESCALATED
