"""A bucket of an S3 server, by obstore (`pip install 'ninelives[s3]'`).

Credentials and the server come from the usual variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL; without keys, the machine's role is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ninelives.core.errors import UsageError
from ninelives.ops.replication.bucket import BucketError, BucketUnavailable, NameTaken, StoredObject

if TYPE_CHECKING:
    from obstore.store import S3Store

_MISSING = "obstore is not installed"
_REMEDY = "pip install 'ninelives[s3]'"
_TIMEOUT = "30s"
_FROM_ENVIRONMENT = {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"}


class S3Bucket:
    """Objects of one bucket under one prefix."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self.location = f"{self.url} at {_endpoint()}"
        self._prefix = f"{prefix}/" if prefix else ""
        self._store = _opened(bucket)

    def read(self, name: str) -> StoredObject | None:
        """Return an object, or None."""
        import obstore

        try:
            with _translated(self.url):
                found = obstore.get(self._store, self._prefix + name)
                return StoredObject(bytes(found.bytes()), found.meta["e_tag"] or "")
        except FileNotFoundError:
            return None

    def read_start(self, name: str, size: int) -> bytes | None:
        """Return the first bytes of an object, or None."""
        import obstore

        try:
            with _translated(self.url):
                return bytes(
                    obstore.get(self._store, self._prefix + name, options={"range": (0, size)}).bytes()
                )
        except FileNotFoundError:
            return None

    def create(self, name: str, content: bytes) -> str:
        """Write a new object, on the condition that there is none (If-None-Match: *)."""
        import obstore

        try:
            with _translated(self.url):
                path = self._prefix + name
                return _version(obstore.put(self._store, path, content, mode="create", use_multipart=False))
        except NameTaken:
            # The driver sends a request again when its answer was lost: the object may be our own.
            known = self.read(name)
            if known is None or known.content != content:
                raise
            return known.version

    def replace(self, name: str, content: bytes, version: str) -> str:
        """Replace an object on the condition that it has this version (If-Match)."""
        import obstore

        try:
            with _translated(self.url):
                mode: Any = {"e_tag": version}
                path = self._prefix + name
                return _version(obstore.put(self._store, path, content, mode=mode, use_multipart=False))
        except (NameTaken, FileNotFoundError):
            known = self.read(name)
            if known is None or known.content != content:
                raise NameTaken(name) from None
            return known.version

    def write(self, name: str, content: bytes) -> None:
        """Write an object, whatever is there."""
        import obstore

        with _translated(self.url):
            obstore.put(self._store, self._prefix + name, content)

    def names(self, prefix: str, after: str = "") -> list[str]:
        """Return the names of all objects under a prefix that come after a name, in order."""
        import obstore

        start = self._prefix + after if after else None
        with _translated(self.url):
            listed = obstore.list(self._store, self._prefix + prefix, offset=start)
            found = [one["path"] for part in listed for one in part]
        # The driver matches whole path segments only; servers differ in what `offset` includes.
        names = sorted(path.removeprefix(self._prefix) for path in found)
        return [name for name in names if name > after]

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that do not exist are ignored."""
        import obstore

        for name in names:
            try:
                with _translated(self.url):
                    obstore.delete(self._store, self._prefix + name)
            except FileNotFoundError:
                continue


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _opened(bucket: str) -> S3Store:
    try:
        from obstore.store import S3Store
    except ModuleNotFoundError as error:
        raise UsageError(_MISSING, remedy=_REMEDY) from error
    endpoint = _endpoint()
    options: dict[str, Any] = {
        name: os.environ[variable] for name, variable in _FROM_ENVIRONMENT.items() if variable in os.environ
    }
    if "AWS_SESSION_TOKEN" in os.environ:
        options["session_token"] = os.environ["AWS_SESSION_TOKEN"]
    if endpoint:
        options["endpoint"] = endpoint
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    is_plain = endpoint.startswith("http://")
    return S3Store(
        bucket,
        region=region,
        client_options={"allow_http": is_plain, "timeout": _TIMEOUT, "connect_timeout": "5s"},
        # We try again ourselves, and report the lag meanwhile.
        retry_config={"max_retries": 1},
        **options,
    )


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn the driver's errors into ours; FileNotFoundError is for the caller."""
    from obstore import exceptions as driver

    try:
        yield
    except FileNotFoundError:
        raise
    except (driver.AlreadyExistsError, driver.PreconditionError) as error:
        raise NameTaken(str(error)) from error
    except (driver.PermissionDeniedError, driver.UnauthenticatedError) as error:
        raise BucketError(
            f"{url} refuses us: {_short(error)}",
            remedy="Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and the bucket's policy",
        ) from error
    except (driver.BaseError, OSError) as error:
        raise BucketUnavailable(
            f"{url} does not answer: {_short(error)}", remedy="It is tried again; check AWS_ENDPOINT_URL"
        ) from error


def _version(answer: Any) -> str:
    return str(answer["e_tag"] or "")


def _short(error: BaseException) -> str:
    return " ".join(str(error).partition("Debug source")[0].split())[:300]
