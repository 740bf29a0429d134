"""App versions and their lifecycle, and which project may deploy them.

A disabled entitlement prevents only new deploys and upgrades. Running instances can still be grown, shrunk, stopped,
started, rolled back and removed. It ends the access of the organisation's accounts for the app.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from gpuaas_contract import catalog, errors
from gpuaas_contract.catalog import AppVersion, Entitlement, Manifest, PublishVersion, RetireVersion, SetEntitlement
from gpuaas_contract.event_types import EntitlementChanged, VersionChanged
from gpuaas_contract.identity import Project
from gpuaas_contract.lifecycles import AppVersionState
from gpuaas_contract.paths import AppPath, AppVersionPath, EntitlementPath, Path, ProjectAppPath, ProjectPath
from gpuaas_contract.policy import PolicyRequirement
from gpuaas_contract.wire import Page, PageQuery

from gpuaas_platform.call import PLATFORM, Call, Caller
from gpuaas_platform.catalog import manifests, permissions, requests, rules, store
from gpuaas_platform.identity import authority
from gpuaas_platform.identity.accounts import acceptances
from gpuaas_platform.identity.posix import service as posix
from gpuaas_platform.kit import db, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.policy import rules as policy_rules
from gpuaas_platform.policy import service as policy
from gpuaas_platform.record import service as record


@dataclass(frozen=True)
class Limits:
    """Limits that an entitlement sets for one app in one project; None: no limit."""

    instances_max: int | None = None
    members_max: int | None = None


async def check_manifest(_: Call, manifest: Manifest) -> Manifest:
    """Check the manifest in a thread, before the transaction: the check of a large manifest can take a second."""
    await asyncio.to_thread(manifests.check, manifest)
    return manifest


async def register(tx: db.Tx, call: Call, manifest: Manifest) -> AppVersion:
    """Register a checked manifest. A version is immutable: a repeat with the same manifest changes nothing, another
    manifest is refused. If the path names an app, the manifest must be of it: the caller's role may be for it only."""
    if isinstance(call.path, AppPath):
        rules.check_slug(manifest, call.path.app_slug)
    version = AppVersion(
        app_slug=manifest.slug,
        version=manifest.version,
        display_name=manifest.display_name,
        summary=manifest.summary,
        state="registered",
        manifest=manifest,
        created_at=call.now,
    )
    present = await store.VERSIONS.get(tx, version.app_version_id)
    if present is None:
        await store.VERSIONS.insert(tx, version)
        await store.declare_permissions(tx, version)
        await _announce(tx, call, version, None)
        return version
    if present.manifest != manifest:
        raise errors.Conflict(
            f"{manifest.slug} {manifest.version} is registered with another manifest.",
            fix="Versions never change: raise the version in the manifest and register that.",
        )
    return present


async def list_versions(reader: db.Reader, call: Call[Path, PageQuery]) -> EncodedPage[AppVersion]:
    return await paging.encoded(reader, store.VERSIONS, call.query, "1 = 1")


async def list_app_versions(reader: db.Reader, call: Call[AppPath, PageQuery]) -> EncodedPage[AppVersion]:
    return await paging.encoded(reader, store.VERSIONS, call.query, "app_slug = $1", call.path.app_slug)


async def get_version(reader: db.Reader, call: Call[AppVersionPath]) -> AppVersion:
    app_slug, name = call.path.app_slug, call.path.version
    version = await store.version(reader, app_slug, name)
    if version is None:
        raise errors.NotFound(f"{app_slug} {name} is not registered.")
    return version


async def check_app(reader: db.Reader, caller: Caller, app_slug: str, *, field: str = "app_slug") -> None:
    """Refuse an app slug that the caller cannot know."""
    if not await _is_known(reader, caller, app_slug):
        raise errors.AppUnknown(f"No app is registered as {app_slug[:100]}.", details={"field": field})


async def publish(tx: db.Tx, call: Call[AppVersionPath], body: PublishVersion) -> AppVersion:
    """Publish a version. From now on machines can have its users, so no person gets one of their login names."""
    present = await get_version(tx, call)
    manifest = present.manifest
    await posix.reserve(tx, {manifest.slug, *manifest.system_users}, manifest.slug)
    return await _move(tx, call, present, "published", channels=list(dict.fromkeys(body.channels)), reason="")


async def deprecate(tx: db.Tx, call: Call[AppVersionPath], body: RetireVersion) -> AppVersion:
    return await _retire(tx, call, "deprecated", body.reason)


async def withdraw(tx: db.Tx, call: Call[AppVersionPath], body: RetireVersion) -> AppVersion:
    return await _retire(tx, call, "withdrawn", body.reason)


async def list_project_apps(reader: db.Reader, call: Call[ProjectPath, PageQuery]) -> Page[AppVersion]:
    """Return a page of apps. It is filtered after it was read, so it may have fewer items than its size."""
    project = call.in_project()
    page = await paging.documents(reader, store.VERSIONS, call.query, store.SHOWN, project.project_id)
    return Page(items=await _shown(reader, project, page.items), next_page_token=page.next_page_token)


async def get_project_app(reader: db.Reader, call: Call[ProjectAppPath]) -> AppVersion:
    app_slug, name = call.path.app_slug, call.path.version
    version = await store.version(reader, app_slug, name)
    shown = await _shown(reader, call.in_project(), [version] if version is not None else [])
    if not shown:
        raise errors.NotFound(f"This project has no app {app_slug} {name}.")
    return shown[0]


entitled_slugs = store.entitled_slugs


async def check_person(call: Call, body: SetEntitlement) -> SetEntitlement:
    """Refuse service accounts explicitly, although none of their roles has the permission."""
    if call.caller.actor_type != "user":
        raise await permissions.denial(
            call, catalog.ENTITLEMENT_SET.permission, "Only a person can change entitlements."
        )
    return body


async def set_entitlement(tx: db.Tx, call: Call[EntitlementPath], body: SetEntitlement) -> Entitlement:
    app_slug = call.path.app_slug
    if not await _is_known(tx, call.caller, app_slug):
        raise errors.NotFound(f"There is no app {app_slug} in the catalog.")
    project = call.in_project()
    entitlement = Entitlement(
        project_id=project.project_id,
        app_slug=app_slug,
        enabled=body.enabled,
        versions=list(dict.fromkeys(body.versions)),
        channels=list(dict.fromkeys(body.channels)),
        instances_max=body.instances_max,
        members_max=body.members_max,
        changed_by=call.caller.actor_id,
        changed_at=call.now,
    )
    if entitlement.enabled:
        await _check_conformance(tx, project, entitlement)
    if await store.entitlement(tx, project.project_id, app_slug) is None:
        await store.ENTITLEMENTS.insert(tx, entitlement)
    else:
        await store.ENTITLEMENTS.save(tx, entitlement)
    payload = structs.pick(EntitlementChanged, entitlement)
    await record.emit(tx, call.origin, "catalog.entitlement.changed", payload, project, app_slug=app_slug)
    if entitlement.enabled:
        await requests.grant(tx, call, app_slug)
    else:
        await acceptances.end_of_app(tx, call, project.project_id, app_slug)
    return entitlement


async def list_entitlements(reader: db.Reader, call: Call[ProjectPath, PageQuery]) -> EncodedPage[Entitlement]:
    return await paging.encoded(reader, store.ENTITLEMENTS, call.query, "project_id = $1", call.path.project_id)


async def get_entitlement(reader: db.Reader, call: Call[EntitlementPath]) -> Entitlement:
    entitlement = await store.entitlement(reader, call.path.project_id, call.path.app_slug)
    if entitlement is None:
        raise errors.NotFound(f"This project has no entitlement for {call.path.app_slug}.")
    return entitlement


async def forget_project(tx: db.Tx, project_id: str) -> None:
    """Delete the entitlements of a project that is deleted, and its requests for more."""
    await requests.forget_project(tx, project_id)
    for entitlement in (await store.entitlements_of(tx, project_id)).values():
        await store.ENTITLEMENTS.delete(tx, entitlement.entitlement_id)


async def entitled(reader: db.Reader, wanted: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the pairs of project and app whose entitlement is enabled, read in one statement."""
    enabled = await store.enabled_among(reader, [f"{project_id}/{app_slug}" for project_id, app_slug in wanted])
    return {(entitlement.project_id, entitlement.app_slug) for entitlement in enabled}


async def entitlement_limits(reader: db.Reader, project_id: str, app_slug: str) -> Limits:
    """Return the limits, also of a disabled entitlement: running instances can be managed, but not grown past them."""
    entitlement = await store.entitlement(reader, project_id, app_slug)
    return Limits(entitlement.instances_max, entitlement.members_max) if entitlement is not None else Limits()


async def deployable(
    reader: db.Reader, project_id: str, app_slug: str, version: str, layers: policy_rules.Layers
) -> AppVersion:
    """Return the version that this project may deploy now: the named one, or the newest published one.

    Without an entitlement, an unknown version gets the same message as a known one. A withdrawn version is refused with
    its reason.
    Policy is checked last, so that only a project with an entitlement can see that a policy layer denies the app.
    """
    entitlement = await store.entitlement(reader, project_id, app_slug)
    required = policy_rules.requirement(layers)
    wanted = await (store.version(reader, app_slug, version) if version else _newest(reader, entitlement, required))
    if version and (wanted is None or wanted.state == "registered") and rules.admits_any(entitlement, version):
        raise errors.NotFound(
            f"There is no {app_slug} {version}.", details={"field": "version"}, fix=f"gpuaas app show {app_slug}"
        )
    if wanted is None or wanted.state == "registered" or not rules.admits(entitlement, wanted):
        raise errors.NotEntitled(f"This project may not deploy {app_slug} {version}".rstrip() + ".")
    if wanted.state == "withdrawn":
        newest = await _newest(reader, entitlement, required)
        raise rules.withdrawn(wanted, newest.version if newest else "")
    policy_rules.check(layers, "app", app_slug)
    rules.check_conforming(wanted, required)
    return wanted


async def upgradable(
    reader: db.Reader, project_id: str, app_slug: str, from_version: str, to_version: str, layers: policy_rules.Layers
) -> AppVersion:
    """Return the version for an upgrade: the named one, or the newest. The conditions of a deploy apply too."""
    target = await deployable(reader, project_id, app_slug, to_version, layers)
    rules.check_upgrade(target, from_version)
    return target


async def check_still_allowed(reader: db.Reader, app_slug: str, version: str, layers: policy_rules.Layers) -> None:
    """Refuse to continue the deploy of a version, or an upgrade to it, that policy denies by now. The entitlement was
    checked when it began; it counts for new deploys only."""
    policy_rules.check(layers, "app", app_slug)
    target = await store.version(reader, app_slug, version)
    if target is not None:
        rules.check_conforming(target, policy_rules.requirement(layers))


async def rollback_target(reader: db.Reader, app_slug: str, from_version: str, to_version: str) -> AppVersion:
    """Return the version for a rollback. It needs no entitlement, because it is not a new deploy."""
    present = await manifest_of(reader, app_slug, from_version)
    target = await store.version(reader, app_slug, to_version)
    if target is None or target.state == "registered":
        raise errors.NotFound(f"There is no {app_slug} {to_version}.")
    rules.check_rollback(present, target)
    return target


async def manifest_of(reader: db.Reader, app_slug: str, version: str) -> Manifest:
    """Return the manifest that an instance was deployed with. No entitlement is needed."""
    deployed = await store.version(reader, app_slug, version)
    if deployed is None:
        raise LookupError(f"{app_slug}@{version}")
    return deployed.manifest


async def _is_known(reader: db.Reader, caller: Caller, app_slug: str) -> bool:
    """Return whether the caller can know the app. Before a version was published, only those who see all versions can,
    so that tenants do not discover apps by their slugs."""
    return await store.app_exists(reader, app_slug, registered=sees_all(caller))


def sees_all(caller: Caller) -> bool:
    """Return whether the caller may see versions that are not published."""
    return authority.can_everywhere(caller, catalog.VERSION_LIST.permission)


async def _shown(reader: db.Reader, project: Project, versions: list[AppVersion]) -> list[AppVersion]:
    """Return the visible versions that the project's entitlements and policy allow."""
    entitlements = await store.entitlements_of(reader, project.project_id)
    layers = await policy.of_project(reader, project)
    required = policy_rules.requirement(layers)
    return [
        version
        for version in versions
        if version.state in rules.VISIBLE
        and rules.admits(entitlements.get(version.app_slug), version)
        and policy_rules.verdict(layers, "app", version.app_slug).allowed
        and (required is None or rules.is_conforming(version))
    ]


async def _retire(tx: db.Tx, call: Call[AppVersionPath], state: AppVersionState, reason: str) -> AppVersion:
    """Deprecate or withdraw a version. Users who want to deploy the version see the reason."""
    present = await get_version(tx, call)
    if not reason.strip():
        raise errors.ValidationFailed("Give a reason.", details={"field": "reason"})
    call.details.update(reason=reason.strip())
    return await _move(tx, call, present, state, channels=present.channels, reason=reason.strip())


async def _check_conformance(reader: db.Reader, project: Project, entitlement: Entitlement) -> None:
    """Refuse an entitlement to an app of which no version conforms, if a policy requires that."""
    required = policy_rules.requirement(await policy.of_project(reader, project))
    newest = await _newest(reader, entitlement, required) if required is not None else None
    if newest is not None:
        rules.check_conforming(newest, required)


async def _newest(
    reader: db.Reader, entitlement: Entitlement | None, required: PolicyRequirement | None
) -> AppVersion | None:
    """Return the newest version that the entitlement includes. If a policy requires conformance, a conforming version
    comes before a newer one that does not conform."""
    if entitlement is None or not entitlement.enabled:
        return None
    newest: AppVersion | None = None
    for version in await store.published_newest_first(reader, entitlement.app_slug):
        if rules.admits_version(entitlement, version):
            candidate = await store.version(reader, entitlement.app_slug, version)
            if candidate is not None and rules.admits(entitlement, candidate):
                if required is None or rules.is_conforming(candidate):
                    return candidate
                newest = newest or candidate
    return newest


async def _move(
    tx: db.Tx, call: Call, present: AppVersion, state: AppVersionState, *, channels: list[str], reason: str
) -> AppVersion:
    moved = rules.moved(present, state, channels=channels, reason=reason)
    if moved == present:
        return present
    await store.VERSIONS.save(tx, moved)
    await store.set_standing(tx, moved)
    await _announce(tx, call, moved, present.state)
    return moved


async def _announce(tx: db.Tx, call: Call, changed: AppVersion, was: AppVersionState | None) -> None:
    payload = structs.pick(VersionChanged, changed, was=was, reason=changed.state_reason)
    await record.emit(tx, call.origin, "catalog.version.changed", payload, PLATFORM, app_slug=changed.app_slug)
