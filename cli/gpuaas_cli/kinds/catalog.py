"""App versions, and which of them a project may deploy."""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract.catalog import ENTITLEMENT_LIST, PROJECT_APP_LIST, VERSION_LIST

from gpuaas_cli.client import lookup
from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import Filters, Kind, listed, names
from gpuaas_cli.output import Column, age


async def _apps(session: Session, filters: Filters) -> Sequence[Any]:
    return await session.every(VERSION_LIST if filters.everything else PROJECT_APP_LIST)


def _bound(count: int | None) -> str:
    return "" if count is None else str(count)


KINDS: tuple[Kind, ...] = (
    Kind(
        "apps",
        names("app", "apps"),
        _apps,
        (
            Column("APP", lambda one: one.app_slug),
            Column("VERSION", lambda one: one.version),
            Column("STATE", lambda one: one.state),
            Column("CHANNELS", lambda one: ",".join(one.channels)),
            Column("TOPOLOGIES", lambda one: ",".join(one.manifest.topologies)),
            Column("ROLES", lambda one: ",".join(role.component_key for role in one.manifest.roles), wide=True),
            Column("AGE", lambda one: age(one.created_at), wide=True),
            Column("SUMMARY", lambda one: one.summary or one.display_name),
        ),
        lambda one: one.app_slug,
        lambda one: (one.app_slug, f"{one.app_slug}@{one.version}"),
    ),
    Kind(
        "entitlements",
        names("entitlement", "entitlements"),
        listed(ENTITLEMENT_LIST),
        (
            Column("APP", lambda one: one.app_slug),
            Column("ENTITLED", lambda one: "yes" if one.enabled else "no"),
            Column("VERSIONS", lambda one: ",".join(one.versions) or "all"),
            Column("CHANNELS", lambda one: ",".join(one.channels) or "all"),
            Column("INSTANCES_MAX", lambda one: _bound(one.instances_max)),
            Column("MEMBERS_MAX", lambda one: _bound(one.members_max)),
            Column("AGE", lambda one: age(one.changed_at)),
            Column("BY", lambda one: one.changed_by, wide=True),
            Column("PROJECT", lambda one: one.project_id),
        ),
        lambda one: one.app_slug,
        lambda one: (one.app_slug,),
        find=lookup.entitlement,
    ),
)
