"""The one question of authority: may this actor do this there? Every domain asks `can`.

The edge asks it for the permission of each endpoint, through `admission`. A domain asks where it needs more than that
permission, or where it decides about an actor who is not the caller: then `actors` or `people` reads the actor first.
"""

import datetime
from collections.abc import Collection
from dataclasses import dataclass

from gpuaas_contract.identity import Binding, Project

from gpuaas_platform.call import Caller
from gpuaas_platform.identity import rules, store
from gpuaas_platform.identity.accounts import service as service_accounts
from gpuaas_platform.kit import db

Scopes = tuple[str, ...]
"""The scopes whose roles reach a target, from the platform down to the target."""
PLATFORM: Scopes = ("platform",)


@dataclass(frozen=True)
class Actor:
    """A person or a service account as stored now, with all roles."""

    state: str
    """`active`, or why the actor may do nothing at all."""
    caller: Caller


def can(caller: Caller, permission: str, scopes: Scopes, *, holders: Collection[str] | None = None) -> rules.Verdict:
    """Decide whether the caller's roles give a permission at a target.

    `holders` are the roles that hold the permission. They are given for keys that apps declare, which only the catalog
    has; for a key of the platform they are looked up here."""
    return rules.decide(caller.bindings, rules.holders(permission) if holders is None else holders, scopes)


def deciding_role(caller: Caller, holders: Collection[str], scopes: Scopes) -> Binding | None:
    """The binding that makes `can` return "allowed": the one bound highest."""
    return rules.deciding(caller.bindings, holders, scopes)


def of_project(project: Project) -> Scopes:
    return scopes_of(project.org_id, project.project_id)


def scopes_of(org_id: str = "", project_id: str = "") -> Scopes:
    return tuple(scope for scope in ("platform", org_id, project_id) if scope)


async def all_roles(reader: db.Reader, caller: Caller, now: datetime.datetime) -> tuple[Binding, ...]:
    """Every role of the caller of a request; the request carries only those that reach its target."""
    return await store.bindings(reader, caller.actor_id, now) if caller.actor_type == "user" else caller.bindings


async def with_all_roles(reader: db.Reader, caller: Caller, now: datetime.datetime) -> Caller:
    if caller.actor_type != "user":
        return caller
    bindings = await all_roles(reader, caller, now)
    return Caller("user", caller.actor_id, caller.name, bindings, caller.session_id, caller.session_expires_at)


async def actors(reader: db.Reader, actor_ids: Collection[str], now: datetime.datetime) -> dict[str, Actor]:
    """Many people and service accounts by id, in three reads. Unknown ids are left out."""
    actors_by_id = await people(reader, actor_ids, now)
    for account in await store.accounts_with_ids(reader, actor_ids):
        bindings = (service_accounts.binding_of(account),)
        caller = Caller("service_account", account.service_account_id, account.name, bindings)
        actors_by_id[account.service_account_id] = Actor(account.state, caller)
    return actors_by_id


async def people(reader: db.Reader, user_ids: Collection[str], now: datetime.datetime) -> dict[str, Actor]:
    """Many people by id, in two reads. Unknown ids are left out."""
    roles = await store.bindings_of(reader, user_ids, now)
    return {
        user.user_id: Actor(user.state, Caller("user", user.user_id, user.name, tuple(roles.get(user.user_id, ()))))
        for user in await store.users_with_ids(reader, user_ids)
    }
