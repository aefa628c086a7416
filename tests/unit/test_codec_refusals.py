"""What cannot be stored is refused, with its path and a remedy; each guard of the fast way has its test."""

import dataclasses
import datetime as dt
import decimal
import enum
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal, cast
from zoneinfo import ZoneInfo

import pytest

from ninelives.core.errors import NotSerializable
from ninelives.core.values import codec as codec_module
from ninelives.core.values.codec import UNTYPED_CODEC, codec_for
from tests.unit import sample_types as types

NAIVE = dt.datetime(2030, 1, 1)  # noqa: DTZ001 - the point
AWARE = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def refused(annotation: Any, value: object) -> NotSerializable:
    with pytest.raises(NotSerializable) as caught:
        codec_for(annotation).round(value)
    assert caught.value.remedy
    return caught.value


class Text(str):
    __slots__ = ()


class Whole(int): ...


def numbers() -> Iterator[int]:
    yield 1


UNTYPED: list[tuple[object, str, str]] = [
    ("\ud800", "$", "surrogate"),
    ({"orders": [1, 2, 3, {"note": "a\udfff"}]}, "$.orders[3].note", "surrogate"),
    ({"a\ud800": 1}, "$['a\\ud800']", "surrogate"),
    (float("nan"), "$", "nan"),
    ([1.0, float("inf")], "$[1]", "inf"),
    ({"a": Decimal("NaN")}, "$.a", "Decimal"),
    ([Decimal("sNaN")], "$[0]", "Decimal"),
    ([Decimal("-Infinity")], "$[0]", "Decimal"),
    (2**63, "$", "64-bit"),
    (-(2**63) - 1, "$", "64-bit"),
    ({"a": [2**64]}, "$.a[0]", "64-bit"),
    ("a\0b", "$", "NUL"),
    ({"a": {"b\0": 1}}, "$.a['b\\x00']", "NUL"),
    (NAIVE, "$", "time zone"),
    ([NAIVE.time()], "$[0]", "time zone"),
    ({1: (NAIVE,)}, "$[1][0]", "time zone"),
    (numbers(), "$", "generator"),
    (object(), "$", "object"),
    ([lambda: None], "$[0]", "function"),
    (complex(1, 2), "$", "complex"),
    (bytearray(b"a"), "$", "bytearray"),
    (range(3), "$", "range"),
    ([Text("a")], "$[0]", "Text"),
    ({"a": Whole(1)}, "$.a", "Whole"),
    ([types.Size.SMALL], "$[0]", "Size"),
    ([types.Mood.GOOD], "$[0]", "Mood"),
    ({"a": types.Order("a", 1)}, "$.a", "Order"),
    (types.Message("a", "b"), "$", "Message"),
    (types.Ticket(id=1), "$", "Ticket"),
    (types.Point(1, 2), "$", "Point"),
]


@pytest.mark.parametrize(
    ("value", "path", "what"), UNTYPED, ids=[f"{what}-{path}" for _, path, what in UNTYPED]
)
def test_untyped_value_is_refused_with_its_path(value: object, path: str, what: str) -> None:
    error = refused(Any, value)
    assert error.path == path
    assert what in error.what


@pytest.mark.parametrize("value", [Text("a"), types.Mood.GOOD, types.Size.SMALL, types.Order("a", 1)])
def test_refusal_of_a_type_without_annotation_says_to_annotate(value: object) -> None:
    assert "Annotate the type" in (refused(Any, value).remedy or "")


TYPED: list[tuple[Any, object, str, str]] = [
    (types.Order, types.Order("a", 2**63), "$.cents", "64-bit"),
    (types.Order, types.Order("a\0", 1), "$.id", "NUL"),
    (types.Order, types.Order("a", True), "$.cents", "bool"),
    (types.Order, types.Order("a", 1, tags=["x", "\ud800"]), "$.tags[1]", "surrogate"),
    (types.Order, {"id": "a", "cents": 1}, "$", "dict does not fit Order"),
    (types.Order, None, "$", "NoneType"),
    (types.Receipt, types.Receipt(types.Order("a", 1), NAIVE, Decimal(1)), "$.at", "time zone"),
    (types.Receipt, types.Receipt(types.Order("a", 1), AWARE, Decimal("Infinity")), "$.paid", "Decimal"),
    (types.Message, types.Message("a", "b", NAIVE), "$.at", "time zone"),
    (types.Ticket, types.Ticket(id=1, opened=NAIVE), "$.opened", "time zone"),
    (types.Ticket, types.Ticket(id=1, extra={"a": [float("nan")]}), "$.extra.a[0]", "nan"),
    (types.Ticket, types.Ticket(id=2**70), "$.id", "64-bit"),
    (Decimal, Decimal("Infinity"), "$", "Decimal"),
    (list[Decimal], [Decimal("Infinity")], "$[0]", "Decimal"),
    (Decimal, Decimal("sNaN"), "$", "Decimal"),
    (float, float("nan"), "$", "nan"),
    (float | None, float("inf"), "$", "inf"),
    (float, 2**53 + 1, "$", "exactly"),
    (float, 10**400, "$", "exactly"),
    (types.Quiet, types.Quiet("a", float("nan")), "$.score", "nan"),
    (list[int], (1, 2), "$", "tuple"),
    (list[int], [1, 2.0], "$[1]", "float"),
    (list[int], [1, Whole(2**63)], "$[1]", "64-bit"),
    (dict[str, int], {"a": 1, 2: 3}, "$[2]", "int does not fit str"),
    (dict[str, Any], {"a": {"b": types.Size.SMALL}}, "$.a.b", "Size"),
    (list[Any], [types.Mood.GOOD], "$[0]", "Mood"),
    (types.Loose, types.Loose("a", types.Size.SMALL), "$.meta", "Size"),
    (types.Dog, types.Puppy("a"), "$", "come back as a Dog"),
    (types.Lenient, types.LenientChild("a", 3), "$", "come back as a Lenient"),
    (types.Cat | types.Dog, types.Order("a", 1), "$", "Cat | Dog"),
    (types.Options, {"name": "a", "more": 1}, "$", "more"),
    (types.Options, {"limit": 1}, "$", "name"),
    (types.Color, "green", "$", "green"),
    (tuple[int, int], (1, 2, 3), "$", "tuple"),
    (bool, 1, "$", "int does not fit bool"),
    (types.Size, True, "$", "True is not one of Size"),
    (Literal[1], True, "$", "True is not one of"),
    (dt.date, AWARE, "$", "datetime does not fit date"),
    (dt.datetime | str, NAIVE, "$", "time zone"),
    (dict[dt.time, int], {NAIVE.time(): 1}, "$[time]", "time zone"),
    (str, "\0", "$", "NUL"),
    (None, 0, "$", "int does not fit None"),
    (types.Point, types.Spot(1, 2), "$", "Spot does not fit Point"),
    (types.Point, (1, 2), "$", "tuple does not fit Point"),
    (types.Heir, types.Heir("a", more=cast("Any", (1, 2))), "$.more", "tuple"),
    (types.Heir, types.Heir("a", price=cast("Any", 0.1)), "$.price", "float does not fit Decimal"),
    (types.AttrsHeir, types.AttrsHeir("a", more=cast("Any", bytearray())), "$.more", "bytearray"),
    (Decimal, 0.5, "$", "float does not fit Decimal"),
    (Decimal, 1, "$", "int does not fit Decimal"),
    (dict[str, list[Decimal]], {"a": [1]}, "$.a[0]", "int does not fit Decimal"),
    (bytes, bytearray(b"a"), "$", "bytearray"),
    (types.Size, types.Rank.FIRST, "$", "Rank.FIRST"),
    (Literal[types.Size.SMALL], types.Rank.FIRST, "$", "Rank.FIRST"),
    (types.Grant, 1, "$", "int does not fit Grant"),
    (types.Grant, types.Grant(2**63), "$", "64-bit"),
    (float, 2**63, "$", "exactly"),
]


@pytest.mark.parametrize(
    ("annotation", "value", "path", "what"),
    TYPED,
    ids=[f"{what}-{path}-{count}" for count, (_, _, path, what) in enumerate(TYPED)],
)
def test_typed_value_is_refused_with_its_path(annotation: Any, value: object, path: str, what: str) -> None:
    error = refused(annotation, value)
    assert error.path == path
    assert what in error.what


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_nesting_is_accepted_up_to_the_limit_and_refused_beyond() -> None:
    assert UNTYPED_CODEC.round(nested(100))[1] == nested(100)
    error = refused(Any, nested(101))
    assert error.path == "$" + "[0]" * 100
    assert "deeper than 100" in error.what


def test_dicts_count_as_levels_too() -> None:
    value: dict[Any, Any] = {}
    for _ in range(99):
        value = {"a": value}
    assert UNTYPED_CODEC.round(value)[1] == value
    assert "deeper than 100" in refused(Any, {"a": value}).what
    assert "deeper than 100" in refused(Any, {1: value}).what


@pytest.mark.parametrize("depth", [150, 990, 3_000, 100_000])
def test_any_deep_nesting_is_refused(depth: int) -> None:
    value = nested(depth)
    assert "deeper than 100" in refused(Any, value).what
    assert "deeper than 100" in refused(dict[str, Any], {"a": value}).what
    while value:  # unnest, or freeing it would recurse
        value = value[0]


def test_deep_nesting_of_a_recursive_class_is_refused() -> None:
    tree = types.Tree("leaf")
    for _ in range(60):
        tree = types.Tree("node", [tree])
    assert "deeper than 100" in refused(types.Tree, tree).what


def test_cycle_is_named_with_the_shortest_path_to_it() -> None:
    value: dict[str, Any] = {"a": {"b": [1]}}
    value["a"]["b"].append(value["a"])
    error = refused(Any, value)
    assert "cycle" in error.what
    assert error.path == "$.a.b[1]"
    tree = types.Tree("t")
    tree.children.append(tree)
    error = refused(types.Tree, tree)
    assert "cycle" in error.what
    assert error.path == "$.children[0]"


def test_shared_value_is_no_cycle() -> None:
    shared = [1]
    assert UNTYPED_CODEC.round([shared, shared, (shared,)])[1] == [[1], [1], ([1],)]


@pytest.mark.parametrize("annotation", [Any, str])
def test_value_over_the_size_limit_is_refused(annotation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "MAX_BYTES", 100)
    assert codec_for(annotation).round("x" * 98)[1] == "x" * 98
    assert "over the limit of 100" in refused(annotation, "x" * 99).what
    assert codec_module.MAX_BYTES == 100


def test_limit_is_16_mib() -> None:
    assert codec_module.MAX_BYTES == 16 * 1024 * 1024


@pytest.mark.parametrize("text", ["\\u0000", "1" * 40, "[" * 200, '"$"', "Infinity", '{"$": "set"}'])
def test_text_that_only_looks_suspicious_is_stored(text: str) -> None:
    for annotation in (Any, str, dict[str, Any], dict[str, str]):
        value: Any = {"a": text} if "dict" in str(annotation) else text
        assert codec_for(annotation).round(value)[1] == value


def test_local_time_that_happens_twice_is_refused_with_a_remedy() -> None:
    value = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert "astimezone" in (refused(dt.datetime, value).remedy or "")
    other = dt.datetime(2024, 7, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert codec_for(dt.datetime).round(other)[1] == other


@dataclasses.dataclass
class Growing:
    """Does not come back as it was: each construction adds one."""

    count: int

    def __post_init__(self) -> None:
        self.count += 1


@dataclasses.dataclass
class Picky:
    count: int

    def __post_init__(self) -> None:
        if self.count > 1:
            raise LookupError("too many")


def test_value_that_does_not_come_back_equal_is_refused_where_it_differs() -> None:
    error = refused(list[Growing], [Growing(1)])
    assert error.path == "$[0].count"
    assert "2 became 3" in error.what


def test_class_that_refuses_its_own_values_is_refused() -> None:
    value = Picky(1)
    value.count = 2
    assert "too many" in refused(Picky, value).what


class Vague:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def test_values_whose_comparison_raises_are_refused() -> None:
    assert "Vague" in refused(Any, [Vague()]).what
    with decimal.localcontext() as context:
        context.traps[decimal.InvalidOperation] = True
        assert refused(list[Decimal], [Decimal("sNaN")]).path == "$[0]"


class Hollow(enum.Enum):
    pass


def test_enum_without_members_takes_nothing() -> None:
    assert "Hollow" in refused(Hollow, 1).what
