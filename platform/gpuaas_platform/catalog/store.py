"""SQL of app versions, entitlements, requests for them, and the permission keys that versions declare."""

from collections.abc import Collection

import msgspec
from gpuaas_contract.artifacts import Envelope
from gpuaas_contract.catalog import AppVersion, Entitlement, Manifest, PermissionSpec
from gpuaas_contract.entitlement_requests import EntitlementRequest

from gpuaas_platform.catalog import versions
from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table

VERSIONS = Table(
    "app_versions",
    AppVersion,
    "app_version_id",
    app_slug=lambda version: version.app_slug,
    state=lambda version: version.state,
    created_at=lambda version: clock.micros(version.created_at),
    version_order=lambda version: versions.order(version.version),
)
ENTITLEMENTS = Table(
    "entitlements",
    Entitlement,
    "entitlement_id",
    project_id=lambda entitlement: entitlement.project_id,
    app_slug=lambda entitlement: entitlement.app_slug,
    enabled=lambda entitlement: int(entitlement.enabled),
)
REQUESTS = Table(
    "entitlement_requests",
    EntitlementRequest,
    "entitlement_request_id",
    project_id=lambda request: request.project_id,
    state=lambda request: request.state,
)
SHOWN = """state IN ('published', 'deprecated')
    AND app_slug IN (SELECT app_slug FROM entitlements WHERE project_id = $1 AND enabled = 1)"""

_OFFERED = 2
_STANDING = {"published": _OFFERED, "deprecated": _OFFERED, "registered": 1, "withdrawn": 0}
"""State -> standing. If several versions of an app that are offered declare a key, the newest counts."""
_DECLARED = msgspec.json.Decoder(PermissionSpec)


async def version(reader: db.Reader, app_slug: str, name: str) -> AppVersion | None:
    return await VERSIONS.get(reader, f"{app_slug}@{name}")


async def app_exists(reader: db.Reader, app_slug: str, *, registered: bool = True) -> bool:
    """Return whether the app has a version; without `registered`, one that is not only registered."""
    other = "" if registered else "AND state <> 'registered'"
    sql = f"SELECT 1 FROM app_versions WHERE app_slug = $1 {other} LIMIT 1"  # noqa: S608 - `other` is ours
    return await reader.one(sql, app_slug) is not None


async def entitled_slugs(reader: db.Reader, project_id: str) -> set[str]:
    """Return the apps of the project's entitlements, also of disabled ones: instances can still run."""
    rows = await reader.all("SELECT app_slug FROM entitlements WHERE project_id = $1", project_id)
    return {str(row[0]) for row in rows}


async def offered_manifests(reader: db.Reader, app_slug: str) -> list[Manifest]:
    """Return the manifests of the versions that projects can have. No one decided about a registered one yet."""
    where = "app_slug = $1 AND state IN ('published', 'deprecated')"
    return [version.manifest for version in await VERSIONS.find(reader, where, app_slug)]


async def registered(reader: db.Reader, app_slug: str) -> list[str]:
    """Return the names of the versions that no one has published yet, the newest last."""
    sql = """SELECT app_version_id FROM app_versions WHERE app_slug = $1 AND state = 'registered'
             ORDER BY version_order, created_at"""
    return [row[0].partition("@")[2] for row in await reader.all(sql, app_slug)]


async def published_newest_first(reader: db.Reader, app_slug: str) -> list[str]:
    """Return version names only: the caller reads the versions one by one and usually needs only the first."""
    sql = """SELECT app_version_id FROM app_versions WHERE app_slug = $1 AND state = 'published'
             ORDER BY version_order DESC, created_at DESC"""
    rows = await reader.all(sql, app_slug)
    return [row[0].partition("@")[2] for row in rows]


async def published_slugs(reader: db.Reader, after: str, limit: int) -> list[str]:
    """Return the slugs of apps with a published version, in alphabetical order, after a slug."""
    sql = """SELECT app_slug FROM app_versions WHERE state = 'published' AND app_slug > $1
             GROUP BY app_slug ORDER BY app_slug LIMIT $2"""
    return [str(row[0]) for row in await reader.all(sql, after, limit)]


async def entitlement(reader: db.Reader, project_id: str, app_slug: str) -> Entitlement | None:
    return await ENTITLEMENTS.get(reader, f"{project_id}/{app_slug}")


async def enabled_among(reader: db.Reader, entitlement_ids: Collection[str]) -> list[Entitlement]:
    if not entitlement_ids:
        return []
    where = f"entitlement_id IN ({db.marks(len(entitlement_ids))}) AND enabled = 1"
    return await ENTITLEMENTS.find(reader, where, *entitlement_ids)


async def entitlements_of(reader: db.Reader, project_id: str) -> dict[str, Entitlement]:
    entitlements = await ENTITLEMENTS.find(reader, "project_id = $1", project_id)
    return {entitlement.app_slug: entitlement for entitlement in entitlements}


async def versions_with_card(reader: db.Reader) -> list[AppVersion]:
    where = "app_version_id IN (SELECT app_version_id FROM conformance_statements) ORDER BY app_version_id"
    return await VERSIONS.find(reader, where)


async def keep_statement(tx: db.Tx, app_version_id: str, envelope: Envelope) -> None:
    sql = """INSERT INTO conformance_statements (app_version_id, document) VALUES ($1, $2)
             ON CONFLICT (app_version_id) DO UPDATE SET document = excluded.document"""
    await tx.run(sql, app_version_id, msgspec.json.encode(envelope).decode())


async def statement(reader: db.Reader, app_version_id: str) -> Envelope | None:
    row = await reader.one("SELECT document FROM conformance_statements WHERE app_version_id = $1", app_version_id)
    return msgspec.json.decode(row[0], type=Envelope) if row is not None else None


async def declare_permissions(tx: db.Tx, declaring: AppVersion) -> None:
    standing, order = _STANDING[declaring.state], versions.order(declaring.version)
    sql = """INSERT INTO app_permissions (permission_key, app_version_id, app_slug, standing, version_order, document)
             VALUES ($1, $2, $3, $4, $5, $6)"""
    for key, declared in declaring.manifest.permissions.items():
        document = msgspec.json.encode(declared).decode()
        await tx.run(sql, key, declaring.app_version_id, declaring.app_slug, standing, order, document)


async def set_standing(tx: db.Tx, declaring: AppVersion) -> None:
    sql = "UPDATE app_permissions SET standing = $2 WHERE app_version_id = $1"
    await tx.run(sql, declaring.app_version_id, _STANDING[declaring.state])


async def declarations(reader: db.Reader, key: str, project_id: str, app_slug: str) -> list[PermissionSpec]:
    """Return the declarations of a key that count in a project: one per app ever enabled there, or of one app only."""
    only = "AND entitlements.app_slug = $3" if app_slug else ""
    sql = f"""SELECT (SELECT declared.document FROM app_permissions declared
                      WHERE declared.permission_key = $1 AND declared.app_slug = entitlements.app_slug
                      AND declared.standing = {_OFFERED} ORDER BY declared.version_order DESC LIMIT 1)
              FROM entitlements WHERE entitlements.project_id = $2 {only}"""  # noqa: S608 - all of it is ours
    rows = await reader.all(sql, key, project_id, *([app_slug] if app_slug else []))
    return [_DECLARED.decode(row[0]) for row in rows if row[0] is not None]
