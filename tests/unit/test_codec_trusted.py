"""What was valid when it was recorded comes back, whatever its class thinks of it by now."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator
from typing import Annotated, Any, Generic, Literal, TypeVar

import attrs
import msgspec
import pydantic
import pydantic_core
import pytest

import ninelives as nl
from ninelives.core.errors import Divergence
from ninelives.core.values.codec import codec_for
from tests.replay.lifetimes import Stage, twice

T = TypeVar("T")
CLOCK = {"now": 0}


@pytest.fixture(autouse=True)
def _clock() -> Iterator[None]:
    CLOCK["now"] = 0
    yield
    CLOCK["now"] = 0


def not_expired(value: Any) -> Any:
    if CLOCK["now"] > 100:
        raise ValueError("it has expired")
    return value


def wrapped(value: Any, handler: Any) -> Any:
    return not_expired(handler(value))


def defaulted(value: Any) -> Any:
    if value is None:
        raise pydantic_core.PydanticUseDefault
    return value


class Offer(pydantic.BaseModel):
    price: int
    until: Annotated[int, pydantic.AfterValidator(not_expired)] = 5
    before: Annotated[int, pydantic.BeforeValidator(not_expired)] = 5
    wrap: Annotated[int, pydantic.WrapValidator(wrapped)] = 5
    maybe: Annotated[int | None, pydantic.BeforeValidator(defaulted)] = 7
    named: int = pydantic.Field(default=1, alias="nämed")
    tags: set[str] = pydantic.Field(default_factory=lambda: {"a", "b", "c"})
    _private: int = pydantic.PrivateAttr(default=3)

    @pydantic.computed_field
    def double(self) -> int:
        return self.price * 2

    @pydantic.model_validator(mode="after")
    def check_all(self) -> Offer:
        return not_expired(self)  # type: ignore[no-any-return]

    @pydantic.model_validator(mode="before")
    @classmethod
    def check_given(cls, given: Any) -> Any:
        return not_expired(given)

    @pydantic.field_validator("price")
    @classmethod
    def check_price(cls, price: int, info: pydantic.ValidationInfo) -> int:
        assert info.field_name == "price"
        return int(not_expired(price))


class Wait(pydantic.BaseModel):
    kind: Literal["wait"] = "wait"
    offer: Offer


class Stop(pydantic.BaseModel):
    kind: Literal["stop"] = "stop"


class Plan(pydantic.BaseModel):
    first: Offer
    more: list[Offer] = []
    by_name: dict[str, Offer] = {}
    maybe: Offer | None = None
    step: Annotated[Wait | Stop, pydantic.Field(discriminator="kind")]


class Tree(pydantic.BaseModel):
    offer: Offer
    below: list[Tree] = []


class Boxed(pydantic.BaseModel, Generic[T]):
    held: T


class Offers(pydantic.RootModel[list[Offer]]):
    pass


@dataclasses.dataclass
class Ticket:
    price: int
    offer: Offer | None = None

    def __post_init__(self) -> None:
        not_expired(self.price)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    price: int

    def __post_init__(self) -> None:
        not_expired(self.price)


@attrs.define
class Part:
    price: int

    def __attrs_post_init__(self) -> None:
        not_expired(self.price)


class Row(msgspec.Struct):
    price: int

    def __post_init__(self) -> None:
        not_expired(self.price)


class FrozenRow(msgspec.Struct, frozen=True):
    price: int
    below: tuple[FrozenRow, ...] = ()

    def __post_init__(self) -> None:
        not_expired(self.price)


def offer(price: int = 1) -> Offer:
    return Offer(price=price)


CASES: list[tuple[Any, Any]] = [
    (Offer, Offer(price=2, nämed=9, tags={"x", "y", "z"})),
    (
        Plan,
        Plan(
            first=offer(1), more=[offer(2)], by_name={"a": offer(3)}, maybe=offer(), step=Wait(offer=offer())
        ),
    ),
    (Plan, Plan(first=offer(1), step=Stop())),
    (
        Tree,
        Tree(offer=offer(), below=[Tree(offer=offer(2)), Tree(offer=offer(3), below=[Tree(offer=offer(4))])]),
    ),
    (Boxed[Offer], Boxed[Offer](held=offer(4))),
    (Offers, Offers([offer(1), offer(2)])),
    (Offer | None, offer(3)),
    (Offer | Stop, offer(3)),
    (list[Offer | str], [offer(3), "a"]),
    (Ticket, Ticket(3, offer(2))),
    (dict[int, Ticket], {1: Ticket(3)}),
    (Frozen, Frozen(3)),
    (Part, Part(3)),
    (Row, Row(3)),
    (FrozenRow, FrozenRow(3, (FrozenRow(4),))),
]


@pytest.mark.parametrize(("annotation", "value"), CASES, ids=[str(one[0]) for one in CASES])
def test_a_value_that_its_class_refuses_by_now_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    codec = codec_for(annotation)
    data = codec.encode(value)
    CLOCK["now"] = 1000
    with pytest.raises(Divergence):
        codec.decode(data)  # from outside it would be refused
    found = codec.recall(data)
    assert type(found) is type(value)
    assert found == value
    if isinstance(found, Offer):
        assert (found._private, found.double) == (3, value.double)


def test_times_that_were_in_the_future_come_back() -> None:
    class Dated(pydantic.BaseModel):
        when: pydantic.FutureDatetime
        day: pydantic.FutureDate
        born: pydantic.PastDate

    codec = codec_for(Dated)
    data = b'{"when":"2020-01-01T00:00:00Z","day":"2020-01-01","born":"2999-01-01"}'
    with pytest.raises(Divergence):
        codec.decode(data)
    found = codec.recall(data)
    assert (found.when, found.day.year, found.born.year) == (
        dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        2020,
        2999,
    )


@pytest.mark.parametrize(
    "data", [b'{"price":"x"}', b'{"until":5}', b"[]", b'{"price":1,"until":"later"}', b'{"price":null}']
)
def test_what_has_another_shape_is_still_a_divergence(data: bytes) -> None:
    CLOCK["now"] = 1000
    with pytest.raises(Divergence):
        codec_for(Offer).recall(data)


def test_fields_that_were_added_since_have_their_defaults() -> None:
    CLOCK["now"] = 1000
    assert codec_for(Offer).recall(b'{"price":1,"until":9}').wrap == 5


def test_members_of_a_union_that_only_validators_tell_apart_are_never_exchanged() -> None:
    def is_odd(value: int) -> int:
        if value % 2 == 0:
            raise ValueError("it is even")
        return value

    class Odd(pydantic.BaseModel):
        n: Annotated[int, pydantic.AfterValidator(is_odd)]

    class Even(pydantic.BaseModel):
        n: int

    class Number(pydantic.BaseModel):
        one: Odd | Even
        until: Annotated[int, pydantic.AfterValidator(not_expired)] = 5

    codec = codec_for(Number)
    for value in (Number(one=Odd(n=1)), Number(one=Even(n=2))):
        CLOCK["now"] = 0
        data = codec.encode(value)
        CLOCK["now"] = 1000
        assert codec.recall(data) == value


def test_an_agent_goes_on_with_values_that_have_expired_meanwhile() -> None:
    stage = Stage()

    @nl.decision
    async def choose() -> Offer:
        stage.did("choose")
        return offer(4)

    @nl.action
    async def wait() -> None:
        await stage.stop_here()

    @nl.agent(name="patient")
    async def agent(given: Ticket) -> int:
        if stage.is_second:
            CLOCK["now"] = 1000
        chosen = await choose()
        await wait()
        return chosen.price + given.price

    twice(stage, agent, Ticket(3))
    assert stage.executed == []
