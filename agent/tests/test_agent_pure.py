"""Parts that need no host: configuration, facts, parameter checks, file contents, and the archive's bytes."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuaas_agent import build, config, errors, files, handlers, parameters
from gpuaas_agent.handlers import health
from gpuaas_agent.host import accounts, facts, processes
from gpuaas_agent.host.ssh import sshd

SOURCE = Path(build.__file__).parent
CA_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIJPOyMNUJUHcoYzOJnoVfXpA+MZKNgt5EFgJFaMlHnN platform"
PROVISION = {"allocation_id": "alloc_1", "user": "alice", "principal": "alloc_1", "user_ca_public_keys": [CA_KEY]}


def provision_mismatch(**changes: Any) -> str | None:
    return parameters.mismatch(handlers.HANDLERS["allocation.provision"].params, {**PROVISION, **changes})


def test_the_documented_parameters_are_accepted() -> None:
    assert provision_mismatch() is None


@pytest.mark.parametrize("user", ["", "Alice", "1a", "a b", "a\n", "-a", "a/b", "../x", "a" * 32, 7, None])
def test_a_user_name_that_is_not_plain_is_refused(user: Any) -> None:
    assert provision_mismatch(user=user) == "parameters of the wrong type or form: user"


@pytest.mark.parametrize("principal", ["", "a b", 'from="*" root', "a\nroot", "#x", "a,b"])
def test_a_principal_that_could_be_read_as_more_than_one_is_refused(principal: str) -> None:
    assert provision_mismatch(principal=principal) == "parameters of the wrong type or form: principal"


@pytest.mark.parametrize(
    "keys", [[], CA_KEY, [CA_KEY + "\n" + CA_KEY], ["ssh-ed25519 AAAA"], ["ssh-rsa " + CA_KEY.split()[1]], [7]]
)
def test_authority_keys_must_be_whole_keys_one_per_line(keys: Any) -> None:
    assert provision_mismatch(user_ca_public_keys=keys) is not None


def test_an_unknown_parameter_is_named() -> None:
    assert provision_mismatch(shell="/bin/sh") == "unknown parameters: shell"


def test_missing_parameters_are_named() -> None:
    expected = handlers.HANDLERS["allocation.release"].params
    assert parameters.mismatch(expected, {}) == "missing parameters: allocation_id, user"


def test_the_sshd_drop_in_names_the_authority_the_principals_and_the_users_with_keys() -> None:
    assert sshd.drop_in_text(["bob", "alice"]).splitlines()[1:] == [
        "TrustedUserCAKeys /etc/gpuaas/ssh/user_ca.pub",
        "AuthorizedPrincipalsFile none",
        "AuthorizedPrincipalsCommand /etc/gpuaas/ssh/principals-of %u %s",
        "AuthorizedPrincipalsCommandUser root",
        "RevokedKeys /etc/gpuaas/ssh/revoked_keys",
        "Match User alice,bob",
        "    AuthorizedKeysFile none",
        "    AuthorizedKeysCommand /etc/gpuaas/ssh/keys-of %u %k",
        "    AuthorizedKeysCommandUser root",
        "Match Group gpuaas-people",
        "    AuthorizedKeysFile none",
        "    AuthorizedKeysCommand /etc/gpuaas/ssh/keys-of %u %k",
        "    AuthorizedKeysCommandUser root",
    ]


def test_the_sudo_right_is_one_line() -> None:
    assert accounts.sudoers_text("alice") == "alice ALL=(ALL:ALL) NOPASSWD: ALL\n"


def test_a_setting_that_another_file_sets_first_is_reported() -> None:
    good = "port 22\n" + "".join(line.strip().lower() + "\n" for line in sshd.drop_in_text(["a"]).splitlines())
    assert sshd.ignored_settings(good) == []
    another = good.replace("revoked_keys", "other_keys").replace(
        "principalsfile none", "principalsfile /etc/ssh/principals"
    )
    assert sshd.ignored_settings(another) == ["authorizedprincipalsfile", "revokedkeys"]
    assert "trustedusercakeys" in sshd.ignored_settings("")


def test_only_listening_sockets_of_the_port_are_returned() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0\n"
        "   1: 0100007F:0016 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0\n"
        "   2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0\n"
    )
    assert sshd.listening_inodes(table, 22) == {"4711"}


@pytest.mark.parametrize(
    ("status", "login_uid", "control_group", "environment", "belongs"),
    [
        ("State:\tS (sleeping)\nUid:\t1001\t1001\t1001\t1001\n", "1001", "0::/", b"", True),
        ("State:\tS (sleeping)\nUid:\t0\t0\t0\t0\n", "1001", "0::/", b"", True),
        ("State:\tS (sleeping)\nUid:\t0\t0\t0\t0\n", "", "0::/user.slice/user-1001.slice/x", b"", True),
        ("State:\tS (sleeping)\nUid:\t0\t0\t0\t0\n", "", "0::/", b"A=1\0SUDO_UID=1001\0B=2\0", True),
        ("State:\tZ (zombie)\nUid:\t1001\t1001\t1001\t1001\n", "1001", "0::/", b"", False),
        ("State:\tS (sleeping)\nUid:\t0\t0\t0\t0\n", "4294967295", "0::/system.slice", b"", False),
        (
            "State:\tS (sleeping)\nUid:\t10011\t0\t0\t0\n",
            "",
            "0::/user.slice/user-10011.slice/x",
            b"SUDO_UID=10011",
            False,
        ),
    ],
)
def test_processes_behind_sudo_still_belong_to_the_user(
    status: str, login_uid: str, control_group: str, environment: bytes, belongs: bool
) -> None:
    observed = processes.Observed(status, login_uid, control_group, environment)
    assert processes.is_of_user(observed, 1001) is belongs


def test_a_control_group_whose_name_is_not_text_does_not_hide_a_process(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("State:\tS (sleeping)\nUid:\t0\t0\t0\t0\n")
    (tmp_path / "cgroup").write_bytes(b"0::/user.slice/user-1001.slice/\xff\n")
    assert processes._belongs(tmp_path, 1001)
    assert not processes._belongs(tmp_path, 1002)


def test_only_the_users_own_files_are_removed_from_a_shared_folder(tmp_path: Path) -> None:
    shared, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    (shared / "folder").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    (shared / "folder" / "file").write_text("x")
    (shared / "link").symlink_to(elsewhere)
    assert accounts.remove_owned(shared, {os.getuid() + 1}) == []
    removed = accounts.remove_owned(shared, {os.getuid()})
    assert sorted(removed) == [str(shared / name) for name in ("folder", "folder/file", "link")]
    assert (elsewhere / "kept").exists()


@pytest.mark.parametrize(
    "server", ["http://10.0.0.1:7443", "http://127.0.0.1.example", "http://127.0.0.1@h", "ftp://x"]
)
def test_plain_http_beyond_loopback_is_refused(server: str) -> None:
    with pytest.raises(errors.CannotStart, match="refused"):
        config.is_plain_loopback(server)


def test_https_needs_a_whole_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({"server": "https://10.0.0.1:7443", "ca_sha256": "abc", "name": "gpu-1"}))
    with pytest.raises(errors.CannotStart, match="ca_sha256"):
        config.load(path)


def test_gpus_come_from_the_declaration_or_else_from_the_driver(tmp_path: Path) -> None:
    declared, driver = tmp_path / "gpus.json", tmp_path / "gpus"
    assert facts.gpus(declared, driver) == []
    card = driver / "0000:01:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text("Model: \t\t NVIDIA H100\nIRQ:   \t\t 30\nDevice Minor: \t 3\n")
    assert facts.gpus(declared, driver) == [{"index": 3, "type": "NVIDIA H100", "device": "/dev/nvidia3"}]
    declared.write_text('{"gpus": [{"index": 0, "type": "l40s", "device": "/dev/nvidia0"}]}')
    assert facts.gpus(declared, driver) == [{"index": 0, "type": "l40s", "device": "/dev/nvidia0"}]
    declared.write_text('{"gpus": [{}]}')
    assert facts.gpus(declared, driver) == []


def test_only_global_addresses_are_reported() -> None:
    link = {"addr_info": [{"scope": "global", "local": "10.0.0.5"}, {"scope": "link", "local": "fe80::1"}]}
    loopback = {"addr_info": [{"scope": "host", "local": "127.0.0.1"}]}
    assert facts.global_addresses(json.dumps([loopback, link, {}])) == ["10.0.0.5"]


def test_the_hosts_own_facts_have_the_promised_names() -> None:
    names = "cpus memory_mb gpus os kernel architecture disk_gb addresses hostname ssh_port shared_mounts"
    assert set(facts.collect()) == set(names.split())


def test_the_ed25519_host_key_is_preferred_and_its_comment_dropped(tmp_path: Path) -> None:
    first, second = tmp_path / "ed25519.pub", tmp_path / "rsa.pub"
    second.write_text("ssh-rsa BBBB root@host\n")
    assert facts.ssh_host_public_key((first, second)) == "ssh-rsa BBBB"
    first.write_text("ssh-ed25519 AAAA root@host\n")
    assert facts.ssh_host_public_key((first, second)) == "ssh-ed25519 AAAA"


def test_a_file_that_fails_its_check_is_not_put_in_place(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise ValueError(path.read_text())

    with pytest.raises(ValueError, match="bad"):
        files.put(tmp_path / "sudoers", b"bad", 0o440, check=refuse)
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_a_crash_left_is_overwritten_or_removed(tmp_path: Path) -> None:
    for name in ("written", "removed"):
        (tmp_path / f".{name}.new").write_text("half")
    files.put(tmp_path / "written", b"whole", 0o644)
    assert not files.remove(tmp_path / "removed")
    assert [path.name for path in tmp_path.iterdir()] == ["written"]


def test_putting_the_same_file_twice_changes_it_once(tmp_path: Path) -> None:
    assert [files.put(tmp_path / "x", b"1", 0o640) for _ in range(2)] == [True, False]
    assert files.put(tmp_path / "x", b"1", 0o600)


def test_equal_source_gives_an_equal_archive_which_starts(tmp_path: Path) -> None:
    first, second = tmp_path / "a.pyz", tmp_path / "b.pyz"
    assert build.build(first) == build.build(second)
    shown = subprocess.run([sys.executable, str(first), "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "0.1.0"


@pytest.mark.parametrize("name", sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")))
def test_every_file_is_python_3_9(name: str) -> None:
    ast.parse((SOURCE / name).read_text(), name, feature_version=(3, 9))


@pytest.mark.parametrize(
    ("check", "ok"),
    [
        (health.disk_has_room(free=10, total=100), True),
        (health.disk_has_room(free=4, total=100), False),
        (health.memory_is_left(available=10, total=100), True),
        (health.memory_is_left(available=0, total=100), False),
        (health.gpu_devices_are_there(["/dev/null"]), True),
        (health.gpu_devices_are_there(["/dev/null", "/dev/absent0"]), False),
    ],
)
def test_a_health_check_has_a_verdict_and_a_reason(check: dict[str, Any], ok: bool) -> None:
    assert check["ok"] is ok
    assert check["message"]


@pytest.mark.parametrize(("greeting", "ok"), [(b"SSH-2.0-OpenSSH_9.2\r\n", True), (b"HTTP/1.1 400\r\n", False)])
def test_sshd_is_recognised_by_its_greeting(greeting: bytes, ok: bool) -> None:
    client, server = socket.socketpair()
    with client, server:
        server.sendall(greeting)
        assert health.greets_as_sshd(client) is ok


def test_a_port_without_a_listener_is_not_sshd() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    assert not health.sshd_answers(address)["ok"]


def test_the_hosts_own_health_has_the_promised_names() -> None:
    report = health.report()
    assert set(report) == {"ok", "checks", "disk_free_gb", "memory_available_mb", "load_1m", "uptime_s"}
    assert report["ok"] == all(check["ok"] for check in report["checks"])
