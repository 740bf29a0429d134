"""What operators see: probes, metrics, logs without secrets, traces that continue through the platform."""

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import span_collector
import structlog
from gpuaas_contract import access, catalog, events, identity, instances, users
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import http as edge
from gpuaas_platform.edge import telemetry
from gpuaas_platform.kit import db, health, traces
from gpuaas_platform.kit.settings import Settings
from platform_world import PASSWORD, FakeClock, World
from span_collector import Collector

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


async def test_probes_need_no_credentials(world: World) -> None:
    assert (await world.http.get("/livez")).text == "ok\n"
    assert (await world.http.get("/readyz")).text == "ok\n"
    version = (await world.http.get("/version")).json()
    engine = "postgresql" if world.site.settings.database_url else "sqlite"
    assert (version["name"], version["contract_version"], version["store"]) == ("gpuaas-platform", "0.1.0", engine)


async def test_the_platform_is_not_ready_while_the_store_does_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(use_case: db.UseCase[Any], *, keep: bool = True) -> Any:
        await asyncio.Event().wait()

    async def fails(use_case: db.UseCase[Any], *, keep: bool = True) -> Any:
        raise db.Unavailable("disk full")

    world.site.health["store"] = health.store_check(world.site.database, world.clock)
    for broken in (hangs, fails):
        with monkeypatch.context() as patched:
            patched.setattr(world.site.database, "write", broken)
            patched.setattr(health, "ANSWER_S_MAX", 0.05)
            answer = await world.http.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.json()["details"] == {"check": "store", "failed": {"store": health.NO_ANSWER}}
        assert answer.headers["retry-after"]
        assert (await world.http.get("/livez")).status_code == 200
    assert (await world.http.get("/readyz")).status_code == 200


async def test_a_change_on_a_full_disk_is_answered_with_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(use_case: db.UseCase[Any], *, keep: bool = True) -> Any:
        raise db.Unavailable("SQLITE_FULL in /var/lib", "disk_full")

    monkeypatch.setattr(world.site.database, "write", fails)
    answer = await world.send(identity.ORG_CREATE, {"name": "x"})
    assert (answer.status_code, answer.json()["details"]) == (503, {"reason": "disk_full"})
    assert "/var/lib" not in answer.text


async def test_a_change_while_the_store_is_away_is_answered_with_503(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(use_case: db.UseCase[Any], *, keep: bool = True) -> Any:
        raise db.Unavailable("disk full")

    monkeypatch.setattr(world.site.database, "write", fails)
    answer = await world.send(identity.ORG_CREATE, {"name": "x"})
    assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, "unavailable", True)
    assert "disk full" not in answer.text


async def test_metrics_report_routes_groups_and_waits_and_never_ids(world: World) -> None:
    waiting = asyncio.create_task(world.call(events.EVENT_LIST, query={"wait_s": 20}))
    await _until(lambda: world.site.hub.waiting == 1)
    await world.send(instances.INSTANCE_GET, instance_id="inst_absent")
    await world.send(identity.ME, token="none")
    text = (await world.http.get("/metrics")).text
    await world.call(catalog.VERSION_REGISTER, _toy())
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy")
    await waiting
    assert 'route="apps.instance.get",status="4xx"} 1.0' in text
    assert "gpuaas_long_polls_waiting 1.0" in text
    assert "gpuaas_http_requests_in_flight 2.0" in text
    assert re.search(r"gpuaas_store_group_size_count [1-9]", text)
    assert re.search(r"gpuaas_store_group_duration_seconds_sum 0?\.?[0-9]", text)
    assert not re.search(r"(proj|org|inst|user|cor)_[0-9a-z]{26}", text)


def test_a_duration_counts_in_every_bucket_it_fits(site: Site) -> None:
    metrics = telemetry.Metrics(site)
    observe = metrics.request_observer("auth.me", "GET")
    for status, duration_s in ((200, 0.0004), (204, 0.005), (200, 99.0), (404, 0.3)):
        observe(status, duration_s)
    name, labels = "gpuaas_http_request_duration_seconds", {"route": "auth.me", "method": "GET", "status": "2xx"}

    def counted(bound: str) -> float | None:
        return metrics.registry.get_sample_value(f"{name}_bucket", {**labels, "le": bound})

    assert [counted(bound) for bound in ("0.001", "0.0025", "0.005", "30.0", "+Inf")] == [1, 1, 2, 2, 3]
    assert metrics.registry.get_sample_value(f"{name}_count", labels) == 3
    assert metrics.registry.get_sample_value(f"{name}_sum", labels) == pytest.approx(99.0054)


async def test_two_applications_count_apart(world: World) -> None:
    other = edge.application(world.site, server.DOMAINS)
    assert "apps.instance.get" not in other.metrics.text().decode()


async def test_denials_are_counted(world: World) -> None:
    token = await world.service_account()
    await world.send(identity.SERVICE_ACCOUNT_CREATE, {"name": "more"}, token=token)
    assert "gpuaas_authorisation_denials_total 1.0" in (await world.http.get("/metrics")).text


async def test_a_valid_trace_is_continued_and_an_invalid_one_is_replaced(world: World) -> None:
    answer = await world.send(identity.ME, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    version, trace_id, span_id, flags = answer.headers["traceparent"].split("-")
    assert (version, trace_id, flags) == ("00", TRACE, "01")
    assert span_id != SPAN
    unsound = ["", "x", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01"]
    unsound += [f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more", f"00-{TRACE[1:]}-{SPAN}-01"]
    for header in unsound:
        answer = await world.send(identity.ME, headers={"traceparent": header})
        _, trace_id, span_id, _ = answer.headers["traceparent"].split("-")
        assert re.fullmatch("[0-9a-f]{32}", trace_id)
        assert trace_id != TRACE
        assert re.fullmatch("[0-9a-f]{16}", span_id)


def test_a_newer_form_of_the_header_is_understood() -> None:
    assert traces.trace_of(f"01-{TRACE}-{SPAN}-00-extra").trace_id == TRACE


async def test_every_request_logs_one_line_with_its_caller_route_and_result(world: World) -> None:
    with structlog.testing.capture_logs() as lines:
        headers = {"X-Correlation-ID": "ticket-1", "traceparent": f"00-{TRACE}-{SPAN}-01"}
        await world.send(instances.INSTANCE_GET, instance_id="inst_absent", headers=headers)
        await world.http.get("/nowhere")
        await world.http.get("/livez")
    requests = [line for line in lines if line["event"] == "request"]
    first, second = requests
    assert (first["route"], first["status"], first["code"]) == ("apps.instance.get", 404, "not_found")
    assert (first["correlation_id"], first["trace_id"]) == ("ticket-1", TRACE)
    assert first["actor"].startswith("user:user_")
    assert first["project_id"] == world.project_id
    assert first["org_id"].startswith("org_")
    assert (second["route"], second["status"], second["actor"]) == ("none", 404, "anonymous:")


async def test_no_secret_ever_reaches_the_log(world: World) -> None:
    with structlog.testing.capture_logs() as lines:
        secrets = [PASSWORD, "pass word of ada", world.token]
        await world.send(identity.LOGIN, {"name": "admin", "password": "wrong password"})
        await world.send(identity.LOGIN, {"name": "admin", "password": PASSWORD, "typo": 1})
        await world.send(users.USER_CREATE, {"name": "ada", "password": "pass word of ada"})
        account = await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot"})
        made = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account.service_account_id)
        login = identity.ServiceAccountLogin(key_id=made.key_id, client_secret=made.client_secret)
        token = (await world.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token
        await world.send(identity.ME, token=token)
        await world.send(identity.ME, token="gpuaas_session_made_up")
        node = await world.node("n1")
        await world.send(access.MACHINE_ACCESS, {"public_key": "ssh-ed25519 AAAA"}, allocation_id="x")
        secrets += [made.client_secret, token, node.token, "wrong password", "gpuaas_session_made_up"]
    text = repr(lines)
    assert len(lines) > 10
    for secret in secrets:
        assert secret not in text
    assert "uthorization" not in text
    assert "Bearer" not in text


async def test_an_unexpected_failure_is_logged_in_full_and_answered_without_details(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(sql: str, *values: Any) -> Any:
        raise RuntimeError("a detail for operators")

    monkeypatch.setattr(world.site.database.reader, "all", breaks)
    with structlog.testing.capture_logs() as lines:
        answer = await world.send(identity.ME)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "detail for operators" not in answer.text
    failure = next(line for line in lines if line["event"] == "request.failed")
    assert failure["correlation_id"] == answer.headers["x-correlation-id"]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with span_collector.running() as server:
        yield server


@pytest.fixture
async def traced(settings: Settings, clock: FakeClock, collector: Collector) -> AsyncIterator[Site]:
    settings = dataclasses.replace(settings, otlp_endpoint=collector.url)
    async with server.open_site(settings, clock) as site:
        yield site


async def test_spans_reach_a_collector_as_children_of_the_callers_span(traced: Site, collector: Collector) -> None:
    transport = httpx.ASGITransport(app=edge.application(traced, server.DOMAINS))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.get("/api/v1/me", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    assert traced.spans is not None
    await asyncio.to_thread(traced.spans.close)
    (span,) = collector.spans
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == ("auth.me", TRACE, SPAN)
    assert span.span_id.hex() == answer.headers["traceparent"].split("-")[2]
    attributes = {pair.key: pair.value.string_value or pair.value.int_value for pair in span.attributes}
    assert attributes["http.response.status_code"] == 401
    assert attributes["gpuaas.code"] == "token_missing"
    assert attributes["gpuaas.correlation_id"] == answer.headers["x-correlation-id"]


async def _until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the hub has no event for being waited on
            await asyncio.sleep(0.005)


def _toy() -> dict[str, Any]:
    return {
        "slug": "toy",
        "display_name": "Toy",
        "version": "1.0.0",
        "runtime_backend": "toy",
        "operating_modes": ["tenant_dedicated"],
        "control_plane_scopes": ["project"],
        "roles": [{"component_key": "head", "max": 1}],
        "topologies": {"solo": {"head": "allocation"}},
        "deploy_form": {"type": "object", "properties": {"allocation": {"type": "string"}}},
    }
