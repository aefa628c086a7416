"""The same call has the same fingerprint, however it is written; another call has another."""

import dataclasses
import datetime as dt
import inspect
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from ninelives.core.errors import NotSerializable, UsageError
from ninelives.core.values import codec
from ninelives.core.values.fingerprint import (
    Fingerprint,
    _canonical_of_any,
    _take_bound,
    check_ignore,
    taker,
)
from tests.unit import sample_types as types


def refund(order_id: str, cents: int, note: str = "", tags: Any = None) -> None: ...
def refund_later(
    order_id: str, cents: int, note: str = "", tags: Any = None, urgent: bool = False
) -> None: ...
def take(value: Any) -> None: ...
def many(*values: Any, **named: Any) -> None: ...


class Shop:
    def sell(self, item: str, client: Any = None) -> None: ...


def of(fn: Any, *args: Any, ignore: tuple[str, ...] = (), **kwargs: Any) -> Fingerprint:
    found = taker(inspect.signature(fn), ignore=ignore)(args, kwargs)
    assert _take_bound(inspect.signature(fn), ignore, args, kwargs) == found
    return found


def test_digest_has_16_bytes_and_depends_on_the_arguments_alone() -> None:
    assert len(of(refund, "o", 1).digest) == 16
    assert of(refund, "o", 1) == of(refund, cents=1, order_id="o")
    assert of(refund, "o", 1) != of(refund, "o", 2)


def test_arguments_equal_to_their_defaults_do_not_count() -> None:
    assert of(refund, "o", 1, note="") == of(refund, "o", 1)
    assert of(refund, "o", 1, note="x") != of(refund, "o", 1)


def test_new_parameter_with_a_default_leaves_old_fingerprints_alone() -> None:
    assert of(refund_later, "o", 1) == of(refund, "o", 1)
    assert of(refund_later, "o", 1, urgent=True) != of(refund, "o", 1)


def test_default_of_another_type_does_count() -> None:
    assert of(refund_later, "o", 1, urgent=0) != of(refund_later, "o", 1)


def test_self_and_ignored_arguments_do_not_count() -> None:
    assert of(Shop.sell, Shop(), "x") == of(Shop.sell, Shop(), "x")
    assert of(Shop.sell, Shop(), "x", client=object(), ignore=("client",)) == of(Shop.sell, None, "x")
    assert of(many, client=object(), a=1, ignore=("client",)) == of(many, a=1)


@given(types.untyped_values)
def test_order_of_dicts_and_sets_does_not_matter(value: object) -> None:
    forwards = {"a": value, "b": 1, "c": {1, "x", 2.5}}
    backwards = {"c": {2.5, "x", 1}, "b": 1, "a": value}
    assert of(take, forwards) == of(take, backwards)
    assert of(take, {1: value, "1": 2}) == of(take, {"1": 2, 1: value})


DIFFERENT: list[Any] = [
    None,
    True,
    1,
    1.0,
    "1",
    b"1",
    [1],
    (1,),
    {1},
    frozenset({1}),
    {1: "a"},
    {"1": "a"},
    {"$": "set", "v": [1]},
    Decimal(1),
    types.Cat("a"),
    types.Dog("a"),
    {"name": "a"},
    types.Color.RED,
    "red",
    types.Mood.GOOD,
    "good",
    {"$": "enum", "of": "Mood", "v": "GOOD"},
    {"$": "record", "of": "Cat", "v": {"name": "a"}},
    *(types.Grant(bits) for bits in (0, 1, 2, 3, 4, 8, 9)),
    *(types.Scope(bits) for bits in range(10)),
    *({types.Grant(4)}, {types.Grant(8)}, {types.Grant(4): 1}, {types.Grant(8): 1}),
    *(types.Mine.Status.OPEN, types.Yours.Status.OPEN, types.Mine.Item("a"), types.Yours.Item("a")),
    *({types.Mood.GOOD: 1}, {"good": 1}, {types.Size.SMALL: 1}, {types.Rank.FIRST: 1}, {True: 1}),
    *(types.Size.SMALL, types.Rank.FIRST, Decimal("1.0"), -0.0, 0.0, 0, False, "", [], (), {}),
]


def test_different_values_have_different_fingerprints() -> None:
    digests = {of(take, value).digest for value in DIFFERENT}
    assert len(digests) == len(DIFFERENT)


@pytest.mark.parametrize(
    "value",
    [
        types.Order("a", 1, tags=["x"]),
        types.Message("a", "b"),
        types.Part("a"),
        types.Ticket(id=1, extra={"a": 1}),
        types.Point(1, 2),
        types.Size.LARGE,
        {"deep": [types.Receipt(types.Order("a", 1), dt.datetime(2030, 1, 1, tzinfo=dt.UTC), Decimal(1))]},
        type("Text", (str,), {})("x"),
        type("Table", (dict,), {})(a=1),
        type("Row", (list,), {})([1]),
        type("Count", (int,), {})(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_records_enums_and_subclasses_are_taken_without_annotations(value: Any) -> None:
    assert of(take, value) == of(take, value)
    assert of(take, value) != of(take, None)


def test_new_field_with_a_default_leaves_old_fingerprints_alone() -> None:
    before = dataclasses.make_dataclass("Order", [("id", str)])
    after = dataclasses.make_dataclass(
        "Order", [("id", str), ("note", str, ""), ("tags", list, dataclasses.field(default_factory=list))]
    )
    assert of(take, before("a")) == of(take, after("a"))
    assert of(take, after("a", tags=[1])) != of(take, after("a"))


@pytest.mark.parametrize("kind", [list, dict, set, tuple, frozenset, str, bytes, int, float, bool])
def test_new_field_with_a_builtin_type_as_its_factory_leaves_old_fingerprints_alone(kind: Any) -> None:
    before = dataclasses.make_dataclass("Order", [("id", str)])
    after = dataclasses.make_dataclass(
        "Order", [("id", str), ("more", Any, dataclasses.field(default_factory=kind))]
    )
    assert of(take, before("a")) == of(take, after("a"))
    assert of(take, after("a", None)) != of(take, after("a"))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"id": object()}, "$.value.id"),
        (types.Order("a\0", 1), "$.value.id"),
        (types.Loose("a", [1, {"b": float("nan")}]), "$.value.meta[1].b"),
        (2**63, "$.value"),
        ("\ud800", "$.value"),
        (lambda: None, "$.value"),
        ({1: 2**70}, "$.value[1]"),
    ],
)
def test_argument_that_cannot_be_encoded_is_refused_with_its_path(value: object, path: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        of(take, value)
    assert caught.value.path == path
    assert caught.value.remedy


def test_cyclic_and_huge_arguments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = types.Tree("a")
    tree.children.append(tree)
    with pytest.raises(NotSerializable, match="cycle"):
        of(take, tree)
    monkeypatch.setattr(codec, "MAX_BYTES", 100)
    for value in ("x" * 200, ("x" * 200,)):
        with pytest.raises(NotSerializable, match="over the limit"):
            of(take, value)


def test_arguments_that_do_not_fit_the_signature_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="missing"):
        of(refund, "o")


def test_unknown_name_in_ignore_is_refused_at_registration() -> None:
    check_ignore(inspect.signature(refund), ("note",))
    check_ignore(inspect.signature(many), ("anything",))
    with pytest.raises(UsageError, match="nope"):
        check_ignore(inspect.signature(refund), ("nope",))


@pytest.mark.parametrize(
    "value", ["$", "text", 'a"b\\c', "", 0, -1, 10**18, 10**18 - 1, 2**63 - 1, -(10**18), "ü", True, None]
)
def test_the_short_way_gives_the_same_as_the_long_one(value: object) -> None:
    assert of(take, value).arguments == _canonical_of_any({"value": value})
    assert of(refund, value, 5).arguments == _canonical_of_any({"cents": 5, "order_id": value})


def test_a_taker_leaves_out_what_does_not_count() -> None:
    take_sale = taker(inspect.signature(Shop.sell), ignore=("client",))
    assert take_sale((Shop(), "book", object()), {}) == take_sale((Shop(),), {"item": "book"})
    assert take_sale((Shop(), "book", object()), {}) != take_sale((Shop(), "pen", object()), {})
