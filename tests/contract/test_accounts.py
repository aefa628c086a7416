"""Accounts and requirements: changed and compared in the transaction of the commit, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count

import msgspec
import pytest
from msgspec.structs import replace

from ninelives.core.errors import BadName, BadRecord, Corrupt, StaleDocument
from ninelives.core.governance.accounts import AccountOp, Over, Requirement, Reserve, Settle
from ninelives.core.model.commit import Commit, End, Outcome, Verdict
from ninelives.core.model.document import HALTS
from ninelives.core.model.key import SettleKey
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.model.session import Cause
from ninelives.testing.dying_store import Died, DyingStore, Kill
from tests.contract.benches import Bench
from tests.contract.makers import AGENTS, AnyStore, append, damage_in, new_run, new_session, reserve

ACCOUNT = "budget/day/acme"


def standing(store: AnyStore, name: str = ACCOUNT) -> dict[str, object]:
    """Return an account's body; an empty one if there is none."""
    found = [one for one in store.read_documents(name) if one.name == name]
    body: dict[str, object] = msgspec.json.decode(found[0].body) if found else {}
    return body


def verdict(store: AnyStore, run: RunRow, *bodies: bytes, **parts: object) -> Verdict:
    """Commit, and return the verdict."""
    (said,) = store.commit([append(run, *bodies, **parts)])  # type: ignore[arg-type]
    return said


def usd(amount: int, limit: int | None = None, account: str = ACCOUNT) -> Reserve:
    return Reserve(account, {"usd": amount}, {} if limit is None else {"usd": limit})


def in_threads(works: Sequence[Callable[[], None]]) -> None:
    """Run all at once; the first error of any is raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# Accounts ---------------------------------------------------------------------------------------


def test_what_is_reserved_is_held_until_it_is_settled(bench: Bench) -> None:
    run = bench.running()
    bench.clock.advance(3)
    run = bench.write(run, b"i", accounts=[Reserve(ACCOUNT, {"usd": 70, "actions": 1}, {"usd": 100})])
    assert standing(bench.reopen()) == {"reserved": {"usd": 70, "actions": 1}}
    (document,) = bench.store.read_documents("budget/")
    assert (document.version, document.changed_ms) == (1, bench.clock.now_ms())
    settle = Settle(ACCOUNT, {"usd": 70, "actions": 1}, {"usd": 45, "actions": 1})
    run = bench.write(run, b"o", accounts=[settle])
    assert standing(bench.reopen()) == {"spent": {"usd": 45, "actions": 1}}
    assert [one.version for one in bench.store.read_documents("budget/")] == [2]
    assert damage_in(bench.store) == []


def test_a_reservation_over_a_limit_refuses_all_of_the_commit(bench: Bench) -> None:
    run = bench.running()
    run = bench.write(run, b"i", accounts=[usd(70, 100), Settle(ACCOUNT, {}, {"usd": 20})])
    before = bench.snapshot(), standing(bench.store)
    said = verdict(
        bench.store,
        run,
        b"x",
        keys=[reserve()],
        accounts=[usd(5, account="budget/other"), Reserve(ACCOUNT, {"tokens": 1, "usd": 11}, {"usd": 100})],
        change=End(State.FAILED),
    )
    assert said == Verdict(run.id, Outcome.OVER, account=Over(ACCOUNT, "usd", 100, 20, 70, 11))
    assert (bench.snapshot(), standing(bench.store)) == before
    assert bench.store.read_documents("budget/o") == []
    run = bench.write(run, b"x", accounts=[usd(10, 100)])
    assert standing(bench.store) == {"spent": {"usd": 20}, "reserved": {"usd": 80}}
    assert verdict(bench.store, run, b"x", accounts=[usd(1, 100)]).outcome is Outcome.OVER


def test_a_settlement_is_never_refused(bench: Bench) -> None:
    run = bench.write(bench.running(), b"i", accounts=[usd(10, 10)])
    run = bench.write(run, b"o", accounts=[Settle(ACCOUNT, {"usd": 10}, {"usd": 25})])
    assert standing(bench.store) == {"spent": {"usd": 25}}
    assert verdict(bench.store, run, b"x", accounts=[usd(0, 10)]).outcome is Outcome.OVER
    bench.store.write_document(ACCOUNT, None, version=2)
    bench.write(run, b"o", accounts=[Settle(ACCOUNT, {"usd": 10}, {"usd": 1})])
    assert standing(bench.store) == {"spent": {"usd": 1}}, "what was held for it went with the account"


def test_a_limit_in_the_account_wins_and_other_fields_stay(bench: Bench) -> None:
    body = b'{"limits":{"usd":5},"spent":{"usd":1},"raised_by":"ada"}'
    bench.store.write_document(ACCOUNT, body, version=0)
    run = bench.running()
    said = verdict(bench.store, run, b"x", accounts=[usd(5, 1000)])
    assert said.account == Over(ACCOUNT, "usd", 5, 1, 0, 5)
    bench.write(run, b"x", accounts=[usd(4, 1)])
    assert standing(bench.store) == {
        "limits": {"usd": 5},
        "spent": {"usd": 1},
        "reserved": {"usd": 4},
        "raised_by": "ada",
    }


def test_sums_are_exact_whatever_their_size(bench: Bench) -> None:
    run = bench.running()
    for _ in range(3):
        run = bench.write(run, b"o", accounts=[Settle(ACCOUNT, {}, {"usd": 2**63 - 1})])
    assert standing(bench.store) == {"spent": {"usd": 3 * (2**63 - 1)}}
    assert verdict(bench.store, run, b"x", accounts=[usd(1, 2**63 - 1)]).outcome is Outcome.OVER


def test_a_repeated_commit_charges_once(bench: Bench) -> None:
    run = bench.running()
    commits = [append(run, b"i", accounts=[usd(7, 10)])]
    for _ in range(3):
        assert bench.store.commit(commits) == [Verdict(run.id, Outcome.COMMITTED)]
    assert standing(bench.store) == {"reserved": {"usd": 7}}


def test_a_worker_that_lost_its_run_charges_nothing(bench: Bench) -> None:
    old = bench.running()
    bench.store.end_sessions(["s1"], Cause.DIED)
    bench.session("s2")
    bench.claim(old.id, "s2")
    for op in (usd(7, 10), usd(70, 10), Settle(ACCOUNT, {}, {"usd": 1})):
        said = verdict(bench.store, old, b"x", accounts=[op], requires=[Requirement(HALTS, 9)])
        assert said.outcome is Outcome.FENCED
    assert bench.store.read_documents() == []


def test_many_commits_of_a_batch_on_one_account_count_in_order(bench: Bench) -> None:
    bench.session("s1", lease_ms=1_000_000)
    bench.store.create_runs([new_run(f"r{n}") for n in range(8)])
    runs = bench.store.claim_runs("s1", 8, {"helper": 8}).runs
    batch = [
        append(run, b"x", accounts=[usd(amount, 10)])
        for run, amount in zip(runs, (4, 4, 4, 3, 2, 1, 1, 0), strict=True)
    ]
    batch[4] = append(runs[4], b"x", accounts=[Settle(ACCOUNT, {"usd": 4}, {"usd": 1})])
    done, over = Outcome.COMMITTED, Outcome.OVER
    assert [said.outcome for said in bench.store.commit(batch)] == [done, done, over, over, *[done] * 4]
    assert standing(bench.store) == {"spent": {"usd": 1}, "reserved": {"usd": 6}}
    assert damage_in(bench.store) == []


def test_a_document_that_is_no_account_refuses_only_those_who_use_it(bench: Bench) -> None:
    bench.session("s1", lease_ms=1_000_000)
    bench.store.create_runs([new_run("r1"), new_run("r2")])
    runs = bench.store.claim_runs("s1", 8, {"helper": 8}).runs
    for version, body in enumerate(
        (b"[1]", b'{"spent":{"usd":-1}}', b'{"spent":{"usd":1.5}}', b'{"limits":3}')
    ):
        bench.store.write_document(ACCOUNT, body, version=version)
        said, other = bench.store.commit([append(runs[0], b"x", accounts=[usd(1)]), append(runs[1], b"y")])
        assert isinstance(said.error, Corrupt)
        assert said.outcome is Outcome.REFUSED
        assert ACCOUNT in said.error.what
        assert other.outcome is Outcome.COMMITTED
        runs = (runs[0], bench.row("r2"))


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ({"accounts": [Reserve(HALTS, {"usd": 1}, {})]}, BadRecord),
        ({"accounts": [Reserve("a\n", {"usd": 1}, {})]}, BadName),
        ({"accounts": [Reserve("a", {"": 1}, {})]}, BadName),
        ({"accounts": [Reserve("a", {"usd": -1}, {})]}, BadRecord),
        ({"accounts": [Reserve("a", {"usd": 1}, {"usd": 2**63})]}, BadRecord),
        ({"accounts": [Settle("a", {"usd": 2**63}, {})]}, BadRecord),
        ({"accounts": [Settle("a", {}, {f"m{n}": 1 for n in range(33)})]}, BadRecord),
        ({"requires": [Requirement("", 0)]}, BadName),
        ({"requires": [Requirement(HALTS, -1)]}, BadRecord),
    ],
)
def test_what_cannot_be_kept_is_refused(bench: Bench, parts: dict[str, object], error: type) -> None:
    run = bench.running()
    said = verdict(bench.store, run, b"x", **parts)
    assert said.outcome is Outcome.REFUSED
    assert isinstance(said.error, error)
    assert bench.store.read_documents() == []


def test_nothing_rides_on_a_commit_that_cannot_be_recognised_again(bench: Bench) -> None:
    run = bench.running()
    for parts in ({"accounts": [usd(1)]}, {"requires": [Requirement(HALTS, 0)]}):
        assert isinstance(verdict(bench.store, run, **parts).error, BadRecord)


def test_an_account_that_grows_too_large_refuses_the_commit(bench: Bench) -> None:
    run, made = bench.running(), 0
    while True:
        amounts = {f"{made + n:0200}": 1 for n in range(32)}
        said = verdict(bench.store, run, b"x", accounts=[Settle(ACCOUNT, {}, amounts)])
        if said.outcome is not Outcome.COMMITTED:
            break
        run, made = bench.row(run.id), made + 32
    assert isinstance(said.error, BadRecord)
    assert "too many meters" in said.error.what
    assert made > 256


def test_a_key_that_another_run_holds_costs_nothing(bench: Bench) -> None:
    bench.session("s1", lease_ms=1_000_000)
    bench.store.create_runs([new_run("r1"), new_run("r2")])
    one, two = bench.store.claim_runs("s1", 8, {"helper": 8}).runs
    batch = [append(run, b"x", keys=[reserve()], accounts=[usd(1, 1)]) for run in (one, two)]
    assert [said.outcome for said in bench.store.commit(batch)] == [Outcome.COMMITTED, Outcome.HELD]
    assert standing(bench.store) == {"reserved": {"usd": 1}}


# Requirements -----------------------------------------------------------------------------------


def kinds_of_commits(run: RunRow, requires: Sequence[Requirement]) -> list[Commit]:
    """Return an intent without a key, one with a key, and an end: each takes another path in some store."""
    return [
        append(run, b"x", kind=Kind.INTENT, requires=requires),
        append(run, b"x", kind=Kind.INTENT, keys=[reserve()], requires=requires),
        append(run, b"x", b"y", requires=requires, change=End(State.COMPLETED)),
        append(run, b"x", requires=requires, accounts=[usd(1)]),
    ]


@pytest.mark.parametrize("which", range(4))
def test_a_commit_holds_only_at_the_version_that_it_requires(bench: Bench, which: int) -> None:
    run = bench.running()
    for version in range(4):
        required = [Requirement(HALTS, version), Requirement("another", 0)]
        for wrong in (version + 1, max(0, version - 1) if version else 7):
            one = kinds_of_commits(run, [required[1], Requirement(HALTS, wrong)])[which]
            assert bench.store.commit([one]) == [Verdict(run.id, Outcome.CHANGED)]
        assert bench.row(run.id) == run
        assert bench.store.read_keys(["k"]) == {}
        if version < 3:
            bench.store.write_document(HALTS, b"%d" % version, version=version)
    one = kinds_of_commits(run, required)[which]
    (said,) = bench.store.commit([one])
    assert said.outcome is Outcome.COMMITTED
    bench.store.write_document(HALTS, b"9", version=3)
    (again,) = bench.store.commit([one])
    assert again.outcome is Outcome.COMMITTED, "it was applied before: what holds now does not matter"
    assert bench.row(run.id).length == run.length + len(one.records)
    assert damage_in(bench.store) == []


def test_in_a_batch_each_commit_is_held_to_its_own_requirement(bench: Bench) -> None:
    bench.session("s1", lease_ms=1_000_000)
    bench.store.create_runs([new_run(f"r{n}") for n in range(6)])
    runs = bench.store.claim_runs("s1", 6, {"helper": 6}).runs
    bench.store.write_document("b", b"1", version=0)
    needs = [[("b", 1)], [], [("b", 0)], [("b", 1), (HALTS, 0)], [(HALTS, 1)], [("b", 2)]]
    wanted = [Outcome.COMMITTED] * 2 + [Outcome.CHANGED, Outcome.COMMITTED] + [Outcome.CHANGED] * 2

    def batch(now: Sequence[RunRow]) -> list[Commit]:
        return [
            append(run, b"x", requires=[Requirement(*one) for one in many])
            for run, many in zip(now, needs, strict=True)
        ]

    assert [said.outcome for said in bench.store.commit(batch(runs)[:3])] == wanted[:3]
    later = [bench.row(run.id) for run in runs]
    assert [said.outcome for said in bench.store.commit(batch(later))] == wanted
    # In order: a commit of the batch changes what a later one requires.
    ops: list[AccountOp] = [Settle("b/account", {}, {"usd": 1})]
    first = append(bench.row("r0"), b"x", accounts=ops)
    others = [append(bench.row(f"r{n}"), b"x", requires=[Requirement("b/account", n - 1)]) for n in (1, 2)]
    said = bench.store.commit([others[0], first, others[1], append(bench.row("r3"), b"y")])
    assert [one.outcome for one in said] == [Outcome.COMMITTED] * 4
    assert damage_in(bench.store) == []


def test_a_requirement_that_fails_leaves_the_key_and_the_run_alone(bench: Bench) -> None:
    run = bench.write(bench.running(), b"i", keys=[reserve()], requires=[Requirement(HALTS, 0)])
    bench.store.write_document(HALTS, b"[]", version=0)
    before = bench.snapshot()
    parts = {"keys": [SettleKey("k", b"v")], "requires": [Requirement(HALTS, 0)]}
    assert verdict(bench.store, run, b"o", **parts).outcome is Outcome.CHANGED
    assert bench.snapshot() == before


# What workers are told --------------------------------------------------------------------------


def test_sessions_and_claims_say_which_version_halts_has(bench: Bench) -> None:
    bench.session("s0", lease_ms=1_000_000)
    for version in range(3):
        name = f"s{version + 1}"
        assert bench.store.register_session(new_session(name, lease_ms=1_000_000)).halts == version
        assert bench.reopen().renew_session("s0").halts == version
        assert bench.store.claim_runs("s0", 1, AGENTS).halts == version
        assert bench.store.claim_runs("s0", 1, AGENTS, only="nobody").halts == version
        bench.create(name)
        assert bench.store.claim_runs("s0", 0, AGENTS).halts == version
        assert bench.store.claim_runs("s0", 1, AGENTS).halts == version
        bench.create(f"{name}x")
        assert bench.store.claim_runs("s0", 1, AGENTS, only=f"{name}x").halts == version
        bench.store.write_document(HALTS, b"%d" % version, version=version)


def test_a_write_of_halts_wakes_those_who_wait_for_work(bench: Bench) -> None:
    other = bench.reopen()
    while other.wait_for_work(0.05):
        pass
    other.write_document("a", b"1", version=0)
    assert not other.wait_for_work(0.05)
    for version, body in enumerate((b"[]", b"[1]", None)):
        waiting, woken = threading.Event(), list[bool]()

        def wait(waiting: threading.Event = waiting, woken: list[bool] = woken) -> None:
            waiting.set()
            woken.append(other.wait_for_work(20))

        thread = threading.Thread(target=wait)
        thread.start()
        waiting.wait()
        bench.store.write_document(HALTS, body, version=version)
        thread.join()
        assert woken == [True]


# Many at once -----------------------------------------------------------------------------------


def test_twenty_at_once_never_pass_a_limit(bench: Bench) -> None:
    limit, tries, workers = 1000, 60, 20
    bench.session("s1", lease_ms=10**9)
    bench.store.create_runs([new_run(f"r{n}") for n in range(workers)])
    runs = bench.store.claim_runs("s1", workers, {"helper": workers}).runs
    outcomes: list[Outcome] = []

    def work(run: RunRow) -> None:
        store, row = bench.open(), run
        try:
            for _ in range(tries):
                commit = append(row, b"i", accounts=[Reserve(ACCOUNT, {"actions": 1}, {"actions": limit})])
                (said,) = store.commit([commit])
                outcomes.append(said.outcome)
                if said.outcome is Outcome.COMMITTED:
                    row = replace(row, length=commit.new_length, head=commit.new_head)
                    commit = append(row, b"o", accounts=[Settle(ACCOUNT, {"actions": 1}, {"actions": 1})])
                    assert store.commit([commit])[0].outcome is Outcome.COMMITTED
                    row = replace(row, length=commit.new_length, head=commit.new_head)
        finally:
            if store is not bench.store:
                store.close()

    in_threads([lambda run=run: work(run) for run in runs])  # type: ignore[misc]
    assert outcomes.count(Outcome.COMMITTED) == limit
    assert outcomes.count(Outcome.OVER) == workers * tries - limit
    assert standing(bench.store) == {"spent": {"actions": limit}}
    assert damage_in(bench.store) == []


ROUNDS = {"memory": 1500, "sqlite": 500, "postgresql": 500, "redis": 500}


@pytest.mark.parametrize("is_keyed", [False, True])
def test_no_commit_slips_in_after_the_write_has_returned(
    bench: Bench, is_keyed: bool, request: pytest.FixtureRequest
) -> None:
    race(bench, ROUNDS[request.node.callspec.params["bench"]] // (1 + is_keyed), is_keyed=is_keyed)


def race(bench: Bench, rounds: int, *, is_keyed: bool) -> None:
    """Write `halts` again and again while others commit intents that require it as they last saw it."""
    workers = 3
    bench.session("s1", lease_ms=10**9)
    bench.store.create_runs([new_run(f"r{n}") for n in range(workers)])
    runs = bench.store.claim_runs("s1", workers, {"helper": workers}).runs
    seen, is_over, committed = [0], threading.Event(), threading.Semaphore(0)
    outcomes: list[Outcome] = []

    def act(run: RunRow) -> None:
        store, row = bench.open(), run
        try:
            for number in count():
                if is_over.is_set():
                    return
                version = seen[0]
                keys = [reserve(f"{run.id} {number}", resumable=False)] if is_keyed else []
                body = b"%d" % version
                commit = append(
                    row, body, kind=Kind.INTENT, keys=keys, requires=[Requirement(HALTS, version)]
                )
                (said,) = store.commit([commit])
                outcomes.append(said.outcome)
                assert said.outcome in (Outcome.COMMITTED, Outcome.CHANGED), said
                if said.outcome is Outcome.COMMITTED:
                    row = replace(row, length=commit.new_length, head=commit.new_head)
                    committed.release()
        finally:
            if store is not bench.store:
                store.close()

    lengths: dict[int, list[int]] = {}

    def write() -> None:
        try:
            for version in range(rounds):
                for _ in range(version % 4):  # so that the next write falls into a stream of commits
                    assert committed.acquire(timeout=20)
                bench.store.write_document(HALTS, b"%d" % version, version=version)
                rows = [bench.row(run.id) for run in runs]
                lengths[version + 1] = [row.length for row in rows]
                seen[0] = version + 1
        finally:
            is_over.set()

    in_threads([write, *(lambda run=run: act(run) for run in runs)])
    for place, run in enumerate(runs):
        records = bench.store.load_journal(run.id, since=0).records
        for version, of_runs in lengths.items():
            late = [int(one.body) for one in records[of_runs[place] :]]
            assert min(late, default=version) >= version
    assert outcomes.count(Outcome.COMMITTED) >= rounds
    assert outcomes.count(Outcome.CHANGED) > 0


# Killed at every call ---------------------------------------------------------------------------


def plays(store: AnyStore, session: str) -> None:
    """Go on with the run where its journal ends: reserve, settle, four times; then end."""
    store.register_session(new_session(session, lease_ms=1_000_000))
    store.end_sessions([one.id for one in store.list_sessions() if one.id != session], Cause.DIED)
    alone = {"solo": True} if session[1:] not in ("0", "1") else {}
    taken = store.claim_runs(session, 1, AGENTS, **alone).runs or store.claim_runs(session, 1, AGENTS).runs  # type: ignore[arg-type]
    for row in taken:
        at = row
        while at.length < 9:
            is_intent = at.length % 2 == 1
            op: AccountOp = usd(3, 12) if is_intent else Settle(ACCOUNT, {"usd": 3}, {"usd": 3})
            change = End(State.COMPLETED) if at.length == 8 else None
            commit = append(at, b"x", accounts=[op], requires=[Requirement(HALTS, 0)], change=change)
            assert store.commit([commit])[0].outcome is Outcome.COMMITTED
            at = replace(at, length=commit.new_length, head=commit.new_head)


def test_killed_at_every_commit_the_account_is_as_if_nothing_had_happened(bench: Bench) -> None:
    for number, at in enumerate(("before", "after") * 8):
        bench.create()
        kill = Kill(at, "commit", number // 2 + 1)  # type: ignore[arg-type]
        with pytest.raises(Died):
            plays(DyingStore(bench.reopen(), kill), f"s{2 * number}")
        plays(bench.store, f"s{2 * number + 1}")
        assert bench.row("r1").state is State.COMPLETED
        assert standing(bench.store) == {"spent": {"usd": 12}}
        now = bench.clock.now_ms() + 1
        bench.store.prune(ended_before_ms=now, forget_before_ms=now)
        (document,) = bench.store.read_documents(ACCOUNT)
        bench.store.write_document(ACCOUNT, None, version=document.version)
        assert damage_in(bench.store) == []


def test_of_an_account_and_an_operator_one_wins_each_version(bench: Bench) -> None:
    """An override is written while runs charge the account: nothing of either is lost."""
    run = bench.running()
    other, done = bench.reopen(), threading.Event()
    rounds = 60
    raised: list[int] = []

    def charge() -> None:
        row = run
        for _ in range(rounds):
            commit = append(row, b"o", accounts=[Settle(ACCOUNT, {}, {"usd": 1})])
            assert bench.store.commit([commit])[0].outcome is Outcome.COMMITTED
            row = replace(row, length=commit.new_length, head=commit.new_head)
        done.set()

    def override() -> None:
        while not done.is_set() or not raised:
            found = {one.name: one for one in other.read_documents()}.get(ACCOUNT)
            body = msgspec.json.decode(found.body) if found is not None else {}
            body["raised"] = body.get("raised", 0) + 1
            version = found.version if found is not None else 0
            try:
                other.write_document(ACCOUNT, msgspec.json.encode(body), version=version)
                raised.append(version)
            except StaleDocument:
                continue

    in_threads([charge, override])
    assert standing(bench.store) == {"spent": {"usd": rounds}, "raised": len(raised)}
