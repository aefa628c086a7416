"""What random edits have found, written out: each was two effects, or a check that was wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ninelives as nl
from ninelives.core.model.run import RunQuery, State
from ninelives.ops.check import Fit
from ninelives.testing.runtime_life import RuntimeLife
from tests.edits.lives import NEVER, RUN, Kill, Stage

pytestmark = pytest.mark.usefixtures("declarations")
HEAD = """
import asyncio

import ninelives as nl
from tests.edits import ledger as world

async def verify(to: str, n: int, key: str) -> object:
    return world.verify("pay", to, n, key)

@nl.agent(name="child")
async def child(n: int) -> str:
    return await note("child", n)

@nl.action
async def note(to: str, n: int) -> str:
    return await world.act("note", to, n)

@nl.action(key="mail:{to}")
async def mail(to: str, n: int) -> str:
    return await world.act("mail", to, n)
"""
PAY = """
@nl.action(name="pay", resumable=False, verify=verify, key="KEY:{to}")
async def pay(to: str, n: int) -> str:
    return await world.act("pay", to, n)

@nl.agent(name="agent")
async def agent() -> str:
    return await pay("ann", 1)
"""


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.store.close()


def _effects(stage: Stage, lineage: str) -> int:
    return sum(one.fact == "effect" and one.lineage == lineage for one in stage.ledger.events)


def test_a_start_under_a_changed_key_is_verified_before_it_is_made_again(stage: Stage) -> None:
    stage.load(HEAD + PAY.replace("KEY", "old"), "first")
    assert stage.live(Kill("begin"))  # started under the old key, and not done
    stage.load(HEAD + PAY.replace("KEY", "new"), "second")
    assert stage.live(Kill("end"))  # proved not done, started under the new key, and done
    assert not stage.live(NEVER)
    assert stage.row().state is State.COMPLETED
    assert _effects(stage, "pay") == 1


ALONE = """
@nl.agent(name="agent")
async def agent() -> str:
    return await (await nl.spawn(child, 1)).result()
"""
NAMED = """
@nl.agent(name="agent")
async def agent() -> str:
    with nl.branch("x"):
        return await (await nl.spawn(child, 1)).result()
"""


@pytest.mark.parametrize("commit", [1, 2])
def test_a_child_that_was_born_is_not_spawned_again_by_code_that_moved(stage: Stage, commit: int) -> None:
    stage.load(HEAD + ALONE, "first")
    assert stage.live(Kill("before", commit))  # one of them would record the birth
    stage.load(HEAD + NAMED, "second")
    assert stage.check().fit is Fit.FITS
    assert not stage.live(NEVER)
    assert stage.row().state is State.COMPLETED
    assert _effects(stage, "note") == 1


def test_nothing_begins_beside_a_start_that_the_code_would_repeat_with_less_care(stage: Stage) -> None:
    stage.load(HEAD + PAY.replace("KEY", "k"), "first")
    assert stage.live(Kill("begin"))
    begun = len(stage.ledger.events)
    less = PAY.replace(', resumable=False, verify=verify, key="KEY:{to}"', "")
    beside = less.replace(
        'return await pay("ann", 1)', 'await asyncio.gather(pay("ann", 1), note("b", 2), note("b", 3))'
    )
    stage.load(HEAD + beside, "second")
    assert stage.check().fit is Fit.DIVERGES
    assert not stage.live(NEVER)
    assert stage.row().state is State.ESCALATED
    assert [one.fact for one in stage.ledger.events[begun:]] == ["life"]


DONE = """
@nl.action(name="pay", key="{to}")
async def pay(to: str, n: int) -> str:
    return await world.act("pay", to, n)

@nl.agent(name="agent")
async def agent() -> None:
    await pay("ann", 1)
    await nl.receive("go")
"""


def test_check_refuses_an_effect_that_is_passed_over_beside_a_wait(stage: Stage) -> None:
    stage.load(HEAD + DONE, "first")
    assert not stage.live(Kill("rest"))
    begin, _, _ = DONE.partition("    await pay")
    stage.load(HEAD + begin + '    await asyncio.gather(nl.receive("stop"), pay("ann", 9))', "second")
    assert stage.check().fit is Fit.DIVERGES
    assert not stage.live(NEVER)
    assert stage.row().state is State.ESCALATED
    assert _effects(stage, "pay") == 1


GROWN = """
@nl.action(name="look"KIND)
async def look(to: str, n: int) -> str:
    return await world.act("look", to, n)

@nl.agent(name="agent")
async def agent() -> None:
    await look("ann", 1)
"""


def test_an_effect_is_not_passed_over_because_its_step_was_a_read_before(stage: Stage) -> None:
    stage.load(HEAD + GROWN.replace("KIND", ", reads_only=True") + '    await note("c", 3)', "first")
    assert stage.live(Kill("begin", 2))  # `look` was a read then
    twice = '    await look("ann", 2)\n    await note("b", 3)'
    stage.load(HEAD + GROWN.replace("KIND", "") + twice, "second")
    assert stage.live(Kill("begin", 2))  # and is an effect now
    begin, _, _ = GROWN.replace("KIND", "").partition("    await look")
    stage.load(HEAD + begin + '    await note("c", 3)', "third")
    assert not stage.live(NEVER)
    assert stage.row().state is State.ESCALATED
    assert _effects(stage, "note") == 0


WAITING = """
@nl.action(reads_only=True)
async def read(to: str, n: int) -> str:
    return await world.read("read", to, n)

@nl.agent(name="agent")
async def agent() -> None:
    await read("ann", 1)
    await nl.sleep(3600)
    if nl.patched("a note first"):
        await note("ann", 2)
    await mail("ann", 3)
"""


def test_patched_is_false_before_an_effect_that_was_started_even_behind_a_new_wait(stage: Stage) -> None:
    begin, _, _ = WAITING.partition("    await read")
    stage.load(HEAD + begin + '    await mail("ann", 3)', "first")
    assert stage.live(Kill("begin"))
    stage.load(HEAD + WAITING, "second")
    assert stage.check().fit is Fit.FITS
    assert not stage.live(NEVER)
    assert stage.row().state is State.COMPLETED
    assert (_effects(stage, "mail"), _effects(stage, "note")) == (1, 0)


SWAPPED = """
@nl.agent(name="agent")
async def agent() -> None:
    await asyncio.gather(FIRST, SECOND)
"""


@pytest.mark.parametrize("commit", range(1, 8))
def test_a_call_takes_its_own_outcome_before_the_closed_start_of_another_at_its_place(
    stage: Stage, commit: int
) -> None:
    begin, _, _ = PAY.partition("@nl.agent")
    one, other = 'pay("bob", 1)', 'pay("ann", 1)'
    stage.load(HEAD + begin + SWAPPED.replace("FIRST", one).replace("SECOND", other), "first")
    assert stage.live(Kill("begin"))
    stage.load(HEAD + begin + SWAPPED.replace("FIRST", other).replace("SECOND", one), "second")
    stage.live(Kill("after", commit))
    stage.live(NEVER)
    assert stage.row().state is State.COMPLETED
    assert _effects(stage, "pay") == 2


TURNS = """
@nl.action(name="pay", resumable=False, verify=verify)
async def pay(to: str, n: int) -> str:
    return await world.act("pay", to, n)

@nl.agent(name="agent")
async def agent(turn: int = 0) -> str:
    if turn == 0:
        FIRST
        return nl.next_turn(1)
    SECOND
    return await note("end", 1)
"""
PAID, WAITED = 'await pay("ann", 1)', 'await nl.receive("go")'


@pytest.mark.parametrize("waits", [True, False])
def test_check_and_run_refuse_an_effect_that_moved_into_the_next_turn(stage: Stage, waits: bool) -> None:
    stage.load(HEAD + TURNS.replace("FIRST", f"{PAID}; {WAITED}").replace("SECOND", "pass"), "first")
    stage.live(Kill("rest"))
    begun = len(stage.ledger.events)
    first = WAITED if waits else "pass"
    stage.load(HEAD + TURNS.replace("FIRST", first).replace("SECOND", PAID), "second")
    found = stage.check()
    assert found.fit is (Fit.FITS if waits else Fit.DIVERGES)  # behind a wait it can only warn
    said = found.warnings[0].what if waits else found.what
    assert ("if it ends before either, it is not: pay[0]" if waits else "ends its turn") in said
    assert not stage.live(NEVER)
    assert stage.row().state is State.ESCALATED
    assert [one.fact for one in stage.ledger.events[begun:]] == ["life"]


FAMILY = """
@nl.action(name="pay", resumable=False, verify=verifyKEY)
async def pay(to: str, n: int) -> str:
    return await world.act("pay", to, n)

@nl.agent(name="kid")
async def kid() -> str:
    await nl.receive("go")
    CHILDS
    return "grown"

@nl.agent(name="agent")
async def agent() -> None:
    await nl.spawn(kid)
    PARENTS
    await nl.receive("go")
"""


@pytest.mark.parametrize("key", ["", ', key="{to}"'])
def test_check_says_that_an_effect_which_moved_into_a_child_is_done_again_without_a_key(
    stage: Stage, key: str
) -> None:
    family = HEAD + FAMILY.replace("KEY", key)
    stage.load(family.replace("PARENTS", PAID).replace("CHILDS", "pass"), "first")
    stage.live(Kill("rest"))
    stage.load(family.replace("PARENTS", "pass").replace("CHILDS", PAID), "second")
    (warned,) = stage.check().warnings
    assert "moved into a child run, it is done again there, unless it was done under a key=" in warned.remedy
    stage.live(NEVER)
    (child,) = stage.store.list_runs(RunQuery(parent=RUN))
    stage.life = life = RuntimeLife(stage.store, stage.clock, None)
    life.do(lambda runtime: nl.Run(runtime, child.id).signal("go", "go!", id="grow"))
    life.close()
    stage.live(NEVER)
    assert _effects(stage, "pay") == (1 if key else 2)


SLEEPERS = """
async def nap(to: str, seconds: float) -> None:
    await nl.sleep(seconds)
    await note(to, 1)

async def both() -> None:
    await nl.gather(nap("early", 1), nap("late", 3600))

@nl.agent(name="agent")
async def agent() -> None:
    BOTH
"""


def test_a_long_sleep_that_has_moved_does_not_end_with_a_short_one(stage: Stage) -> None:
    began_ms = stage.clock.now_ms()
    stage.load(HEAD + SLEEPERS.replace("BOTH", "await both()"), "first")
    stage.live(Kill("after", 5))
    assert _effects(stage, "note") == 1
    assert stage.clock.now_ms() - began_ms < 3_600_000
    stage.load(HEAD + SLEEPERS.replace("BOTH", "await asyncio.create_task(both())"), "second")
    assert stage.check().fit is Fit.FITS
    stage.live(NEVER)
    assert stage.row().state is State.COMPLETED
    assert _effects(stage, "note") == 2
    assert stage.clock.now_ms() - began_ms >= 3_600_000
