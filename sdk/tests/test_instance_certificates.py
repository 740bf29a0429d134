"""Certificates of an instance that are derived from one secret."""

import contextlib
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from gpuaas_sdk.certificates import Authority, Certificate


def certificate(text: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(text.encode())


def verified(trusted: Authority, issued: Certificate, host: str, folder: Path) -> bool:
    """Return whether a client that trusts this authority accepts the server, by a handshake in memory."""
    file = folder / "server.pem"
    file.write_text(issued.certificate + issued.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=trusted.certificate)
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for end in ends * 3:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError:
        return False
    return ends[0].version() is not None


def test_the_same_secret_gives_the_same_files() -> None:
    first, again = Authority("one", "kv"), Authority("one", "kv")
    assert first.certificate == again.certificate
    assert first.issue("a", ["10.0.0.1"]) == again.issue("a", ["10.0.0.1"])


def test_members_have_keys_of_their_own() -> None:
    authority = Authority("one", "kv")
    first, second = authority.issue("a", ["a"]), authority.issue("b", ["b"])
    assert first.key != second.key
    assert certificate(first.certificate).serial_number != certificate(second.certificate).serial_number


@pytest.mark.parametrize(("secret", "host", "is_valid"), [("one", "a", True), ("one", "c", False), ("two", "a", False)])
def test_only_the_authority_of_the_secret_vouches_and_only_for_these_hosts(
    secret: str, host: str, is_valid: bool, tmp_path: Path
) -> None:
    issued = Authority("one", "kv").issue("a", ["a", "10.0.0.1"])
    assert verified(Authority(secret, "kv"), issued, host, tmp_path) is is_valid


def test_the_key_belongs_to_the_certificate() -> None:
    issued = Authority("one", "kv").issue("a", ["10.0.0.1"])
    key = serialization.load_pem_private_key(issued.key.encode(), password=None)
    assert key.public_key() == certificate(issued.certificate).public_key()
