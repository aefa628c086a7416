"""What a run has on record between two lives: what is done, and what was only started."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import BadName
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.replay import read_body
from ninelives.core.journal.settlement import read_start
from ninelives.core.model.run import Kind, Record, RunQuery
from ninelives.store import Store
from tests.edits.meaning import CHILD, Logical, Stand

STRAY = "stray"
"""The name of a child that was born, and of which its parent's journal does not know yet."""
_DONE = frozenset({Kind.RESULT, Kind.FAILURE, Kind.SIGNAL})


class Past(Struct, frozen=True):
    """A call that is on record: the name of its step then, its arguments, and whether it ever ended."""

    name: str
    to: str
    n: int
    is_open: bool = False
    is_protected: bool = False
    has_key: bool = False
    is_childs: bool = False
    says_kind: bool = False
    seq: int = 0
    is_no: bool = False
    turn: int = 0

    @property
    def lineage(self) -> str:
        """Return the lineage of its step, which its names give away."""
        if self.name == CHILD.name:
            return "spawn"
        return CHILD.lineage if self.is_childs else self.name.partition("_")[2].partition("_")[0]

    @property
    def logical(self) -> Logical:
        """Name the effect."""
        return (self.lineage, self.to, self.n)

    @property
    def is_effect(self) -> bool:
        """Return whether it touches the world, which its names give away as well."""
        return self.name.startswith(("mail", "pay", "spawn", "note"))

    def __str__(self) -> str:
        return f"{self.name}({self.to}, {self.n}){' started' if self.is_open else ''}"


def pasts_of(store: Store) -> tuple[Past, ...]:
    """Read the calls that are on record: those of the run, turn by turn, then those of its children."""
    found: list[Past] = []
    born: dict[str, int] = {}
    for run in sorted(store.list_runs(RunQuery(limit=100)), key=lambda run: run.number):
        turn = 0
        done: dict[tuple[int, str], Past] = {}
        started: dict[tuple[int, str], Past] = {}
        children: dict[str, int] = {}
        for record in store.load_journal(run.id, since=0).records:
            turn += record.kind is Kind.TURN
            past = _past(record, children)
            if past is None:
                continue
            says_kind = getattr(record, "step_kind", None) is not None
            past = replace(past, seq=record.seq, says_kind=says_kind, turn=turn)
            step = (turn, record.step)
            if record.kind in _DONE:
                done[step] = past
                started.pop(step, None)
            elif record.kind is Kind.VOIDED:
                started.pop(step, None)
            elif record.kind in (Kind.INTENT, Kind.DOUBT) and step not in done:
                start = read_start(record)
                first = started.get(step, past)
                started[step] = replace(
                    first,
                    is_open=True,
                    is_protected=start.l > 0 or record.kind is Kind.DOUBT,
                    has_key=bool(start.k),
                )
        found += [*done.values(), *started.values()]
        born.update(children)
        if run.parent is not None and run.id not in born:
            found.append(Past(STRAY, "child", 0, is_childs=True))
    return tuple(found)


def stand_of(store: Store, run: str) -> Stand:
    """Read where a run stands: the snapshot that its turn began with."""
    journal = store.load_journal(run)
    given = msgspec.json.decode(journal.records[0].body)["p"] if journal.run.turn else {}
    return Stand(journal.run.turn, given.get("part", ""), given.get("i", 0), given.get("given", {}))


def counted(pasts: Iterable[Past]) -> Counter[Logical]:
    """Count the effects that are done."""
    return Counter(past.logical for past in pasts if past.is_effect and not past.is_open)


def _past(record: Record, children: dict[str, int]) -> Past | None:
    try:
        name = parse_step_id(record.step).name
    except BadName:
        return None
    if name.startswith(("mail_", "pay_", "ask_", "look_")):
        shown = read_body(record).a
        return Past(name, _plain(shown.get("to", "''")), int(_plain(shown.get("n", "0"))))
    if name == CHILD.name:
        body = read_body(record)
        n = int(_plain(body.a.get("n", "0")))
        if record.kind is Kind.RESULT:
            children[msgspec.json.decode(body.v or b"null")] = n
        return Past(name, "child", n)
    if name.startswith("result:"):
        return Past("child", "", children.get(name.removeprefix("result:"), 0))
    if name.startswith(("sleep", "receive:")):
        return Past(name, "", 0)
    if name.startswith("patched:"):
        return Past(name, "", 0, is_no=bytes(read_body(record).v or b"") == b"false")
    if name == "note":
        return Past(name, "child", int(_plain(read_body(record).a.get("n", "0"))), is_childs=True)
    return None


def _plain(shown: str) -> str:
    return str(ast.literal_eval(shown))
