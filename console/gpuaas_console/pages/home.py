"""The home page: what needs attention, then the instances of all projects."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gpuaas_cli import output
from gpuaas_contract.catalog import ENTITLEMENT_LIST, ENTITLEMENT_SET
from gpuaas_contract.entitlement_requests import ENTITLEMENT_REQUEST_LIST, EntitlementRequest
from gpuaas_contract.errors import NotFound, PermissionDenied
from gpuaas_contract.events import EVENT_LIST
from gpuaas_contract.identity import ME, PROJECT_LIST, Project
from gpuaas_contract.instances import INSTANCE_LIST, Instance
from gpuaas_contract.operations import OPERATION_GET, Operation
from gpuaas_contract.runtime import CONTROLLER_LIST, Controller
from starlette.responses import Response

from gpuaas_console import attention, view
from gpuaas_console.pages import margins
from gpuaas_console.web import Visit, or_none

PROJECTS_MAX = 20
OPERATIONS_MAX = 20
INSTANCES_MAX = 500
_HEALTH = {"bad": 0, "warn": 1, "busy": 2, "good": 3, "idle": 4}
REQUESTS = ("catalog.entitlement.changed", "catalog.entitlement_request.changed")
"""Events of no instance that change this page."""
SORTS = ("health", "name", "app", "age")


@dataclass(frozen=True)
class Loaded:
    project: Project
    facts: attention.Facts


async def show(visit: Visit) -> Response:
    projects, more, chosen = await _projects(visit)
    if projects and not visit.session.last_project:
        visit.session.last_project = projects[0].project_id
    loaded = await asyncio.gather(*(_load(visit, project) for project in chosen))
    now = output.now()
    me = await visit.remember(lambda: visit.calls().call(ME), "me")
    notices = [notice for part in loaded for notice in attention.notices(part.facts, now)]
    notices = sorted(notices, key=lambda notice: notice.level) + attention.of_person(me, now)
    groups = [(part, _shown(part.facts.instances, visit)) for part in loaded]
    return visit.page(
        "home.html",
        notices=notices,
        groups=groups,
        projects=projects,
        more_projects=more,
        filters={name: visit.query.text(name) for name in ("q", "project", "status")},
        sort=_sort(visit),
        sorts=SORTS,
        statuses=sorted({item.status for part in loaded for item in part.facts.instances}),
        self_url=_self(visit),
    )


async def stream(visit: Visit) -> Response:
    """Wake the home page for changes of all projects that it shows and whose events the person may read."""
    _, _, chosen = await _projects(visit)
    permission = EVENT_LIST.permission
    denied = await asyncio.gather(*(visit.may([permission], project.project_id) for project in chosen))
    ids = [project.project_id for project, why in zip(chosen, denied, strict=True) if not why[permission]]
    if not ids:
        return Response(status_code=204)
    return visit.stream(ids, lambda event: bool(event.app_instance_id) or event.type in REQUESTS)


async def _projects(visit: Visit) -> tuple[list[Project], bool, list[Project]]:
    """Return the projects that the person sees, whether there are more, and those that the page is about."""
    projects, more = await visit.calls().first(PROJECTS_MAX, PROJECT_LIST, query=None)
    wanted = visit.query.text("project")
    return projects, more, [item for item in projects if wanted in ("", item.name, item.project_id)]


async def _load(visit: Visit, project: Project) -> Loaded:
    calls = visit.calls(project.project_id)
    try:
        rows, more = await calls.first(INSTANCES_MAX, INSTANCE_LIST, query={"live": "true"})
        entitlements = await calls.every(ENTITLEMENT_LIST)
    except (NotFound, PermissionDenied):  # the person sees the project, but not its apps
        rows, more, entitlements = [], False, []
    operations, controllers, known = await asyncio.gather(
        _operations(visit, project, rows), _controllers(visit, project), margins.read(visit, project.project_id)
    )
    requests = await _requests(visit, project)
    facts = attention.Facts(project.project_id, rows, operations, controllers, entitlements, known, more, requests)
    return Loaded(project, facts)


async def _requests(visit: Visit, project: Project) -> list[EntitlementRequest]:
    """Return the open requests for apps, for people who decide on them."""
    permission = ENTITLEMENT_SET.permission
    if (await visit.may([permission], project.project_id))[permission]:
        return []
    rows = visit.calls(project.project_id).every(ENTITLEMENT_REQUEST_LIST, query={"state": "open"})
    return await or_none(rows) or []


async def _operations(visit: Visit, project: Project, instances: Sequence[Instance]) -> dict[str, Operation]:
    """Return the last operation of the instances that are not well or in change."""
    calls = visit.calls(project.project_id)
    ids = [item.last_operation_id for item in instances if item.status != "running" and item.last_operation_id]

    async def read(operation_id: str) -> Operation | None:
        try:
            return await calls.call(OPERATION_GET, operation_id=operation_id)
        except (NotFound, PermissionDenied):
            return None

    rows = await asyncio.gather(*(read(operation_id) for operation_id in ids[:OPERATIONS_MAX]))
    return {item.operation_id: item for item in rows if item is not None}


async def _controllers(visit: Visit, project: Project) -> list[Controller] | None:
    try:
        return await visit.calls(project.project_id).every(CONTROLLER_LIST)
    except (NotFound, PermissionDenied):
        return None


def _shown(instances: Sequence[Instance], visit: Visit) -> list[Instance]:
    text, status = visit.query.text("q").lower(), visit.query.text("status")
    rows = [
        item
        for item in instances
        if status in ("", item.status) and text in f"{item.name} {item.app_slug} {item.instance_id}".lower()
    ]
    sort = _sort(visit)
    if sort == "age":
        return sorted(rows, key=lambda item: item.created_at, reverse=True)
    if sort == "app":
        return sorted(rows, key=lambda item: (item.app_slug, item.name))
    return sorted(rows, key=lambda item: (_HEALTH[view.tone(item.status)] if sort == "health" else 0, item.name))


def _sort(visit: Visit) -> str:
    wanted = visit.query.text("sort")
    return wanted if wanted in SORTS else SORTS[0]


def _self(visit: Visit) -> str:
    asked = {name: visit.query.text(name) for name in ("q", "project", "status", "sort")}
    return view.link("", **asked)
