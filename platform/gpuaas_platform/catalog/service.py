"""Register and publish app versions, and say which project may deploy them."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.catalog import AppVersion, Entitlement, Manifest
from gpuaas_contract.event_types import EntitlementChanged

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import rules, store
from gpuaas_platform.kit import db
from gpuaas_platform.policy import rules as policy_rules
from gpuaas_platform.record import service as record


async def register(tx: db.Tx, call: Call, manifest: Manifest) -> AppVersion:
    """A version is immutable: registering the same manifest again is a no-op, another one is refused."""
    problems = rules.manifest_problems(manifest)
    if problems:
        raise errors.ValidationFailed(
            "The manifest is not sound: " + "; ".join(problems), details={"problems": problems}
        )
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
    if present is not None:
        if present.manifest != manifest:
            raise errors.Conflict(
                f"{version.app_version_id} is registered with another manifest.",
                fix="Versions never change: raise the version in the manifest and register that.",
            )
        return present
    await store.VERSIONS.insert(tx, version)
    return version


async def publish(tx: db.Tx, app_slug: str, version: str) -> AppVersion:
    present = await store.VERSIONS.get(tx, f"{app_slug}@{version}")
    if present is None:
        raise errors.NotFound(f"{app_slug} {version} is not registered.")
    published = msgspec.structs.replace(present, state="published")
    await store.VERSIONS.save(tx, published)
    return published


async def set_entitlement(tx: db.Tx, call: Call, app_slug: str, enabled: bool) -> Entitlement:
    """Only people decide this: no service account holds the permission, and the check here does not rest on that."""
    if call.caller.actor_type != "user":
        raise errors.PermissionDenied("Only a person can change entitlements.")
    if not await store.VERSIONS.find(tx, "app_slug = $1 LIMIT 1", app_slug):
        raise errors.NotFound(f"There is no app {app_slug} in the catalog.")
    project = call.in_project()
    entitlement = Entitlement(
        project_id=project.project_id,
        app_slug=app_slug,
        enabled=enabled,
        changed_by=call.caller.actor_id,
        changed_at=call.now,
    )
    await store.set_entitlement(tx, entitlement)
    await record.emit(
        tx,
        call.origin,
        "catalog.entitlement.changed",
        EntitlementChanged(app_slug=app_slug, enabled=enabled),
        org_id=project.org_id,
        project_id=project.project_id,
        app_slug=app_slug,
    )
    return entitlement


async def deployable(
    reader: db.Reader, project_id: str, app_slug: str, version: str, layers: policy_rules.Layers
) -> AppVersion:
    """The version this project may deploy now, or one answer for every reason why not.

    Policy is asked last: only who is entitled to an app, and so knows of it, learns that a layer denies it.
    """
    found = await store.newest_published(reader, app_slug, version)
    if found is None or not await store.is_entitled(reader, project_id, app_slug):
        raise errors.NotEntitled(f"This project may not deploy {app_slug} {version}".rstrip() + ".")
    policy_rules.check(layers, "app", app_slug)
    return found


async def manifest_of(reader: db.Reader, app_slug: str, version: str) -> Manifest:
    """The manifest a running instance was deployed with; it stays readable whatever becomes of the entitlement."""
    found = await store.VERSIONS.get(reader, f"{app_slug}@{version}")
    if found is None:
        raise LookupError(f"{app_slug}@{version}")
    return found.manifest
