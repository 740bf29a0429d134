"""Accounts of people on this node: a Unix user with a given number, a home, and no sudo. Used by `handlers.people`.

A file in `PEOPLE` records each account that this agent made, and for which allocation. Other accounts are never
changed. A person who leaves keeps the account, expired, and the files, until the allocation is released."""

from __future__ import annotations

import contextlib
import dataclasses
import grp
import json
import os
import pwd
import shutil
import stat
from pathlib import Path

from gpuaas_agent import commands, files
from gpuaas_agent.host import accounts, facts
from gpuaas_agent.host.ssh import paths

HOMES = Path("/home/people")
SKELETON = Path("/etc/skel")


class Refused(Exception):
    """The account cannot be made on this node; the text names the cause."""


@dataclasses.dataclass(frozen=True)
class Record:
    """An account that this agent made."""

    login: str
    uid: int
    user_id: str
    allocation_id: str
    has_left: bool = False
    """Whether the account is expired, because the person left the project."""


def home_of(login: str) -> Path:
    return HOMES / login


def recorded(allocation_id: str = "") -> dict[str, Record]:
    """Return the accounts of an allocation by login; of all if it is empty."""
    names = sorted(path.name for path in paths.PEOPLE.iterdir()) if paths.PEOPLE.is_dir() else []
    records = [record for name in names if not name.startswith(".") and (record := _read(name)) is not None]
    return {record.login: record for record in records if allocation_id in ("", record.allocation_id)}


def make(login: str, uid: int, user_id: str, allocation_id: str) -> None:
    """Make the person's group, user and home, and let the person log in. A repeat completes what is missing."""
    before, wanted = _read(login), Record(login, uid, user_id, allocation_id)
    _check_free(before, wanted)
    if before is None or before.has_left:
        # `has_left` until the account is complete: after a crash, the next task starts here again.
        _write(dataclasses.replace(wanted, has_left=True))
        if accounts.uid_of(login) is None:
            _make_account(login, uid)
        else:
            commands.run(["usermod", "--expiredate", "", login])
    _make_home(login, uid)
    _write(wanted)


def expire(record: Record) -> None:
    """Make PAM refuse every new session of the person. The account and its files stay."""
    _write(dataclasses.replace(record, has_left=True))
    if accounts.uid_of(record.login) == record.uid:
        accounts.expire(record.login)


def remove(record: Record) -> list[str]:
    """Remove the account, its group and, unless it is on shared storage, its home. Return the removed paths."""
    removed, home = [], home_of(record.login)
    if accounts.uid_of(record.login) == record.uid:
        commands.run(["userdel", "--force", record.login])
    with contextlib.suppress(KeyError):
        if grp.getgrnam(record.login).gr_gid == record.uid:
            commands.run(["groupdel", record.login])
    if os.path.lexists(home) and not facts.is_shared(home, facts.shared_mounts()):
        accounts.remove_tree_here(home)
        removed.append(str(home))
    removed += [str(paths.PEOPLE / record.login)] if files.remove(paths.PEOPLE / record.login) else []
    return removed


def tidy() -> None:
    """Remove the group and the folders of people after the last account."""
    if recorded():
        return
    for folder in (paths.PEOPLE, HOMES):
        with contextlib.suppress(OSError):
            folder.rmdir()
    if _has_group(paths.PEOPLE_GROUP):
        commands.run(["groupdel", paths.PEOPLE_GROUP])


def why_not_free(wanted: Record, name_of_uid: str, uid_of_login: int | None, name_of_gid: str) -> str:
    """Return why the account cannot be made beside the local users and groups; empty if it can."""
    if name_of_uid not in ("", wanted.login):
        return f"user number {wanted.uid} belongs to the local user {name_of_uid}"
    if uid_of_login not in (None, wanted.uid):
        return f"the local user {wanted.login} has another number, {uid_of_login}"
    if name_of_gid not in ("", wanted.login):
        return f"group number {wanted.uid} belongs to the local group {name_of_gid}"
    return ""


def _check_free(before: Record | None, wanted: Record) -> None:
    if before is not None and (before.uid, before.allocation_id) != (wanted.uid, wanted.allocation_id):
        raise Refused(f"login {wanted.login} belongs to allocation {before.allocation_id} with number {before.uid}")
    uid = accounts.uid_of(wanted.login)
    why = why_not_free(wanted, _user_with(wanted.uid), uid, _group_with(wanted.uid))
    if not why and before is None and uid is not None:
        why = f"the local user {wanted.login} was not made by this agent"
    if why:
        raise Refused(why)
    home = home_of(wanted.login)
    owner = _owner_of(home)
    if owner not in (None, wanted.uid):
        raise Refused(f"{home} exists and belongs to user number {owner}")


def _make_account(login: str, uid: int) -> None:
    """Make the group and the user. Each program locks and rewrites the files of all accounts, so there are only two."""
    if not _has_group(paths.PEOPLE_GROUP):
        commands.run(["groupadd", "--force", "--system", paths.PEOPLE_GROUP])
    if not _group_with(uid):
        commands.run(["groupadd", "--gid", str(uid), login])
    # No password matches '*'. The home is made separately: on shared storage it may exist already.
    argv = ["useradd", "--uid", str(uid), "--gid", str(uid), "--groups", paths.PEOPLE_GROUP, "--no-create-home"]
    argv += ["--home-dir", str(home_of(login)), "--shell", "/bin/bash", "--password", "*", "--expiredate", ""]
    commands.run([*argv, "--comment", "GPUaaS person", login])


def _make_home(login: str, uid: int) -> None:
    home = home_of(login)
    if home.is_dir():
        return
    draft = home.with_name(f".{login}.new")
    try:
        files.make_directory(HOMES, 0o755)
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(SKELETON, draft, symlinks=True) if SKELETON.is_dir() else draft.mkdir()
        for folder, names, others in os.walk(draft):
            for path in (folder, *(os.path.join(folder, name) for name in (*names, *others))):
                os.chown(path, uid, uid, follow_symlinks=False)
        draft.chmod(0o700)
        draft.rename(home)
    except OSError as error:
        raise Refused(f"{home} cannot be made: {error.strerror}") from error


def _owner_of(home: Path) -> int | None:
    """Return the owner of a home; None if it does not exist, root for something else than a folder."""
    try:
        status = home.lstat()
    except FileNotFoundError:
        return None
    return status.st_uid if stat.S_ISDIR(status.st_mode) else 0


def _user_with(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _group_with(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _read(login: str) -> Record | None:
    content = files.read(paths.PEOPLE / login)
    return Record(**json.loads(content)) if content is not None else None


def _write(record: Record) -> None:
    files.make_directory(paths.PEOPLE, 0o755)
    files.put(paths.PEOPLE / record.login, json.dumps(dataclasses.asdict(record)).encode() + b"\n", 0o600)
