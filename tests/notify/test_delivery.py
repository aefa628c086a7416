"""What is sent, to which channel, how often, and when again."""

from __future__ import annotations

import base64
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Control
from ninelives.ops.audit import LAST, AuditResult
from ninelives.ops.notify.entry import decode
from ninelives.ops.notify.outbox import GRACE_MS
from ninelives.ops.notify.sender import GIVE_UP_MS
from ninelives.ops.notify.state import read_state
from ninelives.store import Fault
from ninelives.stores.memory import MemoryStore
from tests.clocks import SteppingClock
from tests.notify.receivers import DROP, HANG, TRICKLE, TRICKLE_BODY, Receiver, is_signed
from tests.notify.scene import SECRET, Scene, arguments, configure, notifier, webhook

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000


def test_what_waits_and_what_fails_is_sent_once_and_signed(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    scene.fail("long ago")
    clock.advance(1)
    scene.ask("i1", arguments=arguments(order="A-7", cents=1999))
    path = configure(directory, 'dashboard_url = "https://nl.example/x/"\n' + webhook("ops", receiver.url))
    first = notifier(scene.store, path)
    assert first.once()["ops"].sent == 1  # what failed before the first start floods nobody
    scene.fail("f1", labels={"team": "x"})
    scene.ask("i2", kind=ItemKind.DOUBT)
    for made in (first, notifier(scene.store, path), first):
        state = made.once()["ops"]
        assert (state.sent, state.waiting, state.failed) == (3, 0, 0)
    assert sorted(receiver.counts().items()) == [("f1.2.failure", 1), ("i1.approval", 1), ("i2.doubt", 1)]
    assert all(is_signed(one, SECRET.encode()) for one in receiver.requests)
    assert not any(is_signed(one, b"other") for one in receiver.requests)
    asked = next(one for one in receiver.requests if one.id == "i1.approval")
    assert json.loads(asked.body)["type"] == "ninelives.approval"
    assert asked.data["what"] == "refund?"
    assert asked.data["answers"] == ["ninelives approve i1", "ninelives deny i1 --note WHY"]
    assert {"name": "cents =", "text": "1999"} in asked.data["facts"]
    assert (asked.data["run"], asked.data["agent"]) == ("run of i1", "helper")
    assert asked.data["link"] == "https://nl.example/x/inbox#i1"
    failed = next(one for one in receiver.requests if one.id == "f1.2.failure")
    assert failed.data["what"] == "run f1 failed: ValueError: no"
    assert failed.data["severity"] == "warning"


def test_a_secret_of_the_standard_is_base64(scene: Scene, receiver: Receiver, directory: Path) -> None:
    key = bytes(range(24))
    scene.ask("i1")
    path = configure(directory, webhook("ops", receiver.url))
    given = {"HOOK_SECRET": f"whsec_{base64.b64encode(key).decode()}"}
    notifier(scene.store, path, given).once()
    assert is_signed(receiver.requests[0], key)


def test_an_answer_that_never_ends_is_cut_off(scene: Scene, receiver: Receiver, directory: Path) -> None:
    receiver.answer = lambda _number, _headers: TRICKLE_BODY
    scene.ask("i1")
    began = time.monotonic()
    state = notifier(scene.store, configure(directory, webhook("ops", receiver.url, 'timeout = "1s"'))).once()
    assert time.monotonic() - began < 5
    assert state["ops"].sent == 1  # the receiver has said that it keeps it


def test_failures_of_before_are_sent_if_asked_for_and_only_at_the_first_start(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    scene.fail("older")
    clock.advance(2 * _HOUR_MS)
    scene.fail("old")
    clock.advance(_HOUR_MS)
    path = configure(directory, webhook("ops", receiver.url))
    notifier(scene.store, path, since_ms=2 * _HOUR_MS).once()
    notifier(scene.store, path, since_ms=9 * _HOUR_MS).once()
    assert set(receiver.counts()) == {"old.2.failure"}


def test_an_item_that_was_answered_before_it_was_sent_is_not_sent(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    scene.ask("i1")
    receiver.answer = lambda _number, _headers: (503, {})
    made = notifier(scene.store, configure(directory, webhook("ops", receiver.url)))
    assert made.once()["ops"].waiting == 1
    scene.answer("i1")
    clock.advance(_HOUR_MS)
    receiver.answer = lambda _number, _headers: (204, {})
    state = made.once()["ops"]
    assert (state.waiting, state.sent) == (0, 0)
    assert not receiver.counts()


@pytest.mark.parametrize("answer", [(500, {}), (302, {"location": "/x"}), DROP, HANG, TRICKLE, (404, {})])
def test_a_refused_notice_is_tried_again_under_the_same_id(
    answer: tuple[int, dict[str, str]],
    scene: Scene,
    clock: SteppingClock,
    receiver: Receiver,
    directory: Path,
) -> None:
    scene.ask("i1")
    receiver.answer = lambda number, _headers: answer if number == 0 else (200, {})
    made = notifier(scene.store, configure(directory, webhook("ops", receiver.url, 'timeout = "1s"')))
    state = made.once()["ops"]
    assert (state.waiting, state.sent) == (1, 0)
    assert state.error
    assert made.once()["ops"].sent == 0  # not yet
    clock.advance(60_000)
    state = made.once()["ops"]
    assert (state.waiting, state.sent, state.error) == (0, 1, "")
    assert [one.id for one in receiver.requests] == ["i1.approval"] * 2


@pytest.mark.parametrize("wish", ["120", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_receiver_that_asks_for_quiet_gets_it_even_after_a_restart(
    wish: str, scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    for item in ("i1", "i2", "i3"):
        scene.ask(item)
    receiver.answer = lambda number, _headers: (429, {"retry-after": wish}) if number == 0 else (200, {})
    path = configure(directory, webhook("ops", receiver.url))
    notifier(scene.store, path).once()
    clock.advance(119_000)
    notifier(scene.store, path).once()
    assert len(receiver.requests) == 1
    clock.advance(_DAY_MS)
    assert notifier(scene.store, path).once()["ops"].sent == 3


def test_a_receiver_that_is_away_for_a_day_gets_everything(
    scene: Scene, clock: SteppingClock, directory: Path
) -> None:
    gone = Receiver()
    gone.close()
    made = notifier(scene.store, configure(directory, webhook("ops", gone.url)))
    made.once()
    for number in range(20):
        scene.ask(f"i{number}")
        scene.fail(f"f{number}")
        clock.advance(_DAY_MS // 20)
        state = made.once()["ops"]
        assert state.sent == 0
        assert state.waiting == 2 * (number + 1)
    attempts = sum(one.attempts for one in scene.entries())
    assert attempts < 60  # one notice at a time while it is away
    back = Receiver(gone.port)
    for _ in range(3):
        clock.advance(900_000)
        made.once()
    assert len(back.counts()) == 40
    assert set(back.counts().values()) == {1}
    back.close()


def test_a_notice_of_a_failure_is_given_up_after_a_week_and_counted(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    receiver.answer = lambda _number, _headers: (500, {})
    made = notifier(scene.store, configure(directory, webhook("ops", receiver.url)))
    made.once()
    scene.fail("f1")
    scene.ask("i1")
    made.once()
    clock.advance(GIVE_UP_MS + 1)
    for _ in range(3):
        made.once()
        clock.advance(_HOUR_MS)
    assert [(one.event.kind, one.state) for one in scene.entries()] == [("approval", "waiting")]
    state = read_state(scene.store)
    assert state is not None
    assert (state.channels["ops"].failed, state.channels["ops"].waiting) == (1, 1)


def test_a_run_that_was_retried_is_not_reported_and_one_that_fails_again_is(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    made = notifier(scene.store, configure(directory, webhook("ops", receiver.url)))
    receiver.answer = lambda _number, _headers: (500, {})
    scene.fail("f1")
    made.once()
    scene.store.control_run("f1", Control.RETRY)
    clock.advance(_HOUR_MS)
    receiver.answer = lambda _number, _headers: (200, {})
    assert made.once()["ops"].sent == 0


def test_channels_get_what_they_want(scene: Scene, receiver: Receiver, directory: Path) -> None:
    text = "".join(
        webhook(name, f"{receiver.url}/{name}", *more)
        for name, more in {
            "all": (),
            "people": ('kinds = ["approval", "question"]',),
            "stuck": ('kinds = ["escalation"]',),
            "bees": ('agents = ["bee"]',),
            "teamx": ('labels = {team = "x"}',),
            "night": ('min_severity = "critical"',),
            "nothing": ("kinds = []",),
        }.items()
    )
    made = notifier(scene.store, configure(directory, text))
    made.once()
    scene.ask("plain")
    scene.ask("doubt", kind=ItemKind.DOUBT, agent="bee")
    scene.ask("labelled", kind=ItemKind.DIVERGENCE, labels={"team": "x", "tier": "1"})
    scene.fail("f1", agent="bee", labels={"team": "y"})
    made.once()
    got: dict[str, set[str]] = defaultdict(set)
    for document in scene.store.read_documents("notify/out/"):
        got[decode(document.body).event.about].add(document.name.split("/")[2])
    assert got == {
        "plain": {"all", "people"},
        "doubt": {"all", "stuck", "bees", "night"},
        "labelled": {"all", "stuck", "teamx"},
        "f1": {"all", "bees"},
    }
    assert sum(receiver.counts().values()) == 11


def test_people_are_reminded_and_then_others_are_asked(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    text = webhook("first", receiver.url, 'remind = "1h"', 'then = ["lead"]')
    text += webhook("lead", f"{receiver.url}/lead", "kinds = []")
    made = notifier(scene.store, configure(directory, text))
    scene.ask("i1")
    scene.fail("f1")
    for _ in range(3):
        made.once()
        clock.advance(_HOUR_MS - 1)
        made.once()
        clock.advance(1)
    made.once()
    # In this order: asked; an hour later asked again, and the lead is; then the next reminder, and so on.
    wanted = ["i1.approval", "f1.2.failure", "i1.approval", *(f"i1.approval.reminder{n}" for n in (1, 2, 3))]
    assert sorted(one.id for one in receiver.requests) == sorted(wanted)
    assert max(one.data["reminder"] for one in receiver.requests) == 3
    assert "still open" in receiver.requests[-1].data["title"]
    scene.answer("i1")
    clock.advance(_DAY_MS)
    made.once()
    assert len(receiver.requests) == len(wanted)
    state = made.once()
    assert (state["first"].sent, state["first"].waiting, state["lead"].sent) == (2, 0, 1)


def test_an_outage_is_reported_once_when_it_lasts(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    text = 'outage_after = "5m"\n' + webhook("ops", receiver.url)
    path = configure(directory, text)
    for number in range(40):
        scene.retry(f"r{number}", "RateLimitError: 429 of request 7c\x1b[2J", agent="bee")
    for _ in range(12):
        notifier(scene.store, path).once()
        clock.advance(30_000)
    assert [one.data["kind"] for one in receiver.requests] == ["outage"]
    what = receiver.requests[0].data["what"]
    assert what.startswith("40 runs of bee retry think since 2023-11-14 22:13:20Z: RateLimitError")
    assert "\\x1b" in what
    assert receiver.requests[0].data["severity"] == "critical"


def test_an_outage_began_with_its_runs_and_names_each_of_its_errors(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    path = configure(directory, 'outage_after = "5m"\n' + webhook("ops", receiver.url))
    for number in range(20):
        scene.retry(f"r{number}", f"HTTPError: HTTP Error {503 if number % 2 else 429}: no", agent="bee")
    clock.advance(600_000)  # no notifier ran
    notifier(scene.store, path).once()
    what = receiver.requests[0].data["what"]
    assert what.startswith("20 runs of bee retry think since 2023-11-14 22:13:20Z: HTTPError: HTTP Error ")
    assert "HTTP Error 503: no (10)" in what
    assert "HTTP Error 429: no (10)" in what


def test_an_audit_that_finds_faults_is_reported_once_and_a_clean_one_is_not(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    path = configure(directory, webhook("ops", receiver.url))
    for faults, version in ((0, 0), (2, 1), (1, 2)):
        clock.advance(_HOUR_MS)
        found = tuple(Fault("r1", f"record {number} is not what was written") for number in range(faults))
        now_ms = clock.now_ms()
        audit = AuditResult(started_ms=now_ms, finished_ms=now_ms, seconds=1.0, faults=faults, found=found)
        scene.store.write_document(LAST, msgspec.json.encode(audit), version=version)
        for _ in range(2):
            notifier(scene.store, path).once()
    assert [one.data["what"] for one in receiver.requests] == [
        "an audit of the store has found 2 faults",
        "an audit of the store has found 1 fault",
    ]
    assert receiver.requests[0].data["facts"][0] == {
        "name": "r1",
        "text": "record 0 is not what was written",
    }


def test_what_is_over_is_forgotten_and_never_sent_again(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    path = configure(directory, webhook("ops", receiver.url))
    made = notifier(scene.store, path)
    made.once()
    for number in range(6):
        scene.ask(f"i{number}")
        scene.fail(f"f{number}")
    made.once()
    for number in range(4):
        scene.answer(f"i{number}")
    clock.advance(GRACE_MS + 1)
    made.once()
    assert len(scene.entries()) == 8  # items that were answered are gone
    for _ in range(30):
        clock.advance(_HOUR_MS)
        assert made.once()["ops"].sent == 12
    assert {one.event.about for one in scene.entries()} == {"i4", "i5"}
    assert notifier(scene.store, path, since_ms=30 * _DAY_MS).once()["ops"].sent == 12
    assert set(receiver.counts().values()) == {1}


class _Dying:
    """A store whose process dies at its n-th call."""

    def __init__(self, store: object, number: int) -> None:
        self._store, self._left = store, number

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)
        if not callable(found):
            return found
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return found


def test_forgetting_may_die_anywhere_and_counts_stay_exact(
    clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    path = configure(directory, webhook("ops", receiver.url))
    deaths = 0
    for number in range(200):
        scene = Scene(MemoryStore(clock=clock))
        made = notifier(scene.store, path)
        for item in ("i1", "i2", "i3"):
            scene.ask(item)
        made.once()
        for item in ("i1", "i2"):
            scene.answer(item)
        clock.advance(GRACE_MS + 1)
        try:
            notifier(_Dying(scene.store, number), path).once()
        except KeyboardInterrupt:
            deaths += 1
        clock.advance(60_000)
        for _ in range(2):
            assert notifier(scene.store, path).once()["ops"].sent == 3
        assert [one.event.about for one in scene.entries()] == ["i3"]
        if deaths <= number:
            break
    assert deaths > 10
    assert set(receiver.counts().values()) == {deaths + 1}


def test_the_clock_may_be_set_back(
    scene: Scene, clock: SteppingClock, receiver: Receiver, directory: Path
) -> None:
    made = notifier(scene.store, configure(directory, webhook("ops", receiver.url)))
    made.once()
    clock.advance(_DAY_MS)
    scene.fail("f1")
    made.once()
    clock.jump(-_DAY_MS // 2)
    scene.fail("f2")
    made.once()
    clock.advance(_HOUR_MS)
    scene.fail("f3")
    made.once()
    assert receiver.counts() == {"f1.2.failure": 1, "f2.2.failure": 1, "f3.2.failure": 1}


def _hostile() -> dict[str, Callable[[], dict[str, object]]]:
    return {
        "lines": lambda: {"what": "pay?\nSubject: x\r\n\r\n$ ninelives approve all"},
        "control": lambda: {"what": "\x1b[2J\x07\x00 \u202e evil \u2028"},
        "huge": lambda: {"what": "x" * 30_000, "arguments": arguments(text="y" * 30_000)},
        "many": lambda: {"what": "?", "arguments": arguments(**{f"a{n}": "z" * 100 for n in range(300)})},
        "slack": lambda: {"what": "<!channel> <https://evil.example|ok> & co"},
    }


@pytest.mark.parametrize("how", sorted(_hostile()))
def test_hostile_texts_are_escaped_and_bounded(
    how: str, scene: Scene, receiver: Receiver, directory: Path
) -> None:
    body = _hostile()[how]()
    scene.ask("i1", **body)  # type: ignore[arg-type]
    text = webhook("ops", receiver.url)
    text += f'[[channel]]\nname = "slack"\ntype = "slack"\nurl = "{receiver.url}"\n'
    text += webhook("shy", receiver.url, "arguments = false")
    made = notifier(scene.store, configure(directory, text))
    assert [one.sent for one in made.once().values()] == [1, 1, 1]
    for request in receiver.requests:
        assert len(request.body) < 25_000
        said = request.body.decode()
        content = json.loads(said)
        if "text" in content:  # Slack
            assert len(content["text"]) < 5_000
            assert "<" not in content["text"]
            assert content["text"].replace("\n", "").isprintable()
            assert "$ ninelives approve i1" in content["text"].splitlines()
            assert "$ ninelives approve all" not in content["text"].splitlines()
        else:
            assert "\n" not in content["data"]["what"]
            assert content["data"]["what"].isprintable()
            assert all(fact["text"].isprintable() for fact in content["data"]["facts"])


def test_two_thousand_open_items_are_sent_and_stay_cheap(
    scene: Scene, receiver: Receiver, directory: Path
) -> None:
    for number in range(40):
        names = [f"i{number}-{n}" for n in range(50)]
        scene.ask_all(names, kind=ItemKind.QUESTION, what="?", run=f"r{number}")
    made = notifier(scene.store, configure(directory, webhook("ops", receiver.url)))
    assert made.once()["ops"].sent == 2_000
    assert set(receiver.counts().values()) == {1}
    assert made.once()["ops"].sent == 2_000
    assert len(receiver.requests) == 2_000
