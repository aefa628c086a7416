"""Stores whose pages carried checksums are ordinary files now, also those that a look had destroyed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ninelives.core.model.run import RunQuery
from ninelives.stores.sqlite.files import schema
from tests.formats import keep
from tests.integration.conftest import Opener

KEPT = Path(keep.__file__).parent / "schema-1"
_RESERVED_AT, _PAGE_BYTES = 20, 4096


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return where a store of schema 1 lies."""
    keep.put_back("sqlite", KEPT, tmp_path)
    return tmp_path / "runs.db"


def test_an_old_store_becomes_an_ordinary_file(old: Path, opened: Opener) -> None:
    assert old.read_bytes()[_RESERVED_AT] == 8
    store = opened(old)
    assert store.migrate() == (1, len(schema.migrations()))
    assert store.verify() == []
    assert len(store.list_runs(RunQuery())) > 20


def test_an_old_store_that_a_look_had_destroyed_can_be_read_again(old: Path, opened: Opener) -> None:
    image = bytearray(old.read_bytes())
    for page in range(_PAGE_BYTES, len(image) + 1, _PAGE_BYTES):
        image[page - 8 : page] = b"stale..."  # what a stock tool leaves of a page's checksum
    old.write_bytes(image)
    with closing(sqlite3.connect(old)) as tool:
        tool.execute("CREATE TABLE theirs (x)")
    store = opened(old)
    assert store.verify() == []
    assert len(store.list_runs(RunQuery())) > 20
