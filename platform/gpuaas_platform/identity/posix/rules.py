"""Pure: which login name and number a person gets, and which ones an admin may set."""

import re
from collections.abc import Callable, Collection

from gpuaas_contract import errors
from gpuaas_contract.posix import LOGIN_LENGTH_MAX

_SYSTEM_LOGINS = """
    root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats adm sudo
    wheel staff users operator halt shutdown ftp http nginx apache sshd ntp chrony dbus messagebus polkitd rtkit
    tss uuidd tcpdump avahi cups landscape lxd libvirt-qemu kvm docker containerd podman mysql postgres redis
    mongodb rabbitmq memcache ceph gluster nfsnobody rpc rpcuser statd dhcpcd dnsmasq bind named unbound postfix
    exim dovecot nvidia-persistenced dcgm ldap sssd nslcd nscd prometheus grafana node-exporter tty disk video
    audio render input ubuntu debian centos rocky fedora ec2-user cloud-user gpuaas people"""
SYSTEM_LOGINS = frozenset({"nobody", *_SYSTEM_LOGINS.split()})
"""Names of system accounts and groups, and of accounts that images often have. Apps add theirs in their manifests."""
SYSTEM_PREFIXES = ("systemd-", "gpu-", "gpuaas-", "_")
"""Prefixes of system accounts. The agent's own users on machines start with `gpu-` or `gpuaas-`."""
UNUSABLE_UIDS = ((60_000, 65_536),)
"""Ranges that systemd, `nobody` and 16-bit programs use, which no person gets."""


def login_of(name: str) -> str:
    """Return the login name for a person's name, not yet unique: lower case, without what no login may have."""
    own = name.partition("@")[0].lower()
    login = re.sub(r"[^a-z0-9_-]+", "-", own).strip("-_") or "user"
    return (login if login[0].isalpha() else f"u{login}")[:LOGIN_LENGTH_MAX]


def free_login(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return the login name for a person: their name or, if it is taken or a system account, with a number after it."""
    wished, number = login_of(name), 1
    if wished.startswith(SYSTEM_PREFIXES):
        wished = f"u-{wished}"[:LOGIN_LENGTH_MAX]
    login = wished
    while is_taken(login) or is_system(login):
        number += 1
        login = f"{wished[: LOGIN_LENGTH_MAX - len(str(number))]}{number}"
    return login


def is_system(login: str) -> bool:
    return login in SYSTEM_LOGINS or login.startswith(SYSTEM_PREFIXES)


def free_uid(next_uid: int, taken: Collection[int], last: int) -> int:
    """Return the first number from `next_uid` that no person of the organisation ever had."""
    uid = next_uid
    while uid in taken:
        uid += 1
    if uid > last:
        raise errors.Conflict(
            f"All user numbers up to {last} are used in this organisation, so no more person can get a role.",
            fix="Set a higher number before the role: gpuaas people set USER --login LOGIN --uid NUMBER --org ORG",
        )
    return uid


def check_set(login: str, uid: int, reserved: Collection[str]) -> None:
    """Refuse a login or number that belongs to the system or to an app."""
    if is_system(login) or login in reserved:
        raise errors.ValidationFailed(f"{login} is the name of a system account.", details={"field": "login"})
    if any(first <= uid < end for first, end in UNUSABLE_UIDS):
        raise errors.ValidationFailed(
            f"Number {uid} is in a range that systems use for themselves.", details={"field": "uid"}
        )
