"""What a writer with full access to a store may do to it and to its audit log, in all variations.

`NAIVE` attackers change what is stored and leave the hashes; the others make every hash, number and note
again, so that what is left fits together as well as they can make it fit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ninelives.core.journal import chain
from ninelives.core.model.document import Document
from ninelives.core.model.run import Control, Kind, Record, RunRow, State
from ninelives.governance.audit_log import entries, follower, tiles
from ninelives.governance.audit_log.anchoring import anchors, heads
from ninelives.governance.audit_log.follower import Followed, catch_up
from ninelives.governance.audit_log.journal_facts import RUN_ENDED, digest_of, end_entry
from ninelives.governance.audit_log.tiles import Tile
from tests.clocks import SteppingClock
from tests.contract.benches import MemoryBench
from tests.contract.makers import new_run
from tests.governance.audit_scene import answered, ended

Entry = dict[str, Any]
ENDED = 12
EVENTS = 100


class Scene:
    """A store with an audit log that was anchored, and an attacker's means."""

    def __init__(self, bench: MemoryBench, anchored: list[tuple[str, bytes]]) -> None:
        self.bench, self.anchored = bench, anchored
        self.store: Any = bench.store

    def copied(self) -> Scene:
        """Return a scene like this one, to be attacked."""
        clock = SteppingClock(self.bench.clock.now_ms())
        bench = MemoryBench(clock)
        bench.store._contents = copy.deepcopy(self.store._contents)  # type: ignore[attr-defined]
        return Scene(bench, list(self.anchored))

    @property
    def contents(self) -> Any:
        return self.store._contents

    @property
    def documents(self) -> dict[str, Document]:
        return self.contents.rows.documents  # type: ignore[no-any-return]

    def put(self, name: str, body: object) -> None:
        """Write a document, whatever its version."""
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.documents[name] = Document(name=name, version=9, body=raw, changed_ms=1)

    def tiles(self) -> list[Tile]:
        return [one.tile for one in tiles.tiles_from(self.store, 0)]

    def entries(self) -> list[bytes]:
        return [bytes(entry) for tile in self.tiles() for entry in tile.entries]

    def write_log(self, changed: Sequence[bytes]) -> None:
        """Make a log of these entries that fits together, with all that is beside it."""
        for name in [name for name in self.documents if name.startswith((tiles.TILE, entries.NUMBERS))]:
            del self.documents[name]
        tile, number = Tile(first=0, entries=[], frontier=[]), 0
        for at, entry in enumerate(changed):
            if tile.is_full:
                self.put(tiles.tile_name(number), tile)
                tile, number = Tile(first=tile.size, entries=[], frontier=tile.frontier), number + 1
            tile = tile.with_entry(entry)
            one = _read(entry)
            if not one["id"].startswith("run/"):
                self.put(entries.NUMBERS + entries.digest_of(one["id"]), b"%d" % at)
        self.put(tiles.tile_name(number), tile)
        self.put(tiles.LAST, b"%d" % number)

    def write_journal(self, run: str, records: Sequence[Record], **row: Any) -> None:
        """Make a journal of these records whose chain and row fit."""
        drafts = [(*chain.draft_of(one), one.epoch) for one in records]
        head, made = chain.start(run), []
        for seq, draft in enumerate(drafts):
            made.append(record := chain.sealed(seq, head, draft[:7], draft[7] or 0))
            head = record.check
        self.contents.journals[run] = made
        self.contents.rows.runs[run] = replace(
            self.contents.rows.runs[run], head=head, length=len(made), **row
        )

    def row(self, run: str) -> RunRow:
        return self.contents.rows.runs[run]  # type: ignore[no-any-return]


def build() -> Scene:
    """Make the scene: runs that ended with and without answers, a live one, and entries of operators."""
    bench = MemoryBench(SteppingClock())
    entries.switch(bench.store, on=True, by="ada")
    for number in range(ENDED):
        run = bench.running(f"r{number}")
        if number % 3 == 0:
            run = answered(bench, run)
        ended(bench, run)
        bench.clock.advance(10)
    answered(bench, bench.running("live"))
    for number in range(EVENTS):
        entries.append(bench.store, "budget set", id=f"budget/{number}", by="ada", usd=number)
    catch_up(bench.store)
    bench.clock.advance(10 * follower.LATE_MS)
    entries.append(bench.store, "halt", id="halt/1", by="eve", reason="it loops")
    catch_up(bench.store)
    head = anchors.head_of(bench.store)
    return Scene(bench, [("anchor", heads.write_note(head))])


Attack = Callable[[Scene], None]


def attacks() -> Iterator[tuple[str, Attack]]:
    """Yield all attacks, each with the name of its family."""
    yield from _on_entries()
    yield from _on_tiles()
    yield from _on_documents()
    yield from _on_runs()
    yield from _on_all()


def _read(entry: bytes) -> Entry:
    return msgspec.json.decode(entry)  # type: ignore[no-any-return]


def _write(one: Entry) -> bytes:
    return msgspec.json.encode(one, order="sorted")


def _is_of_run(entry: bytes) -> bool:
    return bool(_read(entry)["id"].startswith("run/"))


def _forged(entry: bytes) -> bytes:
    one = _read(entry)
    return _write({**one, "facts": {**one["facts"], "agent": "eve", "by": "eve"}})


def _on_entries() -> Iterator[tuple[str, Attack]]:
    scene = build()
    given = scene.entries()
    for at, entry in enumerate(given):
        of = "of a run" if _is_of_run(entry) else "of an operator"
        if at == 0:
            continue
        for name, change in _CHANGES.items():
            yield f"{name} an entry, and leave the hashes", _naive(at, change)
            if name == "repeat":
                yield f"{name} an entry, and make all hashes again", _remade(at, change)
            elif name != "swap":
                yield f"{name} an entry {of}, and make all hashes again", _remade(at, change)
    for at in (1, 50, len(given) - 1):
        yield "swap entries, and make all hashes again", _remade(at, _CHANGES["swap"])
        yield "add an entry of an operator, and make all hashes again", _remade(at, _add)


def _add(given: list[bytes], at: int) -> None:
    given.insert(at, _write({"at_ms": 5, "facts": {"by": "ada"}, "id": "budget/x", "kind": "budget set"}))


def _change(given: list[bytes], at: int) -> None:
    given[at] = _forged(given[at])


def _drop(given: list[bytes], at: int) -> None:
    del given[at]


def _repeat(given: list[bytes], at: int) -> None:
    given.insert(at, given[at])


def _swap(given: list[bytes], at: int) -> None:
    given[at - 1], given[at] = given[at], given[at - 1]


_CHANGES: dict[str, Callable[[list[bytes], int], None]] = {
    "change": _change,
    "drop": _drop,
    "repeat": _repeat,
    "swap": _swap,
}


def _remade(at: int, change: Callable[[list[bytes], int], None]) -> Attack:
    def attack(scene: Scene) -> None:
        given = scene.entries()
        change(given, at)
        scene.write_log(given)

    return attack


def _naive(at: int, change: Callable[[list[bytes], int], None]) -> Attack:
    def attack(scene: Scene) -> None:
        given = scene.entries()
        before = {one.first: one for one in scene.tiles()}
        change(given, at)
        for number, tile in enumerate(before.values()):
            end = None if number == len(before) - 1 else tile.size
            kept = [Raw(one) for one in given[tile.first : end]]
            if kept != tile.entries:
                scene.put(tiles.tile_name(number), replace(tile, entries=kept))

    return attack


def _on_tiles() -> Iterator[tuple[str, Attack]]:
    count = len(build().tiles())
    for number in range(count):

        def lose(scene: Scene, number: int = number) -> None:
            del scene.documents[tiles.tile_name(number)]

        def cut(scene: Scene, number: int = number) -> None:
            tile = scene.tiles()[number]
            scene.put(tiles.tile_name(number), replace(tile, entries=tile.entries[:-1]))

        def damage(scene: Scene, number: int = number) -> None:
            scene.put(tiles.tile_name(number), b'{"first": 0}')

        def swap(scene: Scene, number: int = number) -> None:
            one, other = tiles.tile_name(number), tiles.tile_name((number + 1) % count)
            bodies = scene.documents[one].body, scene.documents[other].body
            scene.put(one, bodies[1])
            scene.put(other, bodies[0])

        yield "lose a tile", lose
        yield "cut a tile, and leave the hashes", cut
        yield "damage a tile", damage
        yield "swap tiles", swap


def _on_documents() -> Iterator[tuple[str, Attack]]:
    def put(name: str, body: object) -> Attack:
        return lambda scene: scene.put(name, body)

    def lose(name: str) -> Attack:
        return lambda scene: scene.documents.__delitem__(name)

    yield "lose the log's state", lose(tiles.STATE)
    yield "say that the log is off", lambda scene: _put_state(scene, is_on=False)
    yield (
        "say that the log is off, as if it had never been on",
        lambda scene: _put_state(scene, is_on=False, switches=0),
    )
    yield "name another log", lambda scene: _put_state(scene, log="ab" * 16)
    for number in range(6):
        named = entries.NUMBERS + entries.digest_of(f"budget/{number * 7}")
        yield "lose the number of an entry", lose(named)
        yield "change the number of an entry", put(named, b"3")
        yield "say that an entry was added that is not there", put(f"{entries.NUMBERS}{number:040d}", b"3")
    yield (
        "say that runs of the future are in the log",
        lambda scene: scene.put(
            follower.FOLLOWER, follower.FollowerState(through_ms=scene.bench.clock.now_ms() + 10**9)
        ),
    )
    for number in range(ENDED):
        named = follower.RUN + entries.digest_of(f"r{number}")
        yield "lose how far a run is in the log", lose(named)
    live = follower.RUN + entries.digest_of("live")
    yield (
        "say that a run is in the log further than it is",
        lambda scene: scene.put(
            live, Followed(created_ms=scene.row("live").created_ms, length=99, is_ended=False)
        ),
    )
    yield (
        "say that a run has ended that has not",
        lambda scene: scene.put(
            live,
            Followed(created_ms=scene.row("live").created_ms, length=scene.row("live").length, is_ended=True),
        ),
    )


def _put_state(scene: Scene, **fields: Any) -> None:
    state, _ = tiles.read_state(scene.store)
    assert state is not None
    scene.put(tiles.STATE, replace(state, **fields))


def _on_runs() -> Iterator[tuple[str, Attack]]:
    for number in range(ENDED):
        for name, attack in _RUN_ATTACKS.items():
            yield name, lambda scene, attack=attack, run=f"r{number}": attack(scene, run)  # type: ignore[misc]
    yield "add a run that has ended", _add_run
    yield "change what a live run has asked and got, and its chain", _change_live


def _damage(scene: Scene, run: str) -> None:
    scene.bench.damage(run, 1)


def _rewrite(scene: Scene, run: str) -> None:
    records = scene.contents.journals[run]
    scene.write_journal(run, [*records[:-1], replace(records[-1], body=b'{"v":2}')])


def _shorten(scene: Scene, run: str) -> None:
    scene.write_journal(run, scene.contents.journals[run][:-1])


def _reopen(scene: Scene, run: str) -> None:
    scene.write_journal(run, scene.contents.journals[run][:-1], state=State.CHECKPOINTED)


def _lengthen(scene: Scene, run: str) -> None:
    records = scene.contents.journals[run]
    scene.write_journal(run, [*records, records[-1]])


def _fail(scene: Scene, run: str) -> None:
    scene.contents.rows.runs[run] = replace(scene.row(run), state=State.FAILED)


def _rename(scene: Scene, run: str) -> None:
    scene.contents.rows.runs[run] = replace(scene.row(run), agent="other")


def _remove(scene: Scene, run: str) -> None:
    del scene.contents.rows.runs[run]
    del scene.contents.journals[run]


def _prune(scene: Scene, run: str) -> None:
    row = scene.row(run)
    scene.contents.rows.runs[run] = replace(row, base=row.length, base_check=row.head)
    scene.contents.journals[run] = []


def _exchange(scene: Scene, run: str) -> None:
    other = f"r{(int(run[1:]) + 1) % ENDED}"
    ours, theirs = scene.contents.journals[run], scene.contents.journals[other]
    scene.write_journal(run, theirs)
    scene.write_journal(other, ours)


def _recreate(scene: Scene, run: str) -> None:
    scene.contents.rows.runs[run] = replace(scene.row(run), created_ms=scene.row(run).created_ms + 5)


_RUN_ATTACKS: dict[str, Callable[[Scene, str], None]] = {
    "damage a record": _damage,
    "change the journal of an ended run, and its chain": _rewrite,
    "cut the journal of an ended run, and its chain": _shorten,
    "cut the journal of an ended run, as if it had not ended": _reopen,
    "lengthen the journal of an ended run, and its chain": _lengthen,
    "change how a run ended": _fail,
    "change whose run it was": _rename,
    "remove a run": _remove,
    "remove a journal as if it were pruned": _prune,
    "exchange the journals of two runs": _exchange,
    "put another run in the place of one": _recreate,
}


def _add_run(scene: Scene) -> None:
    (run,) = scene.store.create_runs([new_run("new")])
    scene.store.control_run(run.id, Control.CANCEL)
    scene.contents.rows.runs["new"] = replace(scene.row("new"), changed_ms=scene.row("r0").changed_ms)


def _change_live(scene: Scene) -> None:
    records = scene.contents.journals["live"]
    forged = [
        replace(one, body=one.body.replace(b'"ada"', b'"eve"')) if one.kind is Kind.ANSWER else one
        for one in records
    ]
    scene.write_journal("live", forged)


def _on_all() -> Iterator[tuple[str, Attack]]:
    """Yield what leaves a store that is consistent in itself."""
    for number in range(ENDED):
        yield (
            "change a run, its end in the log, and make all hashes again",
            lambda scene, run=f"r{number}": (  # type: ignore[misc]
                _rewrite_all(scene, run)
            ),
        )
    for count in range(1, 20, 3):
        yield (
            "cut the log's end, and all that says that it was there",
            lambda scene, count=count: (  # type: ignore[misc]
                _cut_all(scene, count)
            ),
        )
    yield "put back an older copy of the whole store", _roll_back
    yield "begin the log again", _begin_again
    yield "take the log of another store", _swap_stores
    yield "lose the whole log", _lose_all


def _rewrite_all(scene: Scene, run: str) -> None:
    old = scene.row(run)
    records = scene.contents.journals[run]
    scene.write_journal(run, [*records[:-1], replace(records[-1], body=b'{"v":2}')])
    given = scene.entries()
    for at, entry in enumerate(given):
        one = _read(entry)
        if one["kind"] == RUN_ENDED and one["facts"]["run"] == run:
            made = end_entry(scene.row(run), scene.contents.journals[run])
            assert _read(made)["facts"]["sha256"] == digest_of(scene.contents.journals[run])
            given[at] = made
    assert old.head != scene.row(run).head
    scene.write_log(given)


def _cut_all(scene: Scene, count: int) -> None:
    given = scene.entries()
    for run in {_read(entry)["facts"].get("run") for entry in given[-count:]} - {None}:
        scene.documents.pop(follower.RUN + entries.digest_of(run))
        _remove(scene, run)
    runs = {None, *scene.contents.rows.runs}
    kept = [one for one in given[:-count] if _read(one)["facts"].get("run") in runs]
    scene.write_log(kept)


def _roll_back(scene: Scene) -> None:
    for number in range(ENDED // 2, ENDED):
        _remove(scene, f"r{number}")
        scene.documents.pop(follower.RUN + entries.digest_of(f"r{number}"))
    gone = {f"r{number}" for number in range(ENDED // 2, ENDED)}
    kept = [one for one in scene.entries() if _read(one)["facts"].get("run") not in gone]
    scene.write_log(kept)


def _begin_again(scene: Scene) -> None:
    _lose_all(scene)
    entries.switch(scene.store, on=True, by="ada")
    catch_up(scene.store)
    scene.bench.clock.advance(10 * follower.LATE_MS)
    catch_up(scene.store)


def _swap_stores(scene: Scene) -> None:
    other = build()
    scene.store._contents = other.store._contents


def _lose_all(scene: Scene) -> None:
    for name in [name for name in scene.documents if name.startswith(tiles.PREFIX)]:
        del scene.documents[name]
