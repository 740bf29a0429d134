"""App versions and their lifecycle, and which project may deploy them.

Disabling an entitlement refuses new deploys and upgrades, and nothing else: what runs can still be grown, shrunk,
stopped, started, rolled back and torn down, since its people did nothing wrong.
"""

from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.catalog import AppVersion, Entitlement, Manifest, SetEntitlement
from gpuaas_contract.event_types import EntitlementChanged, VersionChanged
from gpuaas_contract.identity import Project
from gpuaas_contract.lifecycles import AppVersionState

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import rules, store
from gpuaas_platform.kit import db
from gpuaas_platform.policy import rules as policy_rules
from gpuaas_platform.policy import service as policy
from gpuaas_platform.record import service as record


@dataclass(frozen=True)
class Limits:
    """What an entitlement bounds of one app in one project; None: no bound of its own."""

    instances_max: int | None = None
    members_max: int | None = None


async def register(tx: db.Tx, call: Call, manifest: Manifest) -> AppVersion:
    """The manifest is sound. A version is immutable: the same one again changes nothing, another one is refused."""
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
        await _tell(tx, call, version, None)
        return version
    if present.manifest != manifest:
        raise errors.Conflict(
            f"{manifest.slug} {manifest.version} is registered with another manifest.",
            fix="Versions never change: raise the version in the manifest and register that.",
        )
    return present


async def registered(reader: db.Reader, app_slug: str, version: str) -> AppVersion:
    found = await store.version(reader, app_slug, version)
    if found is None:
        raise errors.NotFound(f"{app_slug} {version} is not registered.")
    return found


async def check_app(reader: db.Reader, app_slug: str) -> None:
    """Refuse a slug under which no version is registered."""
    if not await store.app_exists(reader, app_slug):
        raise errors.AppUnknown(f"No app is registered as {app_slug[:100]}.", details={"field": "app_slug"})


async def publish(tx: db.Tx, call: Call, app_slug: str, version: str, channels: list[str]) -> AppVersion:
    present = await registered(tx, app_slug, version)
    return await _move(tx, call, present, "published", channels=list(dict.fromkeys(channels)), reason="")


async def retire(tx: db.Tx, call: Call, app_slug: str, version: str, state: AppVersionState, reason: str) -> AppVersion:
    """Deprecate or withdraw; whoever wants to deploy it reads the reason."""
    present = await registered(tx, app_slug, version)
    if not reason.strip():
        raise errors.ValidationFailed("Say why, in a few words.", details={"field": "reason"})
    call.details.update(reason=reason.strip())
    return await _move(tx, call, present, state, channels=present.channels, reason=reason.strip())


async def shown(reader: db.Reader, project: Project, found: list[AppVersion]) -> list[AppVersion]:
    """Those that the project's entitlements and policy leave."""
    entitlements = await store.entitlements_of(reader, project.project_id)
    layers = await policy.of_project(reader, project)
    return [
        one
        for one in found
        if rules.is_shown(entitlements.get(one.app_slug), one)
        and policy_rules.verdict(layers, "app", one.app_slug).allowed
    ]


async def set_entitlement(tx: db.Tx, call: Call, app_slug: str, body: SetEntitlement) -> Entitlement:
    if not await store.app_exists(tx, app_slug):
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
    if await store.entitlement(tx, project.project_id, app_slug) is None:
        await store.ENTITLEMENTS.insert(tx, entitlement)
    else:
        await store.ENTITLEMENTS.save(tx, entitlement)
    await record.emit(
        tx,
        call.origin,
        "catalog.entitlement.changed",
        EntitlementChanged(
            app_slug=app_slug,
            enabled=entitlement.enabled,
            versions=entitlement.versions,
            channels=entitlement.channels,
            instances_max=entitlement.instances_max,
            members_max=entitlement.members_max,
        ),
        org_id=project.org_id,
        project_id=project.project_id,
        app_slug=app_slug,
    )
    return entitlement


async def entitlement_of(reader: db.Reader, project_id: str, app_slug: str) -> Entitlement:
    found = await store.entitlement(reader, project_id, app_slug)
    if found is None:
        raise errors.NotFound(f"Nothing was decided about {app_slug} in this project.")
    return found


async def forget_project(tx: db.Tx, project_id: str) -> None:
    """Delete the entitlements of a project that is deleted."""
    for entitlement in (await store.entitlements_of(tx, project_id)).values():
        await store.ENTITLEMENTS.delete(tx, entitlement.entitlement_id)


async def entitlement_limits(reader: db.Reader, project_id: str, app_slug: str) -> Limits:
    """They hold for a disabled entitlement too: what runs may be managed, not grown past them."""
    found = await store.entitlement(reader, project_id, app_slug)
    return Limits(found.instances_max, found.members_max) if found is not None else Limits()


async def deployable(
    reader: db.Reader, project_id: str, app_slug: str, version: str, layers: policy_rules.Layers
) -> AppVersion:
    """The version this project may deploy now: the one that is named, or the newest published one.

    One answer for every reason why not, but for a withdrawn version, of which the project may know why. Policy is asked
    last: only who is entitled to an app, and so knows of it, learns that a layer denies it.
    """
    entitlement = await store.entitlement(reader, project_id, app_slug)
    found = await (store.version(reader, app_slug, version) if version else _newest(reader, entitlement))
    if found is None or found.state == "registered" or not rules.admits(entitlement, found):
        raise errors.NotEntitled(f"This project may not deploy {app_slug} {version}".rstrip() + ".")
    if found.state == "withdrawn":
        newest = await _newest(reader, entitlement)
        raise rules.withdrawn(found, newest.version if newest else "")
    policy_rules.check(layers, "app", app_slug)
    return found


async def upgradable(
    reader: db.Reader,
    project_id: str,
    app_slug: str,
    from_version: str,
    to_version: str,
    layers: policy_rules.Layers,
) -> AppVersion:
    """The version an instance may be upgraded to; without a name the newest. It needs what a deploy of it needs."""
    target = await deployable(reader, project_id, app_slug, to_version, layers)
    rules.check_upgrade(target, from_version)
    return target


async def rollback_target(reader: db.Reader, app_slug: str, from_version: str, to_version: str) -> AppVersion:
    """The version an instance may go back to. It needs no entitlement: going back is a way out, not a new deploy."""
    present = await manifest_of(reader, app_slug, from_version)
    target = await store.version(reader, app_slug, to_version)
    if target is None or target.state == "registered":
        raise errors.NotFound(f"There is no {app_slug} {to_version}.")
    rules.check_rollback(present, target)
    return target


async def manifest_of(reader: db.Reader, app_slug: str, version: str) -> Manifest:
    """The manifest a running instance was deployed with; it stays readable whatever becomes of the entitlement."""
    found = await store.version(reader, app_slug, version)
    if found is None:
        raise LookupError(f"{app_slug}@{version}")
    return found.manifest


async def _newest(reader: db.Reader, entitlement: Entitlement | None) -> AppVersion | None:
    if entitlement is None or not entitlement.enabled:
        return None
    for version in await store.published_newest_first(reader, entitlement.app_slug):
        if rules.admits_version(entitlement, version):
            found = await store.version(reader, entitlement.app_slug, version)
            if found is not None and rules.admits(entitlement, found):
                return found
    return None


async def _move(
    tx: db.Tx, call: Call, present: AppVersion, state: AppVersionState, *, channels: list[str], reason: str
) -> AppVersion:
    moved = rules.moved(present, state, channels=channels, reason=reason)
    if moved == present:
        return present
    await store.VERSIONS.save(tx, moved)
    await store.set_standing(tx, moved)
    await _tell(tx, call, moved, present.state)
    return moved


async def _tell(tx: db.Tx, call: Call, changed: AppVersion, was: AppVersionState | None) -> None:
    payload = VersionChanged(
        app_slug=changed.app_slug,
        version=changed.version,
        state=changed.state,
        was=was,
        channels=changed.channels,
        reason=changed.state_reason,
    )
    await record.emit(
        tx, call.origin, "catalog.version.changed", payload, org_id="", project_id="", app_slug=changed.app_slug
    )
