"""What the benchmarks play, and what they make a figure of: alike for all; no timings."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, Self

import pytest
from benchmarks import processes, systems
from benchmarks.cells import Cell, usual_seconds
from benchmarks.places import SqlitePlace
from benchmarks.programs import ours, play
from benchmarks.workloads import WORKLOADS, cold, conversation, parked, steps

import ninelives as nl

PEER = systems.DBOS


def cell_of(tmp_path: Path, system: systems.System = systems.OURS, **size: Any) -> Cell:
    place = SqlitePlace(tmp_path)
    return Cell(system, place, place.fresh(), tmp_path, size, lambda: None)


def test_no_two_steps_give_the_same_text_and_none_can_be_compressed() -> None:
    texts = [play.text() for _ in range(25_000)]
    assert len(set(texts)) == len(texts)
    assert {len(text) for text in texts} == {play.PAYLOAD_BYTES}
    assert all(len(zlib.compress(text.encode())) > 0.7 * play.PAYLOAD_BYTES for text in texts[:2000:100])


@pytest.mark.parametrize("system", [systems.OURS, PEER])
def test_everybody_may_cache_bytecode(
    system: systems.System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", "ours")
    kept = cell_of(tmp_path, system).environment()
    assert "PYTHONDONTWRITEBYTECODE" not in kept
    assert ("PYTHONPATH" in kept) == system.is_ours


def test_what_is_timed_as_our_import_is_no_empty_shell() -> None:
    loaded = "'ninelives.engine.agent.decorators' in sys.modules and 'ninelives.runtime' in sys.modules"
    statement = f"import {systems.OURS.imports}; import sys; assert {loaded}"
    subprocess.run([sys.executable, "-c", statement], check=True)


def test_a_cold_start_is_the_median_after_a_warm_up() -> None:
    took = iter([90.0, 3.0, 1.0, 2.0])
    assert usual_seconds(lambda: next(took)) == 2.0


def test_every_cold_start_has_a_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def ended(cell: Cell, play: str, *, dies: bool = False, url: str | None = None) -> processes.Ended:
        if play == "once":
            seen.append(url or cell.url)
        return processes.Ended('{"bytes": 1000000}', 1.0)

    monkeypatch.setattr(Cell, "ended", ended)
    cell = cell_of(tmp_path)
    cold.cold(cell)
    assert len({cell.url, *seen}) == len(seen) + 1 > 3


def test_what_is_installed_counts_bytecode_and_the_client_of_each_store() -> None:
    sources = sum(path.stat().st_size for path in Path(nl.__file__).parent.rglob("*.py"))
    weights = {
        name: ours.play_weight(f"{name}://x", {})["bytes"] for name in ("sqlite", "postgresql", "redis")
    }
    libraries = play.weight("apsw", "msgspec", "rich", "typer")
    assert weights["sqlite"] > libraries + 1.5 * sources  # type: ignore[operator]
    assert weights["postgresql"] == weights["sqlite"] + play.weight("psycopg", "psycopg-binary")  # type: ignore[operator]
    assert weights["redis"] == weights["sqlite"] + play.weight("redis")  # type: ignore[operator]
    assert play.weight("redis") > 0


def test_a_model_costs_what_a_bare_loop_takes_for_its_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cell, "play", lambda *given, **numbers: {"seconds": 1.5, "bare": 1.25})
    got = steps.hidden(cell_of(tmp_path, steps=100, milliseconds=(10,)))
    assert got.values == {"strict, 10 ms model": 2.5, "pipelined, 10 ms model": 2.5}


def test_the_sustained_steps_are_enough_to_empty_the_log_of_sqlite() -> None:
    size = WORKLOADS["W2"].size
    assert size["runs"] * size["sustained"] >= 20_000
    assert 100 * WORKLOADS["W12"].size["steps"] >= 10_000


def test_parked_runs_have_a_journal_and_go_on_from_it(tmp_path: Path) -> None:
    cell = cell_of(tmp_path)
    parked.park(cell.url, 3, cell)

    async def main() -> None:
        async with nl.Runtime(cell.url) as rt:
            assert len(await rt.list(status="checkpointed")) == 4
            run = await rt.get("w1")
            kinds = [
                record.kind for record in (await asyncio.to_thread(rt.store.load_journal, run.id)).records
            ]
            assert "result" in kinds
            await run.signal("go")
            await rt.work(until_idle=True)
            assert await run.status() == "completed"

    asyncio.run(main())


class _Desk:
    """A runtime with a run whose question is seen before it is parked."""

    def __init__(self, url: str) -> None:
        self.id, self._states, self._state = "r1", iter(["pending", "running", "checkpointed"]), ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def start(self, *given: object) -> Self:
        return self

    async def inbox(self, run: str) -> list[Self]:
        return [self]

    async def status(self) -> str:
        self._state = next(self._states)
        return self._state

    async def answer(self, value: str, by: str) -> None:
        assert self._state == "checkpointed"

    async def result(self) -> float:
        return 0.0


def test_an_approval_is_given_to_a_run_that_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nl, "Runtime", _Desk)
    assert len(ours.play_waking("x", {"runs": 1})["waits"]) == 1  # type: ignore[arg-type]


def test_a_system_that_knows_two_ways_to_keep_a_conversation_is_measured_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def played(cell: Cell, play: str, *, url: str, **numbers: int) -> dict[str, list[float]]:
        return {"turns": [2.0 if numbers["turns"] or numbers["delta"] else 1.0] * 8}

    monkeypatch.setattr(Cell, "play", played)
    monkeypatch.setattr(SqlitePlace, "size", lambda place, url: 10**6)
    for system, title in ((systems.OURS, "handed on"), (systems.LANGGRAPH, "delta")):
        got = conversation.grown(cell_of(tmp_path, system, messages=16)).values
        assert (got["an exchange"], got[f"an exchange, {title}"]) == (1000, 2000)
        assert got.keys() <= WORKLOADS["W5"].metrics.keys()
