"""Requests of projects for apps, and the published apps that a project can request.

A project has one request per app, so there is never more than one open. `service.set_entitlement` grants it."""

from gpuaas_contract import entitlement_requests as contract
from gpuaas_contract import errors
from gpuaas_contract.entitlement_requests import (
    AppOffer,
    EntitlementRequest,
    EntitlementRequestQuery,
    RefuseEntitlement,
    RequestEntitlement,
)
from gpuaas_contract.event_types import EntitlementRequested
from gpuaas_contract.paths import EntitlementRequestPath, ProjectPath
from gpuaas_contract.wire import Page, PageQuery

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import permissions, rules, store
from gpuaas_platform.kit import db, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.policy import rules as policy_rules
from gpuaas_platform.policy import service as policy
from gpuaas_platform.record import service as record


async def check_person(call: Call, body: RequestEntitlement) -> RequestEntitlement:
    """Refuse service accounts explicitly, although none of their roles has the permission."""
    if call.caller.actor_type != "user":
        permission = contract.ENTITLEMENT_REQUEST_CREATE.permission
        raise await permissions.denial(call, permission, "Only a person can request an app.")
    return body


async def create(tx: db.Tx, call: Call[ProjectPath], body: RequestEntitlement) -> EntitlementRequest:
    """Open the request of the project for the app. While it is open, a further request changes nothing."""
    project = call.in_project()
    layers = await policy.of_project(tx, project)
    published = await store.published_newest_first(tx, body.app_slug)
    if not published or not policy_rules.verdict(layers, "app", body.app_slug).allowed:
        raise errors.NotFound(
            f"There is no published app {body.app_slug} that this project can have.",
            details={"field": "app_slug"},
            fix="gpuaas entitlement offers",
        )
    rules.check_requestable(await store.entitlement(tx, project.project_id, body.app_slug), body.app_slug)
    present = await store.REQUESTS.get(tx, f"{project.project_id}/{body.app_slug}")
    if present is not None and present.state == "open":
        return present
    request = rules.opened(present, project.project_id, body, by=call.caller.actor_id, now=call.now)
    await (store.REQUESTS.insert if present is None else store.REQUESTS.save)(tx, request)
    await _announce(tx, call, request)
    return request


async def list_requests(
    reader: db.Reader, call: Call[ProjectPath, EntitlementRequestQuery]
) -> EncodedPage[EntitlementRequest]:
    where, values = "project_id = $1", [call.path.project_id]
    if call.query.state:
        where, values = f"{where} AND state = $2", [*values, call.query.state]
    return await paging.encoded(reader, store.REQUESTS, call.query, where, *values)


async def get(reader: db.Reader, call: Call[EntitlementRequestPath]) -> EntitlementRequest:
    request = await store.REQUESTS.get(reader, f"{call.in_project().project_id}/{call.path.app_slug}")
    if request is None:
        raise errors.NotFound(f"This project has not requested {call.path.app_slug}.")
    return request


async def refuse(tx: db.Tx, call: Call[EntitlementRequestPath], body: RefuseEntitlement) -> EntitlementRequest:
    if not body.reason.strip():
        raise errors.ValidationFailed("Give a reason.", details={"field": "reason"})
    call.details.update(reason=body.reason.strip())
    present = await get(tx, call)
    closed = rules.closed(present, "refused", by=call.caller.actor_id, now=call.now, reason=body.reason.strip())
    await store.REQUESTS.save(tx, closed)
    await _announce(tx, call, closed)
    return closed


async def grant(tx: db.Tx, call: Call, app_slug: str) -> None:
    """Close the open request for an app that the project may deploy now, if there is one."""
    present = await store.REQUESTS.get(tx, f"{call.in_project().project_id}/{app_slug}")
    if present is None or present.state != "open":
        return
    closed = rules.closed(present, "granted", by=call.caller.actor_id, now=call.now)
    await store.REQUESTS.save(tx, closed)
    await _announce(tx, call, closed)


async def offers(reader: db.Reader, call: Call[ProjectPath, PageQuery]) -> Page[AppOffer]:
    """Return a page of published apps. It is filtered after it was read, so it may have fewer items than its size."""
    project = call.in_project()
    layers = await policy.of_project(reader, project)
    page = await paging.page(
        "app_offers", call.query, lambda after, limit: store.published_slugs(reader, after, limit), lambda slug: slug
    )
    entitled = await store.entitlements_of(reader, project.project_id)
    requests = {row.app_slug: row for row in await store.REQUESTS.find(reader, "project_id = $1", project.project_id)}
    items = []
    for slug in page.items:
        names = await store.published_newest_first(reader, slug)
        version = await store.version(reader, slug, names[0]) if names else None
        if version is not None and policy_rules.verdict(layers, "app", slug).allowed:
            items.append(
                structs.pick(
                    AppOffer,
                    version,
                    entitled=slug in entitled and entitled[slug].enabled,
                    request=requests.get(slug),
                )
            )
    return Page(items=items, next_page_token=page.next_page_token)


async def forget_project(tx: db.Tx, project_id: str) -> None:
    """Delete the requests of a project that is deleted."""
    for key in await store.REQUESTS.keys(tx, "project_id = $1", project_id):
        await store.REQUESTS.delete(tx, key)


async def _announce(tx: db.Tx, call: Call, request: EntitlementRequest) -> None:
    payload = structs.pick(EntitlementRequested, request)
    await record.emit(
        tx,
        call.origin,
        "catalog.entitlement_request.changed",
        payload,
        call.in_project(),
        app_slug=request.app_slug,
    )
