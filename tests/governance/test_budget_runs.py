"""Budgets and the engine: what runs spend, wait for, ask for, and are refused, in one life and in two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.model.run import RunQuery, State
from ninelives.governance.budgets.changes import change
from ninelives.runtime.runtime import ProcessOptions
from ninelives.stores.clock import SystemClock
from ninelives.testing.clock import SkippingClock
from ninelives.testing.dying_store import Died
from ninelives.views.position import summaries
from tests.replay.lifetimes import QuickStore, Stage, prove_gone, run_async

STAGE = Stage()
CALLED: list[Any] = []


class ClockStore(QuickStore):
    """A quick store whose clock is moved by hand, or the machine's."""

    def __init__(self, clock: Any) -> None:
        super().__init__()
        self.clock = self._clock = clock


@nl.action(name="spend", cost=lambda tokens, charged=None: nl.Cost(tokens=tokens))
async def spend(tokens: int, charged: int | None = None) -> int:
    CALLED.append(tokens)
    if charged is not None:
        nl.charge(tokens=charged)
    return tokens


@nl.action(name="stops", cost=nl.Cost(tokens=100))
async def stops() -> None:
    nl.charge(tokens=30)
    await STAGE.stop_here()


@nl.decision(name="budgets.ask")
async def ask(prompt: str, model: str, max_tokens: int) -> dict[str, Any]:
    return {"model": model, "usage": {"input_tokens": 10, "output_tokens": 20}}


@nl.decision(name="asks_plainly")
async def asks_plainly(prompt: str) -> str:
    return prompt


@nl.agent(name="budgets.spends")
async def spends(*amounts: int) -> list[int | str]:
    found: list[int | str] = []
    for amount in amounts:
        try:
            found.append(await spend(amount))
        except nl.Denied as error:
            found.append(str(error))
    return found


@nl.agent(name="budgets.parent")
async def parent(depth: int, tokens: int) -> int:
    """Spend in a chain of children, and count the calls that were let through."""
    try:
        passed = int(await spend(tokens) > 0)
    except nl.Denied:
        passed = 0
    if not depth:
        return passed
    children = [await nl.spawn(parent, depth - 1, tokens) for _ in range(2)]
    return passed + sum([int(await one.result()) for one in children])


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLED.clear()
    STAGE.__init__()  # type: ignore[misc]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


class Scene:
    """A store, and a policy with budgets."""

    def __init__(self, home: Path, *budgets: str, clock: Any = None) -> None:
        self.store = ClockStore(clock or SkippingClock())
        self.policy = home / "policy.toml"
        text = "".join(f"[[budget]]\n{one}\n" for one in budgets)
        self.policy.write_text(f'[policy]\nname="p"\ndefault="allow"\n{text}', encoding="utf-8")

    def runtime(self) -> nl.Runtime:
        return nl.Runtime(self.store, policy=self.policy, process=ProcessOptions(clock=self.store.clock))

    def perform(self, agent: Any, *args: Any, id: str = "run", **options: Any) -> Any:
        """Work until nothing can be worked on; return the run's row."""

        async def main() -> Any:
            async with self.runtime() as rt:
                await rt.start(agent, *args, id=id, **options)
                await rt.work(until_idle=True)
                return self.store.read_run(id)

        return run_async(main)

    def result(self, id: str = "run", act: Callable[[nl.Runtime], Any] | None = None) -> Any:
        """Work to the end; return the run's result."""

        async def main() -> Any:
            async with self.runtime() as rt:
                if act is not None:
                    await act(rt)
                await rt.work(until_idle=True)
                return await (await rt.get(id)).result(timeout=10)

        return run_async(main)

    def accounts(self) -> dict[str, Any]:
        """Return the accounts by what follows `budget/`."""
        return {
            one.name.removeprefix("budget/"): msgspec.json.decode(one.body)
            for one in self.store.read_documents("budget/")
        }

    def spent(self, meter: str = "tokens") -> int:
        """Return what all accounts have spent; nothing may be reserved any more."""
        found = self.accounts().values()
        assert not any(one.get("reserved") for one in found)
        return sum(int(one.get("spent", {}).get(meter, 0)) for one in found)


RUN = 'name="b"\nscope="run"\ntokens=1000\n'
HOUR = 'name="hour"\nscope="store"\nper="hour"\non="wait"\ntokens=1000\n'


def test_calls_over_a_budget_are_denied_with_the_reason(home: Path) -> None:
    scene = Scene(home, RUN)
    scene.perform(spends, 600, 500, 400)
    found = scene.result()
    assert found[0] == 600
    assert "budget 'b' of run 'run': 600 tokens spent and 0 tokens reserved of 1,000 tokens" in found[1]
    assert found[2] == 400
    assert CALLED == [600, 400]
    assert scene.accounts() == {"b/all/run=run": {"spent": {"tokens": 1000}}}


def test_what_is_charged_over_the_reservation_refuses_the_next_call(home: Path) -> None:
    @nl.agent(name="budgets.overruns")
    async def overruns() -> list[int]:
        await spend(10, charged=5000)
        with pytest.raises(nl.Denied, match="5,000 tokens spent"):
            await spend(1)
        return CALLED

    scene = Scene(home, RUN)
    scene.perform(overruns)
    assert scene.result() == [10]
    assert scene.spent() == 5000


def test_a_run_waits_for_the_next_window_and_says_so(home: Path) -> None:
    scene = Scene(home, HOUR)
    row = scene.perform(spends, 600, 600)
    assert row.state is State.CHECKPOINTED
    assert (
        "until 2026-01-01 01:00Z for budget 'hour' of this store"
        in summaries(scene.store, RunQuery())[0].waits
    )
    scene.store.clock.skip(1800)
    assert scene.perform(spends, 600, 600).state is State.CHECKPOINTED, "the window has not turned"
    scene.store.clock.skip(1800)
    assert scene.result() == [600, 600]
    assert scene.accounts() == {
        "hour/2026-01-01T00/store": {"spent": {"tokens": 600}},
        "hour/2026-01-01T01/store": {"spent": {"tokens": 600}},
    }


def test_a_raise_wakes_a_run_that_waits(home: Path) -> None:
    scene = Scene(home, HOUR)
    scene.perform(spends, 600, 600)
    said = change(
        scene.store,
        "hour",
        None,
        {"tokens": 200},
        raises=True,
        by="ada",
        reason="why not",
        log=lambda *_: None,
    )
    assert said.woken == ("run",)
    assert scene.result() == [600, 600]
    assert scene.spent() == 1200


def test_a_raise_that_dies_before_it_wakes_holds_a_run_up_for_a_minute(home: Path) -> None:
    def dies(*_: object) -> None:
        raise Died

    scene, more = Scene(home, HOUR), {"tokens": 200}
    scene.perform(spends, 600, 600)
    with pytest.raises(Died):
        change(scene.store, "hour", None, more, raises=True, by="ada", reason="an order", log=dies)
    row = scene.store.read_run("run")
    assert row is not None
    assert row.due_ms == scene.store.clock.now_ms() + 60_000
    scene.store.clock.skip(60)
    assert scene.result() == [600, 600]


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_a_person_lets_one_call_pass_or_not(home: Path, answer: str) -> None:
    scene = Scene(home, RUN + 'on="escalate"\nto="ada"')
    assert scene.perform(spends, 600, 600, 600).state is State.CHECKPOINTED

    async def answered(rt: nl.Runtime) -> None:
        (item,) = await rt.inbox("run")
        assert "600 tokens spent and 0 tokens reserved of 1,000 tokens" in item.asked.what
        await getattr(item, answer)(by="ada")

    async def main() -> None:
        async with scene.runtime() as rt:
            await answered(rt)
            await rt.work(until_idle=True)
            assert await rt.inbox("run"), "the third call asks again"

    run_async(main)
    assert scene.spent() == (1200 if answer == "approve" else 600)


def test_an_approved_call_is_charged_what_it_has_really_spent(home: Path) -> None:
    @nl.agent(name="budgets.exceeds")
    async def exceeds() -> int:
        return await spend(2000, charged=50_000)

    scene = Scene(home, RUN + 'on="escalate"\nto="ada"')
    scene.perform(exceeds)

    async def answered(rt: nl.Runtime) -> None:
        (item,) = await rt.inbox("run")
        await item.approve(by="ada")

    assert scene.result(act=answered) == 2000
    assert scene.spent() == 50_000


def test_a_body_in_which_a_call_is_denied_has_spent_what_it_reserved(home: Path) -> None:
    @nl.action(name="budgets.inner")
    async def inner() -> None: ...

    @nl.action(name="budgets.outer", cost=nl.Cost(tokens=400))
    async def outer() -> None:
        CALLED.append("outer")
        await inner()

    @nl.agent(name="budgets.insists")
    async def insists() -> None:
        for _ in range(5):
            with pytest.raises(nl.Denied):
                await outer()

    scene = Scene(home, RUN)
    rule = '[[rule]]\nid="no"\nactions=["budgets.inner"]\ndo="deny"\n'
    scene.policy.write_text(scene.policy.read_text() + rule, encoding="utf-8")
    scene.perform(insists)
    assert CALLED == ["outer", "outer"]
    assert scene.spent() == 800


def test_what_an_action_returns_cannot_say_that_it_was_cheaper(home: Path) -> None:
    """A page that somebody else has written may look like a model's answer."""

    @nl.action(name="budgets.fetches", cost=nl.Cost(tokens=400, usd=1))
    async def fetches(tokens: int) -> dict[str, Any]:
        return {"page": {"model": "gpt-4o", "usage": {"input_tokens": 0, "output_tokens": tokens}}}

    @nl.agent(name="budgets.reads")
    async def reads() -> None:
        await fetches(1)
        await fetches(500)

    scene = Scene(home, RUN, 'name="usd"\nscope="run"\nusd=10\nonly=["budgets.fetches"]\n')
    scene.perform(reads)
    assert scene.spent() == 900
    assert scene.spent("usd") == 2_000_000


def test_a_tree_shares_a_budget_however_deep(home: Path) -> None:
    scene = Scene(
        home, 'name="t"\nscope="tree"\ntokens=1000\n', 'name="l"\nscope="label:tenant"\ntokens=5000\n'
    )
    scene.perform(parent, 3, 150, labels={"tenant": "acme"})
    assert scene.result() == 6
    assert len(CALLED) == 6
    assert scene.accounts() == {
        "t/all/tree=run": {"spent": {"tokens": 900}},
        "l/all/label:tenant=acme": {"spent": {"tokens": 900}},
    }


def test_an_unknown_price_is_closed(home: Path) -> None:
    @nl.agent(name="budgets.models")
    async def models(*names: str) -> list[str]:
        found = []
        for name in names:
            try:
                await ask("hi", name, 1000)
                found.append("asked")
            except nl.Denied as error:
                found.append(str(error))
        return found

    scene = Scene(home, 'name="b"\nscope="store"\nusd=1\nonly=["budgets.ask"]\n')
    scene.perform(models, "gpt-4o", "no-such-model")
    known, unknown = scene.result()
    assert known == "asked"
    assert "'budgets.ask' does not say how many it may cost" in unknown
    assert scene.spent("usd") == 225  # 10 tokens read and 20 written
    scene = Scene(home, 'name="b"\nscope="store"\nusd=1\nonly=["budgets.ask"]\nestimate={usd=0.05}')
    scene.perform(models, "no-such-model")
    assert scene.result() == ["asked"]
    assert scene.accounts() == {"b/all/store": {"spent": {"usd": 50_000, "unpriced": 1}}}


def test_a_replay_charges_nothing(home: Path) -> None:
    @nl.agent(name="budgets.waits")
    async def waits() -> int:
        found = await spend(100)
        await nl.receive("go")
        return found

    scene = Scene(home, RUN)
    scene.perform(waits)
    before = scene.store.read_documents("budget/")

    async def go(rt: nl.Runtime) -> None:
        await (await rt.get("run")).signal("go")

    assert scene.result(act=go) == 100
    assert CALLED == [100]
    assert scene.store.read_documents("budget/") == before


def test_a_body_that_its_worker_took_along_is_presumed_spent(home: Path) -> None:
    @nl.agent(name="budgets.dies")
    async def dies() -> int:
        await stops()
        return await spend(700)

    scene = Scene(home, RUN)

    async def first() -> None:
        STAGE.reached = asyncio.Event()
        async with scene.runtime() as rt:
            await rt.start(dies, id="run")
            working = asyncio.create_task(rt.work())
            await STAGE.reached.wait()
            working.cancel()

    run_async(first)
    STAGE.is_second = True
    assert scene.accounts() == {"b/all/run=run": {"reserved": {"tokens": 100}}}
    assert scene.result() == 700
    spent = {"tokens": 100 + 30 + 700, "presumed": 1}
    assert scene.accounts() == {"b/all/run=run": {"spent": spent}}


@pytest.mark.parametrize("happened", [True, False])
def test_a_start_that_is_proved_not_to_have_happened_is_not_charged(home: Path, happened: bool) -> None:
    @nl.action(
        name="once", resumable=False, cost=nl.Cost(tokens=100),
        verify=lambda key: nl.Happened(None) if happened else nl.NotHappened(),
    )  # fmt: skip
    async def once() -> None:
        CALLED.append("once")
        await STAGE.stop_here()

    @nl.agent(name="budgets.dies_once")
    async def dies_once() -> int:
        await once()
        return 1

    scene = Scene(home, RUN, clock=SystemClock())

    async def first() -> None:
        STAGE.reached = asyncio.Event()
        async with scene.runtime() as rt:
            await rt.start(dies_once, id="run")
            working = asyncio.create_task(rt.work())
            await STAGE.reached.wait()
            working.cancel()

    run_async(first)
    STAGE.is_second = True
    prove_gone(scene.store)
    assert scene.result() == 1
    assert (["once"] if happened else ["once", "once"]) == CALLED
    assert scene.spent() == 100


def test_attempts_that_fail_charge_what_they_say(home: Path) -> None:
    failures = [nl.Transient("not now"), nl.Transient("not now")]

    @nl.action(name="retries", cost=nl.Cost(tokens=100), retry=nl.Retry(attempts=3, base_seconds=0.001))
    def retries() -> None:
        nl.charge(tokens=40)
        if failures:
            raise failures.pop()

    @nl.agent(name="budgets.plain")
    def plain() -> None:
        retries()

    scene = Scene(home, RUN)
    scene.perform(plain)
    scene.result()
    assert scene.spent() == 120


def test_what_undoes_an_effect_is_counted_and_never_refused(home: Path) -> None:
    @nl.agent(name="budgets.undoes")
    async def undoes() -> None:
        await spend(900)
        nl.on_failure(spend, 800)
        raise ValueError("no")

    scene = Scene(home, RUN)
    assert scene.perform(undoes).state is State.FAILED
    assert CALLED == [900, 800]
    assert scene.spent() == 1700


def test_a_decision_without_an_estimate_is_denied(home: Path) -> None:
    @nl.agent(name="budgets.asks")
    async def asks() -> str:
        with pytest.raises(nl.Denied, match="call it with max_tokens="):
            await asks_plainly("hi")
        return "denied"

    scene = Scene(home, RUN)
    scene.perform(asks)
    assert scene.result() == "denied"
    assert scene.accounts() == {}


def test_a_rule_may_ask_what_is_used_of_a_budget(home: Path) -> None:
    scene = Scene(home, RUN)
    rule = (
        '[[rule]]\nid="half"\nactions=["spend"]\nwhen="spent(\'b\') > 0.5"\ndo="deny"\nwhy="half is used"\n'
    )
    scene.policy.write_text(scene.policy.read_text(encoding="utf-8") + rule, encoding="utf-8")

    @nl.agent(name="budgets.careful")
    async def careful() -> str:
        await spend(600)
        await nl.receive("go")
        try:
            await spend(1)
        except nl.Denied as error:
            return str(error)
        return "spent"

    scene.perform(careful)

    async def go(rt: nl.Runtime) -> None:
        await (await rt.get("run")).signal("go")

    assert "half is used" in scene.result(act=go)
    assert scene.spent() == 600


def test_charges_outside_a_body_are_refused(home: Path) -> None:
    @nl.agent(name="budgets.charges")
    async def charges() -> str:
        with pytest.raises(UsageError, match="inside a step"):
            nl.charge(tokens=1)
        return "refused"

    scene = Scene(home, RUN)
    scene.perform(charges)
    assert scene.result() == "refused"
    nl.charge(tokens=1)


def test_a_policy_with_bad_budgets_lets_no_runtime_open(home: Path) -> None:
    twice = Scene(home, RUN, RUN)
    with pytest.raises(UsageError, match="two budgets are named 'b'"):
        twice.perform(spends, 1)
    one, other = home / "one.toml", home / "other.toml"
    Scene(home, RUN).policy.rename(one)
    scene = Scene(home, RUN)
    scene.policy.rename(other)

    async def main() -> None:
        async with nl.Runtime(scene.store, policy=[str(one), str(other)]):
            pass

    with pytest.raises(UsageError, match="two budgets are named 'b'"):
        run_async(main)
