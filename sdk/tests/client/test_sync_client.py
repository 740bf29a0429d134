"""The client for scripts: the methods of `Client` without `async`, and the script of the documentation."""

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from gpuaas_contract.errors import NotFound
from gpuaas_contract.instances import INSTANCE_GET, INSTANCE_LIST, MEMBER_LIST, Instance
from gpuaas_sdk.auth import ServiceAccount
from gpuaas_sdk.client import Client, SyncClient
from gpuaas_sdk.testing import FakePlatform, serving

PAGE = Path(__file__).parents[3] / "docs/how-to/write-a-script.md"


class Cloud:
    """A fake platform in a thread of its own, because a script blocks the thread that it runs in."""

    def __init__(self) -> None:
        self.platform = FakePlatform("demo")
        self.server = ""
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(30)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()

    def client(self) -> SyncClient:
        return SyncClient(self.server, ServiceAccount(self.platform.key_id, self.platform.client_secret))

    async def _serve(self) -> None:
        async with serving(self.platform.app) as self.server:
            self._ready.set()
            await self._stop.wait()


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    started = Cloud()
    started.start()
    yield started
    started.stop()


@pytest.fixture
def instance(cloud: Cloud) -> Instance:
    made = cloud.platform.add_instance({"worker": ["n1", "n2", "n3"]}, name="kv", ready=True)
    lost = cloud.platform.members(made)[1]
    failed = msgspec.structs.replace(lost, status="failed", status_reason="no power")
    cloud.platform.records.members[lost.member_id] = failed
    return made


def test_it_has_each_public_method_of_the_client_under_the_same_name() -> None:
    methods = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert methods - {"aclose"} <= set(dir(SyncClient))
    assert not any(inspect.iscoroutinefunction(getattr(SyncClient, name)) for name in methods - {"aclose"})


def test_calls_and_lists_need_no_event_loop(cloud: Cloud, instance: Instance) -> None:
    project_id, instance_id = cloud.platform.project_id, instance.instance_id
    with cloud.client() as client:
        assert client.call(INSTANCE_GET, project_id=project_id, instance_id=instance_id).name == "kv"
        assert [item.name for item in client.pages(INSTANCE_LIST, project_id=project_id)] == ["kv"]
        page_query = {"page_size": 1}
        members = client.pages(MEMBER_LIST, query=page_query, project_id=project_id, instance_id=instance_id)
        assert [member.node_name for member in members] == ["n1", "n2", "n3"]
        members = client.pages(MEMBER_LIST, query=page_query, project_id=project_id, instance_id=instance_id)
        assert next(members).node_name == "n1"
        with pytest.raises(NotFound):
            client.call(INSTANCE_GET, project_id=project_id, instance_id="inst_none")


async def test_inside_an_event_loop_it_refuses_to_block(cloud: Cloud) -> None:
    client = cloud.client()
    with pytest.raises(RuntimeError, match="running event loop"):
        client.call(INSTANCE_LIST, project_id=cloud.platform.project_id)
    await asyncio.to_thread(client.close)


def test_the_script_of_the_documentation_prints_the_members_that_are_not_ready(
    cloud: Cloud,
    instance: Instance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"key_id": cloud.platform.key_id, "client_secret": cloud.platform.client_secret}))
    monkeypatch.setenv("GPUAAS_SERVER", cloud.server)
    monkeypatch.setenv("GPUAAS_PROJECT", cloud.platform.project_id)
    monkeypatch.setenv("GPUAAS_CREDENTIALS", str(key))
    script = PAGE.read_text().split("```python\n")[1].split("```")[0]
    exec(compile(script, str(PAGE), "exec"), {"__name__": "__main__"})  # noqa: S102 - the page is ours
    assert capsys.readouterr().out == "kv n2 failed no power\n"
