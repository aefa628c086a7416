"""Actions that the tests' policies are about, and calls of them."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pydantic

from ninelives.core.governance.verdicts import Call
from ninelives.engine.spec.registry import Agent, Step, make_agent, make_step
from ninelives.governance.policy.declared import Declaration


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    sku: str
    count: int


@dataclass
class Order:
    id: str
    cents: int
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


class Address(msgspec.Struct):
    street: str
    country: Literal["de", "fr"]


class Person(pydantic.BaseModel):
    name: str
    age: int


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict):
    depth: int
    mode: NotRequired[str]


async def refund(order: str, cents: int, currency: Literal["EUR", "USD"] = "EUR") -> None: ...
async def wire(amount: Decimal, to: str, at: dt.datetime, memo: str | None = None) -> None: ...
async def database(operation: Literal["read", "drop", "delete"], table: str, rows: float = 0.0) -> None: ...
async def query(sql: str) -> None: ...
async def ship(order: Order, address: Address, colour: Colour, tags: list[str]) -> None: ...
async def enrol(person: Person, point: Point, options: Options, numbers: dict[str, int]) -> None: ...
async def untyped(thing, other=None): ...  # type: ignore[no-untyped-def]
async def search(words: str) -> str:
    return ""


async def ask_model(prompt: str) -> str:
    return ""


async def helper(topic: str, depth: int = 1) -> str:
    return ""


def steps() -> list[Declaration]:
    """Declare all of them, without registering them."""
    actions = (refund, wire, database, query, ship, enrol, untyped)
    made: list[Step | Agent] = [make_step(one, is_decision=False) for one in actions]
    made.append(make_step(search, is_decision=False, reads_only=True))
    made.append(make_step(ask_model, is_decision=True, reads_only=True))
    made.append(make_agent(helper, None, "strict", "default", None))
    return made


NOON = dt.datetime(2026, 3, 7, 12, 30, tzinfo=dt.UTC)  # a Saturday
ARGUMENTS: dict[str, dict[str, Any]] = {
    "refund": {"order": "o-1", "cents": 500, "currency": "EUR"},
    "wire": {"amount": Decimal("10.10"), "to": "bank", "at": NOON, "memo": None},
    "database": {"operation": "drop", "table": "users", "rows": 5.0},
    "query": {"sql": "DROP TABLE users"},
    "ship": {
        "order": Order("o-1", 700, [Line("a", 1), Line("b", 20)]),
        "address": Address("Weg 1", "de"),
        "colour": Colour.RED,
        "tags": ["new", "heavy"],
    },
    "enrol": {
        "person": Person(name="Ada", age=36),
        "point": Point(1, -2),
        "options": {"depth": 3},
        "numbers": {"a": 1},
    },
    "untyped": {"thing": 5, "other": None},
    "search": {"words": "shoes"},
    "ask_model": {"prompt": "hello"},
    "helper": {"topic": "x", "depth": 1},
}
KINDS = {"search": "read", "ask_model": "decision", "helper": "spawn"}


def call(action: str, args: dict[str, Any] | None = None, **facts: Any) -> Call:
    """Return a call of one of them, with other arguments and facts than usual."""
    known: dict[str, Any] = {"run": "run-1", "agent": "support", "now": NOON, **facts}
    kind = known.pop("kind", KINDS.get(action, "action"))
    return Call(action=action, kind=kind, args={**ARGUMENTS[action], **(args or {})}, **known)


def policy(*rules: str, default: str = "deny", head: str = "") -> str:
    """Return a policy's text: each rule is the keys that follow its id."""
    tables = "\n".join(f'[[rule]]\nid = "r{number}"\n{text}' for number, text in enumerate(rules, 1))
    return f'[policy]\nname = "shop"\ndefault = "{default}"\n{head}\n{tables}\n'
