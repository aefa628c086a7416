"""Stores of every format that was ever released: opened, migrated, and carried on to the end of each run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.formats import keep
from tests.formats.carry_on import carry_on

HERE = Path(__file__).parent
FORMATS = sorted(folder.name for folder in HERE.glob("schema-*"))
KINDS = ("sqlite", "postgresql", "redis")


class Kept:
    """A kept store that was put back: its kind, its URL, and the ledger of what was done before."""

    def __init__(self, kind: str, version: str, home: Path) -> None:
        self.kind, folder = kind, HERE / version
        self.ledger = home / "ledger"
        shutil.copy(folder / f"{kind}.ledger", self.ledger)
        (home / "store").mkdir()
        self.url = keep.put_back(kind, folder, home / "store")


@pytest.fixture(params=[(version, kind) for version in FORMATS for kind in KINDS], ids="-".join)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """Yield each kept store, put back."""
    version, kind = request.param
    found = Kept(kind, version, tmp_path)
    yield found
    keep.remove(kind, found.url)


def test_every_run_of_a_kept_store_comes_to_its_end_and_nothing_is_done_twice(kept: Kept) -> None:
    assert carry_on(kept.url, kept.ledger) == []
