"""Notifiers that are killed -9 at every call of the store and around the sending; and two at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ninelives.core.model.inbox import ItemKind
from ninelives.ops.notify.entry import SENDING, SENT
from tests.crash import stores
from tests.notify.receivers import DROP, HANG, Receiver, is_signed
from tests.notify.scene import SECRET, Scene, configure, eventually, notifier, webhook

ROOT = Path(__file__).parents[2]
WANTED = {"i1", "i2", "f1"}


@contextmanager
def _victim(home: Path, config: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.notify.victim", stores.address(home), str(config), *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as victim:
        try:
            yield victim
        finally:
            victim.kill()


def _ended(home: Path, config: Path, *words: str) -> tuple[int, str]:
    with _victim(home, config, *words) as victim:
        said, _ = victim.communicate(timeout=60)
        return victim.returncode, said


@contextmanager
def _prepared(kind: str, receiver: Receiver) -> Iterator[tuple[Path, Path]]:
    """Make a store in which a channel is known, and two items and a failure wait to be reported."""
    with stores.scratch(kind) as home:
        config = configure(home, webhook("ops", receiver.url, 'timeout = "1s"'))
        with closing(stores.open_at(home)) as store:
            notifier(store, config).once()
            scene = Scene(store)
            scene.ask("i1")
            scene.ask("i2", kind=ItemKind.DOUBT)
            scene.fail("f1")
        yield home, config


def _kill_at(kind: str, when: str, number: int) -> None:
    receiver = Receiver()
    with _prepared(kind, receiver) as (home, config):
        code, _ = _ended(home, config, when, str(number))
        assert code == -signal.SIGKILL, (when, number)
        taken = receiver.counts()
        with closing(stores.open_at(home)) as store:
            scene = Scene.of(store)
            on_their_way = {one.event.id for one in scene.entries() if one.state == SENDING}
            state = notifier(store, config).once()["ops"]
            assert (state.sent, state.waiting, state.failed) == (3, 0, 0), (when, number)
            assert {one.state for one in scene.entries()} == {SENT}
            notifier(store, config).once()
        counts = receiver.counts()
        assert {name.partition(".")[0] for name in counts} == WANTED, (when, number)
        assert len(counts) == 3
        for name, times in counts.items():
            # Only what had arrived, and was not marked, is sent again.
            assert times == (2 if name in on_their_way and name in taken else 1), (when, number, name)
        assert all(is_signed(one, SECRET.encode()) for one in receiver.requests)
    receiver.close()


def _points(kind: str) -> list[tuple[str, int]]:
    receiver = Receiver()
    with _prepared(kind, receiver) as (home, config):
        code, said = _ended(home, config, "count")
    receiver.close()
    assert code == 0
    calls = said.split()
    writes = [("after", number) for number, name in enumerate(calls) if name == "write_document"]
    return [*(("before", number) for number in range(len(calls))), *writes]


def test_a_kill_at_every_call_loses_nothing_and_repeats_only_what_was_on_its_way() -> None:
    points = _points("sqlite")
    assert len(points) > 30
    for when, number in points:
        _kill_at("sqlite", when, number)


@pytest.mark.parametrize("kind", stores.SERVED)
def test_kills_on_servers(kind: str) -> None:
    points = _points(kind)
    for when, number in points[:: len(points) // 6]:
        _kill_at(kind, when, number)


def test_two_notifiers_at_once_and_one_is_killed_while_it_sends(receiver: Receiver) -> None:
    with stores.scratch("sqlite") as home:
        text = 'poll = "1s"\n' + webhook("ops", receiver.url, 'timeout = "1s"')
        config = configure(home, text)
        with closing(stores.open_at(home)) as store:
            scene = Scene(store)
            notifier(store, config).once()
            names = [f"i{number}" for number in range(60)]
            scene.ask_all(names, kind=ItemKind.QUESTION, what="?")
            # The 20th request hangs, until the notifier that sent it is killed.
            receiver.answer = lambda number, _headers: HANG if number == 20 else (204, {})
            with _victim(home, config, "run") as one, _victim(home, config, "run") as other:
                eventually(lambda: len(receiver.requests) > 20)
                hung = receiver.requests[20].id
                (entry,) = [entry for entry in scene.entries() if entry.event.id == hung]
                killed = one if f"|{one.pid}|" in entry.owner else other
                os.kill(killed.pid, signal.SIGKILL)
                receiver.release.set()
                eventually(lambda: len(receiver.counts()) == 60)
                scene.fail("f1")  # and what happens later is noticed by the one that lives
                eventually(lambda: "f1.2.failure" in receiver.counts())
                eventually(lambda: {entry.state for entry in scene.entries()} == {SENT})
            repeated = {name: times for name, times in receiver.counts().items() if times > 1}
            assert set(repeated) <= {hung}, repeated
            assert sum(one.id == hung for one in receiver.requests) == 2


def test_a_receiver_that_vanishes_and_comes_back_gets_what_it_missed() -> None:
    first = Receiver()
    with stores.scratch("sqlite") as home:
        config = configure(home, 'poll = "1s"\n' + webhook("ops", first.url, 'timeout = "1s"'))
        with closing(stores.open_at(home)) as store:
            scene = Scene(store)
            with _victim(home, config, "run"):
                scene.ask("i1")
                eventually(lambda: first.counts() == {"i1.approval": 1})
                first.answer = lambda _number, _headers: DROP
                first.close()
                scene.ask("i2")
                eventually(lambda: any(one.error for one in scene.entries()))
                second = Receiver(first.port)
                eventually(lambda: second.counts() == {"i2.approval": 1})
                second.close()
