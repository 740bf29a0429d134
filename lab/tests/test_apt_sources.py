"""The host's apt configuration is read in both formats and changed to the lab's suite."""

from pathlib import Path

import pytest
from gpuaas_lab import apt_sources, host
from gpuaas_lab.apt_sources import Source

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

STANZAS = f"""\
Types: deb
# a comment between fields
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: {KEYRING}

Types: deb deb-src
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""

LINES = f"""\
# deb http://off.example/debian bookworm main
deb [arch=amd64 signed-by={KEYRING}] http://mirror.example/debian bookworm main non-free
deb-src http://mirror.example/debian bookworm main
deb [trusted=yes] file:/srv/mirror stable main # local
"""


def test_stanzas_give_one_source_per_archive_and_suite() -> None:
    assert apt_sources.parse_deb822(STANZAS) == [
        Source("http://mirror.example/debian", "bookworm", ("main", "contrib"), KEYRING),
        Source("http://mirror.example/debian", "bookworm-updates", ("main", "contrib"), KEYRING),
        Source("http://mirror.example/debian-security", "bookworm-security", ("main",)),
    ]


def test_a_key_block_in_a_stanza_is_not_a_keyring_file() -> None:
    text = "Types: deb\nURIs: http://m.example/d\nSuites: trixie\nComponents: main\nSigned-By:\n -----BEGIN\n .\n abc\n"
    assert apt_sources.parse_deb822(text)[0].signed_by == ""


def test_classic_lines_are_read_with_their_options() -> None:
    assert apt_sources.parse_one_line(LINES) == [
        Source("http://mirror.example/debian", "bookworm", ("main", "non-free"), KEYRING),
        Source("file:/srv/mirror", "stable", ("main",), "", True),
    ]


def test_the_suite_becomes_the_labs_and_only_main_is_kept() -> None:
    sources = apt_sources.for_lab(apt_sources.parse_deb822(STANZAS))
    assert [(source.uri, source.suite, source.components) for source in sources] == [
        ("http://mirror.example/debian", "trixie", ("main",)),
        ("http://mirror.example/debian", "trixie-updates", ("main",)),
        ("http://mirror.example/debian-security", "trixie-security", ("main",)),
    ]


def test_archives_of_others_and_backports_are_left_out() -> None:
    others = [
        Source("http://vendor.example/apt", "nodistro", ("main",)),
        Source("http://ubuntu.example/ubuntu", "noble", ("main",)),
        Source("http://mirror.example/debian", "bookworm-backports", ("main",)),
    ]
    assert apt_sources.for_lab(others) == []


def test_without_the_main_suite_the_default_archive_is_used() -> None:
    assert apt_sources.for_lab([Source("http://mirror.example/s", "bookworm-security", ("main",))]) == []


@pytest.mark.parametrize(
    ("keyring", "trusted", "options"),
    [("", False, f"signed-by={KEYRING}"), ("/k.gpg", False, "signed-by=/k.gpg"), ("/k.gpg", True, "trusted=yes")],
)
def test_an_archive_is_verified_unless_the_host_trusts_it_without_keys(
    keyring: str, trusted: bool, options: str
) -> None:
    assert Source("u", "trixie", ("main",), keyring, trusted).line() == f"deb [{options}] u trixie main"


@pytest.mark.parametrize(
    ("keyring", "brings"),
    [("", False), (KEYRING.replace(".gpg", ".pgp"), False), ("/etc/apt/keyrings/company.gpg", True)],
)
def test_only_another_keyring_replaces_the_check_for_debians_own(keyring: str, brings: bool) -> None:
    assert apt_sources.brings_own_keys(Source("u", "trixie", ("main",), keyring)) is brings


def test_proxies_and_validity_settings_are_kept() -> None:
    dump = (
        'APT::Architecture "amd64";\nAcquire::http::Proxy "http://proxy.example:3128";\nAcquire::http "";\n'
        'Acquire::Check-Valid-Until "false";\nAcquire::Languages "none";\n'
    )
    assert apt_sources.passed_options(dump) == [
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::Check-Valid-Until "false";',
    ]


def test_a_folder_with_both_formats_is_read(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text("deb http://one.example/debian bookworm main\n")
    (parts / "two.sources").write_text(STANZAS)
    (parts / "three.sources.disabled").write_text(STANZAS.replace("mirror", "never"))
    uris = {source.uri for source in host.lab_sources(tmp_path)}
    assert uris == {
        "http://one.example/debian",
        "http://mirror.example/debian",
        "http://mirror.example/debian-security",
    }
