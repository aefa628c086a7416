"""The long form: either of two processes that race for a key is killed at every call of its store."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tests.crash.stores import DURABLE, scratch
from tests.effects.lives import EffectsServer
from tests.effects.races import race
from tests.effects.service import Service
from tests.proof.report import Report, Result, judged, tell, write

CALLS = 40


def main() -> None:
    """Race at every call, before and after it, with both kinds of actions."""
    parser = argparse.ArgumentParser(prog="python -m tests.effects", description=__doc__)
    parser.add_argument("--store", choices=DURABLE, default="sqlite")
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    began, store, sections = time.monotonic(), asked.store, list[Result]()
    with (
        EffectsServer() as server,
        EffectsServer() as rival,
        scratch(store) as home,
        Service(home / "ledger") as service,
    ):
        for kind in ("keyed", "keyed-resumable"):
            for side in ("before", "after"):
                wrong: list[str] = []
                for call in range(1, CALLS):
                    try:
                        race(server, rival, service, home, kind, call, side)
                    except AssertionError as error:
                        wrong.append(f"killed {side} call {call}: {error!r}"[-3000:])
                told = f"killed {side} each of {CALLS - 1} calls: one effect, both got its result"
                told += f", but for {len(wrong)}" if wrong else ""
                name = f"two runs race for one key, {kind}"
                sections.append(tell(judged(name, told, wrong, kills=CALLS - 1)))
    again = f"python -m tests.effects --store {store}"
    spent = round(time.monotonic() - began)
    write(asked.report, Report(again=again, store=store, seconds=spent, sections=sections))


if __name__ == "__main__":
    main()
