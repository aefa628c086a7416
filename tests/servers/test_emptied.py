"""Stores that are emptied or replaced under those that serve them: they stop, say so, and start nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ninelives.core.errors import StoreBroken
from ninelives.store import Store
from ninelives.stores.open import open_store
from ninelives.stores.postgres.server.address import parse
from tests.contract.makers import AGENTS, append, new_run, new_session
from tests.servers import valkey
from tests.servers.postgres import change
from tests.servers.scene import until

CODE = """
import ninelives as nl

@nl.agent
async def hello() -> str:
    return "hello"
"""


class Emptied:
    """A store's URL, and the accident."""

    def __init__(self, url: str, empty: Callable[[], object]) -> None:
        self.url, self.empty = url, empty


@pytest.fixture(params=["postgres", "redis"])
def place(request: pytest.FixtureRequest) -> Iterator[Emptied]:
    url: str = request.getfixturevalue(f"{request.param}_url")
    if request.param == "redis":
        yield Emptied(url, lambda: valkey.wipe(url.partition("prefix=")[2]))
    else:
        yield Emptied(url, lambda: change(f"DROP SCHEMA {parse(url).schema} CASCADE"))


WRITES: dict[str, Callable[[Store], object]] = {
    "a renewal": lambda store: store.renew_session("s1"),
    "a claim": lambda store: store.claim_runs("s1", 1, AGENTS),
    "a start": lambda store: store.create_runs([new_run("r2")]),
    "a session": lambda store: store.register_session(new_session("s2")),
}


@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("is_made_again", [False, True])
def test_nothing_is_written_by_who_knew_the_store_that_was_emptied(
    place: Emptied, what: str, is_made_again: bool
) -> None:
    with closing(open_store(place.url)) as store:
        store.create_runs([new_run("r1")])
        store.register_session(new_session("s1"))
        (run,) = store.claim_runs("s1", 1, AGENTS).runs
        place.empty()
        if is_made_again:
            open_store(place.url).close()
        with pytest.raises(StoreBroken, match="the store that this process served is gone"):
            WRITES[what](store)
        with pytest.raises(StoreBroken):
            store.commit([append(run, b"1")])
        with pytest.raises(StoreBroken), closing(open_store(place.url, known=store.identity)):
            pass
    if is_made_again:
        with closing(open_store(place.url)) as new:
            assert (new.read_run("r1"), new.read_run("r2"), new.list_sessions()) == (None, None, [])


def test_workers_whose_store_is_emptied_stop_and_say_so(place: Emptied, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(CODE)
    command = [sys.executable, "-m", "ninelives", "worker", "agents.py", "--store", place.url, "--lease", "2"]
    said = tmp_path / "said"
    with said.open("wb") as log:
        workers = subprocess.Popen([*command, "--processes", "1"], cwd=tmp_path, stderr=log, stdout=log)
    try:
        until(lambda: "is ready" in said.read_text())
        place.empty()
        assert workers.wait(60) == 4
    finally:
        workers.kill()
        workers.wait()
    assert "the store that this process served is gone" in said.read_text()
