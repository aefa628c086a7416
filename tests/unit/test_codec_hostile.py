"""Stored bytes are never trusted: damage is Corrupt, a misfit is Divergence, and nothing is ever executed."""

import dataclasses
import datetime as dt
import pickle
import subprocess
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninelives.core.errors import Corrupt, Divergence
from ninelives.core.values.codec import UNTYPED_CODEC, codec_for
from ninelives.core.values.exceptions import decode_error
from tests.unit import sample_types as types

ANNOTATIONS = [annotation for annotation, _ in types.TYPED]


class Bomb:
    def __reduce__(self) -> Any:
        return (subprocess.run, (["false"],))


HOSTILE = [
    b"",
    b"nul",
    b"\xff\xfe",
    b'"\xff"',
    b'"\\ud800"',
    pickle.dumps(Bomb()),
    pickle.dumps(Bomb(), 0),
    msgspec.msgpack.encode({"a": msgspec.msgpack.Ext(5, b"x")}),
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b"[" * 500 + b"]" * 500,
    b'{"a":' * 100_000,
    b"1" * 100_000,
    b"1e999",
    b"NaN",
    b"Infinity",
    b"[1,]",
    b"!!python/object/apply:os.system ['true']",
    b'{"a":1}{"b":2}',
]
TAGS = [
    b'{"$":"os.system","v":["true"]}',
    b'{"$":"tests.unit.sample_types.Order","v":{"id":"a","cents":1}}',
    b'{"$":"is","of":"Order","v":{}}',
    b'{"$":"tuple"}',
    b'{"$":"tuple","v":1}',
    b'{"$":"tuple","v":[],"more":1}',
    b'{"$":["tuple"],"v":[]}',
    b'{"$":{"$":"tuple"},"v":[]}',
    b'{"$":null,"v":[]}',
    b'{"$":"set","v":[[]]}',
    b'{"$":"set","v":[{"$":"dict","v":[]}]}',
    b'{"$":"dict","v":[[1]]}',
    b'{"$":"dict","v":[1]}',
    b'{"$":"dict","v":{}}',
    b'{"$":"dict","v":[[[],1]]}',
    b'{"$":"datetime","v":"2030-01-01T00:00:00"}',
    b'{"$":"datetime","v":1}',
    b'{"$":"time","v":"10:00"}',
    b'{"$":"Decimal","v":"NaN"}',
    b'{"$":"Decimal","v":"x"}',
    b'{"$":"UUID","v":"x"}',
    b'{"$":"bytes","v":"!"}',
    b'{"$":"timedelta","v":"soon"}',
    b'{"$":"date","v":"2030-13-01"}',
]


def read_anyhow(annotation: Any, data: bytes) -> Any:
    """Decode; the only errors that may come out are ours."""
    try:
        return codec_for(annotation).decode(data)
    except (Corrupt, Divergence):
        return None


@pytest.mark.parametrize("data", HOSTILE + TAGS, ids=lambda data: data[:40].hex())
def test_hostile_bytes_are_corrupt(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", pytest.fail)
    with pytest.raises(Corrupt):
        UNTYPED_CODEC.decode(data)
    for annotation in ANNOTATIONS:
        read_anyhow(annotation, data)


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data[:40].hex())
def test_hostile_bytes_are_no_recorded_error(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_error(data)


@pytest.mark.parametrize(
    ("annotation", "data"),
    [
        (Decimal, b'"NaN"'),
        (Decimal, b'"Infinity"'),
        (list[Decimal], b'["-Infinity"]'),
        (dt.datetime, b'"2030-01-01T00:00:00"'),
        (types.Message, b'{"role":"a","text":"b","at":"2030-01-01T00:00:00"}'),
        (types.Ticket, b'{"id":1,"subject":"a","opened":"2030-01-01T00:00:00"}'),
        (types.Ticket, b'{"id":1,"subject":"a","extra":{"a":[9223372036854775808]}}'),
        (types.Ticket, b'{"id":1,"subject":"a\\u0000"}'),
        (dict[str, dt.time], b'{"a":"10:00:00"}'),
        (int, b"9223372036854775808"),
        (int, b"-9223372036854775809"),
        (types.Order, b'{"id":"a","cents":18446744073709551615}'),
        (types.Order, b'{"id":"a\\u0000","cents":1}'),
        (types.Grant, b"9223372036854775808"),
        (Any, b"123456789012345678901234567890"),
        (Any, b'[{"a":9223372036854775808}]'),
        (Any, b'{"$":"tuple","v":[9223372036854775808]}'),
        (Any, b'{"$":"tuple","v":["a\\u0000"]}'),
        (Any, b'{"a\\u0000":1}'),
        (str, b'"a\\u0000"'),
        (str, b'"a\0"'),
        (int | str, b"9223372036854775808"),
    ],
)
def test_stored_data_that_no_value_gives_is_never_handed_out(annotation: Any, data: bytes) -> None:
    codec = codec_for(annotation)
    for one in (codec, dataclasses.replace(codec, decoder=None)):
        with pytest.raises((Corrupt, Divergence)):
            one.decode(data)


@pytest.mark.parametrize("data", [b'"\\\\u0000"', b'"11111111111111111111111"', b"[9223372036854775807]"])
def test_stored_data_that_only_looks_suspicious_is_read(data: bytes) -> None:
    assert UNTYPED_CODEC.decode(data) == msgspec.json.decode(data)


def test_class_and_reduce_keys_are_only_data() -> None:
    data = b'{"__class__":"os.system","__reduce__":["os.system",["true"]],"py/object":"os"}'
    assert UNTYPED_CODEC.decode(data) == msgspec.json.decode(data)
    assert type(UNTYPED_CODEC.decode(data)) is dict


def test_tag_in_a_typed_position_gives_no_other_type() -> None:
    for data in (
        b'{"$":"tuple","v":[1]}',
        b'{"$":"bytes","v":""}',
        b'{"$":"is","of":"Dog","v":{"name":"a"}}',
    ):
        with pytest.raises((Corrupt, Divergence)):
            codec_for(types.Order).decode(data)
        with pytest.raises((Corrupt, Divergence)):
            codec_for(list[int]).decode(data)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_our_error(data: bytes) -> None:
    for annotation in [Any, *ANNOTATIONS[:40:5]]:
        read_anyhow(annotation, data)


trees = st.recursive(
    types.plain_leaves
    | st.sampled_from(["tuple", "set", "dict", "is", "Cat", "Decimal", "datetime", "bytes"]),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["$", "v", "of", "name", "id"]), below)
    ),
    max_leaves=10,
)


@given(trees, st.sampled_from([Any, *ANNOTATIONS]))
def test_any_json_gives_a_value_or_our_error(tree: Any, annotation: Any) -> None:
    read_anyhow(annotation, msgspec.json.encode(tree))


@given(trees)
def test_what_is_decoded_from_any_json_can_be_stored_again(tree: Any) -> None:
    value = read_anyhow(Any, msgspec.json.encode(tree))
    assert UNTYPED_CODEC.round(value)[1] == value
