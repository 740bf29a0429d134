"""Which address a request came from, and which network it is counted under."""

import pytest
from gpuaas_platform.kit import peers

PROXIES = peers.Proxies(["10.0.0.0/24", "2001:db8:1::/64", "127.0.0.1/32"])


@pytest.mark.parametrize(
    ("peer", "expected"), [("192.0.2.1", "192.0.2.1"), ("127.0.0.1", ""), ("127.0.0.5", ""), ("::1", ""), ("", "")]
)
def test_only_callers_on_other_machines_have_a_remote_address(peer: str, expected: str) -> None:
    assert peers.remote(peer) == expected


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff::1", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_a_network_is_an_ipv4_address_or_a_64_of_ipv6(peer: str, network: str) -> None:
    assert peers.network_of(peer) == network


@pytest.mark.parametrize(
    ("connected", "lines", "peer"),
    [
        ("203.0.113.9", ["192.0.2.1"], "203.0.113.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["1.1.1.1, 192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["1.1.1.1, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),
        ("10.0.0.1", ["1.1.1.1", "192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.1:4711"], "192.0.2.1"),
        ("2001:db8:1::5", ["2001:db8:2::1"], "2001:db8:2::1"),
        ("10.0.0.1", ["[2001:db8:2::1]:4711"], "2001:db8:2::1"),
        ("10.0.0.1", ["192.0.2.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1, , 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
    ],
)
def test_the_caller_is_the_last_address_that_a_trusted_proxy_reported(
    connected: str, lines: list[str], peer: str
) -> None:
    assert PROXIES.peer(connected, "x-forwarded-for", lines) == peer


@pytest.mark.parametrize(
    ("lines", "peer"),
    [
        (["for=192.0.2.1"], "192.0.2.1"),
        (['For="[2001:db8:2::1]:4711";proto=https'], "2001:db8:2::1"),
        (["for=1.1.1.1, proto=https;for=192.0.2.1;by=10.0.0.1"], "192.0.2.1"),
        (["for=192.0.2.1", "for=10.0.0.2"], "192.0.2.1"),
        (["for=192.0.2.1, for=_hidden"], "10.0.0.1"),
        (["for=192.0.2.1, by=10.0.0.1"], "10.0.0.1"),
        (['for="1.1.1.1, for=192.0.2.1'], "192.0.2.1"),
    ],
)
def test_the_header_forwarded_is_read_in_the_same_way(lines: list[str], peer: str) -> None:
    assert PROXIES.peer("10.0.0.1", "forwarded", lines) == peer


@pytest.mark.parametrize(
    "text",
    [
        'host="a;for=9.9.9.9";for=192.0.2.7',
        'by="a,for=9.9.9.9";for=192.0.2.7',
        'host="a\\";for=9.9.9.9";for=192.0.2.7',
        'for=9.9.9.9;host=", for=192.0.2.7',
        'for=", host="a";for=192.0.2.7',
        'for=9.9.9.9, host=",for=9.9.9.9;";for="192.0.2.7:80"',
    ],
)
def test_what_a_client_chooses_in_the_header_forwarded_is_not_its_address(text: str) -> None:
    assert PROXIES.peer("10.0.0.1", "forwarded", [text]) == "192.0.2.7"


def test_an_element_of_forwarded_with_two_addresses_names_none() -> None:
    assert PROXIES.peer("10.0.0.1", "forwarded", ["host=a;for=9.9.9.9;for=192.0.2.7"]) == "10.0.0.1"


@pytest.mark.parametrize(
    ("peer", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_addresses_are_recognised(peer: str, is_loopback: bool) -> None:
    assert peers.is_loopback(peer) is is_loopback
