"""What a controller measures: the text for Prometheus, and the page that serves it."""

import asyncio
from pathlib import Path

import pytest
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import App, Gauge, Gauges, Reconciliation, RunnerSettings, metrics
from gpuaas_sdk.testing import FakePlatform

HERE = metrics.Address("127.0.0.1", 0)


def _with_two_instances() -> Gauges:
    gauges = Gauges(clock=lambda: 1000.5)
    gauges.set("inst_1", "one", [Gauge("demo_jobs", "Jobs by state.", 3, {"state": "running"})])
    gauges.set("inst_2", "two", [Gauge("demo_jobs", "Jobs by state.", 0.5, {"state": 'a "b"\\\n'})])
    return gauges


def test_values_of_all_instances_are_shown_once_for_each_name_with_their_labels() -> None:
    assert _with_two_instances().text() == (
        "# HELP demo_jobs Jobs by state.\n"
        "# TYPE demo_jobs gauge\n"
        'demo_jobs{instance_id="inst_1",instance_name="one",state="running"} 3.0\n'
        'demo_jobs{instance_id="inst_2",instance_name="two",state="a \\"b\\"\\\\\\n"} 0.5\n'
        "# HELP gpuaas_app_observed_timestamp_seconds When the app looked at the instance last.\n"
        "# TYPE gpuaas_app_observed_timestamp_seconds gauge\n"
        'gpuaas_app_observed_timestamp_seconds{instance_id="inst_1",instance_name="one"} 1000.5\n'
        'gpuaas_app_observed_timestamp_seconds{instance_id="inst_2",instance_name="two"} 1000.5\n'
    )


def test_the_help_of_a_gauge_stays_one_line() -> None:
    gauges = Gauges(clock=lambda: 1000.5)
    gauges.set("inst_1", "one", [Gauge("demo_jobs", "Jobs\nby \\ state.", 3)])
    assert "# HELP demo_jobs Jobs\\nby \\\\ state.\n# TYPE demo_jobs gauge\n" in gauges.text()


def test_a_look_replaces_the_values_of_its_instance_and_a_dropped_instance_has_none() -> None:
    gauges = _with_two_instances()
    gauges.set("inst_1", "one", [])
    gauges.drop("inst_2")
    gauges.drop("inst_3")
    assert "demo_jobs" not in gauges.text()
    assert ("inst_1" in gauges.text(), "inst_2" in gauges.text()) == (True, False)


async def _ask(address: metrics.Address, request: bytes) -> str:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def test_the_page_answers_get_requests_for_metrics_only() -> None:
    async with metrics.serve(_with_two_instances(), HERE) as address:
        page = await _ask(address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: here\r\n\r\n")
        head, _, body = page.partition("\r\n\r\n")
        assert head.splitlines()[0] == "HTTP/1.1 200 OK"
        assert f"Content-Length: {len(body)}" in head
        assert "version=0.0.4" in head
        assert body == _with_two_instances().text()
        others = {b"GET / HTTP/1.1": "404", b"POST /metrics HTTP/1.1": "405", b"nonsense": "404"}
        for line, status in others.items():
            assert (await _ask(address, line + b"\r\n\r\n")).split()[1] == status, line


async def test_a_request_without_an_end_or_that_is_too_long_gets_no_answer_and_the_next_one_does() -> None:
    async with metrics.serve(Gauges(), HERE) as address:
        assert await _ask(address, b"GET /metrics HTTP/1.1\r\n") == ""
        assert await _ask(address, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * metrics.REQUEST_BYTES_MAX * 2) == ""
        assert "200 OK" in await _ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("text", ["9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", ":9464"])
def test_an_address_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address such as"):
        metrics.parse(text)


def test_an_address_of_version_6_has_brackets() -> None:
    assert metrics.parse("[::1]:9464") == metrics.Address("::1", 9464)


async def test_what_the_health_handler_measures_is_shown_while_this_process_looks_after_the_instance(
    app: App, platform: FakePlatform, client: Client
) -> None:
    measured, gauges = asyncio.Event(), Gauges()

    @app.health()
    async def look(now: Reconciliation) -> None:
        assert now.measures
        now.measured([Gauge("demo_members", "Members.", len(now.members))])
        measured.set()

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    settings = RunnerSettings(claim_wait_s=1)
    runner = app.runner(client, platform.project_id, "test", settings=settings, gauges=gauges)
    running = asyncio.create_task(runner.run())
    async with asyncio.timeout(60):
        await measured.wait()
    shown = f'demo_members{{instance_id="{instance.instance_id}",instance_name="{instance.name}"}} 1.0'
    assert shown in gauges.text()
    running.cancel()
    await asyncio.wait({running})
    assert gauges.text() == "", "another process looks after the instance now"


def test_a_wrong_address_on_the_command_line_is_refused(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = manifest.with_name("key.json")
    key.write_text('{"key_id": "key_1", "client_secret": "secret"}')
    flags = ["run", "--server", "http://127.0.0.1:1", "--project", "proj_1", "--credentials", str(key)]
    assert App("demo", manifest=manifest).main([*flags, "--metrics", "9464"]) == 64
    assert "'9464' is no address such as 127.0.0.1:9464" in capsys.readouterr().err
