"""Walk the endpoint table: every audited change leaves exactly one row, every refusal exactly one `authz.deny` row."""

import re
import uuid
from typing import Any

from endpoint_tour import ACTIONS, AUDITED, NOT_DRIVEN, TOLD_TWICE, Recorder, audit_rows, org_id_of, tour
from gpuaas_contract import registry, users
from platform_world import World


async def test_every_change_that_is_audited_leaves_exactly_one_row(world: World) -> None:
    recorder = Recorder()
    world.http.event_hooks = {"response": [recorder.note]}
    await tour(world)
    world.http.event_hooks = {}
    assert AUDITED - {endpoint.name for endpoint in recorder.done.values()} == set(NOT_DRIVEN)
    for correlation_id, endpoint in recorder.done.items():
        rows = await audit_rows(world, correlation_id)
        expected = [ACTIONS.get(endpoint.name, endpoint.name)] if endpoint.audited else []
        expected = TOLD_TWICE.get(endpoint.name, expected)
        assert sorted(row.action for row in rows) == expected, endpoint.name
        for row in rows:
            assert (row.result, row.route) == ("success", endpoint.name)
            assert row.target
            assert "{" not in row.target, (endpoint.name, row.target)


async def test_a_repeat_and_a_dry_run_leave_no_second_row(world: World) -> None:
    for query in ({}, {}, {"dry_run": "true"}):
        headers = {"X-Correlation-ID": "ticket-2"}
        await world.send(users.USER_CREATE, {"name": "twice"}, key="k1", query=query, headers=headers)
    assert len(await audit_rows(world, "ticket-2")) == 1


async def test_every_refused_call_leaves_exactly_one_denial(world: World) -> None:
    stranger = await world.person("stranger")
    org_id = await org_id_of(world)
    needing = [endpoint for endpoint in registry.ENDPOINTS if endpoint.permission]
    for endpoint in needing:
        params: dict[str, Any] = {name: "x" for name in re.findall(r"{(\w+)}", endpoint.path)}
        params |= {"project_id": world.project_id, "org_id": org_id}
        world.clock.forward(2)  # further refusals of one minute would be counted in one row
        headers = {"X-Correlation-ID": f"deny-{uuid.uuid4()}"}
        answer = await world.send(endpoint, {}, token=stranger.token, headers=headers, **params)
        assert answer.status_code in (403, 404), endpoint.name
        (row,) = await audit_rows(world, headers["X-Correlation-ID"])
        assert (row.action, row.target, row.result) == ("authz.deny", endpoint.name, "failure")
        assert (row.actor_id, row.details) == (stranger.user_id, {"permission": endpoint.permission})
        inside = "{project_id}" in endpoint.path or "{org_id}" in endpoint.path
        assert row.chain == (org_id if inside else "platform")
