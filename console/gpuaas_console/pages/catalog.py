"""The catalog of a project, and the page of one app version."""

from collections.abc import Sequence

from gpuaas_contract import catalog
from gpuaas_contract.controllers import CONTROLLER_LIST
from gpuaas_contract.entitlement_requests import ENTITLEMENT_REQUEST_CREATE, OFFER_LIST
from gpuaas_contract.instances import INSTANCE_CREATE
from starlette.responses import Response

from gpuaas_console import needs
from gpuaas_console.web import Visit, or_none


async def show(visit: Visit) -> Response:
    calls = visit.calls()
    newest = _newest(await calls.every(catalog.PROJECT_APP_LIST))
    shown = {app.app_slug for app in newest}
    offers = [item for item in await calls.every(OFFER_LIST) if item.app_slug not in shown]
    drafts = await or_none(calls.every(catalog.VERSION_LIST)) or []
    known = shown | {item.app_slug for item in offers}
    await visit.learn_names()
    return visit.page(
        "catalog.html",
        apps=newest,
        offers=offers,
        drafts=[item for item in _newest(drafts) if item.app_slug not in known and item.state == "registered"],
        why_no_deploy=await visit.why_not(INSTANCE_CREATE),
        may_request=not await visit.why_not(ENTITLEMENT_REQUEST_CREATE),
        may_entitle=not await visit.why_not(catalog.ENTITLEMENT_SET),
    )


async def app(visit: Visit) -> Response:
    calls, slug, version = visit.calls(), visit.path("app"), visit.path("version")
    chosen = await calls.call(catalog.PROJECT_APP_GET, app_slug=slug, version=version)
    entitlements = [item for item in await calls.every(catalog.ENTITLEMENT_LIST) if item.app_slug == slug]
    controllers = await or_none(calls.every(CONTROLLER_LIST))
    return visit.page(
        "app.html",
        app=chosen,
        manifest=chosen.manifest,
        why_no_deploy=await visit.why_not(INSTANCE_CREATE),
        topologies=needs.topologies(chosen.manifest),
        versions=await visit.versions(slug),
        entitlement=entitlements[0] if entitlements else None,
        controllers=None if controllers is None else [item for item in controllers if item.app_slug == slug],
    )


def _newest(versions: Sequence[catalog.AppVersion]) -> list[catalog.AppVersion]:
    """Return the newest version of each app, published ones before others."""
    result: dict[str, catalog.AppVersion] = {}
    for item in sorted(versions, key=lambda item: (item.state == "published", item.created_at)):
        result[item.app_slug] = item
    return sorted(result.values(), key=lambda item: item.display_name)
