"""The long form: `python -m tests.transfer --rounds N` plays random histories and carries them 4 x 4."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from ninelives.core.errors import NineLivesError
from ninelives.core.model.run import RunQuery
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, make_bench
from tests.contract.operations import Chooser
from tests.contract.test_capsules import portable


def carry(seed: int, source_kind: str, target_kind: str, home: Path) -> int:
    """Play a random history on one store, and import all of it into another; return how many runs."""
    clock = SteppingClock()
    for side in ("source", "target"):
        (home / side).mkdir()
    source = make_bench(source_kind, clock, home / "source")
    target = make_bench(target_kind, clock, home / "target")
    chooser = Chooser(Random(seed), clock, source.store)
    for _ in range(60):
        operation = chooser.next()
        with suppress(NineLivesError):
            operation.call(source.store)
    rows = source.store.list_runs(RunQuery(limit=1000))
    capsules = [source.store.export_run(row.id) for row in rows]
    for capsule in capsules:
        target.store.put_blobs(source.store.get_blobs(capsule.blobs).values())
    target.store.import_runs(capsules, move="m")
    for capsule in capsules:
        assert portable(target.store.export_run(capsule.run.id)) == portable(capsule), seed
    source.close()
    target.close()
    return len(capsules)


def main() -> None:
    """Play as many rounds as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    carried = 0
    for seed in range(asked.seed, asked.seed + asked.rounds):
        for pair in ((one, other) for one in STORES for other in STORES):
            with TemporaryDirectory(prefix="ninelives-") as home:
                carried += carry(seed, *pair, Path(home))
    print(f"{asked.rounds} rounds, {carried} runs carried, all equal")


if __name__ == "__main__":
    main()
