"""What the tests of copies share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ninelives.ops.replication.bucket import Bucket
from ninelives.ops.replication.opening import open_bucket
from ninelives.ops.replication.replicator import Options, Replicator
from tests.contract.makers import AnyStore
from tests.servers import s3

Copier = Callable[..., Replicator]


@pytest.fixture
def directory(tmp_path: Path) -> Bucket:
    """Return an empty bucket in a directory."""
    return open_bucket(f"file://{tmp_path}/bucket")


@pytest.fixture
def s3_url(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty prefix on a real S3 server."""
    for name, value in s3.shared().environment.items():
        monkeypatch.setenv(name, value)
    return s3.fresh_url()


def copied(store: AnyStore, bucket: Bucket, **options: object) -> Replicator:
    """Copy a store once, by a replicator of its own."""
    made = Replicator(store, bucket, Options(**options), pause, tries=3)  # type: ignore[arg-type]
    made.open()
    made.run(is_once=True)
    return made


def pause(seconds: float) -> bool:
    """Wait, and go on."""
    time.sleep(min(seconds, 0.01))
    return False
