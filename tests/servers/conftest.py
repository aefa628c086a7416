"""What the tests of the servers' stores share."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.servers import valkey
from tests.servers.postgres import change, shared_url


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """Yield the URL of a schema that nobody has used."""
    schema = f"test_{secrets.token_hex(6)}"
    yield f"{shared_url()}?schema={schema}"
    change(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def redis_url() -> Iterator[str]:
    """Yield the URL of a prefix that nobody has used."""
    prefix = f"test-{secrets.token_hex(6)}"
    yield f"{valkey.shared_url()}?prefix={prefix}"
    valkey.wipe(prefix)
