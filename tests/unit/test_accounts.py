"""The rules of accounts, by themselves."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from ninelives.core.errors import Corrupt
from ninelives.core.governance import accounts
from ninelives.core.governance.accounts import Over, Reserve, Settle


def test_an_empty_account_has_no_fields() -> None:
    assert accounts.write(accounts.read("a", None)) == b"{}"
    assert accounts.applied(None, Settle("a", {"usd": 5}, {"usd": 0})) == b"{}"


@pytest.mark.parametrize("body", [b"", b"1", b"[]", b"{", b'{"spent":[]}', b'{"limits":{"usd":true}}'])
def test_a_body_that_no_rule_wrote_is_damage(body: bytes) -> None:
    for op in (Reserve("a", {"usd": 1}), Settle("a", {}, {})):
        with pytest.raises(Corrupt, match="'a'") as caught:
            accounts.applied(body, op)
        assert caught.value.remedy


def test_of_several_meters_the_first_over_its_limit_is_named_and_nothing_is_reserved() -> None:
    op = Reserve("a", {"free": 99, "usd": 6, "tokens": 7}, {"usd": 5, "tokens": 6})
    assert accounts.reserved(None, op) == Over("a", "usd", 5, 0, 0, 6)
    assert accounts.reserved(b'{"limits":{"usd":6}}', op) == Over("a", "tokens", 6, 0, 0, 7)


def test_a_limit_of_nothing_allows_nothing_but_nothing() -> None:
    assert accounts.reserved(None, Reserve("a", {"usd": 0}, {"usd": 0})) == b"{}"
    assert isinstance(accounts.reserved(None, Reserve("a", {"usd": 1}, {"usd": 0})), Over)


def test_at_random_no_reservation_passes_a_limit_and_sums_agree() -> None:
    for seed in range(200):
        rng = Random(seed)
        body: bytes | None = None
        held: list[int] = []
        spent = 0
        limit = rng.randint(0, 50)
        for _ in range(60):
            if held and rng.random() < 0.5:
                amount = held.pop(rng.randrange(len(held)))
                cost = rng.randint(0, amount)
                body, spent = accounts.settled(body, Settle("a", {"m": amount}, {"m": cost})), spent + cost
            else:
                amount = rng.randint(0, 9)
                after = accounts.reserved(body, Reserve("a", {"m": amount}, {"m": limit}))
                assert isinstance(after, Over) == (spent + sum(held) + amount > limit)
                if not isinstance(after, Over):
                    body = after
                    held.append(amount)
            known = msgspec.json.decode(body or b"{}")
            assert known.get("spent", {}).get("m", 0) == spent
            assert known.get("reserved", {}).get("m", 0) == sum(held)
            assert spent + sum(held) <= limit
