"""Find things by what people call them: an instance by name, an allocation by its node, a member by its node."""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from gpuaas_contract import artifacts
from gpuaas_contract.agents import AGENT_RELEASE_LIST, AgentRelease
from gpuaas_contract.capacity import ALLOCATION_LIST, NODE_LIST, Allocation, Node
from gpuaas_contract.catalog import ENTITLEMENT_GET, PROJECT_APP_GET, Entitlement, Manifest
from gpuaas_contract.credentials import CREDENTIAL_GET, CREDENTIAL_LIST, Credential
from gpuaas_contract.errors import NotFound, PermissionDenied
from gpuaas_contract.holds import HOLD_LIST, Hold
from gpuaas_contract.identity import (
    ORG_LIST,
    PROJECT_LIST,
    SERVICE_ACCOUNT_GET,
    SERVICE_ACCOUNT_LIST,
    Org,
    Project,
    ServiceAccount,
)
from gpuaas_contract.instances import INSTANCE_GET, INSTANCE_LIST, MEMBER_GET, MEMBER_LIST, Instance, Member
from gpuaas_contract.lifecycles import GONE_MEMBER
from gpuaas_contract.operations import OPERATION_GET, Operation
from gpuaas_contract.secrets import SECRET_LIST, RuntimeSecret
from gpuaas_contract.ssh_keys import SSH_KEY_LIST, SshKey
from gpuaas_contract.users import USER_GET, USER_LIST, User

from gpuaas_cli import failures
from gpuaas_cli.client.session import Session
from gpuaas_cli.show import states

DIGEST_DIGITS_MIN = 8

Found = TypeVar("Found")


async def instance(session: Session, named: str) -> Instance:
    """By name or id; the server knows both."""
    return await session.call(INSTANCE_GET, instance_id=named)


async def operation(session: Session, operation_id: str) -> Operation:
    return await session.call(OPERATION_GET, operation_id=operation_id)


async def org(session: Session, named: str) -> Org:
    orgs = await session.every(ORG_LIST)
    found = [org for org in orgs if named in (org.org_id, org.name)]
    return _only(found, f"organisation {named}", "gpuaas get orgs", (org.name for org in orgs), named)


async def project(session: Session, named: str) -> Project:
    projects = await session.every(PROJECT_LIST)
    found = [project for project in projects if named in (project.project_id, project.name)]
    return _only(found, f"project {named}", "gpuaas get projects -o wide", (one.name for one in projects), named)


async def project_id(session: Session, named: str) -> str:
    """Operators act on projects they cannot see, and then know them by id."""
    return named if _is_id("proj", named) else (await project(session, named)).project_id


async def service_account(session: Session, named: str) -> ServiceAccount:
    if _is_id("sa", named):
        return await session.call(SERVICE_ACCOUNT_GET, service_account_id=named)
    accounts = await session.every(SERVICE_ACCOUNT_LIST)
    found = [account for account in accounts if account.name == named]
    names = (account.name for account in accounts)
    return _only(found, f"service account {named}", "gpuaas get service-accounts", names, named)


async def user(session: Session, named: str) -> User:
    """By name or id."""
    if _is_id("user", named):
        return await session.call(USER_GET, user_id=named)
    users = await session.every(USER_LIST)
    found = [user for user in users if user.name == named]
    return _only(found, f"user {named}", "gpuaas user list", (user.name for user in users), named)


async def user_id(session: Session, named: str) -> str:
    """Only the platform's own may look people up by name; others name them by id."""
    if _is_id("user", named):
        return named
    try:
        return (await user(session, named)).user_id
    except PermissionDenied as error:
        raise failures.usage("You may not look people up by name", "Ask them for the id in gpuaas whoami") from error


async def hold(session: Session, instance_named: str, named: str) -> Hold:
    """By id, or by the name of one that stands."""
    holds = await session.every(HOLD_LIST, instance_id=instance_named)
    standing = [one for one in holds if states.of_hold(one) == "standing"]
    found = [one for one in holds if one.hold_id == named] or [one for one in standing if one.name == named]
    return _only(found, f"hold {named}", f"gpuaas hold list {instance_named}", (one.name for one in standing), named)


async def artifact(session: Session, named: str, *, shared: bool) -> artifacts.Artifact:
    """By id, digest, or a name that only one has."""
    if _is_id("art", named):
        return await session.call(artifacts.SHARED_GET if shared else artifacts.GET, artifact_id=named)
    known = await session.every(artifacts.SHARED_LIST if shared else artifacts.LIST)
    found = [one for one in known if named in (one.digest, one.name)]
    return _only(found, f"artifact {named}", "gpuaas artifact list", (one.name for one in known), named)


async def secret(session: Session, instance_named: str, named: str) -> RuntimeSecret:
    """By id, or by the name of one that is issued."""
    known = await session.every(SECRET_LIST, instance_id=instance_named)
    issued = [one for one in known if one.state == "issued"]
    found = [one for one in known if one.secret_id == named] or [one for one in issued if one.name == named]
    return _only(found, f"secret {named}", f"gpuaas secret list {instance_named}", (one.name for one in issued), named)


async def entitlement(session: Session, app_slug: str) -> Entitlement:
    return await session.call(ENTITLEMENT_GET, app_slug=app_slug)


async def manifest(session: Session, found: Instance) -> Manifest | None:
    """Of the version an instance runs; none where the project may no longer deploy that version."""
    try:
        return (await session.call(PROJECT_APP_GET, app_slug=found.app_slug, version=found.app_version)).manifest
    except NotFound:
        return None


async def node(session: Session, named: str) -> Node:
    """By id or name; a name that was used again means the node that has it now."""
    nodes = await session.every(NODE_LIST)
    found = [one for one in nodes if named in (one.node_id, one.name)]
    return _only(found, f"node {named}", "gpuaas node list --all", (one.name for one in nodes), named)


async def agent_release(session: Session, named: str) -> AgentRelease:
    """By version, or by the digest or how it begins."""
    known = await session.every(AGENT_RELEASE_LIST)
    by_version = [one for one in known if one.version == named]
    found = by_version or [one for one in known if len(named) >= DIGEST_DIGITS_MIN and one.sha256.startswith(named)]
    return _only(found, f"agent release {named}", "gpuaas agent list", (one.version for one in known), named)


async def credential(session: Session, named: str) -> Credential:
    """By id, or by name: the one that is not revoked, if there is one."""
    if _is_id("cred", named):
        return await session.call(CREDENTIAL_GET, credential_id=named)
    known = await session.every(CREDENTIAL_LIST)
    called = [one for one in known if one.name == named]
    found = [one for one in called if one.state == "active"] or called
    return _only(found, f"credential {named}", "gpuaas credential list", (one.name for one in known), named)


async def ssh_key(session: Session, named: str) -> SshKey:
    """One of the caller's: by id, fingerprint, or a comment only one has."""
    known = await session.every(SSH_KEY_LIST)
    found = [one for one in known if named in (one.ssh_key_id, one.fingerprint, one.comment)]
    return _only(found, f"key {named} of yours", "gpuaas ssh-key list", (one.comment for one in known), named)


async def live_allocation(session: Session, named: str) -> Allocation:
    """By id, or by the name of the node it holds, in whatever state short of released."""
    allocations = await session.every(ALLOCATION_LIST)
    by_id = [one for one in allocations if one.allocation_id == named]
    live = [one for one in allocations if one.status != "released"]
    found = by_id or [one for one in live if one.node_name == named]
    return _only(found, f"allocation {named}", "gpuaas get allocations", (one.node_name for one in live), named)


def pick_allocation(allocations: Sequence[Allocation], named: str) -> Allocation:
    by_id = [found for found in allocations if found.allocation_id == named]
    by_node = [found for found in allocations if found.node_name == named and found.status == "active"]
    nodes = (found.node_name for found in allocations if found.status == "active")
    return _only(by_id or by_node, f"active allocation {named}", "gpuaas get allocations", nodes, named)


async def member(session: Session, named: str, instance_named: str = "") -> Member:
    """By id or node, in one instance or in all."""
    if instance_named and _is_id("mem", named):
        return await session.call(MEMBER_GET, instance_id=instance_named, member_id=named)
    members = await all_members(session, instance_named)
    by_id = [found for found in members if found.member_id == named]
    if by_id:
        return by_id[0]
    live = live_on(members, named)
    if len(live) > 1:
        choices = ", ".join(f"{found.component_key} {found.member_id}" for found in live)
        raise failures.usage(f"{named} carries several members: {choices}", "Name one of them by its id")
    return _only(live, f"member {named}", "gpuaas get members", (found.node_name for found in members), named)


async def all_members(session: Session, instance_named: str = "") -> list[Member]:
    if instance_named:
        return in_order(await session.every(MEMBER_LIST, instance_id=instance_named))
    found: list[Member] = []
    for one in await session.every(INSTANCE_LIST):
        found += await session.every(MEMBER_LIST, instance_id=one.instance_id)
    return in_order(found)


def in_order(members: Iterable[Member]) -> list[Member]:
    """As people count: by role, then gpu-2 before gpu-10."""
    return sorted(members, key=lambda one: (one.instance_id, one.component_key, len(one.node_name), one.node_name))


def live_on(members: Iterable[Member], node_name: str) -> list[Member]:
    return [found for found in members if found.node_name == node_name and found.status not in GONE_MEMBER]


def pick_members(members: Sequence[Member], named: Sequence[str], roles: Collection[str] = ()) -> list[Member]:
    """Members by id or node. A node may carry one member of each role; `roles` says which of them can be meant."""
    chosen: dict[str, Member] = {}
    for name in named:
        found = [one for one in members if one.member_id == name] or live_on(members, name)
        if len(found) > 1 and roles:
            found = [one for one in found if one.component_key in roles]
        if len(found) > 1:
            several = ", ".join(one.component_key for one in found)
            raise failures.usage(f"{name} carries several members ({several})", "Say which with --role ROLE")
        one = _only(found, f"member {name}", "gpuaas get members", (other.node_name for other in members), name)
        chosen[one.member_id] = one
    return list(chosen.values())


def _is_id(prefix: str, named: str) -> bool:
    """Whether a word is an id of this kind, which the server finds by itself; names may begin alike."""
    return re.fullmatch(rf"{prefix}_[0-9a-z]{{26}}", named) is not None


def _only(found: Sequence[Found], what: str, fix: str, known: Iterable[str], named: str) -> Found:
    if len(found) == 1:
        return found[0]
    if found:
        raise failures.usage(f"There are several: {what}; name one by its id", fix)
    close = difflib.get_close_matches(named, set(known), n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise failures.not_found(f"There is no {what}{hint}", fix)
