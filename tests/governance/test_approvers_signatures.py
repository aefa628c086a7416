"""SSH signatures: those of ssh-keygen verify; changed ones, and any other text, are refused in words."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ninelives.governance.approvers.ssh_signature import (
    BadSignature,
    armoured,
    read_key,
    read_signature,
    unarmoured,
    verify,
    write_key,
)
from tests.governance.keys import SshKey, accepts

TEXT = b'{"answer": "approved"}\n'


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SshKey:
    return SshKey(tmp_path_factory.mktemp("keys"), "ada")


@pytest.mark.parametrize("hashed", ["sha256", "sha512"])
def test_a_signature_of_ssh_keygen_verifies_here_and_there(key: SshKey, tmp_path: Path, hashed: str) -> None:
    text = key.armoured(TEXT, "ninelives", "-O", f"hashalg={hashed}")
    found = read_signature(unarmoured(text))
    assert (found.key, found.hash_name) == (read_key(key.public), hashed.encode())
    verify(found, TEXT)
    assert accepts(tmp_path, write_key(found.key), armoured(unarmoured(text)), TEXT)


def test_another_text_namespace_or_key_does_not_verify(key: SshKey, tmp_path: Path) -> None:
    mail, other = read_signature(key.sign(TEXT, "email")), SshKey(tmp_path, "eve")
    for found, text in ((read_signature(key.sign(TEXT)), TEXT + b" "), (mail, TEXT)):
        with pytest.raises(BadSignature):
            verify(found, text)
    forged = type(mail)(mail.key, "ninelives", mail.hash_name, read_signature(other.sign(TEXT)).signature)
    with pytest.raises(BadSignature, match="another was signed"):
        verify(forged, TEXT)


def test_only_ed25519_keys_are_read(tmp_path: Path) -> None:
    rsa = SshKey(tmp_path, "ada", "rsa")
    with pytest.raises(BadSignature, match="ssh-rsa"):
        read_key(rsa.public)
    with pytest.raises(BadSignature, match="not of the type"):
        unarmoured(rsa.armoured(TEXT))


def test_every_changed_byte_of_a_signature_is_refused(key: SshKey) -> None:
    signed = bytearray(base64.b64decode(key.sign(TEXT)))
    for at in range(len(signed)):
        for bit in (1, 128):
            signed[at] ^= bit
            with pytest.raises(BadSignature):
                verify(read_signature(base64.b64encode(bytes(signed)).decode()), TEXT)
            signed[at] ^= bit
    for cut in range(len(signed)):
        with pytest.raises(BadSignature):
            read_signature(base64.b64encode(bytes(signed[:cut])).decode())
    with pytest.raises(BadSignature, match="follows"):
        read_signature(base64.b64encode(bytes(signed) + b"\0").decode())


@given(st.text() | st.binary().map(lambda data: base64.b64encode(b"SSHSIG\0\0\0\1" + data).decode()))
@example("A" * 10_000)
@example(base64.b64encode(b"SSHSIG\0\0\0\1\xff\xff\xff\xff").decode())
def test_whatever_comes_instead_is_refused_in_words(text: str) -> None:
    for read in (read_signature, read_key, unarmoured, lambda one: read_key(f"ssh-ed25519 {one}")):
        with pytest.raises(BadSignature):
            read(text)
