"""The home page: what needs attention, then the instances of all projects."""

import asyncio
import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuaas_cli import output
from gpuaas_contract.catalog import ENTITLEMENT_LIST, ENTITLEMENT_SET
from gpuaas_contract.controllers import CONTROLLER_LIST
from gpuaas_contract.entitlement_requests import ENTITLEMENT_REQUEST_LIST, EntitlementRequest
from gpuaas_contract.events import EVENT_LIST
from gpuaas_contract.identity import ME, PROJECT_LIST, Project
from gpuaas_contract.instances import INSTANCE_COUNTS, INSTANCE_LIST, Instance, InstanceCount
from gpuaas_contract.operations import OPERATION_GET, OPERATION_LIST, Operation
from starlette.responses import Response

from gpuaas_console import attention, view
from gpuaas_console.pages import margins
from gpuaas_console.web import Visit, or_none

PROJECTS_MAX = 20
ROWS_MAX = 20
"""Instances of one project. The page is an overview of several; the next ones are a page away."""
UNWELL_MAX = 20
"""Of each status that needs attention, and of the operations in progress. The numbers by status have all."""
_HEALTH = {"bad": 0, "warn": 1, "busy": 2, "good": 3, "idle": 4}
REQUESTS = ("catalog.entitlement.changed", "catalog.entitlement_request.changed")
"""Events of no instance that change this page."""
SORTS = ("health", "name", "app", "age")


@dataclass(frozen=True)
class Loaded:
    project: Project
    facts: attention.Facts
    rows: Sequence[Instance]
    """One page of the instances that match the filters."""
    following: str
    """Token of the next page; empty: this is the last one."""

    @property
    def by_status(self) -> dict[str, int]:
        """Status -> number of all instances, worst first."""
        numbers: Counter[str] = Counter()
        for item in self.facts.counts:
            numbers[item.status] += item.instances
        return dict(sorted(numbers.items(), key=lambda pair: _HEALTH[view.tone(pair[0])]))


async def show(visit: Visit) -> Response:
    projects, more, chosen = await _projects(visit)
    visit.session.names |= {item.project_id: item.name for item in projects}
    if projects and not visit.session.last_project:
        visit.session.last_project = projects[0].project_id
    loaded = await asyncio.gather(*(_load(visit, project) for project in chosen))
    now = output.now()
    me = await visit.remember(lambda: visit.calls().call(ME), "me")
    notices = [
        replace(notice, project=part.project.name) for part in loaded for notice in attention.notices(part.facts, now)
    ]
    notices = sorted(notices, key=lambda notice: notice.level) + attention.of_person(me, now)
    if attention.operates(me):
        ends_at = await margins.certificate_ends_at(visit)
        notices += attention.of_server(visit.session.client.server, ends_at, now)
    groups = [(part, _sorted(part.rows, visit)) for part in loaded]
    return visit.page(
        "home.html",
        notices=notices,
        groups=groups,
        projects=projects,
        more_projects=more,
        filters={name: visit.query.text(name) for name in ("q", "project", "status")},
        sort=_sort(visit),
        sorts=SORTS,
        statuses=sorted({status for part in loaded for status in part.by_status}),
        self_url=_self(visit, page=visit.query.text("page")),
        address=functools.partial(_self, visit),
        is_first=not visit.query.text("page"),
        is_live=bool(await _followed(visit, chosen)),
    )


async def stream(visit: Visit) -> Response:
    """Wake the home page for changes of all projects that it shows and whose events the person may read."""
    _, _, chosen = await _projects(visit)
    if not (ids := await _followed(visit, chosen)):
        return Response(status_code=204)
    return visit.stream(ids, lambda event: bool(event.app_instance_id) or event.type in REQUESTS)


async def _followed(visit: Visit, projects: Sequence[Project]) -> list[str]:
    """Return the ids of the projects whose events the person may read. Without any, the page is not live."""
    permission = EVENT_LIST.permission
    denied = await asyncio.gather(*(visit.may([permission], project.project_id) for project in projects))
    return [project.project_id for project, why in zip(projects, denied, strict=True) if not why[permission]]


async def _projects(visit: Visit) -> tuple[list[Project], bool, list[Project]]:
    """Return the projects that the person sees, whether there are more, and those that the page is about."""
    calls, wanted = visit.calls(), visit.query.text("project")
    projects, more = await calls.first(PROJECTS_MAX, PROJECT_LIST, query=None)
    if not wanted:
        return projects, more, projects
    chosen, _ = await calls.first(PROJECTS_MAX, PROJECT_LIST, query={"name": wanted})
    return [*projects, *(item for item in chosen if item not in projects)], more, chosen


async def _load(visit: Visit, project: Project) -> Loaded:
    key = project.project_id
    calls = visit.calls(key)
    shown, around = await asyncio.gather(
        asyncio.gather(_rows(visit, project), _unwell(visit, project), _counts(visit, key), _active(visit, key)),
        asyncio.gather(
            or_none(calls.every(ENTITLEMENT_LIST)),
            or_none(calls.every(CONTROLLER_LIST)),
            margins.read(visit, key),
            _requests(visit, project),
        ),
    )
    (rows, following), (unwell, operations), counts, active = shown
    entitlements, controllers, known, requests = around
    facts = attention.Facts(
        project_id=key,
        unwell=unwell,
        operations=operations,
        controllers=controllers,
        entitlements=entitlements or [],
        margins=known,
        counts=counts,
        active=active,
        requests=requests,
    )
    return Loaded(project, facts, rows, following)


async def _rows(visit: Visit, project: Project) -> tuple[list[Instance], str]:
    query = {
        "live": "true",
        "status": visit.query.text("status"),
        "search": visit.query.text("q"),
        "order": "newest" if _sort(visit) == "age" else "oldest",
    }
    rows = visit.one_page(INSTANCE_LIST, query, project=project.project_id, rows_max=ROWS_MAX)
    return await or_none(rows) or ([], "")  # some people see the project, but not its apps


async def _unwell(visit: Visit, project: Project) -> tuple[list[Instance], dict[str, Operation]]:
    """Return the instances that are not well, and their last operations."""
    calls = visit.calls(project.project_id)
    reads = [calls.first(UNWELL_MAX, INSTANCE_LIST, query={"status": status}) for status in attention.UNWELL]
    rows = await asyncio.gather(*(or_none(read) for read in reads))
    unwell = [item for some in rows if some is not None for item in some[0]]
    return unwell, await _operations(visit, project, unwell)


async def _counts(visit: Visit, project_id: str) -> list[InstanceCount]:
    answer = await visit.read(INSTANCE_COUNTS, project=project_id)
    return answer.items if answer else []


async def _active(visit: Visit, project_id: str) -> list[Operation]:
    """Return the changes in progress, oldest first: those that used most of their time."""
    query = {"live": "true", "changes": "true"}
    rows = await or_none(visit.calls(project_id).first(UNWELL_MAX, OPERATION_LIST, query=query))
    return rows[0] if rows else []


async def _requests(visit: Visit, project: Project) -> list[EntitlementRequest]:
    """Return the open requests for apps, for people who decide on them."""
    permission = ENTITLEMENT_SET.permission
    if (await visit.may([permission], project.project_id))[permission]:
        return []
    rows = visit.calls(project.project_id).every(ENTITLEMENT_REQUEST_LIST, query={"state": "open"})
    return await or_none(rows) or []


async def _operations(visit: Visit, project: Project, unwell: Sequence[Instance]) -> dict[str, Operation]:
    """Return the last operation of the instances that are not well."""
    ids = [item.last_operation_id for item in unwell if item.last_operation_id]

    async def read(key: str) -> Operation | None:
        return await visit.read(OPERATION_GET, project=project.project_id, operation_id=key)

    rows = await asyncio.gather(*(read(item) for item in ids))
    return {item.operation_id: item for item in rows if item is not None}


def _sorted(rows: Sequence[Instance], visit: Visit) -> list[Instance]:
    sort = _sort(visit)
    if sort == "age":
        return sorted(rows, key=lambda item: item.created_at, reverse=True)
    if sort == "app":
        return sorted(rows, key=lambda item: (item.app_slug, item.name))
    return sorted(rows, key=lambda item: (_HEALTH[view.tone(item.status)] if sort == "health" else 0, item.name))


def _sort(visit: Visit) -> str:
    wanted = visit.query.text("sort")
    return wanted if wanted in SORTS else SORTS[0]


def _self(visit: Visit, **changed: str) -> str:
    """Return the address of this page with other filters; without a page token it is the first page."""
    asked = {name: visit.query.text(name) for name in ("q", "project", "status", "sort")}
    return view.link("", **{**asked, **changed})
