"""Kill every stage of every story at every call of the store, do it again, and judge how it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from tests.crash.forkserver import ForkServer
from tests.crash.killing import Side
from tests.crash.stores import bury, scratch
from tests.people.stories import STORIES

PLAY, JUDGE = "tests.people.stories:play", "tests.people.stories:judge"


class PeopleServer(ForkServer):
    """The fork server, with what these stages import already imported."""

    def __init__(self) -> None:
        code = (
            "import ninelives, tests.people.stories; ninelives.Runtime; "
            "from tests.crash.forkserver import serve; serve()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


class Verdict(Struct, frozen=True):
    """Where a stage was killed, and what was wrong in the end."""

    story: str
    stage: int
    call: int
    side: Side
    was_killed: bool
    wrong: list[str]


def kill_everywhere(
    server: ForkServer, story: str, *, store: str = "sqlite", every: int = 1, offset: int = 0
) -> Iterator[Verdict]:
    """Kill each stage before and after calls of the store; `every` and `offset` choose some of them."""
    number = 0
    for stage in range(len(STORIES[story].stages)):
        call = 0
        is_over = False
        while not is_over:
            call += 1
            for side in ("before", "after"):
                number += 1
                if number % every != offset % every:
                    continue
                verdict = kill_at(server, story, stage, call, side, store)
                yield verdict
                is_over = is_over or not verdict.was_killed


def kill_at(server: ForkServer, story: str, stage: int, call: int, side: Side, store: str) -> Verdict:
    """Play a story in which one stage is killed at a call and then done again."""
    with scratch(store) as home:
        where: dict[str, Any] = {"home": str(home), "story": story}
        if stage:
            server.run(PLAY, **where, first=0, last=stage).result()
        death = server.run(PLAY, **where, first=stage, last=stage + 1, call=call, side=side)
        try:
            if not death.was_killed:
                death.result()
            bury(home)
            server.run(PLAY, **where, first=stage, last=len(STORIES[story].stages)).result()
            wrong: list[str] = server.run(JUDGE, **where).result()
        except AssertionError as error:  # a stage that does not come to its end
            wrong = [str(error)]
        return Verdict(story, stage, call, side, death.was_killed, wrong)
