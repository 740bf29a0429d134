"""When certificates are renewed, and what is reported about the end of the authority."""

import datetime
import ssl
from pathlib import Path

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from gpuaas_platform import tls
from gpuaas_platform.certificates import Certificates, Given, due_at
from platform_world import FakeClock

DAY_S = 86_400


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def authority(tmp_path: Path, clock: FakeClock) -> tls.CertificateAuthority:
    return tls.load_authority(tmp_path, clock())


def test_a_certificate_is_due_after_two_thirds_of_its_life(
    authority: tls.CertificateAuthority, clock: FakeClock
) -> None:
    certificate, _ = tls.server_certificate(authority, "10.0.0.5", clock())
    assert due_at(certificate) - clock() == datetime.timedelta(days=60, minutes=-20)


async def test_a_certificate_is_renewed_once_and_then_lives_as_long_as_the_first(
    authority: tls.CertificateAuthority, clock: FakeClock
) -> None:
    certificates = Certificates(authority, clock)
    certificates.context("10.0.0.5")
    (left,) = certificates.gauges()
    with structlog.testing.capture_logs() as lines:
        for _ in range(61):
            clock.forward(DAY_S)
            await certificates.renew()
    assert [line["event"] for line in lines] == ["tls.certificate_renewed"]
    assert (left.name, left.labels) == ("gpuaas_tls_certificate_expires_in_seconds", {"address": "10.0.0.5"})
    assert 88 * DAY_S < left.read() <= 90 * DAY_S


async def test_a_certificate_never_outlives_its_authority_and_is_not_renewed_for_nothing(
    authority: tls.CertificateAuthority, clock: FakeClock
) -> None:
    certificates = Certificates(authority, clock)
    clock.now = authority.ends_at - datetime.timedelta(days=10)
    assert isinstance(certificates.context("10.0.0.5"), ssl.SSLContext)
    (left,) = certificates.gauges()
    assert left.read() == 10 * DAY_S
    clock.forward(9 * DAY_S)
    with structlog.testing.capture_logs() as lines:
        await certificates.renew()
    assert [line["event"] for line in lines] == ["tls.authority_ends_soon"]


async def test_the_end_of_the_authority_is_reported_once_a_day_from_a_year_before(
    authority: tls.CertificateAuthority, clock: FakeClock
) -> None:
    certificates = Certificates(authority, clock)
    clock.now = authority.ends_at - datetime.timedelta(days=366)
    certificates.context("10.0.0.5")
    with structlog.testing.capture_logs() as lines:
        await certificates.renew()
        assert lines == []
        for _ in range(3 * 24):
            clock.forward(3600)
            await certificates.renew()
    ends = [line for line in lines if line["event"] == "tls.authority_ends_soon"]
    assert len(ends) == 3
    assert "docs/how-to/renew-certificates.md" in ends[0]["fix"]


def write(folder: Path, authority: tls.CertificateAuthority, clock: FakeClock) -> x509.Certificate:
    """Put a new certificate and its key in place, as an operator's own renewal does."""
    certificate, pem = tls.server_certificate(authority, "cloud.test", clock())
    (folder / "key.pem").write_bytes(pem)
    (folder / "chain.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return certificate


async def test_the_operators_own_certificate_is_read_again_when_its_files_change(
    authority: tls.CertificateAuthority, clock: FakeClock, tmp_path: Path
) -> None:
    write(tmp_path, authority, clock)
    certificates = Certificates(authority, clock)
    contexts = [
        certificates.context(host, Given(tmp_path / "chain.pem", tmp_path / "key.pem")) for host in ("::1", "10.0.0.5")
    ]
    second = write(tmp_path, authority, clock)
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            await certificates.renew()
    assert [line["event"] for line in lines] == ["tls.certificate_renewed"] * 2
    assert [serial(context, authority) for context in contexts] == [second.serial_number] * 2


async def test_files_of_which_only_one_is_new_leave_the_certificate_that_is_in_use(
    authority: tls.CertificateAuthority, clock: FakeClock, tmp_path: Path
) -> None:
    first = write(tmp_path, authority, clock)
    certificates = Certificates(authority, clock)
    context = certificates.context("::1", Given(tmp_path / "chain.pem", tmp_path / "key.pem"))
    old_key = (tmp_path / "key.pem").read_bytes()
    second = write(tmp_path, authority, clock)
    (tmp_path / "key.pem").rename(tmp_path / "key.new")
    (tmp_path / "key.pem").write_bytes(old_key)
    with structlog.testing.capture_logs() as lines:
        await certificates.renew()
    assert [(line["event"], line["log_level"]) for line in lines] == [("tls.certificate_not_renewed", "error")]
    assert serial(context, authority) == first.serial_number
    (tmp_path / "key.new").rename(tmp_path / "key.pem")
    await certificates.renew()
    assert serial(context, authority) == second.serial_number


def serial(context: ssl.SSLContext, authority: tls.CertificateAuthority) -> int:
    """Return the serial number of the certificate that a client gets, after a handshake in memory."""
    trusted = ssl.create_default_context(cadata=authority.pem)
    trusted.check_hostname, trusted.verify_mode = False, ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusted.wrap_bio(to_client, to_server)
    sides = [client, context.wrap_bio(to_server, to_client, server_side=True)]
    while sides:
        side = sides.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            sides.append(side)
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number
