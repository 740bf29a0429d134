"""The console script of an app as a real process: flags, logs, SIGTERM, kill -9."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from gpuaas_sdk.controller import App, Operation
from gpuaas_sdk.testing import FakeOrganisation, FakePlatform, free_port, serving

CONTROLLER = """
import asyncio, pathlib, sys
from gpuaas_sdk.controller import App, Operation

folder = pathlib.Path(__file__).parent
app = App("demo", manifest=folder / "manifest.yaml")

async def first() -> None:
    with (folder / "first").open("a") as file:
        file.write("ran\\n")

async def second() -> None:
    while not (folder / "go").exists():
        await asyncio.sleep(0.02)

@app.operation("deploy")
async def deploy(op: Operation) -> None:
    await op.step("first", first)
    await op.step("second", second)

async def never(op: Operation) -> None:
    raise AssertionError("not requested here")

for kind in ("decommission", *app.manifest.instance_operations):
    app.operation(kind)(never)
for kind in app.manifest.roles[1].operations:
    app.operation(kind, role="worker")(never)
app.action("rotate")(never)
sys.exit(app.main())
"""


async def _nothing(op: Operation) -> None:
    return None


@pytest.fixture
def script(manifest: Path) -> Path:
    path = manifest.with_name("controller.py")
    path.write_text(CONTROLLER)
    return path


def credentials(platform: FakePlatform, folder: Path) -> Path:
    path = folder / "key.json"
    path.write_text(json.dumps({"key_id": platform.key_id, "client_secret": platform.client_secret}))
    return path


@contextlib.asynccontextmanager
async def started(script: Path, server: str, platform: FakePlatform) -> AsyncIterator[asyncio.subprocess.Process]:
    key = credentials(platform, script.parent)
    flags = (
        "run",
        "--server",
        server,
        "--project",
        platform.project_id,
        "--credentials",
        str(key),
        "--name",
        "demo@test",
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), *flags, stderr=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONWARNINGS": ""}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_kill_9_is_harmless_and_sigterm_ends_with_0(script: Path) -> None:
    platform = FakePlatform("demo")
    operation_id = platform.request(platform.add_instance({}), "deploy").operation_id

    async with serving(platform.app) as server:
        async with started(script, server, platform) as process:
            await platform.until(operation_id, lambda now: len(now.steps) == 2)
            process.kill()
            await process.wait()
        platform.expire_lease(operation_id)
        async with started(script, server, platform) as process:
            await platform.until(operation_id, lambda now: now.epoch == 2)
            script.with_name("go").touch()
            ended = await platform.ended(operation_id)
            process.send_signal(signal.SIGTERM)
            _, log = await asyncio.wait_for(process.communicate(), 60)
    assert (ended.status, process.returncode) == ("succeeded", 0)
    assert script.with_name("first").read_text() == "ran\n"
    lines = [json.loads(line) for line in log.splitlines()]
    claimed = next(line for line in lines if line["event"] == "operation.claimed")
    assert (claimed["app"], claimed["operation_id"]) == ("demo", operation_id)
    assert (claimed["correlation_id"], claimed["instance_id"]) == (ended.correlation_id, ended.instance_id)
    assert platform.client_secret not in log.decode()


async def test_without_a_project_the_controller_serves_every_project_that_it_can_see(script: Path) -> None:
    organisation = FakeOrganisation("demo", ["prj_a", "prj_b"])
    script.with_name("go").touch()
    key = {"key_id": organisation.key_id, "client_secret": organisation.client_secret}
    script.with_name("key.json").write_text(json.dumps(key))
    asked = {}
    for project_id in ("prj_a", "prj_b"):
        organisation.accept(project_id)
        platform = organisation.projects[project_id]
        asked[project_id] = platform.request(platform.add_instance({}), "deploy").operation_id
    environment = {name: value for name, value in os.environ.items() if name != "GPUAAS_PROJECT"}
    async with serving(organisation.app) as server:
        flags = ("run", "--server", server, "--credentials", str(script.with_name("key.json")))
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), *flags, stderr=asyncio.subprocess.PIPE, env=environment
        )
        for project_id, operation_id in asked.items():
            assert (await organisation.projects[project_id].ended(operation_id)).status == "succeeded"
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    lines = [json.loads(line) for line in log.splitlines()]
    claimed = {line["project_id"] for line in lines if line["event"] == "operation.claimed"}
    assert claimed == {"prj_a", "prj_b"}


async def test_a_server_that_is_down_is_waited_for(script: Path) -> None:
    platform, port = FakePlatform("demo"), free_port()
    server = f"http://127.0.0.1:{port}"
    operation_id = platform.request(platform.add_instance({}), "deploy").operation_id
    script.with_name("go").touch()
    async with started(script, server, platform) as process:
        assert process.stderr is not None
        line = json.loads(await asyncio.wait_for(process.stderr.readline(), 60))
        assert (line["event"], line["server"]) == ("controller.platform_unreachable", server)
        async with serving(platform.app, port=port):
            assert (await platform.ended(operation_id)).status == "succeeded"
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0


async def test_refused_credentials_end_the_controller(script: Path) -> None:
    platform = FakePlatform("demo")
    async with serving(platform.app) as server:
        platform.key_id = "key_other"
        async with started(script, server, platform) as process:
            platform.key_id = "key_test"
            _, log = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 77
    assert b"controller.credentials_refused" in log


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "cannot be read"), ("not json", "is not valid"), ('{"key_id": "k"}', "client_secret")],
)
def test_a_bad_credentials_file_is_one_clear_line(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, complaint: str
) -> None:
    file = tmp_path / "key.json"
    if content is not None:
        file.write_text(content)
    status = app.main(["run", "--server", "http://127.0.0.1:9", "--project", "p", "--credentials", str(file)])
    line = capsys.readouterr().err
    assert status == 64
    assert complaint in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "install"])
def test_a_controller_that_cannot_keep_its_manifest_does_not_start(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    app.operation("add")(_nothing)  # for every role
    file = tmp_path / "key.json"
    file.write_text('{"key_id": "key_1", "client_secret": "secret"}')
    status = app.main([command, "--server", "http://127.0.0.1:9", "--project", "p", "--credentials", str(file)])
    line = capsys.readouterr().err
    assert (status, line.count("\n")) == (64, 1)
    assert "promises deploy, decommission, stop, start, upgrade, drain of role worker, remove of role worker" in line
    assert "action rotate" in line
    assert "add of role" not in line


def test_an_app_with_a_handler_for_each_promise_keeps_its_manifest(whole_app: App) -> None:
    assert whole_app.unkept() == []
    promised = msgspec.structs.replace(whole_app.manifest, health=["Answers"])
    whole_app.manifest = promised
    assert whole_app.unkept() == ["health conditions Answers"]


def test_missing_flags_are_one_clear_line(
    app: App, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUAAS_SERVER", raising=False)
    assert app.main(["run"]) == 64
    assert "GPUAAS_SERVER" in capsys.readouterr().err


def test_help_shows_an_example(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        app.main(["run", "--help"])
    assert raised.value.code == 0
    assert "Example:" in capsys.readouterr().out


def test_the_command_prints_the_manifest_and_the_packages(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo = App("demo", manifest=manifest, packages=["tree", "jq"])
    assert demo.main(["manifest"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["slug"] == "demo"
    assert demo.main(["packages"]) == 0
    assert capsys.readouterr().out == "tree\njq\n"
