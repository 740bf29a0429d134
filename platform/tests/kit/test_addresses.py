"""Which addresses belong to the public internet."""

import pytest
from gpuaas_platform.kit import addresses


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.5", False),
        ("gpu-1", False),
    ],
)
def test_loopback_addresses_and_localhost_are_this_machine(host: str, expected: bool) -> None:
    assert addresses.is_loopback(host) == expected


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
        "2606:4700:4700::1111",
        "2a00:1450:4001:80b::200e",
    ],
)
def test_a_public_address_is_public_also_inside_a_translated_one(address: str) -> None:
    assert addresses.is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.1.2.3",
        "127.0.0.1",
        "169.254.169.254",
        "192.0.0.9",
        "192.88.99.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "2001::1",
        "2001:0:5ef5:79fb:0:0:80ff:fffe",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::",
        "2606:4700::5efe:10.0.0.1",
        "2606:4700::200:5efe:10.0.0.1",
        "3fff::1",
        "5f00::1",
        "fd00::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff0e::1",
    ],
)
def test_a_special_address_is_not_public(address: str) -> None:
    assert not addresses.is_public(address)
