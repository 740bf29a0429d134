"""When certificates are renewed, and what is reported about the end of the authority."""

import datetime
import ssl
from pathlib import Path

import pytest
import structlog
from gpuaas_platform import tls
from gpuaas_platform.certificates import Certificates, due_at
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
    with structlog.testing.capture_logs() as lines:
        await certificates.renew()
        assert lines == []
        for _ in range(3 * 24):
            clock.forward(3600)
            await certificates.renew()
    assert [line["event"] for line in lines] == ["tls.authority_ends_soon"] * 3
    assert "docs/how-to/renew-certificates.md" in lines[0]["fix"]
