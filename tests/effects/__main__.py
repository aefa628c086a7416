"""The long form: either of two processes that race for a key is killed at every call of its store."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.effects.lives import EffectsServer
from tests.effects.races import race
from tests.effects.service import Service

CALLS = 40


def main() -> None:
    """Race at every call, before and after it, with both kinds of actions."""
    with EffectsServer() as server, EffectsServer() as rival, TemporaryDirectory() as made:
        home = Path(made)
        with Service(home / "ledger") as service:
            for kind in ("keyed", "keyed-resumable"):
                for side in ("before", "after"):
                    for call in range(1, CALLS):
                        race(server, rival, service, home, kind, call, side)
                    print(f"{kind}: killed {side} each of {CALLS - 1} calls: one effect, both got its result")


if __name__ == "__main__":
    main()
