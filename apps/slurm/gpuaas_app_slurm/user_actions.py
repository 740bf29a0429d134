"""The actions `users.*`: show and change who uses the cluster, and their limits. Registered by `controller`.

People of the project are users by their role there; `users.add` and `users.remove` are for all others."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from gpuaas_contract.protocol.result import NOTE_LENGTH_MAX
from gpuaas_sdk.controller import Operation, Permanent, Refused
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import reports, user_accounts
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.user_accounts import Written
from gpuaas_app_slurm.workload import accounting, associations, config, people, users
from gpuaas_app_slurm.workload.associations import Association, Limits
from gpuaas_app_slurm.workload.people import Person
from gpuaas_app_slurm.workload.users import User

EVERYONE = "(everyone)"
"""Shown for the account that all users share."""


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `users.add` and `users.remove`."""

    names: tuple[str, ...]


class SetLimits(Limits, frozen=True, forbid_unknown_fields=True):
    """The inputs of `users.limits`. Without a login, they are for everyone; without limits, nothing is changed."""

    login: str = ""


async def list_users(op: Operation) -> dict[str, Any]:
    head, inputs = await reports.head(op), config.parse_inputs(op.instance.inputs)
    present = await associations.read(head, inputs.cluster_name)
    project = reports.people_of(await op.people())
    extra = await users.of_cluster(head, inputs.users, project)
    return {"rows": rows(project, extra, present)}


def rows(project: Iterable[Person], extra: Iterable[User], present: Mapping[str, Association]) -> list[dict[str, Any]]:
    """Return a row for each person of the project, each other user of the cluster, and other users of Slurm. Pure."""
    listed = [(person.login, person.uid, "person", "left" if person.has_left else "active") for person in project]
    listed += [(user.name, user.uid, "user", "removed" if user.is_removed else "active") for user in extra]
    known = {login for login, *_ in listed}
    others = [(login, None, "other", "active") for login in present if login and login not in known]
    return [
        {"login": login, "uid": uid, "kind": kind, "state": state}
        | {"can_submit": login in present and present[login].can_submit}
        | _limits(present.get(login))
        for login, uid, kind, state in sorted([*listed, *others], key=lambda row: row[0])
    ]


async def sync(op: Operation, settings: Settings) -> dict[str, Any]:
    """Make accounts and associations as they should be now."""
    head, inputs = await reports.head(op), config.parse_inputs(op.instance.inputs)
    extra = await user_accounts.of_cluster(op, head)
    active = [user for user in extra if not user.is_removed]
    # Its own accounts are the record, so those of removed users are left alone there: one may be added again now.
    await users.ensure_noted(head, op.instance.instance_id, active)
    written = await user_accounts.write_elsewhere(op, head, extra, settings)
    await accounting.give_places(head, inputs.cluster_name, [user.name for user in active])
    synced = await reports.sync_people(op, head, inputs, settings)
    changed = [("added", synced.changes.add), ("restored", synced.changes.restore), ("blocked", synced.changes.block)]
    listed = [(login, change) for change, logins in changed for login in logins]
    listed += [(login, "has no Unix account yet") for login in synced.waiting]
    listed += [(login, "left before") for login in synced.jobs if login not in synced.changes.block]
    listed += [(login, "ignored: a user of the cluster has this login") for login in synced.ignored]
    count = f"Machines: {written.machines}. Users of the cluster that are not people of the project: {len(extra)}."
    return {
        "rows": [
            {"login": login, "change": change, "jobs": ", ".join(synced.jobs.get(login, ())) or None}
            for login, change in sorted(listed)
        ],
        "note": " ".join([count, *_away_note(op, written, "users.sync")]),
    }


async def add(op: Operation, settings: Settings) -> dict[str, Any]:
    head, inputs, names = await reports.head(op), config.parse_inputs(op.instance.inputs), _names(op)
    config.check_users(names)
    persons = reports.people_of(await op.people())
    before = await users.of_cluster(head, inputs.users, persons)
    new = set(names) - {user.name for user in before}
    users.refuse_people(sorted(new), persons, "use another name")
    after = users.with_added(before, names, await users.owners_of(head), persons)
    added = [user for user in after if user.name in names]
    written = await user_accounts.write(op, head, added, settings, restores=True)
    await accounting.restore_places(head, inputs.cluster_name, names)
    kept = {user.name: "restored" if user.is_removed else "was there" for user in before}
    table = _users_table(added, kept, "added", written)
    note = _away_note(op, written, f"users.add --input names={','.join(names)}")
    return table | ({"note": " ".join(note)} if note else {})


async def remove(op: Operation, settings: Settings) -> dict[str, Any]:
    """Block users in Slurm and expire their accounts. Their files, their numbers and their running jobs stay."""
    head, inputs, names = await reports.head(op), config.parse_inputs(op.instance.inputs), _names(op)
    before = await user_accounts.of_cluster(op, head)
    _refuse_unremovable(op, before, inputs.users[0], {person.login for person in await op.people()})
    present = await associations.read(head, inputs.cluster_name)
    open_places = [name for name in names if name in present and present[name].can_submit]
    await associations.change(head, inputs.cluster_name, open_places, associations.BLOCK)
    removed = [user for user in users.with_removed(before, names) if user.name in names]
    written = await user_accounts.write(op, head, removed, settings)
    jobs = await associations.jobs_of(head, [name for name in names if name in present])
    kept = {user.name: "was removed" for user in before if user.is_removed}
    note = f"Their jobs that run or wait: {people.jobs_text(jobs)}." if jobs else "They have no jobs."
    away = _away_note(op, written, "users.sync", "Their accounts there are still active.")
    return _users_table(removed, kept, "removed", written) | {"note": " ".join([*away, note])[:NOTE_LENGTH_MAX]}


async def limits(op: Operation) -> dict[str, Any]:
    """Set limits, and return what Slurm showed before it and shows after it."""
    head, inputs = await reports.head(op), config.parse_inputs(op.instance.inputs)
    wanted = op.inputs_as(SetLimits)
    values = associations.settings(wanted)
    before = await associations.read(head, inputs.cluster_name)
    if wanted.login and wanted.login not in before:
        raise Refused(f"Slurm has no user {wanted.login}", fix=f"gpuaas action run {op.instance.name} users.list")
    if values and wanted.login:
        await associations.change(head, inputs.cluster_name, [wanted.login], values)
    elif values:
        await associations.change_account(head, inputs.cluster_name, values)
    after = await associations.read(head, inputs.cluster_name)
    _refuse_unset(head, wanted, before[wanted.login].limits, after)
    if not values:
        shown = [after[wanted.login]] if wanted.login else list(after.values())
        return {"rows": [_limits_row("now", item) for item in shown]}
    changed = [_limits_row("after", after[wanted.login])]
    if op.attempt > 1:
        # An attempt before this one may have changed the limits already.
        return {"rows": changed, "note": "The limits before are not known: the action was interrupted and repeated."}
    rows = [_limits_row("before", before[wanted.login]), *changed]
    command = take_back(op.instance.name, wanted, before[wanted.login].limits)
    return {"rows": rows} | ({"note": f"To take it back: {command}"} if command else {})


def take_back(instance: str, wanted: SetLimits, before: Limits) -> str:
    """Return the command that sets the limits of before again; empty if nothing changes. Pure."""
    names = [name for name in Limits.__struct_fields__ if getattr(wanted, name) is not None]
    old = {name: -1 if (value := getattr(before, name)) is None else value for name in names}
    if all(old[name] == getattr(wanted, name) for name in names):
        return ""
    given = ({"login": wanted.login} if wanted.login else {}) | old
    inputs = " ".join(f"--input {name}={value}" for name, value in given.items())
    return f"gpuaas action run {instance} users.limits {inputs}"


def _limits_row(when: str, association: Association) -> dict[str, Any]:
    return {"login": association.user or EVERYONE, "when": when} | _limits(association)


def _refuse_unset(head: Machine, wanted: SetLimits, before: Limits, after: Mapping[str, Association]) -> None:
    """Fail if Slurm does not show what was set."""
    above = after[""].limits if wanted.login and "" in after else None
    if wrong := unset(wanted, before, after[wanted.login].limits, above):
        raise Permanent(
            f"Slurm did not take the limits {', '.join(wrong)} on {head.hostname}",
            fix=f"gpuaas ssh {head.hostname} --root -- sudo tail /var/log/slurm/slurmdbd.log",
        )


def unset(wanted: Limits, before: Limits, shown: Limits, above: Limits | None) -> list[str]:
    """Return the limits that Slurm does not show as they were set. Pure.

    A limit that was removed may be inherited: by a user from `above`, the limits of the account, and by the account
    from the one above it, which is not known. So there only a limit that stayed the same is wrong."""
    names = [name for name in Limits.__struct_fields__ if getattr(wanted, name) is not None]
    return [name for name in names if not _is_set(name, wanted, before, shown, above)]


def _is_set(name: str, wanted: Limits, before: Limits, shown: Limits, above: Limits | None) -> bool:
    value, is_now = getattr(wanted, name), getattr(shown, name)
    if name == "fairshare" and value == -1:
        return is_now in (None, 1)
    if value in (-1, "-1"):
        return (
            is_now is None or is_now != getattr(before, name) or (above is not None and is_now == getattr(above, name))
        )
    if name == "max_wall":
        return _minutes(value) == _minutes(is_now or "")
    return bool(value == is_now)


def _minutes(text: str) -> int | None:
    """Return the minutes of `D-HH:MM:SS` or `HH:MM:SS`; Slurm stores whole minutes, rounded up."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return math.ceil((((days * 24) + hours) * 60 + minutes) + seconds / 60)


def _limits(association: Association | None) -> dict[str, Any]:
    return msgspec.structs.asdict(association.limits if association else Limits())


def _names(op: Operation) -> tuple[str, ...]:
    return op.inputs_as(Named).names


def _refuse_unremovable(op: Operation, extra: Sequence[User], first: str, persons: set[str]) -> None:
    names = _names(op)
    known = {user.name for user in extra}
    if named := [name for name in names if name in persons and name not in known]:
        raise Refused(
            f"{', '.join(named)}: people leave the cluster with their role in the project",
            fix="gpuaas binding list; gpuaas binding revoke BINDING",
        )
    if unknown := [name for name in names if name not in known]:
        look = f"gpuaas action run {op.instance.name} users.list"
        raise Refused(f"the cluster has no user {', '.join(unknown)}", fix=look)
    if first in names:
        why = "it runs the first job on each new worker"
        raise Refused(f"{first} cannot be removed: {why}", fix="leave this user in the cluster")


def _users_table(listed: Sequence[User], kept: Mapping[str, str], otherwise: str, written: Written) -> dict[str, Any]:
    places = {"machines": written.machines, "away": written.away_text or None}
    return {
        "rows": [
            {"login": user.name, "uid": user.uid, "change": kept.get(user.name, otherwise)} | places for user in listed
        ]
    }


def _away_note(op: Operation, written: Written, action: str, consequence: str = "") -> list[str]:
    """Return what to do about machines that could not be reached; nothing if there are none."""
    if not written.away:
        return []
    again = f"When they answer again: gpuaas action run {op.instance.name} {action}"
    return [
        text for text in (f"Not changed, because they cannot be reached: {written.away_text}.", consequence) if text
    ] + [f"{again}."]
