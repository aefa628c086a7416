"""URLs of stores: no password is ever shown, and another part of a server is named."""

from __future__ import annotations

import pytest

from ninelives.chaos.trial import scratch_store
from ninelives.cli.options import command
from ninelives.core.errors import UsageError
from ninelives.stores import url as urls
from ninelives.stores.open import open_store


@pytest.mark.parametrize(
    ("url", "is_secret"),
    [
        ("postgresql://ann:pw@db/prod", True),
        ("redis://:pw@cache", True),
        ("postgresql://ann:p/w@db/prod", True),
        ("postgresql://db/prod?user=ann&password=pw", True),
        ("rediss://cache/0?ssl_password=pw", True),
        ("postgresql://ann@pool/prod?direct_url=postgresql%3A%2F%2Fann%3Apw%40db%2Fprod", True),
        ("ann:pw@db", True),
        ("postgresql://ann@db:5432/prod?schema=live", False),
        ("postgresql://ann@pool:6432/prod?direct_url=postgresql%3A%2F%2Fann%40db%3A5432%2Fprod", False),
        ("postgresql:///prod", False),
        ("redis://[::1]:6379/0", False),
        ("sqlite:////home/a:b@c/runs.db", False),
        ("runs.db", False),
    ],
)
def test_what_may_be_a_password_is_known(url: str, is_secret: bool) -> None:
    assert urls.has_secret(url) is is_secret
    assert (urls.shown(url) == url) is not is_secret


@pytest.mark.parametrize(
    "url",
    [
        "mysql://lim:secretpw@db/prod",
        "postgresql://ann:secretpw%zz@db/prod",
        "postgresql://ann:secretpw/x@db/prod",
        "postgresql://ann:secretpw?x@db/prod",
        "postgresql://ann:secretpw\u2100@db/prod",
        "postgresql://ann:secretpw@db/prod?secretpw",
        "redis://ann:secretpw/x@cache/0",
        "redis://ann:secretpw?x@cache/0",
        "redis://ann:secretpw@cache/secretpw",
    ],
)
def test_no_password_is_told_by_what_refuses_a_url(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        open_store(url)
    assert "secretpw" not in str(refused.value)


def test_chaos_tells_no_password() -> None:
    with pytest.raises(UsageError) as refused:
        scratch_store.urls("mysql://lim:secretpw@db/prod")
    assert "secretpw" not in str(refused.value)


def test_a_url_without_a_password_is_told_whole() -> None:
    with pytest.raises(UsageError, match="'mysql://db/prod' names no store"):
        open_store("mysql://db/prod")
    with pytest.raises(UsageError, match='"nose"'):
        open_store("postgresql://db/prod?nose=1")


@pytest.mark.parametrize(
    ("url", "known", "said"),
    [
        ("sqlite:///.ninelives/runs.db", None, "ninelives show a"),
        (
            "sqlite:///.ninelives/runs.db",
            "redis://cache",
            "ninelives show a --store sqlite:///.ninelives/runs.db",
        ),
        ("sqlite:///my runs.db", None, "ninelives show a --store 'sqlite:///my runs.db'"),
        ("postgresql://ann:pw@db/prod", "postgresql://ann:pw@db/prod", "ninelives show a"),
        ("postgresql://ann:pw@db/prod", None, 'ninelives show a --store "$NINELIVES_STORE"'),
    ],
)
def test_a_told_command_is_for_the_same_store(
    monkeypatch: pytest.MonkeyPatch, url: str, known: str | None, said: str
) -> None:
    monkeypatch.delenv("NINELIVES_STORE", raising=False)
    if known is not None:
        monkeypatch.setenv("NINELIVES_STORE", known)
    assert command(["show", "a"], url) == said
    assert command(["show", "a"], url, "--", "b c") == f"{said} -- 'b c'"


def test_another_part_of_a_server_is_named_and_the_rest_of_the_url_kept() -> None:
    made = urls.with_part("postgresql:///prod?sslmode=require&schema=live", "mine")
    assert made == "postgresql:///prod?sslmode=require&schema=mine"
    assert urls.part_in(made) == "mine"
    assert urls.part_in("valkeys://cache/0") is None
