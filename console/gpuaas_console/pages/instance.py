"""The page of an instance: picture, health, members, operations, events, versions, access, usage and controls."""

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

from gpuaas_cli import output
from gpuaas_cli.show import steps, story
from gpuaas_contract import instances
from gpuaas_contract.capacity import ALLOCATION_GET
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.controllers import CONTROLLER_LIST
from gpuaas_contract.events import Event
from gpuaas_contract.holds import HOLD_LIST
from gpuaas_contract.operations import OPERATION_LIST, Operation
from gpuaas_contract.usage import USAGE_SUMMARY
from starlette.responses import Response

from gpuaas_console import attention, controls, details, topology, view
from gpuaas_console.pages import newest
from gpuaas_console.web import Form, Visit, or_none

OPERATIONS_SHOWN = 12
"""The newest changes of the instance. Previews and actions are not shown: a table of the app is one every minute."""
EVENTS_SHOWN = 15
FILTERS = {"q": "search", "of_role": "component_key", "of_status": "status"}
"""Field of the page -> parameter of the list of members."""


async def show(visit: Visit) -> Response:
    calls, name = visit.calls(), visit.path("instance")
    instance = await calls.call(instances.INSTANCE_GET, instance_id=name)
    key = instance.instance_id
    manifest, roles, (members, following), (operations, _), active, holds = await asyncio.gather(
        visit.manifest(instance),
        calls.call(instances.ROLE_LIST, instance_id=key),
        visit.one_page(instances.MEMBER_LIST, filters(visit.query), instance_id=key),
        calls.first(OPERATIONS_SHOWN, OPERATION_LIST, query={"instance_id": key, "order": "newest", "changes": "true"}),
        calls.every(OPERATION_LIST, query={"instance_id": key, "live": "true"}),
        or_none(calls.every(HOLD_LIST, instance_id=key)),
    )
    bundle = visit.read(instances.ACCESS_BUNDLE_GET, instance_id=key)
    access, controllers, usage, events, gpus, _ = await asyncio.gather(
        bundle,
        or_none(calls.every(CONTROLLER_LIST)),
        or_none(calls.every(USAGE_SUMMARY, query={"instance_id": key})),
        or_none(_events(visit, instance)),
        _gpus(visit, roles.items, members),
        visit.learn_names(),
    )
    versions = await or_none(visit.versions(instance.app_slug))
    active = [item for item in active if item.kind != "preview" and not item.reading]
    members = sorted(members, key=lambda item: (item.component_key, len(item.node_name), item.node_name))
    values: dict[str, Any] = dict(
        instance=instance,
        manifest=manifest,
        roles=roles.items,
        members=members,
        total=sum(sum(role.by_status.values()) for role in roles.items),
        asked={name: visit.query.text(name) for name in (*FILTERS, "page")},
        following=following,
        address=functools.partial(_self, visit, key),
        holds=[hold for hold in holds or [] if story.state_of_hold(hold) == "active"],
        operations=operations,
        unwell=_unwell(instance, operations),
        names=steps.names_of(members) | {item.allocation_id: item.node_name for item in members},
        active=active,
        access=access,
        controllers=None if controllers is None else _own(instance, controllers),
        usage=usage,
        events=events,
        newer=_newer(instance, versions or []),
        picture=topology.picture(roles.items, members, gpus),
        read_at=output.now(),
        details=details.of_members(members, manifest.details if manifest else {}),
        versions=details.versions(members),
        record=output.encoded("yaml", output.plain(instance)),
    )
    return visit.page("instance.html", **values, **await _controls(visit, manifest, instance, roles.items, active))


async def stream(visit: Visit) -> Response:
    instance = await visit.calls().call(instances.INSTANCE_GET, instance_id=visit.path("instance"))
    return visit.stream([visit.project], lambda event: event.app_instance_id == instance.instance_id)


def _unwell(instance: instances.Instance, operations: Sequence[Operation]) -> attention.Notice | None:
    """Return why an instance needs attention, and the next step, as on the home page."""
    if instance.status not in attention.UNWELL:
        return None
    last = next((item for item in operations if item.operation_id == instance.last_operation_id), None)
    return attention.of_instance(instance.project_id, instance, last)


async def _controls(
    visit: Visit,
    manifest: Manifest | None,
    instance: instances.Instance,
    roles: Sequence[instances.Role],
    active: Sequence[Operation],
) -> dict[str, Any]:
    """Return what people can do. Without the manifest it is unknown, and nothing is offered."""
    if manifest is None:
        return {"whole": [], "some": [], "actions": [], "readings": [], "why_no_reset": "The manifest is missing."}
    may_not = await visit.may(controls.permissions(manifest))
    offered = controls.of_actions(manifest, instance, may_not)
    return {
        "whole": controls.of_instance(manifest, instance, active, may_not),
        "some": controls.of_members(manifest, instance, roles, may_not),
        "actions": offered,
        "readings": [spec for spec, why in offered if spec.reading and not why],
        "why_no_reset": may_not[instances.BREAKER_RESET.permission],
    }


def filters(given: Form) -> dict[str, str]:
    """Return the query for the members that the filters of the page choose."""
    return {"live": "true", **{name: given.text(field) for field, name in FILTERS.items()}}


def _self(visit: Visit, instance_id: str, **changed: str) -> str:
    """Return the address of this page with other filters of members; without a page token it is the first page."""
    asked = {name: visit.query.text(name) for name in FILTERS}
    return view.link("p", visit.project, "instances", instance_id, **{**asked, **changed})


async def _gpus(visit: Visit, roles: Sequence[instances.Role], members: Sequence[instances.Member]) -> dict[str, int]:
    """Return the number of GPUs of each allocation whose member is drawn as a card."""
    ids = sorted({member.allocation_id for role in roles for member in topology.drawn(role, members)})

    async def read(allocation_id: str) -> int:
        row = await visit.read(ALLOCATION_GET, allocation_id=allocation_id)
        return row.gpus if row else 0

    reads = [visit.remember(functools.partial(read, item), "gpus", visit.project, item) for item in ids]
    return dict(zip(ids, await asyncio.gather(*reads), strict=True))


async def _events(visit: Visit, instance: instances.Instance) -> list[Event]:
    rows = await newest.events_of(visit, instance.instance_id)
    return [event for event in rows if event.payload.get("kind") != "preview"][:EVENTS_SHOWN]


def _own(instance: instances.Instance, controllers: Sequence[Any]) -> list[Any]:
    operator = instance.operator_service_account_id
    own = [item for item in controllers if item.app_slug == instance.app_slug and operator in ("", item.actor_id)]
    return sorted(own, key=lambda item: item.last_seen_at, reverse=True)[:3]


def _newer(instance: instances.Instance, versions: Sequence[Any]) -> list[str]:
    """Return the versions that are newer than that of the instance, newest first."""
    mine = next((item for item in versions if item.version == instance.app_version), None)
    return [item.version for item in versions if mine is not None and item.created_at > mine.created_at]
