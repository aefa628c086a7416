"""People who answer at the same moment, in different processes: one of them counts."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ninelives.core.journal.answers import Says, read_answer
from ninelives.core.model.inbox import ItemState
from tests.crash.stores import DURABLE, SERVED, open_at, scratch
from tests.people.stories import RUN, play

RIVALS = 4
ROUNDS = 2, 1
_RIVAL = """
import sys
from pathlib import Path
from ninelives.core.journal.answers import Answer, Says
from ninelives.core.errors import StaleAnswer
from ninelives.runtime.inbox import give
from tests.crash.stores import open_at

home, name, says = sys.argv[1:]
store = open_at(Path(home))
(item,) = store.list_inbox()
print("ready", flush=True)
sys.stdin.readline()
try:
    give(store, item, Answer(Says(says)), by=name)
except StaleAnswer:
    print("stale")
else:
    print("counted")
store.close()
"""


def answer_at_once(home: Path, says: list[Says]) -> list[str]:
    """Let each rival say its word at the same moment; returns whether it counted."""
    with ExitStack() as stack:
        rivals = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _RIVAL, str(home), f"rival-{rival}", word],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for rival, word in enumerate(says)
        ]
        for one in rivals:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in rivals:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        return [one.communicate(timeout=120)[0].strip() for one in rivals]


@pytest.mark.parametrize("kind", DURABLE)
def test_of_rivals_who_answer_at_once_one_counts(kind: str) -> None:
    for _ in range(ROUNDS[kind in SERVED]):
        with scratch(kind) as home:
            play(str(home), "approved", 0, 3)  # up to the approval that waits
            says = [Says.APPROVED if rival % 2 else Says.DENIED for rival in range(RIVALS)]
            told = answer_at_once(home, says)
            assert sorted(told) == ["counted"] + ["stale"] * (RIVALS - 1)
            winner = told.index("counted")
            store = open_at(home)
            answered = [item for item in store.list_inbox(run=RUN, answered=True) if item.kind == "approval"]
            assert [(item.state, item.by) for item in answered] == [(ItemState.ANSWERED, f"rival-{winner}")]
            assert read_answer(answered[0]).says is says[winner]
            store.close()
            play(str(home), "approved", 4, 5)
            assert (home / "ledger").exists() == (says[winner] is Says.APPROVED)
