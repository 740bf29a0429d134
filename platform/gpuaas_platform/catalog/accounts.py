"""Create service accounts, bind them to apps, and accept those of the organisation in a project.

An account gets only permissions that its apps list in a manifest."""

from collections.abc import Collection

from gpuaas_contract import errors
from gpuaas_contract.identity import BindServiceAccount, CreateServiceAccount, ServiceAccount
from gpuaas_contract.org_accounts import AcceptedAccount
from gpuaas_contract.paths import OrgAccountPath, OrgPath, ProjectPath, ServiceAccountPath
from gpuaas_contract.permissions import KEYS, PROGRAM_KEYS
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import permissions, rules, service, store
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.identity.accounts import acceptances
from gpuaas_platform.identity.accounts import service as accounts
from gpuaas_platform.identity.accounts.service import Reach
from gpuaas_platform.kit import db


async def create(tx: db.Tx, call: Call[ProjectPath], body: CreateServiceAccount) -> ServiceAccount:
    return await accounts.create(tx, call, body.name, await _reach(tx, call, body))


async def bind(tx: db.Tx, call: Call[ServiceAccountPath], body: BindServiceAccount) -> ServiceAccount:
    bound = set((await accounts.get(tx, call)).apps)
    return await accounts.bind(tx, call, await _reach(tx, call, body, bound))


async def create_in_org(tx: db.Tx, call: Call[OrgPath], body: CreateServiceAccount) -> ServiceAccount:
    identity_rules.check_org_apps(body.apps)
    return await accounts.create(tx, call, body.name, await _reach(tx, call, body))


async def bind_in_org(tx: db.Tx, call: Call[OrgAccountPath], body: BindServiceAccount) -> ServiceAccount:
    present = (await accounts.get(tx, call)).apps
    identity_rules.check_org_apps(body.apps, present)
    return await accounts.bind(tx, call, await _reach(tx, call, body, set(present)))


async def accept(tx: db.Tx, call: Call[ServiceAccountPath], _: NoBody) -> AcceptedAccount:
    """Let an account of the organisation operate its app in a project that has an entitlement for the app."""
    account = await acceptances.of_organisation(tx, call)
    (app_slug,) = account.apps
    if not await service.entitled(tx, [(call.path.project_id, app_slug)]):
        raise errors.NotEntitled(f"This project may not deploy {app_slug}, so no account can operate it here.")
    return await acceptances.accept(tx, call, account)


async def _reach(
    reader: db.Reader,
    call: Call,
    body: CreateServiceAccount | BindServiceAccount,
    bound: Collection[str] = (),
) -> Reach:
    apps = set(body.apps)
    for app_slug in sorted(apps):
        await service.check_app(reader, call.caller, app_slug, field="apps")
        if app_slug not in bound:  # The last version of a bound app may have been withdrawn since.
            await _check_offered(reader, call, app_slug)
    offered = await _offered(reader, apps) if apps else PROGRAM_KEYS
    if body.permissions is None:
        return Reach(apps, offered)
    for key in sorted(set(body.permissions) - offered):
        if apps or not await _is_for_programs(reader, call.owner.project_id, key):
            raise _not_offered(key, apps)
    return Reach(apps, set(body.permissions))


async def _check_offered(reader: db.Reader, call: Call, app_slug: str) -> None:
    """Refuse an app without a version that projects can have: its account would have no permissions, and its controller
    would show that only by refused claims. Versions that are not published yet are named to operators only."""
    if await store.offered_manifests(reader, app_slug):
        return
    registered = await store.registered(reader, app_slug) if service.sees_all(call.caller) else []
    raise errors.Conflict(
        f"No version of {app_slug} is published, so an account for it would have no permissions.",
        details={"field": "apps", "app_slug": app_slug},
        fix=f"gpuaas app publish {app_slug} {registered[-1] if registered else 'VERSION'}",
    )


async def _offered(reader: db.Reader, apps: Collection[str]) -> frozenset[str]:
    """Return what the apps' controllers need, in all versions that projects can have: instances of several can run at
    once. Versions that are only registered and withdrawn ones add nothing, so publishers widen no account with them."""
    manifests = [manifest for app_slug in apps for manifest in await store.offered_manifests(reader, app_slug)]
    return frozenset[str]().union(*map(rules.controller_keys, manifests))


async def _is_for_programs(reader: db.Reader, project_id: str, key: str) -> bool:
    """Return whether an app of the project declares the key and gives it to service accounts."""
    return key not in KEYS and "service_account" in await permissions.holders(reader, key, project_id)


def _not_offered(key: str, apps: Collection[str]) -> errors.ValidationFailed:
    why = f"{', '.join(sorted(apps))} does not offer {key} to its controller."
    fix = "Leave it out. If the controller needs it, the app lists it in `controller.permissions` of its manifest."
    if not apps:
        why, fix = f"A service account without an app cannot get {key}.", "Name the app that it operates in `apps`."
    return errors.ValidationFailed(why, details={"field": "permissions", "permission": key}, fix=fix)
