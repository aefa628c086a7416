"""Random operations on a store: mostly sensible, often at the edge, sometimes plainly wrong.

What to do next is chosen by looking at one store (the oracle); the same call is then made on all.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ninelives.core.errors import NineLivesError
from ninelives.core.governance.accounts import AccountOp, Requirement, Reserve, Settle
from ninelives.core.journal.recovery_log import Recovery, Verified
from ninelives.core.model.capsule import Capsule, Move
from ninelives.core.model.commit import Change, Commit, End, Escalate, Park
from ninelives.core.model.counter import Counter
from ninelives.core.model.document import HALTS
from ninelives.core.model.inbox import ItemState, NewItem
from ninelives.core.model.key import (
    AdoptKey,
    DoubtKey,
    KeyOp,
    KeyState,
    PassKey,
    ReleaseKey,
    SettleKey,
    WaitKey,
)
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import (
    INLINE_BYTES,
    Control,
    Kind,
    NewRun,
    Record,
    RunQuery,
    RunRow,
    State,
    StepKind,
)
from ninelives.core.model.session import Cause, Evidence
from ninelives.core.model.totals import Tally
from ninelives.core.rules import run_rules as rules
from ninelives.core.rules.capsules import OUT
from ninelives.stores.memory import MemoryStore
from tests.clocks import SteppingClock
from tests.contract.makers import AnyStore, append, new_item, new_run, new_session, reserve, walked

RUNS = [f"r{n}" for n in range(6)]
AGENTS = ["ant", "bee"]
QUEUES = ["default", "slow"]
KEYS = [f"k{n}" for n in range(4)]
ITEMS = [f"i{n}" for n in range(6)]
ACCOUNTS = ["budget/a", "budget/b"]
METERS = ["usd", "tokens"]
BAD_NAMES = ["", "a\nb", "\ud800", "e\u0301", "x" * 256]
CONTENTS = [b"one", b"two" * 500, bytes(range(256))]
LOST = b"\1" * 16
HELD = (KeyState.RESERVED, KeyState.IN_DOUBT)
ENDS = [State.COMPLETED, State.FAILED, State.CANCELLED]


class Operation(NamedTuple):
    """A call, ready to be made on any store."""

    name: str
    what: object
    call: Callable[[AnyStore], object]


class Chooser:
    """Chooses operations; remembers what owners, senders and impostors could know."""

    def __init__(self, rng: Random, clock: SteppingClock, oracle: AnyStore) -> None:
        self._rng, self._clock, self._oracle = rng, clock, oracle
        self._count = 0
        self._sessions: list[str] = []
        self._rows: list[RunRow] = []
        self._commits: list[Commit] = []
        self.digests: list[bytes] = []
        self.signals: list[tuple[str, str, bytes, str]] = []
        self._capsules: list[Capsule] = []

    def next(self) -> Operation:
        """Return what to do now: first bring some life into the empty store."""
        self._count += 1
        if self._count <= len(_OPENING):
            return _OPENING[self._count - 1](self)
        return self._rng.choices(_CHOICES, _WEIGHTS)[0](self)

    def _maybe(self, share: float) -> bool:
        return self._rng.random() < share

    def _name(self, names: list[str], share: float = 0.03) -> str:
        return self._rng.choice(BAD_NAMES if self._maybe(share) else names)

    def _all_runs(self) -> list[RunRow]:
        return self._oracle.list_runs(RunQuery(limit=1000))

    # Runs and sessions --------------------------------------------------------------------------

    def _new_run(self) -> NewRun:
        rng = self._rng
        return new_run(
            self._name(RUNS),
            agent=self._name(AGENTS, 0.01),
            fingerprint=b"g" if self._maybe(0.05) else b"f",
            body=b"x" * (INLINE_BYTES + 1) if self._maybe(0.02) else b"{}",
            blobs=self._blobs(),
            queue=rng.choice(QUEUES),
            pin=rng.choice([None, None, None, "here", "there"]),
            priority=2**40 if self._maybe(0.02) else rng.randint(-1, 1),
            labels={"team": self._name(["x", "y"], 0.02)} if self._maybe(0.3) else {},
            parent=rng.choice(RUNS) if self._maybe(0.3) else None,
            due_ms=self._clock.now_ms() + rng.randint(-20, 20),
            prefix=self._prefix() if self._maybe(0.1) else (),
        )

    def _prefix(self) -> tuple[Record, ...]:
        kinds = [Kind.RESULT, Kind.LOG, Kind.FORKED, *([Kind.END] if self._maybe(0.1) else [])]
        return tuple(
            Record(99, self._rng.choice(kinds), f"step#{n}", n, b"{}", self._blobs())
            for n in range(self._rng.randint(1, 3))
        )

    def create(self) -> Operation:
        new = [self._new_run() for _ in range(self._rng.randint(1, 3))]
        session = self._name([*self._sessions, "nobody"]) if self._maybe(0.1) else None
        return Operation("create_runs", (new, session), lambda store: store.create_runs(new, session=session))

    def read(self) -> Operation:
        name = self._name([*RUNS, "nobody"])
        return Operation("read_run", name, lambda store: store.read_run(name))

    def listing(self) -> Operation:
        rng = self._rng
        query = RunQuery(
            states=tuple(rng.sample(list(State), rng.randint(0, 3))),
            agent=rng.choice([None, *AGENTS]),
            session=rng.choice([None, None, *self._sessions]),
            parent=rng.choice([None, None, *RUNS]),
            labels={"team": "x"} if self._maybe(0.2) else {},
            limit=rng.randint(0, 5),
            after=rng.choice([None, rng.randint(0, 9)]),
            changed_since_ms=rng.choice([None, None, self._clock.now_ms() - rng.randint(-5, 500)]),
        )
        return Operation("list_runs", query, lambda store: store.list_runs(query))

    def register(self) -> Operation:
        again = self._sessions and self._maybe(0.1)
        name = self._rng.choice(self._sessions) if again else self._name([f"s{len(self._sessions)}"], 0.05)
        new = new_session(
            name,
            agents=("ant",) if self._maybe(0.3) else (),
            keeper=self._name(["s0", "boss"], 0.05) if self._maybe(0.2) else "",
            lease_ms=0 if self._maybe(0.03) else self._rng.choice([50, 500, 5_000, 5_000]),
        )
        if not again:
            self._sessions.append(name)
        return Operation("register_session", new, lambda store: store.register_session(new))

    def _session(self) -> str:
        live = [session.id for session in self._oracle.list_sessions() if session.left_ms]
        return self._rng.choice(live if live and self._maybe(0.9) else [*self._sessions, "nobody"])

    def renew(self) -> Operation:
        name, counts = self._session(), self._counts()
        return Operation(
            "renew_session", (name, counts), lambda store: store.renew_session(name, counts=counts)
        )

    def _counts(self) -> list[Counter]:
        labels = [{"agent": "ant"}, {"kind": "once", "agent": "bee"}, {}]
        made = [
            Counter(name, self._rng.choice(labels), self._rng.randint(0, 9))
            for name in ("actions", "tokens", "tokens")
        ]
        bad = Counter("x\n" if self._maybe(0.5) else "x", {}, -1)
        return [*self._rng.sample(made, self._rng.randint(0, 3)), *([bad] if self._maybe(0.03) else [])]

    def end(self) -> Operation:
        names = None if self._maybe(0.4) else [self._session() for _ in range(self._rng.randint(0, 2))]
        cause = self._rng.choice(list(Cause))
        seen = {name: self._evidence() for name in names or () if self._maybe(0.5)}
        done = {name: self._counts() for name in names or () if self._maybe(0.3)}
        return Operation(
            "end_sessions",
            (names, cause, seen, done),
            lambda store: store.end_sessions(names, cause, evidence=seen, counts=done),
        )

    def _evidence(self) -> Evidence:
        note = "\ud800" if self._maybe(0.03) else "seen"
        return Evidence(is_gone=self._maybe(0.5), signal=self._rng.choice([None, 9]), note=note)

    def log(self) -> Operation:
        names = [self._name(RUNS, 0.05) for _ in range(self._rng.randint(0, 2))]
        kind = self._rng.choice([Happening.TAKEN, Happening.RECOVERED, Happening.LEFT])
        body = self._rng.choice([b"{}", msgspec.json.encode(self._recovery())])
        new = [NewEntry(kind=kind, run=name, session="s0", body=body) for name in names]
        return Operation("append_log", new, lambda store: store.append_log(new))

    def _recovery(self) -> Recovery:
        rng = self._rng
        return Recovery(
            left_by="s0",
            cause=rng.choice([None, *Cause]),
            died_ms=rng.randint(0, 9),
            renewed_ms=0,
            taken_ms=9,
            progress_ms=rng.choice([None, rng.randint(9, 400_000)]),
            deaths=1,
            records=3,
            replayed=rng.randint(0, 3),
            decisions=rng.randint(0, 1),
            tokens=rng.randint(0, 99),
            redone=("a#0",),
            verified=Verified(
                records=3,
                outcomes=1,
                resources=0,
                keys=0,
                faults=("key 'a': no",) if self._maybe(0.2) else (),
            ),
            agent=rng.choice(["", *AGENTS]),
            outcome=rng.choice(["", "escalated"]),
            saved_ms=rng.randint(0, 9),
            redone_kinds={"once": 1} if self._maybe(0.5) else {},
        )

    def read_log(self) -> Operation:
        run, before = self._rng.choice([None, *RUNS]), self._rng.choice([None, 3])
        limit = self._rng.randint(0, 9)
        return Operation(
            "read_log",
            (run, before, limit),
            lambda store: store.read_log(run=run, before=before, limit=limit),
        )

    def session(self) -> Operation:
        name = self._rng.choice([*self._sessions, "nobody"])
        return Operation("read_session", name, lambda store: store.read_session(name))

    def sessions(self) -> Operation:
        return Operation("list_sessions", None, lambda store: store.list_sessions())

    def claim(self) -> Operation:
        rng = self._rng
        if not any(session.left_ms for session in self._oracle.list_sessions()) and self._maybe(0.8):
            return self.register()
        session, limit = self._session(), rng.choice([0, 1, 2, 4, 4])
        agents = {agent: rng.choice([0, 1, 3, 3]) for agent in rng.sample(AGENTS, len(AGENTS))}
        queues = rng.sample(QUEUES, rng.choice([1, 2, 2]))
        host, solo = rng.choice([None, "here", "there"]), self._maybe(0.2)
        only = self._name([*RUNS, "nobody"]) if self._maybe(0.15) else None
        where = {"queues": queues, "host": host, "only": only, "solo": solo}
        return Operation(
            "claim_runs",
            (session, limit, agents, where),
            lambda store: store.claim_runs(session, limit, agents, **where),  # type: ignore[arg-type]
        )

    def _blobs(self) -> tuple[bytes, ...]:
        if self._maybe(0.8):
            return ()
        return (LOST if self._maybe(0.1) else self._rng.choice(self.digests),)

    # Commits ------------------------------------------------------------------------------------

    def commit(self) -> Operation:
        rows = self._all_runs()
        self._rows = [*self._rows, *rows][-40:]
        running = [run for run in rows if run.state is State.RUNNING]
        rng = self._rng
        if not running and self._maybe(0.8):
            return self.claim()
        batch: dict[str, Commit] = {}
        for _ in range(rng.randint(1, 3)):
            if self._commits and self._maybe(0.1):
                one = rng.choice(self._commits[-4:])
            elif self._rows and (not running or self._maybe(0.06)):
                one = self._commit_of(rng.choice(self._rows))
            elif running:
                one = self._commit_of(rng.choice(running))
            else:
                continue
            batch[one.run] = one
        made = list(batch.values())
        self._commits += made
        if made and self._maybe(0.02):
            made.append(made[0])
        return Operation("commit", made, lambda store: store.commit(made))

    def _tally(self) -> Tally | None:
        rng = self._rng
        if self._maybe(0.4):
            return None
        return Tally(rng.randint(0, 9), rng.randint(0, 9), rng.randint(0, 9), rng.choice(["", "{}"]), "ä", "")

    def _commit_of(self, run: RunRow) -> Commit:
        rng = self._rng
        kind = rng.choice([Kind.RESULT, Kind.INTENT, Kind.SIGNAL, Kind.SIGNAL, Kind.TURN, Kind.OUTPUT])
        bodies = [b"x" * rng.randint(0, 3) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        takes = []
        if kind is Kind.SIGNAL:
            takes = self._takes(run)[: len(bodies)]
        made = append(
            run,
            *bodies,
            kind=kind,
            blobs=self._blobs(),
            keys=[self._key_op(run) for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))],
            opens=[self._item() for _ in range(rng.choice([0, 0, 0, 1]))],
            closes=self._closes(run),
            takes=takes,
            change=self._change(run),
            at_ms=self._clock.now_ms(),
            step_kind=rng.choice([None, *StepKind]),
            took_ms=rng.choice([None, 0, 7]),
            tally=self._tally(),
            requires=self._requires(),
            accounts=[self._account_op() for _ in range(rng.choice([0, 0, 0, 1, 1, 2]))],
        )
        made = replace(made, effect_length=rng.randint(0, run.length + 1))
        return self._spoiled(made) if self._maybe(0.06) else made

    def salvage(self) -> Operation:
        """Salvage a sound run, mostly by its owner."""
        name = self._name(RUNS, 0.05)
        row = self._oracle.read_run(name)
        epoch = (row.epoch if row is not None else 0) + self._maybe(0.2)
        return Operation("salvage", name, lambda store: store.salvage(name, epoch))

    def _takes(self, run: RunRow) -> list[int]:
        if self._oracle.read_run(run.id) is None or self._maybe(0.05):
            return [self._rng.randint(1, 3) for _ in range(2)]
        waiting = [signal.number for signal in self._oracle.load_journal(run.id).signals]
        return self._rng.sample(waiting, self._rng.randint(0, len(waiting)))

    def _requires(self) -> list[Requirement]:
        """Require what is so, mostly."""
        if self._maybe(0.7):
            return []
        known = {one.name: one.version for one in self._oracle.read_documents()}
        names = [self._name([HALTS, HALTS, "a/b", *ACCOUNTS[:1]], 0.02) for _ in range(1 + self._maybe(0.2))]
        return [
            Requirement(
                name, known.get(name, 0) if self._maybe(0.8) else self._rng.choice([-1, 0, 1, 1, 2, 3])
            )
            for name in names
        ]

    def _account_op(self) -> AccountOp:
        name = self._name([*ACCOUNTS, *ACCOUNTS, "a", HALTS if self._maybe(0.1) else "b"], 0.02)
        if self._maybe(0.5):
            limits = {meter: self._rng.randint(0, 30) for meter in METERS if self._maybe(0.6)}
            return Reserve(name, self._amounts(), limits)
        return Settle(name, self._amounts(), self._amounts())

    def _amounts(self) -> dict[str, int]:
        return {
            self._name(METERS, 0.01): -1 if self._maybe(0.01) else self._rng.randint(0, 9)
            for _ in range(self._rng.choice([0, 1, 1, 2]))
        }

    def _spoiled(self, made: Commit) -> Commit:
        if not made.records or self._maybe(0.3):
            return replace(made, run="nobody") if self._maybe(0.3) else replace(made, head=LOST)
        first = self._rng.choice(
            [
                replace(made.records[0], check=b""),
                replace(made.records[0], seq=77),
                replace(made.records[0], body=b"x" * (INLINE_BYTES + 1)),
                replace(made.records[0], at_ms=-1),
                replace(made.records[0], step="a\0"),
            ]
        )
        return replace(made, records=(first, *made.records[1:]))

    def _key_op(self, run: RunRow) -> KeyOp:
        rng = self._rng
        rows = self._oracle.read_keys(KEYS)
        held = [key for key, row in rows.items() if row.run == run.id and row.state in HELD]
        name = rng.choice(held) if held and self._maybe(0.5) else self._name(KEYS, 0.01)
        known = rows.get(name)
        if known is not None and known.run == run.id and self._maybe(0.8):
            size = INLINE_BYTES + 1 if self._maybe(0.03) else 2
            ops: list[KeyOp] = [SettleKey(name, b"v" * size, self._blobs()), ReleaseKey(name), PassKey(name)]
            return rng.choice([*ops, DoubtKey(name)] if known.state is KeyState.RESERVED else ops)
        if known is not None and self._maybe(0.8 if known.state is KeyState.ORPHANED else 0.02):
            return AdoptKey(name)
        if self._maybe(0.4):
            return WaitKey(name)
        if self._maybe(0.05):
            return ReleaseKey(name)
        fingerprint = b"b" if self._maybe(0.05) else b"a"
        window_ms = rng.choice([None, None, 0, 5])
        return replace(reserve(name, resumable=self._maybe(0.5), fp=fingerprint), window_ms=window_ms)

    def _item(self) -> NewItem:
        return new_item(
            self._name(ITEMS, 0.02),
            digest=b"e" if self._maybe(0.05) else b"d",
            deadline_ms=self._rng.choice([None, 9]),
        )

    def _closes(self, run: RunRow) -> list[str]:
        if self._maybe(0.9):
            return []
        mine = [item.id for item in self._oracle.list_inbox(run=run.id)]
        return [self._rng.choice(mine if mine and self._maybe(0.8) else ITEMS)]

    def _change(self, run: RunRow) -> Change | None:
        rng = self._rng
        seen = run.news - self._maybe(0.2)
        due = rng.choice([None, self._clock.now_ms() + rng.randint(-5, 30)])
        return rng.choices(
            [None, Park(due, "waits", seen), Escalate("doubt", seen), End(rng.choice(ENDS))],  # type: ignore[arg-type]
            [5, 3, 2, 2],
        )[0]

    def journal(self) -> Operation:
        name = self._name([*RUNS, "nobody"])
        since = self._rng.choice([None, None, 0, 2, 50])
        return Operation("load_journal", (name, since), lambda store: store.load_journal(name, since=since))

    def keys(self) -> Operation:
        return Operation("read_keys", None, lambda store: store.read_keys([*KEYS, "nobody's"]))

    def news(self) -> Operation:
        seen = {run: self._rng.randint(0, 3) for run in [*RUNS, "nobody"]}
        return Operation("read_news", seen, lambda store: store.read_news(seen))

    # From outside -------------------------------------------------------------------------------

    def signal(self) -> Operation:
        rng = self._rng
        run, name = rng.choice([*RUNS, "nobody"]), self._name(["go", "stop"])
        body = b"x" * (INLINE_BYTES + 1) if self._maybe(0.02) else rng.choice([b"", b"1"])
        given = self._name(["a", "b", "c"]) if self._maybe(0.5) else None
        if given is not None:
            self.signals.append((run, name, body, given))
        return Operation(
            "send_signal",
            (run, name, body, given),
            lambda store: store.send_signal(run, name, body, id=given),
        )

    def control(self) -> Operation:
        run = self._rng.choice([*RUNS, *RUNS, *RUNS, "nobody"])
        asked = self._rng.choice(
            [
                *(Control.CANCEL, Control.PAUSE, Control.RESUME, Control.RESUME, Control.RESUME),
                *(Control.RETRY, Control.WAKE),
            ]
        )
        stuck = [row for row in self._all_runs() if row.state in (State.FAILED, State.ESCALATED)]
        if stuck and self._maybe(0.4):
            row = self._rng.choice(stuck)
            run, asked = row.id, Control.RETRY if row.state is State.FAILED else Control.CANCEL
        return Operation("control_run", (run, asked), lambda store: store.control_run(run, asked))

    def inbox(self) -> Operation:
        run, answered = self._rng.choice([None, *RUNS]), self._maybe(0.5)
        item, limit = self._rng.choice([None, None, *ITEMS]), self._rng.randint(0, 4)
        return Operation(
            "list_inbox",
            (run, item, answered, limit),
            lambda store: store.list_inbox(run=run, item=item, answered=answered, limit=limit),
        )

    def answer(self) -> Operation:
        items = [item.id for item in self._oracle.list_inbox(answered=True) if item.state is ItemState.OPEN]
        item = self._rng.choice(items if items and self._maybe(0.8) else [*ITEMS, "nobody's"])
        digest, body = self._rng.choice([b"d", b"d", b"d", b"e"]), self._rng.choice([b"yes", b"no"])
        by = self._name(["ada", "bob"])
        return Operation(
            "answer_item",
            (item, digest, body, by),
            lambda store: store.answer_item(item, digest=digest, body=body, by=by),
        )

    # The rest -----------------------------------------------------------------------------------

    def put(self) -> Operation:
        contents = self._rng.sample(CONTENTS, self._rng.randint(1, 2))
        self.digests += self._oracle.put_blobs(contents)
        self.digests = [*dict.fromkeys(self.digests)]
        return Operation("put_blobs", contents, lambda store: store.put_blobs(contents))

    def get(self) -> Operation:
        digest = self._rng.choice([LOST, *self.digests])
        return Operation("get_blobs", digest, lambda store: store.get_blobs([digest]))

    def wait(self) -> Operation:
        # A wake-up may come without a reason, so only that there is an answer is compared.
        return Operation("wait_for_work", None, lambda store: isinstance(store.wait_for_work(0), bool))

    def stats(self) -> Operation:
        return Operation("stats", None, lambda store: replace(store.stats(), disk_bytes=0))

    def gauges(self) -> Operation:
        return Operation("gauges", None, lambda store: replace(store.gauges(), used={}))

    def verify(self) -> Operation:
        return Operation("verify", None, lambda store: store.verify())

    def changes(self) -> Operation:
        return Operation(
            "changed_runs",
            None,
            # Stamps and order are each store's own.
            lambda store: sorted(
                (one.id, one.length, one.head, one.created_ms, one.is_final)
                for one in store.changed_runs(limit=1000).runs
            ),
        )

    def all_keys(self) -> Operation:
        return Operation(
            "list_keys",
            None,
            lambda store: sorted(store.list_keys(limit=1000).keys, key=lambda key: key.key),
        )

    def verify_part(self) -> Operation:
        limit = self._rng.choice([1, 2, 9])
        return Operation("verify_part", limit, lambda store: walked(store, limit)[0])

    def documents(self) -> Operation:
        prefix, after = self._rng.choice(["", "a", "a/"]), self._rng.choice(["", "", "a/b"])
        limit = self._rng.choice([0, 1, 9])
        return Operation(
            "read_documents",
            (prefix, after, limit),
            lambda store: store.read_documents(prefix, after=after, limit=limit),
        )

    def document(self) -> Operation:
        name = self._name(["a", "a/b", "a/ä", "b", HALTS, *ACCOUNTS], 0.05)
        bodies = [
            b"1",
            b"{}",
            None,
            b"no" if self._maybe(0.1) else b"[1]",
            b'{"limits": {"usd": 7}, "by": "ada"}',
        ]
        body = self._rng.choice(bodies)
        known = next((one.version for one in self._oracle.read_documents() if one.name == name), 0)
        version = known if self._maybe(0.7) else self._rng.randint(-1, 3)
        counts = self._counts()
        return Operation(
            "write_document",
            (name, body, version, counts),
            lambda store: store.write_document(name, body, version=version, counts=counts),
        )

    def counters(self) -> Operation:
        return Operation("read_counters", None, lambda store: store.read_counters())

    def run_counts(self) -> Operation:
        return Operation("count_runs", None, lambda store: store.count_runs())

    def export(self) -> Operation:
        name = self._name([*RUNS, "nobody"])
        with suppress(NineLivesError):
            self._capsules.append(self._oracle.export_run(name))
        return Operation("export_run", name, lambda store: store.export_run(name))

    def import_runs(self) -> Operation:
        """Import runs of another store, or that were exported before, and have gone on since."""
        if self._maybe(0.7):
            self._capsules.append(self._foreign())
        if not self._capsules:
            return self.export()
        given = {one.run.id: one for one in self._capsules[-self._rng.randint(1, 3) :]}
        made = [self._changed(one) if self._maybe(0.1) else one for one in given.values()]
        move = f"m{self._rng.randint(0, 3)}" if self._maybe(0.4) else ""
        return Operation("import_runs", (made, move), lambda store: store.import_runs(made, move=move))

    def depart(self) -> Operation:
        names = self._rng.sample(RUNS, self._rng.randint(1, 2))
        if self._maybe(0.8):
            live = [row for row in self._all_runs() if not row.state.is_final]
            stuck = [
                row for row in live if row.state is State.ESCALATED or self._oracle.export_run(row.id).keys
            ]
            names = [self._rng.choice(stuck or live).id] if live else names
        move = Move(id=f"m{self._rng.randint(0, 9)}", to="other", url="sqlite:///other.db")
        return Operation("depart_runs", (names, move), lambda store: store.depart_runs(names, move))

    def settle_move(self) -> Operation:
        begun = [one.name.removeprefix(OUT) for one in self._oracle.read_documents(OUT)]
        name, arrived = self._rng.choice([*begun, *begun, *begun, "none"]), self._maybe(0.4)
        return Operation(
            "settle_move", (name, arrived), lambda store: store.settle_move(name, arrived=arrived)
        )

    def _foreign(self) -> Capsule:
        """Return a run of another store, which uses the same keys."""
        store, name = MemoryStore(self._clock), f"f{self._rng.randint(0, 9)}"
        store.create_runs([new_run(name, agent="ant")])
        store.register_session(new_session("s0"))
        (run,) = store.claim_runs("s0", 1, {"ant": 1}).runs
        key = self._rng.choice(KEYS)
        ops: list[KeyOp] = [reserve(key, resumable=self._maybe(0.5))]
        ops += [SettleKey(key, b"v")] if self._maybe(0.5) else []
        store.commit([append(run, b"x", keys=ops)])
        return store.export_run(name)

    def _changed(self, capsule: Capsule) -> Capsule:
        run = capsule.run
        return self._rng.choice(
            [
                replace(capsule, run=replace(run, length=run.length + 1)),
                replace(capsule, run=replace(run, id="other")),
                replace(capsule, run=replace(run, fingerprint=b"h")),
                replace(capsule, last_signal=capsule.last_signal + 1),
                replace(capsule, records=capsule.records[:-1]),
            ]
        )

    def migrate(self) -> Operation:
        return Operation("migrate", None, lambda store: len(set(store.migrate())))

    def prune(self) -> Operation:
        now = self._clock.now_ms()
        ended, forget = now - self._rng.choice([-1, -1, 10, 30]), self._rng.choice([0, 0, now - 15])
        agents = {"ant": now - self._rng.choice([-1, 20, 40])} if self._maybe(0.3) else None
        log = self._rng.choice([0, now - self._rng.randint(0, 60)])
        return Operation(
            "prune",
            (ended - now, forget, log, agents),
            lambda store: store.prune(
                ended_before_ms=ended, forget_before_ms=forget, log_before_ms=log, agents=agents
            ),
        )

    def tick(self) -> Operation:
        ms = rules.BLOB_GRACE_MS + 1 if self._maybe(0.04) else self._rng.randint(0, 30)
        self._clock.advance(ms)
        return Operation("now_ms", ms, lambda store: store.now_ms())


_TABLE: list[tuple[Callable[[Chooser], Operation], int]] = [
    (Chooser.create, 6),
    (Chooser.read, 1),
    (Chooser.listing, 2),
    (Chooser.register, 4),
    (Chooser.renew, 3),
    (Chooser.end, 2),
    (Chooser.sessions, 1),
    (Chooser.session, 1),
    (Chooser.log, 1),
    (Chooser.read_log, 1),
    (Chooser.claim, 14),
    (Chooser.commit, 36),
    (Chooser.journal, 3),
    (Chooser.salvage, 1),
    (Chooser.keys, 1),
    (Chooser.news, 2),
    (Chooser.signal, 6),
    (Chooser.control, 5),
    (Chooser.inbox, 2),
    (Chooser.answer, 5),
    (Chooser.put, 2),
    (Chooser.get, 1),
    (Chooser.wait, 1),
    (Chooser.stats, 1),
    (Chooser.gauges, 3),
    (Chooser.verify, 1),
    (Chooser.verify_part, 1),
    (Chooser.migrate, 1),
    (Chooser.documents, 1),
    (Chooser.changes, 1),
    (Chooser.all_keys, 1),
    (Chooser.document, 4),
    (Chooser.counters, 2),
    (Chooser.run_counts, 1),
    (Chooser.export, 1),
    (Chooser.import_runs, 2),
    (Chooser.depart, 1),
    (Chooser.settle_move, 3),
    (Chooser.prune, 5),
    (Chooser.tick, 8),
]
_CHOICES = [choice for choice, _ in _TABLE]
_WEIGHTS = [weight for _, weight in _TABLE]
_OPENING = [Chooser.put, Chooser.register, Chooser.create, Chooser.create, Chooser.tick, Chooser.claim]
