"""SQL of app versions and entitlements."""

import msgspec
from gpuaas_contract.catalog import AppVersion, Entitlement

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table

VERSIONS = Table(
    "app_versions",
    AppVersion,
    "app_version_id",
    app_slug=lambda version: version.app_slug,
    state=lambda version: version.state,
    created_at=lambda version: clock.micros(version.created_at),
)
ENTITLED = "app_slug IN (SELECT app_slug FROM entitlements WHERE project_id = $1 AND enabled = 1)"


async def newest_published(reader: db.Reader, app_slug: str, version: str) -> AppVersion | None:
    if version:
        found = await VERSIONS.get(reader, f"{app_slug}@{version}")
        return found if found is not None and found.state == "published" else None
    newest = await VERSIONS.find(
        reader, "app_slug = $1 AND state = 'published' ORDER BY created_at DESC LIMIT 1", app_slug
    )
    return newest[0] if newest else None


async def is_entitled(reader: db.Reader, project_id: str, app_slug: str) -> bool:
    row = await reader.one(
        "SELECT enabled FROM entitlements WHERE project_id = $1 AND app_slug = $2", project_id, app_slug
    )
    return row is not None and row[0] == 1


async def set_entitlement(tx: db.Tx, entitlement: Entitlement) -> None:
    await tx.run(
        """INSERT INTO entitlements (project_id, app_slug, enabled, document) VALUES ($1, $2, $3, $4)
           ON CONFLICT (project_id, app_slug) DO UPDATE SET enabled = excluded.enabled, document = excluded.document""",
        entitlement.project_id,
        entitlement.app_slug,
        int(entitlement.enabled),
        msgspec.json.encode(entitlement).decode(),
    )
