"""Declaring and lifting halts: what is refused, who may come together, what ends by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import ninelives as nl
from ninelives.core.errors import UnknownRun, UsageError
from ninelives.core.governance.verdicts import Call
from ninelives.core.model.commit import Park
from ninelives.core.model.document import DOCUMENT_BYTES, HALTS, UNREADABLE
from ninelives.core.model.run import Control
from ninelives.engine.spec.registry import Step
from ninelives.governance.audit_log import tiles
from ninelives.governance.audit_log.entries import switch
from ninelives.governance.halt_changes import Selectors, halt, unhalt, until_ms
from ninelives.governance.halts import Halt, HaltList, Halts, held_words, read_halts, read_list
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench
from tests.crash.stores import AnyStore, open_at

STEP = cast("Step", SimpleNamespace(aliases=()))
RENAMED = cast("Step", SimpleNamespace(aliases=("pay-back", "refund")))
EVERYTHING = Selectors(everything=True)


@pytest.fixture
def store(ground: Path) -> Iterator[AnyStore]:
    """Yield a store of each durable kind."""
    opened = open_at(ground)
    yield opened
    opened.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Yield a store whose clock a test moves."""
    made = make_bench("sqlite", SteppingClock(), tmp_path)
    yield made
    made.close()


def call(**changes: Any) -> Call:
    """Return a call of agent `shop`, in run `r1` of tenant `acme`."""
    facts = {"action": "refund", "kind": "action", "args": {}, "run": "r1", "agent": "shop"}
    return msgspec.convert({**facts, "labels": {"tenant": "acme"}, **changes}, Call)


@pytest.mark.parametrize(
    ("selectors", "holds", "lets"),
    [
        (EVERYTHING, [{}, {"agent": "other"}], []),
        (Selectors(agent="shop"), [{}], [{"agent": "other"}]),
        (Selectors(action="refund"), [{}, {"agent": "other"}], [{"action": "look"}]),
        (Selectors(run="r1"), [{}], [{"run": "r2"}]),
        (Selectors(labels={"tenant": "acme"}), [{}], [{"labels": {"tenant": "else"}}, {"labels": {}}]),
        (Selectors(agent="shop", action="refund"), [{}], [{"agent": "other"}, {"action": "look"}]),
    ],
)
def test_a_halt_holds_what_fits_all_its_selectors(
    bench: Bench, selectors: Selectors, holds: list[dict[str, Any]], lets: list[dict[str, Any]]
) -> None:
    bench.create(id="r1", agent="shop")
    halt(bench.store, selectors, reason="a fault", by="ada")
    known = Halts(bench.store.now_ms)
    known.refresh(bench.store)
    assert [known.held(STEP, call(**one)) is None for one in holds] == [False] * len(holds)
    assert [known.held(STEP, call(**one)) for one in lets] == [None] * len(lets)


def test_a_halt_of_an_action_holds_the_code_that_has_renamed_it(bench: Bench) -> None:
    halt(bench.store, Selectors(action="refund"), reason="a fault", by="ada")
    known = Halts(bench.store.now_ms)
    known.refresh(bench.store)
    assert known.held(RENAMED, call(action="give-back")) is not None
    assert known.held(STEP, call(action="give-back")) is None


@pytest.mark.parametrize(
    ("selectors", "options"),
    [
        (Selectors(), {}),
        (Selectors(agent="shop", everything=True), {}),
        (Selectors(agent="shpo"), {}),
        (Selectors(agent=""), {}),
        (Selectors(run="nobody"), {}),
        (EVERYTHING, {"reason": " "}),
        (EVERYTHING, {"reason": "two\nlines"}),
        (EVERYTHING, {"by": ""}),
        (EVERYTHING, {"until": "soon"}),
        (EVERYTHING, {"until": "2027-01-31T10:00"}),
        (EVERYTHING, {"until": "1999-01-31T10:00Z"}),
        (Selectors(action="refund"), {"kills": True}),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_halted(
    bench: Bench, selectors: Selectors, options: dict[str, Any]
) -> None:
    bench.create(id="r1", agent="shop")
    with pytest.raises((UsageError, UnknownRun)) as caught:
        halt(bench.store, selectors, **{"reason": "a fault", "by": "ada", **options})
    assert caught.value.remedy
    assert bench.store.read_documents(HALTS) == []


@pytest.mark.parametrize("kill", [True, False])
def test_a_halt_from_code_ends_worker_processes_only_if_it_says_so(kill: bool) -> None:
    async def main() -> None:
        async with nl.Runtime("memory:") as rt:
            made = await rt.halt(everything=True, reason="a fault", by="ada", kill=kill)
            assert made.kills is kill
            assert [one.kills for one in await rt.halts()] == [kill]

    asyncio.run(main())


def test_halts_declared_at_once_are_all_in_force(store: AnyStore, ground: Path) -> None:
    def declare(number: int) -> None:
        own = open_at(ground)
        halt(own, EVERYTHING, reason=f"fault {number}", by="ada")
        own.close()

    threads = [threading.Thread(target=declare, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert {one.reason for one in read_halts(store, store.now_ms())} == {f"fault {n}" for n in range(8)}


def test_only_what_is_named_is_lifted_and_the_last_ones_are_remembered(bench: Bench) -> None:
    first, second = (halt(bench.store, EVERYTHING, reason=why, by="ada") for why in ("one", "two"))
    with pytest.raises(UsageError, match="h-none"):
        unhalt(bench.store, [first.id, "h-none"], by="bob")
    with pytest.raises(UsageError):
        unhalt(bench.store, by="bob")
    assert unhalt(bench.store, [first.id], by="bob", reason="repaired") == (first,)
    known, _ = read_list(bench.store)
    assert known.halts == (second,)
    assert [(one.halt, one.by, one.reason) for one in known.lifted] == [(first, "bob", "repaired")]
    assert unhalt(bench.store, everything=True, by="bob") == (second,)


def test_a_halt_ends_by_the_clock_of_the_store(bench: Bench) -> None:
    made = halt(bench.store, EVERYTHING, reason="a fault", by="ada", until="30s")
    known = Halts(bench.store.now_ms)
    known.refresh(bench.store)
    hold = known.held(STEP, call())
    assert hold is not None
    assert hold.due_ms == made.until_ms == made.at_ms + 30_000
    bench.clock.advance(30_000)
    assert known.held(STEP, call()) is None
    assert read_halts(bench.store, bench.store.now_ms()) == ()
    halt(bench.store, EVERYTHING, reason="again", by="ada")
    (over,) = read_list(bench.store)[0].lifted
    assert (over.halt, over.by) == (made, "")


def test_the_end_of_a_halt_is_a_time_with_its_zone_or_a_duration() -> None:
    at = datetime(2027, 1, 31, 10, tzinfo=UTC)
    ms = int(at.timestamp() * 1000)
    assert until_ms("2027-01-31T10:00Z", 0) == until_ms("2027-01-31T11:00+01:00", 0) == until_ms(at, 0) == ms
    assert until_ms("2h", 5) == 7_200_005
    assert until_ms(None, 5) is None
    with pytest.raises(UsageError, match="is no time"):  # no calendar has its end, so nothing could show it
        until_ms("999999999d", 5)


def test_halts_that_cannot_be_read_hold_everything(bench: Bench) -> None:
    bench.store.write_document(HALTS, b'{"halts": 7}', version=0)
    known = Halts(bench.store.now_ms)
    assert known.held(STEP, call()) is not None
    known.refresh(bench.store)
    assert known.version == UNREADABLE
    hold = known.held(STEP, call())
    assert hold is not None
    assert "can be read" in hold.what


def test_a_full_document_refuses_another_halt_and_keeps_the_others(bench: Bench) -> None:
    def declare() -> None:
        halt(bench.store, EVERYTHING, reason="x" * 500, by="ada")

    room = DOCUMENT_BYTES // 600
    for _ in range(room):
        declare()
    made = room
    with pytest.raises(UsageError, match="no room"):  # noqa: PT012 (how many more fit is not the point)
        for made in range(room, 2 * room):  # noqa: B007
            declare()
    assert len(read_halts(bench.store, bench.store.now_ms())) == made


@pytest.mark.parametrize("kind", STORES)
def test_lifting_a_halt_wakes_the_runs_that_parked_because_of_it(kind: str, tmp_path: Path) -> None:
    bench = make_bench(kind, SteppingClock(), tmp_path)
    made = halt(bench.store, EVERYTHING, reason="a fault", by="ada")
    held = Park(bench.store.now_ms() + 60_000, f"{held_words(made)} is lifted", 0)
    bench.write(bench.running(), b"x", change=held)
    bench.create("r2")
    unhalt(bench.store, [made.id], by="ada")
    assert bench.row("r1").due_ms == bench.store.now_ms()
    before = bench.row("r1")
    assert bench.store.control_run("r1", Control.WAKE) == before
    bench.close()


def test_the_audit_log_has_each_halt_and_its_end_once_also_those_that_a_dead_process_left_out(
    bench: Bench,
) -> None:
    switch(bench.store, on=True, by="ada")
    # Declared by a process that died before it wrote the log.
    left = Halt(id="h-left", reason="a fault", by="bob", at_ms=bench.store.now_ms())
    bench.store.write_document(HALTS, msgspec.json.encode(HaltList((left,))), version=0)
    made = halt(bench.store, EVERYTHING, reason="another", by="ada")
    unhalt(bench.store, [made.id], by="eve", reason="repaired")
    halt(bench.store, EVERYTHING, reason="a third", by="ada")
    logged = [
        msgspec.json.decode(one) for tile in tiles.tiles_from(bench.store, 0) for one in tile.tile.entries
    ]
    said = [
        (one["kind"], one["facts"]["by"], one["facts"]["reason"]) for one in logged if "halt" in one["kind"]
    ]
    assert sorted(said) == [
        ("halt", "ada", "a third"),
        ("halt", "ada", "another"),
        ("halt", "bob", "a fault"),
        ("unhalt", "eve", "repaired"),
    ]
