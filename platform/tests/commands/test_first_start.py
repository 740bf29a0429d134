"""The first start on a data folder: a second process that starts in the middle of it ends up with the same keys."""

import functools
import os
import sqlite3
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_platform import tls
from gpuaas_platform.certificates import Certificates
from gpuaas_platform.custody import key_files
from gpuaas_platform.kit import clock, keys, migrate


def _in_the_middle(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, rival: Callable[[], None]) -> None:
    """Run the rival completely before the first call of a function between the check and the action."""
    original, rivals = getattr(owner, name), [rival]

    def interrupted(*args: Any) -> Any:
        if rivals:
            rivals.pop()()
        return original(*args)

    monkeypatch.setattr(owner, name, interrupted)


def test_signing_keys_are_those_of_the_process_that_came_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[keys.Keys] = []
    _in_the_middle(monkeypatch, keys, "private_pem", lambda: others.append(keys.load(tmp_path)))
    own = keys.load(tmp_path)
    assert _raw(own.tasks) == _raw(others[0].tasks) == _raw(keys.load(tmp_path).tasks)
    assert _raw(own.audit) == _raw(others[0].audit)


def test_the_authority_is_that_of_the_process_that_came_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, others = clock.utc_now(), list[tls.CertificateAuthority]()
    _in_the_middle(monkeypatch, keys, "private_pem", lambda: others.append(tls.load_authority(tmp_path, now)))
    own = tls.load_authority(tmp_path, now)
    assert own.sha256 == others[0].sha256
    assert own.key.public_key() == own.certificate.public_key() == others[0].key.public_key()


def test_a_missing_certificate_beside_the_authoritys_key_is_made_at_the_next_start(tmp_path: Path) -> None:
    before = tls.load_authority(tmp_path, clock.utc_now())
    (tmp_path / "tls-authority.crt").unlink()
    after = tls.load_authority(tmp_path, clock.utc_now())
    assert after.key.public_key() == after.certificate.public_key() == before.key.public_key()


def test_the_first_key_of_custody_is_complete_when_two_processes_write_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = key_files.PlainFile(tmp_path / key_files.PLAIN)
    _in_the_middle(monkeypatch, os, "fsync", lambda: file.create({"theirs": b"1"}))
    file.create({"ours": b"2"})
    assert file.read() == {"theirs": b"1"}
    assert os.listdir(tmp_path) == [key_files.PLAIN]


def test_each_of_two_listeners_shows_a_certificate_of_its_own(tmp_path: Path) -> None:
    authority = tls.load_authority(tmp_path, clock.utc_now())
    before = sorted(os.listdir(tmp_path))
    shown = {host: Certificates(authority, clock.utc_now).context(host) for host in ("one.test", "other.test")}
    for host, context in shown.items():
        _shake_hands(ssl.create_default_context(cadata=authority.pem), context, host)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_process_waits_for_a_store_that_another_process_is_creating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpuaas.sqlite"
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    rival.execute("CREATE TABLE theirs (id INTEGER)")

    class Waiting(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "BEGIN IMMEDIATE" and rival.in_transaction:
                rival.execute("COMMIT")
            return super().execute(sql, *values)

    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Waiting))
    migrate.migrate_sqlite(path)
    assert rival.execute("SELECT count(*) FROM theirs, migrations").fetchone() == (0,)
    assert rival.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    rival.close()


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    """In memory: the client refuses a certificate for another name."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        side = sides.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            sides.append(side)


def _raw(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes_raw()
