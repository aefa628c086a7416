"""Open a bucket, and ask it whether it keeps its conditions: else it cannot fence a second replicator.

Some S3 servers accept every write, whatever the condition. So before the first write, a small object is
created twice and replaced twice under one version: each second write must be refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from ninelives.core.errors import UsageError
from ninelives.ops.replication.bucket import Bucket, NameTaken

_FOLDER = "probe/"


def require_conditions(bucket: Bucket) -> None:
    """Raise UsageError if the bucket ignores the conditions of writes. Leaves nothing behind."""
    name = f"{_FOLDER}{secrets.token_hex(8)}"
    try:
        ignored = _ignored(bucket, name)
    finally:
        # CRASH: the small object stays, and no one reads it.
        bucket.remove([name])
    if ignored:
        raise UsageError(
            f"{bucket.url} ignores {' and '.join(ignored)}: two replicators could overwrite each other",
            remedy="Use a server that keeps conditional writes (S3 itself does). If you make sure that only "
            "one replicator ever writes here, pass --unfenced",
        )


def _ignored(bucket: Bucket, name: str) -> list[str]:
    ignored = []
    bucket.create(name, b"first")
    if _is_accepted(lambda: bucket.create(name, b"second")):
        ignored.append("If-None-Match")
    known = bucket.read(name)
    version = known.version if known is not None else ""
    bucket.write(name, b"third")
    if _is_accepted(lambda: bucket.replace(name, b"fourth", version)):
        ignored.append("If-Match")
    return ignored


def _is_accepted(write: Callable[[], object]) -> bool:
    try:
        write()
    except NameTaken:
        return False
    return True


def is_bucket(url: str) -> bool:
    """Return whether a destination is a bucket's URL, and not a path."""
    return url.startswith(("s3://", "file://"))


def open_bucket(url: str) -> Bucket:
    """Open the bucket of a URL: s3://bucket/prefix or file:///directory.

    Raises UsageError; BucketUnavailable, BucketError.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        from ninelives.ops.replication.directory_bucket import DirectoryBucket

        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise UsageError(f"{url} names no directory", remedy="Write it as file:///backups/runs")
        return DirectoryBucket(unquote(parts.path))
    if parts.scheme == "s3":
        from ninelives.ops.replication.s3_bucket import S3Bucket

        if not parts.netloc:
            raise UsageError(f"{url} names no bucket", remedy="Write it as s3://bucket/prefix")
        return S3Bucket(parts.netloc, unquote(parts.path).strip("/"))
    raise UsageError(f"{url} is no bucket", remedy="Write it as s3://bucket/prefix, or as file:///directory")
