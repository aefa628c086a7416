"""Types of every supported kind, and strategies for their values."""

import dataclasses
import datetime as dt
import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
from hypothesis import strategies as st

OrderId = NewType("OrderId", str)
Money = Annotated[int, "cents"]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Mood(enum.StrEnum):
    GOOD = "good"


class Mixed(enum.Enum):
    PAIR = (1, 2)
    WORD = "word"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 2


class Spot(NamedTuple):
    """Equal to the Point of the same numbers."""

    left: int
    top: int


class Rank(enum.IntEnum):
    """Equal to a Size."""

    FIRST = 1


class Grant(enum.IntFlag, boundary=enum.KEEP):
    READ = 1
    WRITE = 2


class Scope(enum.IntFlag):
    """Of its combinations, some have names that do not say all of their bits, or none."""

    BOTH = 3
    MORE = 4


class Mine:
    class Status(enum.Enum):
        OPEN = "open"

    @dataclasses.dataclass
    class Item:
        name: str


class Yours:
    class Status(enum.Enum):
        OPEN = "open"

    @dataclasses.dataclass
    class Item:
        name: str


class Contrary(enum.Enum):
    YES = "yes"
    NO = "no"

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = enum.Enum.__hash__


class Options(TypedDict):
    name: str
    limit: NotRequired[int]


@dataclasses.dataclass
class Order:
    id: str
    cents: int
    note: str | None = None
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    order: Order
    at: dt.datetime
    paid: Decimal


@dataclasses.dataclass
class Cat:
    name: str


@dataclasses.dataclass
class Dog:
    name: str


@dataclasses.dataclass
class Puppy(Dog):
    age: int = 0


@dataclasses.dataclass
class Tree:
    name: str
    children: list["Tree"] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Loose:
    id: str
    meta: Any = None


@dataclasses.dataclass
class Quiet:
    """A field that equality does not see."""

    id: str
    score: float | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass
class Lenient:
    """Equal to whatever has the same id."""

    id: str

    def __eq__(self, other: object) -> bool:
        return getattr(other, "id", None) == self.id

    def __hash__(self) -> int:
        return hash(self.id)


@dataclasses.dataclass
class LenientChild(Lenient):
    more: int = 0

    def __eq__(self, other: object) -> bool:
        return getattr(other, "id", None) == self.id

    def __hash__(self) -> int:
        return hash(self.id)


@dataclasses.dataclass(eq=False)
class Heir(Cat):
    """Inherits an __eq__ that knows nothing of its own fields."""

    more: list[int] = dataclasses.field(default_factory=list)
    price: Decimal = Decimal(0)


class Message(msgspec.Struct):
    role: str
    text: str
    at: dt.datetime | None = None


class Renamed(msgspec.Struct, rename="camel", frozen=True):
    order_id: str
    unit_price: float = 0.0


@attrs.define
class Part:
    name: str
    weight: float = 1.0
    labels: list[str] = attrs.Factory(list)


@attrs.define
class Doubled:
    name: str
    twice: str = attrs.field(default=attrs.Factory(lambda self: self.name * 2, takes_self=True))


@attrs.define(eq=False)
class AttrsHeir(Part):
    more: bytes = b""


class Ticket(pydantic.BaseModel):
    id: int
    subject: str = pydantic.Field(default="none", alias="subjectLine", validation_alias="subj")
    opened: dt.datetime | None = None
    extra: dict[str, Any] = pydantic.Field(default_factory=dict)

    model_config = pydantic.ConfigDict(populate_by_name=True)


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
whole = st.integers(-(2**63), 2**63 - 1)
real = st.floats(allow_nan=False, allow_infinity=False)
zones = st.timezones() | st.builds(
    dt.timezone, st.timedeltas(min_value=dt.timedelta(hours=-23), max_value=dt.timedelta(hours=23))
)
# UTC, because a local time that happens twice is refused (see test_codec_refusals).
moments = st.datetimes(timezones=st.just(dt.UTC))
clock_times = st.times(timezones=st.just(dt.UTC))
decimals = st.decimals(allow_nan=False, allow_infinity=False)
orders = st.builds(Order, text, whole, st.none() | text, st.lists(text, max_size=3))
trees = st.recursive(
    st.builds(Tree, text), lambda below: st.builds(Tree, text, st.lists(below, max_size=3)), max_leaves=8
)

plain_leaves = st.none() | st.booleans() | whole | real | text
tagged_leaves = (
    st.binary(max_size=8) | moments | st.dates() | clock_times | st.timedeltas() | decimals | st.uuids()
)
hashable = st.recursive(
    plain_leaves | tagged_leaves,
    lambda below: st.lists(below, max_size=3).map(tuple) | st.frozensets(below, max_size=3),
    max_leaves=4,
)
names = text | st.sampled_from(["$", "v", "of"])
plain_values = st.recursive(
    plain_leaves,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(text.filter("$".__ne__), below, max_size=4),
    max_leaves=12,
)
untyped_values = st.recursive(
    plain_leaves | tagged_leaves,
    lambda below: (
        st.lists(below, max_size=4)
        | st.lists(below, max_size=3).map(tuple)
        | st.dictionaries(names, below, max_size=4)
        | st.dictionaries(hashable, below, max_size=3)
        | st.sets(hashable, max_size=3)
        | st.frozensets(hashable, max_size=3)
    ),
    max_leaves=12,
)

TYPED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (None, st.none()),
    (bool, st.booleans()),
    (int, whole),
    (float, real),
    (str, text),
    (bytes, st.binary(max_size=40)),
    (dt.datetime, moments),
    (dt.date, st.dates()),
    (dt.time, clock_times),
    (dt.timedelta, st.timedeltas()),
    (Decimal, decimals),
    (UUID, st.uuids()),
    (OrderId, text),
    (Money, whole),
    (list[int], st.lists(whole)),
    (list, st.lists(untyped_values, max_size=3)),
    (tuple, st.lists(untyped_values, max_size=3).map(tuple)),
    (tuple[int, str], st.tuples(whole, text)),
    (tuple[Decimal, ...], st.lists(decimals).map(tuple)),
    (dict[str, int], st.dictionaries(names, whole)),
    (dict[int, str], st.dictionaries(whole, text)),
    (
        dict[tuple[int, str], list[Order]],
        st.dictionaries(st.tuples(whole, text), st.lists(orders, max_size=2)),
    ),
    (dict[str, Any], st.dictionaries(names, untyped_values, max_size=3)),
    (set[str], st.sets(text)),
    (frozenset[UUID], st.frozensets(st.uuids())),
    (set[dt.date | int], st.sets(st.dates() | whole)),
    (Sequence[int], st.lists(whole) | st.lists(whole).map(tuple)),
    (AbstractSet[int], st.sets(whole) | st.frozensets(whole)),
    (Mapping[str, float], st.dictionaries(names, real)),
    (Color, st.sampled_from(Color)),
    (Size, st.sampled_from(Size)),
    (Mood, st.sampled_from(Mood)),
    (Mixed, st.sampled_from(Mixed)),
    (Right, st.integers(0, 3).map(Right)),
    (Literal["a", 1, True] | None, st.sampled_from(["a", 1, None])),
    (int | None, st.none() | whole),
    (int | float | bool | str, whole | real | st.booleans() | text),
    (dt.datetime | str, moments | text),
    (dt.datetime | dt.date | None, moments | st.dates() | st.none()),
    (bytes | str | Color, st.binary(max_size=8) | text | st.sampled_from(Color)),
    (list[int] | list[str] | set[int], st.lists(whole) | st.lists(text) | st.sets(whole)),
    (Cat | Dog, st.builds(Cat, text) | st.builds(Dog, text)),
    (
        list[Cat | Puppy | Dog],
        st.lists(st.builds(Cat, text) | st.builds(Dog, text) | st.builds(Puppy, text, whole)),
    ),
    (Order, orders),
    (list[Order], st.lists(orders, max_size=4)),
    (Receipt, st.builds(Receipt, orders, moments, decimals)),
    (Tree, trees),
    (Loose, st.builds(Loose, text, untyped_values)),
    (Quiet, st.builds(Quiet, text, real)),
    (Lenient, st.builds(Lenient, text)),
    (Point, st.builds(Point, whole, whole)),
    (Options, st.fixed_dictionaries({"name": text}, optional={"limit": whole})),
    (Message, st.builds(Message, text, text, st.none() | moments)),
    (Renamed, st.builds(Renamed, text, real)),
    (Part, st.builds(Part, text, real, st.lists(text, max_size=3))),
    (
        Ticket | None,
        st.none()
        | st.builds(
            Ticket,
            id=whole,
            subject=text,
            opened=st.none() | moments,
            extra=st.dictionaries(names, plain_values),
        ),
    ),
]

# Annotations whose values equal values of other types, and values that equal, or encode like, others.
EQUAL_TO_OTHERS: list[Any] = [
    Grant,
    Spot | None,
    Heir,
    AttrsHeir,
    Literal["good"],
    Literal[1, 2] | None,
    float | None,
    dict[float, int],
    dict[Mood, int],
    tuple[float, ...],
    Sequence[float],
]
LOOK_ALIKES: list[Any] = [
    *(None, True, 0, 1, 2, 1.0, 0.5, -0.0, Decimal(1), Decimal("0.5"), Decimal("NaN"), Decimal("Infinity")),
    *(2**53 + 1, 2**60, float(2**60), 2**63 - 1, 2**63, 2**64, 2**100, float("nan"), float("inf")),
    *("good", "red", "1", "a\0", "\ud800", "1" * 30, b"x", bytearray(b"x"), UUID(int=1), dt.timedelta(1)),
    *(Mood.GOOD, Size.SMALL, Rank.FIRST, Color.RED, Right.READ, Grant.READ, Grant(2**63)),
    *(dt.datetime(2030, 1, 1), dt.datetime(2030, 1, 1, tzinfo=dt.UTC), dt.date(2030, 1, 1), dt.time(1)),  # noqa: DTZ001
    *(Point(1, 2), Spot(1, 2), (1, 2), [1, 2], [1.0, 2], {1, 2}, frozenset({1, 2})),
    *({"a": 1}, {1: 1}, {1.0: 1}, {True: 1}, {"1": 1}, {Mood.GOOD: 1}, {Size.SMALL: 1}, {"$": 1}),
    *(Cat("a"), Dog("a"), Puppy("a"), Heir("a"), Order("a", 1), Order(Mood.GOOD, Size.SMALL)),
    *(Quiet("a", 1), Message("a", "b"), Part("a", 1), AttrsHeir("a"), {"name": "a"}),
]
