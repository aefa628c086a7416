"""Killed around every write of a governed call: what was decided holds, what was reserved is settled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.governance import accounts
from ninelives.core.journal.replay import read_body
from tests.crash.forkserver import ForkServer
from tests.crash.stores import SERVED, bury, open_at, scratch
from tests.governance.gate_lives import ACCOUNT, AMOUNT, GateServer, effects
from tests.governance.small_governor import first_of

LIFE = "tests.governance.gate_lives:life"
LETTER = {"allow": "a", "deny": "d", "ask": "q", "rewrite": "r", "budget": "a"}
GIVES: dict[str, Any] = {"allow": 5, "deny": "denied", "ask": 5, "rewrite": 100, "budget": 5}
REPEATED = ("g_plain", "g_shared", "spawn")
"""What a death may make be done twice, under the same key; and a run that is a child is such a step."""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with GateServer() as server:
        yield server


KINDS = ("g_plain", "g_once", "g_keyed", "g_shared", "spawn")
SCENES = [(kind, mode) for kind in KINDS for mode in GIVES if mode != "ask" or kind in ("g_once", "g_shared")]


@pytest.mark.parametrize(("kind", "mode"), SCENES)
def test_killed_around_every_write_it_comes_to_the_same_end(server: ForkServer, kind: str, mode: str) -> None:
    with scratch() as home:
        most = judge(home, server, kind, mode)
    for call in range(1, most + 1):
        for side in ("before", "after"):
            with scratch() as home:
                given: dict[str, Any] = {"home": str(home), "kind": kind, "mode": mode}
                death = server.run(LIFE, **given, call=call, side=side)
                # A parent's and its child's writes may share commits: then there are fewer of them.
                assert death.was_killed or (kind == "spawn" and call > 4 and death.code == 0)
                bury(home)
                judge(home, server, kind, mode)


@pytest.mark.parametrize("mode", ["rewrite", "budget"])
@pytest.mark.parametrize("kind", ["g_plain", "g_once", "g_keyed"])
@pytest.mark.parametrize("served", SERVED)
def test_killed_on_a_server_once_it_has_begun_it_comes_to_the_same_end(
    server: ForkServer, served: str, kind: str, mode: str
) -> None:
    with scratch(served) as home:
        # The run is created, then comes the intent or, of a plain step without a budget, the outcome.
        assert server.run(LIFE, home=str(home), kind=kind, mode=mode, call=2, side="after").was_killed
        bury(home)
        judge(home, server, kind, mode)


def judge(home: Path, server: ForkServer, kind: str, mode: str) -> int:
    """Let another worker finish; check the end. Returns how many calls of the store that took."""
    ended = server.run(LIFE, home=str(home), kind=kind, mode=mode).result()
    until = time.monotonic() + 30
    while ended["state"] == "checkpointed" and time.monotonic() < until:
        # A server may not have noticed the death yet: then the start waits for proof, and the worker is idle.
        ended = server.run(LIFE, home=str(home), kind=kind, mode=mode).result()
    assert (ended["state"], ended["result"]) == ("completed", GIVES[mode])
    assert ended["asked"] == 0  # what was on record
    done = effects(home)
    assert set(done) == ({str(GIVES[mode])} if mode != "deny" else set())
    assert len(done) <= (2 if kind in REPEATED else 1)
    store = open_at(home)
    said = read_body(first_of(store, "spawn:gate.helper" if kind == "spawn" else kind)).j
    if mode != "ask":  # its first record asks
        assert said is not None
        assert said.v == LETTER[mode]
    documents = {one.name: one.body for one in store.read_documents(ACCOUNT)}
    account = accounts.read(ACCOUNT, documents.get(ACCOUNT))
    assert account.reserved.get("cents", 0) == 0
    spent = account.spent.get("cents", 0)
    if mode == "budget":
        # A start that may have spent it counts in full; one that is proved not to have happened does not.
        assert spent in ((AMOUNT, 2 * AMOUNT) if kind in ("g_plain", "g_shared") else (AMOUNT,))
        assert spent >= AMOUNT * len(done) or kind == "spawn"
    else:
        assert spent == 0
    store.close()
    return int(ended["calls"])
