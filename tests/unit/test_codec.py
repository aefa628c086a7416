"""Values come back equal, of the annotated type, by either way through the codec."""

import collections
import dataclasses
import datetime as dt
import enum
import functools
import marshal
import math
import sys
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninelives.core.errors import Divergence, NotSerializable, UsageError
from ninelives.core.values.codec import UNTYPED_CODEC, Codec, codec_for
from tests.unit import sample_types as types

IDS = [str(annotation).replace("tests.unit.sample_types.", "") for annotation, _ in types.TYPED]


def walker(codec: Codec) -> Codec:
    """The same codec, without the fast way."""
    return dataclasses.replace(codec, decoder=None)


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types all the way down, in plain containers."""
    if type(left) is not type(right) or left != right:
        return False
    if isinstance(left, float):
        return math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, list | tuple):
        return all(map(same, left, right))
    if isinstance(left, dict):
        return all(map(same, left.keys(), right.keys())) and all(map(same, left.values(), right.values()))
    return True


@pytest.mark.parametrize(("annotation", "values"), types.TYPED, ids=IDS)
@given(data=st.data())
def test_typed_values_come_back_equal_by_both_ways(
    annotation: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    codec = codec_for(annotation)
    encoded, decoded = codec.round(value)
    assert decoded == value
    assert type(decoded) is type(value)
    assert codec.recall(encoded) == codec.decode(encoded) == value
    walked, again = walker(codec).round(value)
    assert again == value
    assert type(again) is type(value)
    assert codec.decode(walked) == value, "what the walk wrote, the fast way reads alike"
    assert codec.recall(walked) == value, "every recorded key is claimed"


@given(types.untyped_values)
def test_untyped_values_come_back_exactly(value: object) -> None:
    encoded, decoded = UNTYPED_CODEC.round(value)
    assert same(decoded, value)
    assert same(UNTYPED_CODEC.decode(encoded), value)
    assert same(walker(UNTYPED_CODEC).round(value)[1], value)


@given(types.plain_values)
def test_plain_values_are_plain_json(value: object) -> None:
    assert UNTYPED_CODEC.encode(value) == msgspec.json.encode(value)


@pytest.mark.parametrize(
    "value", [-0.0, True, 1, 1.0, (1,), [(1, [2.0])], {"$": 1}, {"$": "tuple", "v": [1]}, "$"]
)
def test_untyped_edge_comes_back_exactly(value: object) -> None:
    assert same(UNTYPED_CODEC.round(value)[1], value)


def test_dict_that_looks_like_a_tag_is_escaped() -> None:
    data = UNTYPED_CODEC.encode({"$": "set", "v": [1]})
    assert msgspec.json.decode(data) == {"$": "dict", "v": [["$", "set"], ["v", [1]]]}


def test_decoded_value_shares_nothing_with_the_given_one() -> None:
    value = {"a": [1]}
    decoded = UNTYPED_CODEC.round(value)[1]
    value["a"].append(2)
    assert decoded == {"a": [1]}


@pytest.mark.parametrize(
    ("annotation", "given_value", "back"),
    [
        (float, 1, 1.0),
        (str, types.Mood.GOOD, "good"),
        (int, types.Size.LARGE, 2),
        (dict[str, int], collections.defaultdict(int, a=1), {"a": 1}),
        (types.Mood, "good", types.Mood.GOOD),
        (tuple[int, int], types.Point(1, 2), (1, 2)),
    ],
)
def test_annotated_position_gives_back_the_annotated_type(
    annotation: Any, given_value: Any, back: Any
) -> None:
    for codec in (codec_for(annotation), walker(codec_for(annotation))):
        decoded = codec.round(given_value)[1]
        assert decoded == back
        assert type(decoded) is type(back)


def test_fast_way_never_loads_marshal_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(marshal, "loads", refuse)
    assert UNTYPED_CODEC.round({"a": 1})[1] == {"a": 1}


@pytest.mark.parametrize(
    "annotation",
    [str, dict[str, Any], types.Order, list[types.Order], types.Tree, dict[str, float], types.Color],
)
def test_common_annotations_take_the_fast_way(annotation: Any) -> None:
    assert codec_for(annotation).decoder is not None


@pytest.mark.parametrize("annotation", [*(one for one, _ in types.TYPED), *types.EQUAL_TO_OTHERS])
def test_both_ways_agree_on_any_value(annotation: Any) -> None:
    codec = codec_for(annotation)
    for leaf in types.LOOK_ALIKES:
        for value in (leaf, [leaf], (leaf,), {"a": leaf}):
            assert outcome(codec, value) == outcome(walker(codec), value), repr(value)


def outcome(codec: Codec, value: object) -> str:
    try:
        return repr(codec.round(value)[1])  # unlike ==, this tells 1 from 1.0 and Decimal(1)
    except NotSerializable:
        return "refused"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (types.Point | types.Spot, types.Spot(1, 2)),
        (types.Point | types.Spot, types.Point(1, 2)),
        (tuple[int, int] | types.Point, types.Point(1, 2)),
        (tuple[int, int] | types.Point, (1, 2)),
        (list[types.Spot | types.Point | None], [types.Point(1, 2), None, types.Spot(1, 2)]),
        (types.Size | types.Rank, types.Rank.FIRST),
        (types.Contrary, types.Contrary.NO),
    ],
)
def test_equal_values_of_two_types_come_back_each_as_its_own(annotation: Any, value: object) -> None:
    assert repr(codec_for(annotation).round(value)[1]) == repr(value)


def test_fast_way_is_enough_for_long_shallow_lists() -> None:
    assert UNTYPED_CODEC.try_plain([{"a": [1]}] * 500) is not None
    assert codec_for(list[types.Order]).try_plain([types.Order("a", 1)] * 500) is not None


# -------------------------------------------------------------------------------------------- annotations


def generic() -> Any:
    class Box(list[Any]): ...

    return Box


@dataclasses.dataclass(eq=False)
class ByIdentity:
    id: str


@dataclasses.dataclass
class WithInitVar:
    id: str
    secret: dataclasses.InitVar[str]


@dataclasses.dataclass
class Nested:
    orders: list[dict[str, "complex"]]


class Dollar(msgspec.Struct, rename={"a": "$"}):
    a: int


class Huge(enum.IntEnum):
    N = 2**70


class HugeFlag(enum.IntFlag):
    N = 2**63


@dataclasses.dataclass
class AlsoDict(dict[str, int]):
    x: int = 0


class Undecorated(types.Cat):
    def __init__(self) -> None:
        super().__init__("a")
        self.secret = 1


@pytest.mark.parametrize(
    ("annotation", "path"),
    [
        (complex, "$"),
        (Nested, "$.orders[][]"),
        (list[type], "$[]"),
        (dict[str, collections.abc.Iterator[int]], "$[]"),
        (tuple[int, complex], "$[1]"),
        (dict[complex, int], "$.keys()"),
        ("NotFound", "$"),
        (ByIdentity, "$"),
        (WithInitVar, "$.secret"),
        (Dollar, "$.a"),
        (Huge, "$"),
        (HugeFlag, "$"),
        (AlsoDict, "$"),
        (list[Undecorated], "$[]"),
        (generic(), "$"),
        (st.SearchStrategy[int], "$"),
    ],
)
def test_unsupported_annotation_is_refused_with_its_path(annotation: Any, path: str) -> None:
    with pytest.raises(UsageError, match="the result of refund") as caught:
        codec_for(annotation, where="the result of refund")
    assert caught.value.path == path
    assert caught.value.remedy


def test_union_of_two_classes_of_one_name_is_told_apart_by_module_or_refused() -> None:
    twin = dataclasses.make_dataclass("Cat", [("age", int)], namespace={"__module__": "elsewhere"})
    codec = codec_for(types.Cat | twin)
    assert codec.round(twin(3))[1] == twin(3)
    third = dataclasses.make_dataclass("Cat", [("age", int)], namespace={"__module__": "elsewhere"})
    with pytest.raises(UsageError, match="both called"):
        codec_for(twin | third)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the `type` statement is of 3.12")
def test_recursive_type_alias_is_supported() -> None:
    space: dict[str, Any] = {}
    exec("type Json = dict[str, Json] | list[Json] | str | int | None", space)
    codec = codec_for(space["Json"])
    value = {"a": [1, {"b": None}], "$": "x"}
    assert codec.round(value)[1] == value


# -------------------------------------------------------------------------------------------- evolution


def test_missing_field_takes_its_default_and_unknown_field_of_others_data_is_dropped() -> None:
    for codec in (codec_for(types.Order), walker(codec_for(types.Order))):
        assert codec.decode(b'{"id":"a","cents":1,"gone":2}') == types.Order("a", 1)
        assert codec.recall(b'{"id":"a","cents":1,"gone":2}', is_whole=False) == types.Order("a", 1)
    assert walker(codec_for(types.Point)).decode(b"[1]") == types.Point(1)
    assert walker(codec_for(types.Part)).decode(b'{"name":"a"}') == types.Part("a")
    assert walker(codec_for(types.Renamed)).decode(b'{"orderId":"a"}') == types.Renamed("a")


class Tagged(msgspec.Struct, tag="tagged"):
    x: int
    more: int = 0


class AlsoTagged(msgspec.Struct, tag="also"):
    x: int
    old: int = 0


class Frozen(msgspec.Struct, frozen=True):
    x: int
    more: int = 0


class InOrder(msgspec.Struct, array_like=True, tag=True):
    x: int
    more: int = 0


@attrs.define
class Cached:
    x: int

    @functools.cached_property
    def twice(self) -> int:
        return self.x * 2


class Inner(pydantic.BaseModel, frozen=True):
    x: int
    more: int = 0


class Outer(pydantic.BaseModel):
    inner: Inner = Inner(x=1)
    several: list[Inner] = []
    either: list[Inner | types.Point] = []
    words: set[str] = set()
    by_name: dict[str, Inner] = {}
    cat: types.Cat = types.Cat("a")
    hidden: int = pydantic.Field(default=0, exclude=True)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return len(self.several)


class Open(pydantic.BaseModel, extra="allow"):
    x: int


class Written(pydantic.BaseModel):
    x: int

    @pydantic.model_serializer
    def write(self) -> dict[str, int]:
        return {"x": self.x, "version": 2}


class Mapped(pydantic.BaseModel):
    cents: int = 0

    @pydantic.model_validator(mode="before")
    @classmethod
    def from_old(cls, data: dict[str, int]) -> dict[str, int]:
        return {"cents" if name == "paid" else name: value for name, value in data.items()}


@pytest.mark.parametrize(
    ("annotation", "data", "path"),
    [
        (types.Order, b'{"id":"a","cents":1,"gone":2}', "$.gone"),
        (types.Tree, b'{"name":"a","children":[{"name":"b","children":[],"gone":1}]}', "$.children[0].gone"),
        (dict[str, types.Cat], b'{"a":{"name":"b","gone":1}}', "$.a.gone"),
        (dict[int, types.Cat], b'{"1":{"name":"b","gone":1}}', "$['1'].gone"),
        (dict[int, types.Cat], b'{"$":"dict","v":[[1,{"name":"b","gone":1}]]}', "$[1].gone"),
        (set[Frozen], b'[{"x":1},{"x":1,"gone":1}]', "$[1].gone"),
        (types.Cat | None, b'{"name":"b","gone":1}', "$.gone"),
        (types.Cat | types.Dog, b'{"$":"is","of":"Cat","v":{"name":"a","gone":1}}', "$.gone"),
        (types.Options, b'{"name":"a","gone":1}', "$.gone"),
        (types.Renamed, b'{"orderId":"a","order_id":"b"}', "$.order_id"),
        (types.Part, b'{"name":"a","gone":1}', "$.gone"),
        (types.Quiet, b'{"id":"a","gone":1}', "$.gone"),
        (Tagged, b'{"type":"tagged","x":1,"gone":1}', "$.gone"),
        (Tagged | AlsoTagged, b'{"type":"tagged","x":1,"old":1}', "$.old"),
        (InOrder, b'["InOrder",1,2,3]', "$[3]"),
        (types.Ticket, b'{"id":1,"gone":2}', "$.gone"),
        (Outer, b'{"several":[{"x":1},{"x":1,"gone":2}]}', "$.several[1].gone"),
        (Outer, b'{"cat":{"name":"a","gone":2}}', "$.cat.gone"),
        (list[Outer], b'[{"by_name":{"a":{"x":1,"gone":2}}}]', "$[0].by_name.a.gone"),
    ],
)
def test_recorded_key_that_no_field_claims_is_a_divergence(annotation: Any, data: bytes, path: str) -> None:
    codec = codec_for(annotation)
    codec.decode(data)
    with pytest.raises(Divergence, match=r"no field of it any more.*Keep the field") as caught:
        codec.recall(data)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("annotation", "value", "older"),
    [
        (types.Order, types.Order("a", 1), b'{"id":"a","cents":1}'),
        (Tagged, Tagged(1), b'{"type":"tagged","x":1}'),
        (Tagged | AlsoTagged, AlsoTagged(1), b'{"type":"also","x":1}'),
        (list[Tagged | AlsoTagged], [Tagged(1)], b'[{"type":"tagged","x":1}]'),
        (InOrder, InOrder(1), b'["InOrder",1]'),
        (types.Renamed, types.Renamed("a"), b'{"orderId":"a"}'),
        (types.Options, {"name": "a"}, b'{"name":"a"}'),
        (set[Inner], {Inner(x=1), Inner(x=2)}, b'[{"x":2},{"x":1}]'),
        (dict[int, types.Order], {1: types.Order("a", 1)}, b'{"1":{"id":"a","cents":1}}'),
        (set[Frozen], {Frozen(1), Frozen(2), Frozen(3)}, b'[{"x":2},{"x":1},{"x":3}]'),
        (Outer, Outer(several=[Inner(x=1)], either=[Inner(x=1), types.Point(1)], words={*"abc"}), b"{}"),
        (Open, Open(x=1, y={"z": 2}), b'{"x":1}'),  # type: ignore[call-arg]
        (Written, Written(x=1), b'{"x":1}'),
        (Mapped, Mapped(cents=1), b'{"paid":1}'),
    ],
    ids=lambda value: str(value) if isinstance(value, bytes) else "",
)
def test_unchanged_code_and_a_new_field_with_a_default_never_diverge(
    annotation: Any, value: Any, older: bytes
) -> None:
    codec = codec_for(annotation)
    for data in (codec.encode(value), walker(codec).encode(value)):
        assert codec.recall(data) == value
    codec.recall(older)


def test_a_field_that_equals_its_default_is_recorded_so_that_the_default_may_change() -> None:
    class Fee(msgspec.Struct, omit_defaults=True):
        cents: int = 5

    class Later(msgspec.Struct, omit_defaults=True):
        cents: int = 7

    assert codec_for(Later).recall(codec_for(Fee).encode(Fee())) == Later(5)
    assert codec_for(Fee).recall(b"{}") == Fee()


def test_an_attribute_that_is_no_field_is_not_recorded() -> None:
    value = Cached(2)
    assert value.twice == 4
    assert codec_for(Cached).encode(value) == b'{"x":2}'


def test_a_default_that_needs_the_object_is_none_for_old_data() -> None:
    codec = walker(codec_for(types.Doubled))
    assert codec.round(types.Doubled("a"))[1] == types.Doubled("a", "aa")
    with pytest.raises(Divergence, match="has no 'twice'"):
        codec.decode(b'{"name":"a"}')


@pytest.mark.parametrize(
    ("annotation", "data", "path"),
    [
        (types.Order, b'{"id":"a","cents":"12"}', "$.cents"),
        (types.Order, b'{"cents":1}', "$.id"),
        (list[types.Order], b'[{"id":"a","cents":1},{"id":"a","cents":null}]', "$[1].cents"),
        (types.Color, b'"green"', "$"),
        (types.Right, b"64", "$"),
        (int, b"true", "$"),
        (int, b"1.0", "$"),
        (dt.datetime, b'"yesterday"', "$"),
        (dict[str, int], b'{"a":{"b":1}}', "$.a"),
        (types.Ticket, b'{"id":"x"}', "$"),
        (types.Cat | types.Dog, b'{"$":"is","of":"Cow","v":{"name":"a"}}', "$"),
        (types.Cat | types.Dog, b'{"name":"a"}', "$"),
        (tuple[int, int], b"[1]", "$"),
    ],
)
def test_recorded_value_that_no_longer_fits_is_a_divergence(annotation: Any, data: bytes, path: str) -> None:
    with pytest.raises(Divergence, match="Restore the type") as caught:
        codec_for(annotation).decode(data)
    assert caught.value.path == path


def test_value_recorded_before_the_annotation_became_a_union_is_still_read_when_only_one_member_fits() -> (
    None
):
    recorded = codec_for(types.Order).encode(types.Order("a", 1))
    assert codec_for(types.Order | types.Cat | None).decode(recorded) == types.Order("a", 1)
    text = codec_for(dt.datetime).encode(dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    with pytest.raises(Divergence, match="several"):
        codec_for(dt.datetime | str).decode(text)


def test_a_comparison_of_numpy_s_counts_as_one() -> None:
    class Answer:
        def __init__(self, value: bool) -> None:
            self._value = value

        def item(self) -> bool:
            return self._value

    Answer.__module__ = "numpy"

    class Number(float):
        """Compares as numpy.float64 does."""

        def __eq__(self, other: object) -> Any:
            return Answer(float(self) == other)

        __hash__ = float.__hash__

    data, value = codec_for(float).round(Number(1.5))
    assert (data, type(value), value) == (b"1.5", float, 1.5)
    assert codec_for(list[float]).round([Number(1.5)])[1] == [1.5]
