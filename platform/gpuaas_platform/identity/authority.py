"""The one question of authority: may this actor do this there? Every domain asks `can`.

The edge asks it for the permission of each endpoint, through `admission`. A domain asks where it needs more than that
permission, or where it decides about an actor who is not the caller: then `actors` reads the actor first.
"""

import dataclasses
import datetime
from collections.abc import Collection

from gpuaas_contract.identity import Binding, ServiceAccount

from gpuaas_platform.call import Caller, Owned
from gpuaas_platform.identity import rules, store
from gpuaas_platform.kit import db

Scopes = tuple[str, ...]
"""The scopes whose roles reach a target, from the platform down to the target."""
PLATFORM: Scopes = ("platform",)
_BATCH = 10_000
"""Statements have a bounded size."""


@dataclasses.dataclass(frozen=True)
class Actor:
    """A person or a service account as stored now, with all roles."""

    state: str
    """`active`, or why the actor may do nothing at all."""
    caller: Caller


def can(caller: Caller, permission: str, scopes: Scopes, *, holders: Collection[str] | None = None) -> rules.Verdict:
    """Decide whether the caller's roles give a permission at a target.

    `holders` are the roles that hold the permission. They are given for keys that apps declare, which only the catalog
    has; for a key of the platform they are looked up."""
    return rules.decide(caller.bindings, permission if holders is None else holders, scopes)


def can_everywhere(caller: Caller, permission: str) -> bool:
    return can(caller, permission, PLATFORM) == "allowed"


def deciding_role(caller: Caller, holders: Collection[str], scopes: Scopes) -> Binding | None:
    """The binding that makes `can` return "allowed": the one bound highest."""
    holding = [binding for binding in caller.bindings if binding.scope in scopes and binding.role in holders]
    return min(holding, key=lambda binding: (scopes.index(binding.scope), binding.role), default=None)


def scopes_of(org_id: str = "", project_id: str = "") -> Scopes:
    return tuple(scope for scope in ("platform", org_id, project_id) if scope)


def scopes_at(owned: Owned) -> Scopes:
    """The scopes of a project, of what belongs to one, or of the target that a route names (`call.owner`)."""
    return scopes_of(owned.org_id, owned.project_id)


async def with_all_roles(reader: db.Reader, caller: Caller, now: datetime.datetime) -> Caller:
    """The caller of a request with every role; the request carries only those that reach its target."""
    if caller.actor_type != "user":
        return caller
    roles = await store.bindings_of(reader, [caller.actor_id], now)
    return dataclasses.replace(caller, bindings=tuple(roles.get(caller.actor_id, ())))


def of_account(account: ServiceAccount) -> Caller:
    """A service account has one role, in its project."""
    role = Binding(role="service_account", scope=account.project_id)
    return Caller("service_account", account.service_account_id, account.name, (role,))


async def actors(reader: db.Reader, actor_ids: Collection[str], now: datetime.datetime) -> dict[str, Actor]:
    """Many people and service accounts by id, in three reads for each batch. Unknown ids are left out."""
    actors_by_id: dict[str, Actor] = {}
    ordered = sorted(set(actor_ids))
    for first in range(0, len(ordered), _BATCH):
        some = ordered[first : first + _BATCH]
        roles = await store.bindings_of(reader, some, now)
        for user in await store.users_with_ids(reader, some):
            caller = Caller("user", user.user_id, user.name, tuple(roles.get(user.user_id, ())))
            actors_by_id[user.user_id] = Actor(user.state, caller)
        for account in await store.accounts_with_ids(reader, some):
            actors_by_id[account.service_account_id] = Actor(account.state, of_account(account))
    return actors_by_id
