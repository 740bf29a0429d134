"""The actions `users.*`: show and change who uses the cluster, and their limits. Registered by `controller`.

People of the project are users by their role there; `users.add` and `users.remove` are for all others."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from gpuaas_sdk.controller import Operation, Permanent, Refused
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import reports, roles
from gpuaas_app_slurm.settings import Settings
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
    extra, project = await users.of_cluster(head, inputs.users), reports.people_of(await op.people())
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
    extra = await users.of_cluster(head, inputs.users)
    machines = await _ensure(op, head, extra)
    await accounting.give_places(head, inputs.cluster_name, [user.name for user in extra if not user.is_removed])
    synced = await reports.sync_people(op, head, inputs, settings)
    changed = [("added", synced.changes.add), ("restored", synced.changes.restore), ("blocked", synced.changes.block)]
    listed = [(login, change) for change, logins in changed for login in logins]
    listed += [(login, "has no Unix account yet") for login in synced.waiting]
    listed += [(login, "left before") for login in synced.jobs if login not in synced.changes.block]
    return {
        "rows": [
            {"login": login, "change": change, "jobs": ", ".join(synced.jobs.get(login, ())) or None}
            for login, change in sorted(listed)
        ],
        "note": f"Machines: {machines}. Users of the cluster that are not people of the project: {len(extra)}.",
    }


async def add(op: Operation) -> dict[str, Any]:
    head, inputs, names = await reports.head(op), config.parse_inputs(op.instance.inputs), _names(op)
    config.check_users(names)
    persons = {person.login for person in await op.people()}
    if taken := [name for name in names if name in persons]:
        raise Refused(f"{', '.join(taken)}: people of the project are users already", fix="use another name")
    before = await users.of_cluster(head, inputs.users)
    after = users.with_added(before, names, await users.owners_of(head))
    machines = await _ensure(op, head, after)
    await accounting.give_places(head, inputs.cluster_name, names)
    kept = {user.name: "restored" if user.is_removed else "was there" for user in before}
    return _users_table([user for user in after if user.name in names], kept, "added", machines)


async def remove(op: Operation) -> dict[str, Any]:
    """Block users in Slurm and expire their accounts. Their files, their numbers and their running jobs stay."""
    head, inputs, names = await reports.head(op), config.parse_inputs(op.instance.inputs), _names(op)
    before = await users.of_cluster(head, inputs.users)
    _refuse_unremovable(op, before, inputs.users[0], {person.login for person in await op.people()})
    present = await associations.read(head, inputs.cluster_name)
    open_places = [name for name in names if name in present and present[name].can_submit]
    await associations.change(head, inputs.cluster_name, open_places, associations.BLOCK)
    after = users.with_removed(before, names)
    machines = await _ensure(op, head, after)
    jobs = await associations.jobs_of(head, [name for name in names if name in present])
    kept = {user.name: "was removed" for user in before if user.is_removed}
    table = _users_table([user for user in after if user.name in names], kept, "removed", machines)
    return table | {"note": f"Their jobs that run or wait: {people.jobs_text(jobs)}." if jobs else "They have no jobs."}


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
    _refuse_unset(head, wanted, after[wanted.login].limits)
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


def _refuse_unset(head: Machine, wanted: Limits, shown: Limits) -> None:
    """Fail if Slurm does not show what was set; a limit that was removed may still be inherited."""
    numbers = ("max_jobs", "max_submit", "cpus", "gpus", "fairshare")
    pairs = {name: (getattr(wanted, name), getattr(shown, name)) for name in numbers}
    wrong = [name for name, (set_to, is_now) in pairs.items() if set_to is not None and set_to > 0 and set_to != is_now]
    if wrong:
        raise Permanent(
            f"Slurm did not take the limits {', '.join(wrong)} on {head.hostname}",
            fix=f"gpuaas ssh {head.hostname} --root -- sudo tail /var/log/slurm/slurmdbd.log",
        )


def _limits(association: Association | None) -> dict[str, Any]:
    return msgspec.structs.asdict(association.limits if association else Limits())


def _names(op: Operation) -> tuple[str, ...]:
    return op.inputs_as(Named).names


def _refuse_unremovable(op: Operation, extra: Sequence[User], first: str, persons: set[str]) -> None:
    names = _names(op)
    if named := [name for name in names if name in persons]:
        raise Refused(
            f"{', '.join(named)}: people leave the cluster with their role in the project",
            fix="gpuaas binding list; gpuaas binding revoke BINDING",
        )
    if unknown := [name for name in names if name not in {user.name for user in extra}]:
        look = f"gpuaas action run {op.instance.name} users.list"
        raise Refused(f"the cluster has no user {', '.join(unknown)}", fix=look)
    if first in names:
        why = "it runs the first job on each new worker"
        raise Refused(f"{first} cannot be removed: {why}", fix="leave this user in the cluster")


async def _ensure(op: Operation, head: Machine, accounts: Sequence[User]) -> int:
    """Make the accounts on every machine and return how many there are. The machine of slurmctld is first: its accounts
    are the record of users and numbers."""
    instance_id = op.instance.instance_id
    await users.ensure_noted(head, instance_id, accounts)
    members = roles.one_per_machine(op.members)
    machines = await asyncio.gather(*(op.machine(member) for member in members))
    others = [machine for machine in machines if machine.address != head.address]
    await asyncio.gather(*(users.ensure_noted(machine, instance_id, accounts) for machine in others))
    return len(machines)


def _users_table(listed: Sequence[User], kept: Mapping[str, str], otherwise: str, machines: int) -> dict[str, Any]:
    return {
        "rows": [
            {"login": user.name, "uid": user.uid, "change": kept.get(user.name, otherwise), "machines": machines}
            for user in listed
        ]
    }
