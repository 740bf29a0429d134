"""The list of a project's people, its announcement, and the accounts of people on the project's machines.

`reconcile` compares everything at intervals and after each change of a role, a person or a key."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuaas_contract.capacity import Allocation
from gpuaas_contract.event_types import PosixPeopleChanged
from gpuaas_contract.identity import Project
from gpuaas_contract.node import TaskResult
from gpuaas_contract.paths import ProjectPath
from gpuaas_contract.posix import PeopleDigest, PeopleDigestQuery, PosixPerson
from gpuaas_contract.wire import NoBody, Page, PageQuery

from gpuaas_platform.allocations import installation
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.allocations.keys import store as key_store
from gpuaas_platform.allocations.people import rules, store
from gpuaas_platform.allocations.people.rules import AccountSet, ProjectPeople
from gpuaas_platform.call import Call, Origin, Site
from gpuaas_platform.identity import authority, orgs
from gpuaas_platform.identity.posix import service as posix
from gpuaas_platform.kit import db, paging
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.record import service as record

TASK = "allocation.people"
_CONNECT, _ROOT = "access.machine.connect", "access.machine.root"


@dataclass(frozen=True)
class Due:
    """What the loop has to write."""

    project_ids: Sequence[str]
    """The projects whose people are not as last announced, and announced projects that were deleted."""
    allocation_ids: Sequence[str]
    """The allocations whose machine needs a task, and released ones whose record is to be deleted."""


async def list_people(reader: db.Reader, call: Call[ProjectPath, PageQuery]) -> Page[PosixPerson]:
    project = call.in_project()
    people = (await _of_projects(reader, [project], call.now))[project.project_id]

    async def read(after: str, limit: int) -> list[PosixPerson]:
        return [person for person in people if person.user_id > after][:limit]

    return await paging.page("posix_people", call.query, read, lambda person: person.user_id)


async def wait_for_change(call: Call[ProjectPath, PeopleDigestQuery], _: NoBody) -> PeopleDigest:
    """Wait until the announced people differ from those that the caller has."""
    reader, query, project_id = call.site.database.reader, call.query, call.in_project().project_id

    async def look() -> PeopleDigest:
        announced = await store.announced(reader, project_id)
        return PeopleDigest(digest=rules.digest_of(announced.get(project_id)))

    return await call.poll(topic(project_id), query.wait_s, look, lambda now: now.digest != query.known)


def topic(project_id: str) -> str:
    """Return the topic that wakes who waits for another list of the project's people."""
    return f"posix_people/{project_id}"


async def admins(reader: db.Reader, project: Project, now: datetime.datetime) -> list[str]:
    """Return the names of the people who can log in as root, and can give others the role for it."""
    people = (await _of_projects(reader, [project], now))[project.project_id]
    return sorted(person.name for person in people if person.is_admin)


async def check_has_account(reader: db.Reader, allocation: Allocation, user_id: str) -> None:
    """Refuse if the machine does not have the person's account."""
    present = await store.accounts(reader, allocation.allocation_id) or rules.new_set(allocation.allocation_id)
    rules.check_has_account(present, allocation, user_id)


async def give_identities(tx: db.Tx, site: Site, origin: Origin) -> None:
    """Give an identity to everyone who has a role and none: people of earlier releases."""
    for org_id, user_id in await posix.missing(tx, origin.now):
        await posix.ensure(tx, site.settings, org_id, user_id, origin.now)


async def due(reader: db.Reader, now: datetime.datetime) -> Due:
    """Compare everything. The number of SQL statements does not depend on the number of projects or machines."""
    announced, projects = await store.announced(reader), await orgs.all_projects(reader)
    people = await _of_projects(reader, projects, now)
    changed = [project_id for project_id, listed in people.items() if _changed(announced.get(project_id), listed)]
    deleted = set(announced) - set(people)
    machines = [
        machine.allocation_id
        for machine in await store.machines(reader)
        if _must_install(machine, people.get(machine.project_id, []), now)
    ]
    return Due(
        project_ids=sorted({*changed, *deleted}),
        allocation_ids=[*machines, *await store.gone(reader)],
    )


async def announce(tx: db.Tx, origin: Origin, project_ids: Sequence[str]) -> None:
    """Record the present people of these projects, and emit one event for each list that changed."""
    for project_id in project_ids:
        project = await orgs.project_by_id(tx, project_id)
        if project is None:
            await store.forget_project(tx, project_id)
            continue
        before = (await store.announced(tx, project_id)).get(project_id)
        people = (await _of_projects(tx, [project], origin.now))[project_id]
        user_ids = _changed(before, people)
        if user_ids:
            await store.save_announced(tx, ProjectPeople(project_id, rules.summary(people)))
            tx.wake(topic(project_id))
            active = sum(person.state == "active" for person in people)
            payload = PosixPeopleChanged(user_ids=user_ids, active=active)
            await record.emit(tx, origin, "identity.posix.changed", payload, project)


async def install(tx: db.Tx, site: Site, origin: Origin, allocation_ids: Sequence[str]) -> None:
    """Queue the tasks that give these machines their accounts. Delete the records of released allocations.

    The people of a project are read once, because other writers wait while this runs."""
    known = await allocations.many(tx, allocation_ids)
    active = {allocation_id: item for allocation_id, item in known.items() if item.status == "active"}
    people = await _by_project(tx, {item.project_id for item in active.values()}, origin.now)
    for allocation_id in allocation_ids:
        allocation = active.get(allocation_id)
        if allocation is None:
            await store.forget_accounts(tx, [allocation_id])
        elif allocation.project_id in people:
            await _install(tx, site, origin, allocation, people[allocation.project_id])


async def installation_ended(
    tx: db.Tx, origin: Origin, allocation: Allocation, task_id: str, result: TaskResult
) -> None:
    """Record which accounts the machine has, or why the task failed."""
    present = await store.accounts(tx, allocation.allocation_id)
    if present is None:
        return
    error = ""
    if result.status != "succeeded":
        error = f"{result.error.code}: {result.error.message}" if result.error else result.status
    refused = result.result.get("refused")
    named = {str(user_id): str(why) for user_id, why in refused.items()} if isinstance(refused, dict) else {}
    await store.save_accounts(tx, rules.ended(present, task_id, error, named, origin.now))


async def forget_installed(tx: db.Tx, allocation_id: str) -> None:
    """Record that the machine has no accounts, because it was reinstalled."""
    await store.forget_accounts(tx, [allocation_id])
    tx.wake(posix.TOPIC)


async def _by_project(
    reader: db.Reader, project_ids: Iterable[str], now: datetime.datetime
) -> Mapping[str, list[PosixPerson]]:
    """Return project id -> its people. Projects that were deleted are left out."""
    people: dict[str, list[PosixPerson]] = {}
    for project_id in project_ids:
        project = await orgs.project_by_id(reader, project_id)
        if project is not None:
            people |= await _of_projects(reader, [project], now)
    return people


async def _install(
    tx: db.Tx, site: Site, origin: Origin, allocation: Allocation, people: Sequence[PosixPerson]
) -> None:
    allocation_id = allocation.allocation_id
    wanted = rules.accounts(allocation_id, people)
    present: AccountSet = await store.accounts(tx, allocation_id) or rules.new_set(allocation_id)
    if not installation.must_install(present, rules.digest(wanted), origin.now):
        return
    params = {"allocation_id": allocation_id, "user": allocation.username_on_node, "people": wanted}
    about = (allocation.node_id, TASK, allocation_id)
    await tasks.supersede(tx, *about, origin.now)
    task_id = await tasks.queue(tx, site, origin, *about, params, project_id=allocation.project_id)
    user_ids = [str(account["user_id"]) for account in wanted]
    await store.save_accounts(tx, installation.asked(present, rules.digest(wanted), user_ids, task_id))


def _changed(before: ProjectPeople | None, people: Sequence[PosixPerson]) -> list[str]:
    return rules.changed(before.people if before else {}, rules.summary(people))


def _must_install(machine: store.Machine, people: Sequence[PosixPerson], now: datetime.datetime) -> bool:
    present = machine.accounts or rules.new_set(machine.allocation_id)
    return installation.must_install(present, rules.digest(rules.accounts(machine.allocation_id, people)), now)


async def _of_projects(
    reader: db.Reader, projects: Sequence[Project], now: datetime.datetime
) -> Mapping[str, list[PosixPerson]]:
    """Return project id -> its people. For more than one project, the people of all projects are read."""
    only = projects[0] if len(projects) == 1 else None
    bound = await posix.people_by_scope(reader, now, authority.scopes_at(only) if only else None)
    announced = await store.announced(reader, only.project_id if only else "")
    identities = await posix.identities(reader, only.org_id if only else "")
    user_ids = {user_id for some in bound.values() for user_id in some}
    user_ids |= {user_id for some in announced.values() for user_id in some.people}
    actors = await authority.actors(reader, user_ids, now)
    keys = await key_store.lines_of(reader, sorted(user_ids) if only else None)

    def listed(project: Project) -> list[PosixPerson]:
        scopes, had_access = authority.scopes_at(project), announced.get(project.project_id)
        before = had_access.people if had_access else {}
        near = {user_id for scope in scopes for user_id in bound.get(scope, ())} | set(before)
        candidates = [_candidate(actors[user_id], scopes) for user_id in near if user_id in actors]
        return rules.listed(candidates, identities.get(project.org_id, {}), keys, before)

    return {project.project_id: listed(project) for project in projects}


def _candidate(actor: authority.Actor, scopes: authority.Scopes) -> rules.Candidate:
    return rules.Candidate(
        user_id=actor.caller.actor_id,
        name=actor.caller.name,
        is_active=actor.state == "active",
        may_connect=authority.can(actor.caller, _CONNECT, scopes) == "allowed",
        may_be_root=authority.can(actor.caller, _ROOT, scopes) == "allowed",
    )
