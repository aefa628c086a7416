"""Accounts: what was spent and what is reserved, per meter, under limits.

An account is a document. A commit changes it in its own transaction: `Reserve` before something is spent,
`Settle` when it is known what was spent. All amounts are whole numbers (micro-dollars, milliseconds, tokens),
so sums are exact. A reservation that would pass a limit refuses the whole commit. A settlement is never
refused: what was spent is spent.

The body is a JSON object: `spent` and `reserved` by meter, and `limits`, which win over those of the
operations. Other fields are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt

METERS_AT_MOST = 32
"""The most meters that one operation names."""
AMOUNT_LIMIT = 2**63
"""Amounts and limits are below this; what they add up to need not be."""


class Requirement(Struct, frozen=True):
    """A document must have this version when the commit is applied; 0: it does not exist."""

    name: str
    version: int


class Reserve(Struct, frozen=True, tag="reserve"):
    """Reserve amounts, if `spent + reserved + amount` passes no limit; a meter without a limit has none."""

    account: str
    amounts: dict[str, int]
    limits: dict[str, int] = {}


class Settle(Struct, frozen=True, tag="settle"):
    """Release what was held, and add what was spent."""

    account: str
    held: dict[str, int]
    spent: dict[str, int]


AccountOp = Reserve | Settle


class Over(Struct, frozen=True):
    """A reservation that would pass a limit: of which account and meter, and how it stands."""

    account: str
    meter: str
    limit: int
    spent: int
    reserved: int
    amount: int


class Account(Struct):
    """An account as it is stored; `rest` are the fields of its body that no rule here knows."""

    limits: dict[str, int]
    spent: dict[str, int]
    reserved: dict[str, int]
    rest: dict[str, Any]

    def standing(self, meter: str) -> int:
        """Return what counts against a meter's limit."""
        return self.spent.get(meter, 0) + self.reserved.get(meter, 0)


def read(name: str, body: bytes | None) -> Account:
    """Return the account of a document's body; an empty one if there is none. Raises Corrupt."""
    if body is None:
        return Account({}, {}, {}, {})
    try:
        rest = msgspec.json.decode(body, type=dict[str, Any])
        limits, spent, held = (_amounts(rest.pop(part, {})) for part in ("limits", "spent", "reserved"))
    except (msgspec.DecodeError, ValueError) as error:
        raise Corrupt(
            f"the account {name!r} is not what was written: {error}",
            remedy="Nothing was changed. Restore the document, or remove it to begin the account again",
        ) from error
    return Account(limits, spent, held, rest)


def write(account: Account) -> bytes:
    """Return the body of an account's document; meters that stand at 0 are left out."""
    known = {
        "limits": account.limits,
        "spent": _counted(account.spent),
        "reserved": _counted(account.reserved),
    }
    return msgspec.json.encode({**{name: part for name, part in known.items() if part}, **account.rest})


def reserved(body: bytes | None, op: Reserve) -> bytes | Over:
    """Return the account's body after a reservation, or which limit it would pass. Raises Corrupt."""
    account = read(op.account, body)
    for meter, amount in op.amounts.items():
        limit = account.limits.get(meter, op.limits.get(meter))
        if limit is not None and account.standing(meter) + amount > limit:
            spent, held = account.spent.get(meter, 0), account.reserved.get(meter, 0)
            return Over(op.account, meter, limit, spent, held, amount)
    for meter, amount in op.amounts.items():
        account.reserved[meter] = account.reserved.get(meter, 0) + amount
    return write(account)


def settled(body: bytes | None, op: Settle) -> bytes:
    """Return the account's body after a settlement. Raises Corrupt."""
    account = read(op.account, body)
    for meter, amount in op.held.items():
        # Never negative: the account may have been removed, and made again, since the reservation.
        account.reserved[meter] = max(0, account.reserved.get(meter, 0) - amount)
    for meter, amount in op.spent.items():
        account.spent[meter] = account.spent.get(meter, 0) + amount
    return write(account)


def applied(body: bytes | None, op: AccountOp) -> bytes | Over:
    """Return the account's body after an operation, or which limit it would pass. Raises Corrupt."""
    return reserved(body, op) if isinstance(op, Reserve) else settled(body, op)


def _amounts(found: object) -> dict[str, int]:
    if type(found) is not dict:
        raise ValueError(f"{found!r} is not a table of amounts")
    for meter, amount in found.items():
        if type(amount) is not int or amount < 0:
            raise ValueError(f"{meter!r} is {amount!r}")
    return found


def _counted(amounts: Mapping[str, int]) -> dict[str, int]:
    return {meter: amount for meter, amount in amounts.items() if amount}
