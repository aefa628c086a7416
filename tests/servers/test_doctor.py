"""What the doctor says of servers that do not keep what they acknowledge, where the URL accepts that."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis

from ninelives.ops.doctor import DoctorFinding, Level, examine
from ninelives.stores.open import open_store
from ninelives.stores.presence import is_there
from tests.servers.postgres import change, quick_directory
from tests.servers.valkey import ValkeyServer


@pytest.fixture(scope="module")
def late() -> Iterator[ValkeyServer]:
    """Yield a server that syncs every second, and does not tell everybody."""
    made = ValkeyServer(quick_directory(), appendfsync="everysec")
    with redis.Redis(port=made.port) as client:
        client.acl_setuser(
            "agent",
            enabled=True,
            nopass=True,
            keys=["*"],
            channels=["*"],
            categories=["+@all"],
            commands=["-config"],
        )
    yield made
    made.remove()


def told(url: str, check: str = "durability") -> list[DoctorFinding]:
    """Return what is found about one thing."""
    open_store(url).close()
    return [finding for finding in examine(url) if finding.check == check]


@pytest.mark.parametrize(
    ("user", "unsafe", "what", "remedy"),
    [
        ("", "appendfsync", "appendfsync everysec", "Set appendfsync always"),
        ("agent@", "config", "settings that it does not report", "CONFIG GET"),
    ],
)
def test_a_server_that_syncs_late_or_does_not_tell_is_warned_of(
    late: ValkeyServer, user: str, unsafe: str, what: str, remedy: str
) -> None:
    url = f"redis://{user}127.0.0.1:{late.port}/0?prefix=doctor&unsafe={unsafe}"
    (finding,) = told(url)
    assert finding.level is Level.WARN
    assert what in finding.what
    assert remedy in finding.remedy


def test_a_server_that_keeps_nothing_is_warned_of_with_what_is_not_done_on_it() -> None:
    server = ValkeyServer(quick_directory(), appendonly="no")
    try:
        url = f"{server.url}?unsafe=appendonly"
        (finding,) = told(url)
        (actions,) = told(url, "actions")
    finally:
        server.remove()
    assert "appendonly no" in finding.what
    assert (actions.level, finding.level) == (Level.WARN, Level.WARN)
    assert "no non-resumable action is started" in actions.what


def test_replicas_that_are_asked_for_and_not_there_are_warned_of(redis_url: str) -> None:
    (finding,) = told(f"{redis_url}&replicas=2")
    assert finding.level is Level.WARN
    assert "replicas=2, and the server has 0" in finding.what
    assert "appendonly yes" in finding.remedy


def test_a_server_that_syncs_is_well(redis_url: str, postgres_url: str) -> None:
    assert [finding.level for url in (redis_url, postgres_url) for finding in told(url)] == [Level.OK] * 2


def test_a_postgres_that_does_not_sync_is_warned_of(postgres_url: str) -> None:
    role = f"role_{secrets.token_hex(6)}"
    change(f"CREATE ROLE {role} LOGIN")
    change(f"GRANT CREATE ON DATABASE postgres TO {role}")
    change(f"ALTER ROLE {role} SET synchronous_commit = off")
    url = postgres_url.replace("postgres@", f"{role}@")
    try:
        (finding,) = told(f"{url}&unsafe=synchronous_commit,fsync")
    finally:
        change(f"DROP OWNED BY {role} CASCADE")
        change(f"DROP ROLE {role}")
    assert finding.level is Level.WARN
    assert "synchronous_commit = off" in finding.what
    assert "may happen twice" in finding.remedy


def test_the_command_ends_with_1_on_a_setting_that_is_not_safe(late: ValkeyServer) -> None:
    url = f"{late.url}?prefix=doctor&unsafe=appendfsync"
    open_store(url).close()
    command = [sys.executable, "-m", "ninelives", "doctor", "--json", "--store", url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, json.loads(ended.stdout)["status"]) == (1, "warn")


def test_looking_makes_no_store_on_a_server(redis_url: str, postgres_url: str) -> None:
    for url in (redis_url, postgres_url):
        (finding,) = examine(url)
        assert (finding.check, finding.level) == ("open", Level.FAIL)
        assert "there is no store at" in finding.what
        command = [sys.executable, "-m", "ninelives", "ps", "--store", url]
        looked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (looked.returncode, "there is no store" in looked.stderr) == (2, True)
        assert not is_there(url)
        open_store(url).close()
        assert is_there(url)
