"""`ninelives inbox`, `approve`, `deny`, `resolve`, `start`, `watch` and the controls, as people type them."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import Raw

from ninelives.cli.app import main
from ninelives.core.journal import chain
from ninelives.core.journal.answers import ItemBody, read_answer, write_item_body
from ninelives.core.model.commit import Commit, Escalate
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.run import Kind, NewRun, State
from ninelives.core.model.session import NewSession
from ninelives.stores.sqlite import SqliteStore

AGENTS = """
import ninelives as nl

@nl.action
async def look(word: str) -> str:
    return word

@nl.agent
async def echo(word: str) -> str:
    nl.log.info("about to look")
    return await look(word)

@nl.agent
async def asker() -> str:
    return await nl.ask("Which colour?", timeout=3600, default="red")

@nl.agent
async def parent() -> str:
    return await (await nl.spawn(asker)).result()
"""
NASTY = "\x1b[31mred"


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Desk:
    """A person at a terminal, without a terminal: commands run in this process on one store."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.home, self._capsys, self._patch = home, capsys, patch
        self.url = f"sqlite:///{home}/runs.db"
        patch.setenv("NINELIVES_STORE", self.url)
        patch.chdir(home)
        (home / "agents.py").write_text(AGENTS)

    def type(self, *words: str) -> Ran:
        """Run a command."""
        self._patch.setattr(sys, "argv", ["ninelives", *words])
        self._patch.setattr(sys, "stdout", sys.stdout)
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        return Ran(code, *self._capsys.readouterr())

    def json(self, *words: str) -> Any:
        """Run a command that prints JSON."""
        ran = self.type(*words, "--json")
        assert ran.code == 0, ran
        return json.loads(ran.out)

    def ask(self, run: str, *items: NewItem) -> None:
        """Let a run be stopped by what only a person can settle."""
        store = SqliteStore(self.home / "runs.db")
        try:
            store.create_runs([NewRun(id=run, agent="shop", fingerprint=b"f", body=b"{}")])
            if not any(one.id == "s" for one in store.list_sessions()):
                store.register_session(NewSession(id="s", host="h", pid=1))
            (row,) = store.claim_runs("s", 1, {"shop": 1}, only=run).runs
            drafts = [(Kind.LOG, "#log#0", 0, json.dumps({"level": "INFO", "line": NASTY}).encode(), ())]
            records = chain.seal(row.length, row.head, drafts, row.epoch)
            change = Escalate(waits="for a person: look at it", news_seen=row.news)
            commit = Commit(
                run=run,
                epoch=row.epoch,
                length=row.length,
                head=row.head,
                records=tuple(records),
                opens=items,
                change=change,
            )
            (verdict,) = store.commit([commit])
            assert verdict.outcome == "committed", verdict
        finally:
            store.close()

    def state(self, run: str) -> State:
        """Return where a run is."""
        store = SqliteStore(self.home / "runs.db")
        row = store.read_run(run)
        store.close()
        assert row is not None
        return row.state

    def said(self, item: str) -> tuple[str, str, str, str]:
        """Return what was answered: by whom, in what words, with which value and note."""
        store = SqliteStore(self.home / "runs.db")
        (found,) = store.list_inbox(item=item, answered=True)
        store.close()
        answer = read_answer(found)
        value = bytes(answer.value).decode() if isinstance(answer.value, Raw) else ""
        return found.by, answer.says, value, answer.note


def item(id: str, kind: ItemKind, **asked: Any) -> NewItem:
    """Return an item that asks something."""
    body = write_item_body(ItemBody(asked.pop("what", f"Shall we {NASTY}?"), **asked))
    return NewItem(id=id, kind=kind, step="#refund#0", digest=b"d", body=body, to="ops")


@pytest.fixture
def desk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """Return a desk over an empty store; what `run` does about signals is undone."""
    SqliteStore(tmp_path / "runs.db").close()
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield Desk(tmp_path, capsys, monkeypatch)
    for number, handler in handlers:
        signal.signal(number, handler)


def test_an_empty_inbox_says_so(desk: Desk) -> None:
    assert desk.type("inbox") == (0, "", "ninelives: no open inbox items\n")
    assert desk.json("inbox") == []


def test_the_inbox_tells_who_what_why_and_how_to_answer(desk: Desk) -> None:
    arguments = {"cents": Raw(b"500"), "order": Raw(b'"o-7"')}
    desk.ask("r1", item("i1", ItemKind.APPROVAL, arguments=arguments, key="refund:o-7"))
    desk.ask("r2", item("i2", ItemKind.QUESTION, options=(Raw(b'"red"'),)))
    ran = desk.type("inbox")
    assert ran.code == 0
    for part in ("approval of run r1", 'order = "o-7"', "cents = 500", "refund:o-7", "refund[0]", "to ops"):
        assert part in ran.out
    for words in (
        "ninelives approve i1",
        "ninelives deny i1 --note WHY",
        "ninelives resolve i2 --answer JSON",
    ):
        assert words in ran.out
    assert "\x1b" not in ran.out
    one, two = desk.json("inbox")
    assert (one["id"], one["run"], one["kind"], one["takes"]) == (
        "i1",
        "r1",
        "approval",
        ["approved", "denied"],
    )
    assert (two["options"], two["state"], two["answer"]) == (["red"], "open", None)
    assert [one["id"] for one in desk.json("inbox", "--run", "r2")] == ["i2"]


def test_an_approval_is_given_in_the_name_of_who_is_logged_in(desk: Desk, monkeypatch: Any) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    desk.ask("r1", item("i1", ItemKind.APPROVAL))
    ran = desk.type("approve", "i1")
    assert (ran.code, ran.out) == (0, "approved by ada: approval i1 of run r1\n")
    assert "as soon as a worker claims it" in ran.err
    assert desk.said("i1") == ("ada", "approved", "", "")
    assert desk.state("r1") is State.CHECKPOINTED
    assert desk.json("inbox") == []
    (seen,) = desk.json("inbox", "--all")
    assert (seen["by"], seen["answer"]["says"], seen["state"]) == ("ada", "approved", "answered")


def test_an_item_is_named_by_its_run_when_it_is_the_only_one(desk: Desk) -> None:
    desk.ask("r1", item("i1", ItemKind.APPROVAL))
    desk.ask("r2", item("i2", ItemKind.APPROVAL), item("i3", ItemKind.APPROVAL))
    assert desk.type("deny", "r1", "--note", "not today", "--by", "bob").code == 0
    assert desk.said("i1") == ("bob", "denied", "", "not today")
    ran = desk.type("deny", "r2")
    assert (ran.code, "i2, i3" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        (ItemKind.QUESTION, ["--answer", "5"], ("value", "5")),
        (ItemKind.QUESTION, ["--answer", "plain words"], ("value", '"plain words"')),
        (ItemKind.DOUBT, ["--happened", "--result", '{"id": 1}'], ("happened", '{"id": 1}')),
        (ItemKind.DOUBT, ["--happened"], ("happened", "")),
        (ItemKind.DOUBT, ["--not-happened"], ("not happened", "")),
        (ItemKind.DIVERGENCE, ["--retry"], ("retry", "")),
        (ItemKind.QUARANTINE, ["--fail"], ("fail", "")),
    ],
)
def test_resolve_says_one_thing(desk: Desk, kind: ItemKind, words: list[str], said: tuple[str, str]) -> None:
    desk.ask("r1", item("i1", kind))
    shown = desk.json("resolve", "i1", *words, "--by", "ada", "--note", "n")
    assert shown["answer"]["says"] == said[0]
    assert desk.said("i1") == ("ada", *said, "n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["resolve", "i1"], "resolve needs exactly one answer"),
        (["resolve", "i1", "--retry", "--fail"], "resolve needs exactly one answer"),
        (["resolve", "i1", "--retry", "--result", "5"], "--result goes with --happened"),
        (["resolve", "i1", "--retry"], "It takes answer"),
        (["approve", "i1"], "It takes answer"),
        (["resolve", "i1", "--answer", "[5"], "is not valid JSON"),
        (["resolve", "i1", "--answer", '"green"'], 'Answer one of "red", 1'),
        (["resolve", "i1", "--answer", "red", "--by", " "], "white space"),
        (["resolve", "nobody", "--answer", "red"], "there is no inbox item"),
        (["inbox", "--run", "\n"], "not printable"),
        (["signal", "nobody", "go"], "there is no such run"),
        (["cancel", "nobody"], "there is no such run"),
        (["watch", "nobody"], "there is no such run"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_happens(desk: Desk, words: list[str], why: str) -> None:
    desk.ask("r1", item("i1", ItemKind.QUESTION, options=(Raw(b'"red"'), Raw(b"1"))))
    ran = desk.type(*words)
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err
    assert desk.state("r1") is State.ESCALATED


def test_the_second_answer_is_stale_unless_it_is_the_same(desk: Desk) -> None:
    desk.ask("r1", item("i1", ItemKind.APPROVAL))
    assert desk.type("approve", "i1", "--by", "ada").code == 0
    assert desk.type("approve", "i1", "--by", "ada").code == 0
    ran = desk.type("deny", "i1", "--by", "bob")
    assert (ran.code, "is answered by ada" in ran.err) == (2, True)
    assert desk.said("i1")[:2] == ("ada", "approved")


def test_start_prints_the_id_and_watch_follows_to_the_end(desk: Desk) -> None:
    ran = desk.type("start", "agents.py:echo", "hi", "--id", "r1", "--label", "a=b", "--priority", "3")
    assert ran == (0, "r1\n", "")
    assert desk.json("start", "agents.py:echo", "hi", "--id", "r1") == {"run": "r1", "status": "pending"}
    assert desk.json("pause", "r1") == {"run": "r1", "status": "pending", "paused": True, "cancelling": False}
    paused = desk.type("start", "agents.py:echo", "hi", "--id", "r1")
    assert (paused.code, "ninelives resume r1" in paused.err) == (3, True)
    assert desk.type("resume", "r1").out == "run r1 continues as soon as a worker claims it\n"
    assert desk.type("run", "agents.py:echo", "hi", "--id", "r1").out == '"hi"\n'
    watched = desk.type("watch", "r1")
    assert watched.code == 0
    lines = watched.out.splitlines()
    for part in (
        'created     word="hi"',
        "log[0]  INFO: about to look",
        'result    look[0]  "hi"',
        "--- completed",
    ):
        assert any(part in line for line in lines), (part, lines)
    assert desk.type("retry", "r1").code == 2


def test_watch_tells_what_waits_and_how_to_answer(desk: Desk, monkeypatch: Any) -> None:
    desk.ask("r1", item("i1", ItemKind.APPROVAL))
    monkeypatch.setattr(SqliteStore, "wait_for_work", _interrupt)
    ran = desk.type("watch", "r1")
    assert ran.code == 130
    assert "??? approval i1: Shall we \\x1b[31mred?" in ran.out
    assert "$ ninelives approve i1" in ran.out
    assert "--- escalated, waits for a person: look at it" in ran.out
    assert "\x1b" not in ran.out


def _interrupt(*_: object) -> bool:
    raise KeyboardInterrupt


def test_cancelling_a_run_that_was_not_begun_ends_it(desk: Desk) -> None:
    desk.type("start", "agents.py:echo", "hi", "--id", "r1")
    assert "\nwaits        for a worker\n" in desk.type("show", "r1").out
    assert desk.type("cancel", "r1").out == "run r1 is cancelled\n"
    watched = desk.type("watch", "r1")
    assert (watched.code, "--- cancelled" in watched.out) == (1, True)
    assert desk.type("signal", "r1", "go").code == 2


def test_a_signal_with_an_id_is_sent_once(desk: Desk) -> None:
    desk.type("start", "agents.py:echo", "hi", "--id", "r1")
    first = desk.json("signal", "r1", "go", '{"a": 1}', "--id", "s1")
    assert first == {"run": "r1", "number": 1, "name": "go"}
    assert desk.json("signal", "r1", "go", '{"a": 1}', "--id", "s1") == first
    assert desk.type("signal", "r1", "go", '{"a": 2}', "--id", "s1").code == 2
    assert desk.json("signal", "r1", "go", '{"a": 1}')["number"] == 2


def test_run_that_needs_a_person_says_how_to_answer_and_how_to_go_on(desk: Desk) -> None:
    desk.type("start", "agents.py:echo", "hi", "--id", "r1")
    desk.type("pause", "r1")
    ran = desk.type("run", "agents.py:echo", "hi", "--id", "r1")
    assert ran.code == 3
    assert "waits for a person: it is paused" in ran.err
    again = next(line for line in ran.err.splitlines() if "then resume it with: " in line)
    words = shlex.split(again.partition("then resume it with: ")[2])
    assert words == ["ninelives", "run", "agents.py:echo", "--id", "r1", "--", "hi"]


def test_fork_makes_a_run_with_another_result(desk: Desk) -> None:
    assert desk.type("run", "agents.py:echo", "hello", "--id", "r1").code == 0
    made = desk.type("fork", "r1", "--at", "look[0]", "--result", "edited", "--id", "what-if")
    assert (made.code, "what-if is a fork of run r1" in made.out) == (0, True)
    again = desk.type("fork", "r1", "--at", "look[0]", "--result", "edited", "--id", "what-if", "--json")
    assert json.loads(again.out)["run"] == "what-if"
    assert desk.type("run", "agents.py:echo", "hello", "--id", "what-if").code == 2
    assert desk.type("fork", "r1", "--at", "nothing").code == 2
    store = SqliteStore(desk.home / "runs.db")
    try:
        kinds = [record.kind for record in store.load_journal("what-if").records]
        assert kinds[-2:] == [Kind.RESULT, Kind.FORKED]
    finally:
        store.close()


@pytest.mark.parametrize("agent", ["asker", "parent"])
def test_run_leaves_when_only_a_person_can_go_on(desk: Desk, agent: str) -> None:
    ran = desk.type("run", f"agents.py:{agent}", "--id", "r1")
    assert ran.code == 3, ran
    assert "Which colour?" in ran.err
    (one,) = desk.json("inbox")
    assert one["id"] in ran.err
    assert desk.type("resolve", one["id"], "--answer", "blue").code == 0
    ran = desk.type("run", f"agents.py:{agent}", "--id", "r1")
    assert (ran.code, ran.out) == (0, '"blue"\n'), ran
    assert agent == "parent" or "waits" not in ran.err, ran
