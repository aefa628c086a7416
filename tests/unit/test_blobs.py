"""Blobs: what is packed comes back, and what was tampered with does not."""

from __future__ import annotations

import hashlib
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninelives.core.errors import Corrupt
from ninelives.core.values import blobs

raws = st.binary(max_size=200) | st.builds(
    lambda byte, count: byte * count, st.binary(min_size=1, max_size=1), st.integers(0, 5000)
)


@given(raws)
def test_what_is_packed_comes_back(raw: bytes) -> None:
    name = blobs.digest(raw)
    assert len(name) == blobs.DIGEST_BYTES
    assert blobs.unpack(name, blobs.pack(raw)) == raw


@given(raws)
def test_packing_costs_at_most_one_byte(raw: bytes) -> None:
    assert len(blobs.pack(raw)) <= len(raw) + 1


def test_what_repeats_itself_is_stored_small() -> None:
    assert len(blobs.pack(b"0" * 100_000)) < 1_000


@given(raws, st.data())
def test_a_flipped_bit_is_corrupt_or_harmless(raw: bytes, data: st.DataObject) -> None:
    packed = bytearray(blobs.pack(raw))
    place = data.draw(st.integers(0, len(packed) * 8 - 1))
    packed[place // 8] ^= 1 << place % 8
    with suppress(Corrupt):
        assert blobs.unpack(blobs.digest(raw), bytes(packed)) == raw


@given(raws.filter(bool), st.data())
def test_a_cut_blob_is_corrupt(raw: bytes, data: st.DataObject) -> None:
    packed = blobs.pack(raw)
    with pytest.raises(Corrupt):
        blobs.unpack(blobs.digest(raw), packed[: data.draw(st.integers(0, len(packed) - 1))])


@given(raws, raws)
def test_a_blob_under_another_name_is_corrupt(raw: bytes, other: bytes) -> None:
    if raw != other:
        with pytest.raises(Corrupt):
            blobs.unpack(blobs.digest(other), blobs.pack(raw))


def test_an_unknown_method_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        blobs.unpack(blobs.digest(b"x"), b"?x")


def test_a_bomb_is_corrupt_and_never_unfolds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_BYTES", 1000)
    raw = b"0" * 1_000_000
    with pytest.raises(Corrupt):
        blobs.unpack(blobs.digest(raw), b"z" + zlib.compress(raw))


def test_the_largest_blob_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_BYTES", 1000)
    for raw in (b"0" * 1000, b"0" * 999, bytes(range(250)) * 4):
        assert blobs.unpack(blobs.digest(raw), blobs.pack(raw)) == raw


def test_a_blob_is_not_named_like_other_digests_of_the_same_content() -> None:
    assert blobs.digest(b"x") != hashlib.blake2b(b"x", digest_size=blobs.DIGEST_BYTES).digest()
