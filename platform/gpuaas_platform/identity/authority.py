"""Decide whether an actor has a permission at a target. All domains use `can` for this.

The edge calls it with the permission of each endpoint, through `admission`. A domain calls it if it needs more than
that permission, or if it decides about an actor who is not the caller; `actors` then reads the actor first.
"""

import dataclasses
import datetime
from collections.abc import Collection, Iterable

from gpuaas_contract.identity import Binding, ServiceAccount

from gpuaas_platform.call import Caller, Owned
from gpuaas_platform.identity import rules, store
from gpuaas_platform.kit import db

Scopes = tuple[str, ...]
"""The scopes whose role bindings apply to a target: the platform, then the app, or the organisation and the project."""
PLATFORM: Scopes = ("platform",)
_BATCH = 10_000
"""How many ids one SQL statement may contain; databases limit the number of parameters."""


@dataclasses.dataclass(frozen=True)
class Actor:
    """A user or a service account as currently stored, with all role bindings."""

    state: str
    """`active`, or the state because of which the actor may do nothing, such as `disabled`."""
    caller: Caller


def can(caller: Caller, permission: str, scopes: Scopes, *, holders: Collection[str] | None = None) -> rules.Verdict:
    """Decide whether the caller's role bindings give a permission at a target. A service account must also have been
    given the permission itself.

    `holders` are the roles that contain the permission. Pass them for a permission that an app declares, because only
    the catalog has these; for a permission of the platform they are looked up."""
    verdict = rules.decide(caller.bindings, permission if holders is None else holders, scopes)
    is_given = caller.keys is None or permission in caller.keys
    return "denied" if verdict == "allowed" and not is_given else verdict


def can_everywhere(caller: Caller, permission: str) -> bool:
    return can(caller, permission, PLATFORM) == "allowed"


def deciding_role(caller: Caller, holders: Collection[str], scopes: Scopes) -> Binding | None:
    """Return the role binding with the widest scope that has a permission; `can` may still deny it to an account."""
    holding = [binding for binding in caller.bindings if binding.scope in scopes and binding.role in holders]
    return min(holding, key=lambda binding: (scopes.index(binding.scope), binding.role), default=None)


def scopes_of(org_id: str = "", project_id: str = "", app_slug: str = "") -> Scopes:
    """Return the scopes of a target. An app of the catalog belongs to the platform, not to an organisation."""
    app = app_scope(app_slug) if app_slug else ""
    return tuple(scope for scope in ("platform", app, org_id, project_id) if scope)


def app_scope(app_slug: str) -> str:
    """Return the scope of role bindings for one app. Ids of organisations and projects contain no colon."""
    return f"app:{app_slug}"


def scopes_at(owned: Owned) -> Scopes:
    """Return the scopes of a project, of an object that a project owns, or of a route's target (`call.owner`)."""
    return scopes_of(owned.org_id, owned.project_id)


async def with_all_roles(reader: db.Reader, caller: Caller, now: datetime.datetime) -> Caller:
    """Return the caller with all role bindings. The caller of a request has only those that apply to its target."""
    if caller.actor_type == "service_account":
        account = await store.SERVICE_ACCOUNTS.get(reader, caller.actor_id)
        accepting = await store.accepting_projects(reader, [caller.actor_id])
        roles = rules.roles_of_account(account, accepting.get(caller.actor_id, ())) if account else ()
        return dataclasses.replace(caller, bindings=roles)
    if caller.actor_type != "user":
        return caller
    bindings = await store.bindings_of(reader, [caller.actor_id], now)
    return dataclasses.replace(caller, bindings=tuple(bindings.get(caller.actor_id, ())))


def of_account(account: ServiceAccount, accepting: Iterable[str] = ()) -> Caller:
    """Return the caller for a service account, which can use part of its role. `accepting` are the projects that accept
    an account of their organisation."""
    return Caller(
        "service_account",
        account.service_account_id,
        account.name,
        rules.roles_of_account(account, accepting),
        keys=frozenset(account.permissions),
        apps=frozenset(account.apps),
    )


async def actors(reader: db.Reader, actor_ids: Collection[str], now: datetime.datetime) -> dict[str, Actor]:
    """Return users and service accounts by id, with four reads per batch. Unknown ids are left out."""
    actors_by_id: dict[str, Actor] = {}
    for some in db.chunks(sorted(set(actor_ids)), _BATCH):
        roles = await store.bindings_of(reader, some, now)
        for user in await store.users_with_ids(reader, some):
            caller = Caller("user", user.user_id, user.name, tuple(roles.get(user.user_id, ())))
            actors_by_id[user.user_id] = Actor(user.state, caller)
        accepting = await store.accepting_projects(reader, some)
        for account in await store.accounts_with_ids(reader, some):
            caller = of_account(account, accepting.get(account.service_account_id, ()))
            actors_by_id[account.service_account_id] = Actor(account.state, caller)
    return actors_by_id
