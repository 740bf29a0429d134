"""Who may use which route: one reviewed table, and a hidden resource is answered like an absent one."""

import difflib
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from authorisation_matrix import Cast, Cell, cast, cells, leaks, table, targets_of, without_a_control
from gpuaas_contract import errors, instances, registry
from gpuaas_contract.paths import InstancePath
from gpuaas_contract.wire import Page
from gpuaas_platform import server
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.edge import http
from gpuaas_platform.identity import rules
from gpuaas_platform.instances import store
from gpuaas_platform.kit import db
from platform_world import World

GOLDEN = Path(__file__).parents[1] / "golden" / "authorisation.txt"


async def test_the_matrix_is_the_reviewed_one_and_leaks_nothing(world: World) -> None:
    """All of it on SQLite; on PostgreSQL every seventh route, since the rules are the same and only the SQL differs."""
    whole = not world.site.settings.database_url
    endpoints = registry.ENDPOINTS if whole else registry.ENDPOINTS[::7]
    actors = await cast(world)
    asked = await cells(world.http, actors, endpoints)
    assert list(leaks(actors, asked)) == []
    assert not without_a_control(asked) - _ONLY_BY_SECRET
    assert not {cell.route for cell in asked if cell.status >= 500}
    _compare(table(actors, asked), whole=whole)


_ONLY_BY_SECRET = {
    "apps.hold.lift",
    "artifacts.content.get",
    "auth.service_account_token",
    "auth.session.end",
    "node.artifact.content",
    "node.enrol",
    "ssh_key.delete",
}
"""The actors of the matrix cannot use these routes: they need a secret of the caller, or the id of a session, hold, key
or placement that belongs to the caller. Other tests cover them."""


def _compare(present: str, *, whole: bool) -> None:
    if whole and os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(present)
    lines = [line.split() for line in present.splitlines()]
    routes = {line[0] for line in lines}
    reviewed = [line.split() for line in GOLDEN.read_text().splitlines() if line.split()[0] in routes or whole]
    before, after = ([" ".join(line) for line in part] for part in (reviewed, lines))
    difference = "\n".join(difflib.unified_diff(before, after, "reviewed", "present", lineterm=""))
    assert not difference, (
        f"The authorisation matrix changed:\n{difference}\n"
        "If it should: UPDATE_GOLDEN=1 pytest platform/tests/edge/test_authorisation_matrix.py, and review the diff."
    )


def test_every_route_is_in_the_reviewed_table() -> None:
    rows = {tuple(line.split()[:2]) for line in GOLDEN.read_text().splitlines()[1:]}
    assert rows == {(endpoint.name, target) for endpoint in registry.ENDPOINTS for target in targets_of(endpoint)}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_planted_leaks_are_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    actors = await cast(world)
    names = ("apps.instance.get", "apps.instance.list", "identity.project.list")
    routes = [registry.BY_NAME[name] for name in names]
    assert list(leaks(actors, await cells(world.http, actors, routes))) == []

    planted = await _cells_with(world, actors, _without_scope(instances.INSTANCE_GET), routes)
    assert any("apps.instance.get on own/foreign" in leak for leak in leaks(actors, planted))

    planted = await _cells_with(world, actors, _lists_everything(), routes)
    assert any("apps.instance.list on own shows viewer proj_" in leak for leak in leaks(actors, planted))

    with monkeypatch.context() as patched:
        patched.setattr(rules, "decide", _denied_instead_of_hidden)
        planted = await cells(world.http, actors, routes)
    assert any("differs from absent for viewer: 403 404" in leak for leak in leaks(actors, planted))


async def _cells_with(world: World, actors: Cast, planted: Routes, routes: Any) -> list[Cell]:
    """Ask the same application with one handler that does not check its scope."""
    domains = [_without(domain, planted) for domain in server.DOMAINS]
    application = http.application(world.site, [*domains, planted])
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await cells(client, actors, routes)


def _without(domain: Routes, planted: Routes) -> Routes:
    replaced = {handler.endpoint.name for handler in planted.handlers}
    return Routes([handler for handler in domain.handlers if handler.endpoint.name not in replaced])


def _without_scope(endpoint: Any) -> Routes:
    async def get_any(reader: db.Reader, call: Call[InstancePath]) -> instances.Instance:
        instance = await store.INSTANCES.get(reader, call.path.instance_id)
        if instance is None:
            raise errors.NotFound
        return instance

    routes = Routes()
    routes.read(endpoint, get_any)
    return routes


def _lists_everything() -> Routes:
    async def list_all(reader: db.Reader, _: Call) -> Page[instances.Instance]:
        return Page(items=await store.INSTANCES.find(reader, "1 = 1"))

    routes = Routes()
    routes.read(instances.INSTANCE_LIST, list_all)
    return routes


def _denied_instead_of_hidden(bindings: Any, holders: Any, scopes: Any) -> str:
    reaching = [binding for binding in bindings if binding.scope in scopes]
    return "allowed" if any(binding.role in holders for binding in reaching) else "denied"
