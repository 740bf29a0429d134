"""Home shows what ends soon: a certificate of the server and a secret of an instance, as the platform reports them."""

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import relay
import seeded
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from gpuaas_cli import output
from page_person import Person
from seeded import Console

NOW = datetime.datetime.now(datetime.UTC)
ISSUED_AT, ENDS_AT = NOW - datetime.timedelta(days=360), NOW + datetime.timedelta(days=5)


@pytest.fixture
def person(console: Console, tmp_path: Path) -> Iterator[Person]:
    """Uses a console whose platform has a certificate and secrets that end in five days."""
    authority, certificate = _certificate(tmp_path)
    with relay.relaying(console.server.url, _older, certificate) as url:
        server = type(console.server)(**{**vars(console.server), "url": url})
        with (
            seeded.console(console.cli, server, console.project_id, tmp_path, "--ca-file", str(authority)) as running,
            httpx.Client(base_url=running.url, timeout=60, trust_env=False) as client,
        ):
            yield Person(client, console.project_id)


def test_home_shows_certificates_and_secrets_that_end_soon(person: Person, console: Console) -> None:
    assert person.sign_in("admin", console.server.password).status_code == 303
    home, end = person.page("/"), f'ends at <time datetime="{output.clock_time(ENDS_AT)}"'
    assert f"its secret join-key {end}" in home
    assert "The certificate of https://127.0.0.1:" in home
    assert home.count(end) == 2


def _older(path: str, answer: Any) -> Any:
    """Return the answer; secrets were issued a year ago."""
    if "/runtime-secrets" in path:
        for item in answer["items"]:
            item |= {"state": "issued", "issued_at": ISSUED_AT.isoformat(), "expires_at": ENDS_AT.isoformat()}
    return answer


def _certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file of a certificate for this host that signs itself, and what a server needs to use it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(ISSUED_AT).not_valid_after(ENDS_AT).add_extension(host, critical=False)
    file, key_file = folder / "server.crt", folder / "server.key"
    file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key_file)
    return file, context
