"""What each run should come to (I7): by its agent's meaning and by what the world saw, not by the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.core.ids import parse_step_id
from ninelives.core.journal.output import items_of
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.values.codec import codec_for
from tests.simulation.agents import DECLINED, DOUBTFUL
from tests.simulation.ledger import Event, Fact
from tests.simulation.store import Archive
from tests.simulation.world import World


class Started(Struct, frozen=True):
    """A run that was acknowledged."""

    id: str
    agent: str
    number: int


class Seen:
    """What the world saw of each run's steps: their effects, by run and by identity."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._by_run: defaultdict[tuple[str, str, int, int], list[int]] = defaultdict(list)
        self.by_identity: defaultdict[str, list[int]] = defaultdict(list)
        for event in events:
            if event.fact is Fact.EFFECT:
                where = parse_step_id(event.step)
                self._by_run[event.run, where.name, event.turn, where.n].append(event.value)
                self.by_identity[event.identity].append(event.value)

    def of(self, run: str, name: str, number: int = 0, turn: int = 0) -> list[int]:
        """Return the values of the effects of a step."""
        return self._by_run[run, name, turn, number]

    def order(self, events: Sequence[Event], run: str, name: str) -> list[int]:
        """Return the values that a run's steps of a name took effect with, each once, in order."""
        mine = (e.value for e in events if e.fact is Fact.EFFECT and (e.run, e.name) == (run, name))
        return list(dict.fromkeys(mine))


Check = Callable[[Seen, str, int, Any], bool]


def _thought(seen: Seen, run: str, number: int, result: Any) -> bool:
    return bool(result == [seen.of(run, "sim.write", turn)[-1] for turn in range(3)])


def _got(seen: Seen, run: str, number: int, result: Any) -> bool:
    return set(result) <= set(seen.by_identity["daily:int=0"])


def _is_payment(value: int, effects: list[int]) -> bool:
    return effects == [value] if value >= 0 else value == DOUBTFUL or not effects


def _paid(seen: Seen, run: str, number: int, result: Any) -> bool:
    names = ("sim.pay", "sim.pay_blind", "sim.pay_told", "sim.wire")
    return all(
        _is_payment(value, seen.of(run, name))
        and (value != DOUBTFUL or name in ("sim.pay_blind", "sim.pay_told"))
        for name, value in zip(names, result, strict=True)
    )


def _shopped(seen: Seen, run: str, number: int, result: Any) -> bool:
    bought, charged = seen.by_identity[f"item:int={number % 2}"], seen.by_identity[f"order:int={number % 2}"]
    return result[0] in (DECLINED, *bought) and (result[1] == DECLINED or [result[1]] == charged)


def _signed(seen: Seen, run: str, number: int, result: Any) -> bool:
    said = result[0] in (1, 2, 3) and result[1] in (len("this"), len("nothing"))
    return said and result[2] != DOUBTFUL and _is_payment(result[2], seen.of(run, "sim.sign"))


def _heard(seen: Seen, run: str, number: int, result: Any) -> bool:
    return result[:2] == [number * 10, number * 10 + 1] and result[2] in (DOUBTFUL, number * 10 + 2)


CHECKS: dict[str, Check] = {
    "sim.thinker": _thought,
    "sim.piped": _thought,
    "sim.payer": _paid,
    "sim.shopper": _shopped,
    "sim.regular": _got,
    "sim.quitter": lambda seen, _, __, result: seen.by_identity["only:int=0"] == [result],
    "sim.signer": _signed,
    "sim.booker": lambda _, __, ___, result: len(result) == 6,
    "sim.sleeper": lambda _, __, number, result: result == number,
    "sim.listener": _heard,
    "sim.parent": lambda _, __, number, result: result == [number * 100, number * 100 + 1, number],
    "sim.fan": lambda _, __, n, result: result == [n, n + 1, n + 2, n + 3, n],
    "sim.emitter": lambda seen, run, __, result: result in seen.of(run, "sim.stream"),
    "sim.turner": lambda _, __, n, result: result == [n * 10, n * 10 + 1, n * 10 + 2],
    "sim.mended": lambda seen, run, __, result: result in seen.of(run, "sim.breaks"),
    "sim.holder": lambda _, __, number, result: result == number,
    "sim.threaded": lambda _, __, number, result: result == number + 1,
    "sim.trying": lambda seen, run, _, r: r == DECLINED or r in seen.of(run, "sim.shaky"),
}
ALSO = {("sim.shopper", State.CANCELLED), ("sim.quitter", State.FAILED)}
"""How runs may end too: cancelled by somebody, or given up in doubt."""
ENDS = {"sim.failing": State.FAILED, "sim.cancelled": State.CANCELLED}


def wrong(
    archive: Archive, world: World, events: Sequence[Event], started: Sequence[Started]
) -> Iterator[str]:
    """Say which runs ended otherwise than they should have."""
    seen = Seen(events)
    shared: dict[int, int] = {}
    for one in started:
        row = archive.read_run(one.id)
        if row is None or not row.state.is_final:
            continue  # I1, I6
        expected = ENDS.get(one.agent, State.COMPLETED)
        if (one.agent, row.state) in ALSO:
            continue
        if row.state is not expected:
            yield f"I7: {one.id} is {row.state}: {_end(archive, row)}"
        elif one.agent in ENDS:
            yield from _undone(seen, events, one)
        else:
            result = _end(archive, row)
            if not CHECKS[one.agent](seen, one.id, one.number, result):
                yield f"I7: {one.id} gave {result}"
            if one.agent == "sim.shopper" and result[0] != DECLINED:
                known = shared.setdefault(one.number % 2, result[0])
                if known != result[0]:
                    yield f"I7: {one.id} was given {result[0]}; others have {known}"
            if one.agent == "sim.booker" and result != world.entries(one.id):
                yield f"I7: {one.id} gave {result}; in the books is {world.entries(one.id)}"
            if one.agent == "sim.emitter":
                yield from _emitted(archive, one, result)


def _end(archive: Archive, row: RunRow) -> Any:
    body = read_body(archive.written[row.id][-1])
    return msgspec.json.decode(body.v if body.v is not msgspec.UNSET else body.e or b"null")


def _undone(seen: Seen, events: Sequence[Event], one: Started) -> Iterator[str]:
    """What was done before a run failed or was cancelled is taken back, the last first."""
    done = seen.order(events, one.id, "sim.write")
    undone = seen.order(events, one.id, "sim.undo")
    if one.agent == "sim.failing" and (len(done), undone) != (2, done[::-1]):
        yield f"I7: {one.id} did {done} and took back {undone}"
    if one.agent == "sim.cancelled" and done and undone != done:
        yield f"I7: {one.id} did {done} and took back {undone}"


def _emitted(archive: Archive, one: Started, result: int) -> Iterator[str]:
    """Who reads the output sees each value that counts, and no half answer beside a whole one."""
    kept: list[tuple[str, int]] = []
    emitted = (record for record in archive.written[one.id] if record.kind is Kind.OUTPUT)
    for item in (item for record in emitted for item in items_of(record, codec_for(int))):
        if item.is_retraction:
            kept = [known for known in kept if known[0] != item.step]
        else:
            kept.append((item.step, item.value))
    if [value for _, value in kept] != [one.number, result, result, result, result]:
        yield f"I7: the output of {one.id} reads {kept}"
