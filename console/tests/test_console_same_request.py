"""Each change of the console shows a command line that sends the same request."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import seeded
from gpuaas_console import changes, controls
from page_person import Person
from recording_proxy import Recorder, Sent, assert_same, recording, words_of
from seeded import Console

ACTS: dict[str, dict[str, str | list[str]]] = {
    "add": {"role": "worker", "machine": "gpu-4"},
    "drain": {"member": "gpu-3"},
    "resume": {"member": "gpu-3"},
    "repair": {"member": "gpu-3"},
    "replace": {"member": "gpu-3", "machine": "gpu-4"},
    "remove": {"member": ["gpu-2", "gpu-3"]},
    "reconfigure": {"in.replicas": "3"},
    "start": {},
    "restart": {},
    "stop": {},
    "upgrade": {"version": "1.0.0"},
    "rollback": {},
    "decommission": {},
}
"""Verb -> what people choose for the instance `lab`."""
CHANGES: dict[str, dict[str, str | list[str]]] = {
    "request-app": {"in.app_slug": "tiny", "in.reason": "course in June"},
    "entitle-app": {"target": "demo", "in.versions": "1.*\n2.0", "in.instances_max": "2"},
    "stop-app": {"target": "demo"},
    "refuse-app": {"target": "demo", "in.reason": "no; $(touch x)"},
    "enrol-node": {"in.name": "gpu-9", "in.sku": "h100", "in.ttl_s": "600"},
    "create-user": {"in.name": "ada"},
    "grant-role": {"in.user_id": "ada", "in.role": "viewer"},
    "create-account": {"in.name": "program", "in.apps": "demo"},
    "promote-artifact": {"target": "art_1", "in.channel": "stable"},
    "verify-artifact": {"target": "art_1"},
    "set-policy": {"in.regions": '{"allow": ["eu-1"], "deny": []}', "in.instances_max": "4", "in.reason": "it's full"},
    "trust-key": {
        "target": "release",
        "in.public_key_pem": "-----BEGIN KEY-----\nMCow\n-----END KEY-----",
    },
    "grant-platform-role": {"in.user_id": "ada", "in.role": "platform_ops"},
    "set-platform-policy": {"in.skus": '{"allow": [], "deny": ["old"]}'},
    "unseal": {"in.passphrase": "PASSPHRASE"},
    "reset-breaker": {"target": "worker", "within": "lab", "in.reason": "new memory; $(touch x)"},
}
"""Change -> what people fill in; others get a target and a reason."""
ASKING = ("decommission",)
"""Commands that ask before they act."""


@pytest.fixture(scope="module")
def recorder(console: Console) -> Iterator[Recorder]:
    with recording(console.server.url) as running:
        yield running


@pytest.fixture(scope="module")
def person(console: Console, recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """A person at a second console, whose changes are recorded and refused."""
    folder = tmp_path_factory.mktemp("recorded")
    server = type(console.server)(**{**vars(console.server), "url": recorder.url})
    with (
        seeded.console(console.cli, server, console.project_id, folder) as recorded,
        httpx.Client(base_url=recorded.url, timeout=60, trust_env=False) as client,
    ):
        link = recorded.link(console.token()).removeprefix(recorded.url)
        someone = Person(client, console.project_id)
        someone.get(link)
        someone.post(link)
        someone.get("/")
        yield someone


@pytest.fixture(scope="module")
def lab_id(console: Console) -> str:
    return str(console.cli("get", "instance", "lab", "-o", "json").json["instance_id"])


@pytest.fixture(scope="module")
def workers(console: Console) -> dict[str, str]:
    """Return the ids of the workers by node."""
    rows = console.cli("get", "members", "--instance", "lab", "-o", "json").json["items"]
    return {row["node_name"]: row["member_id"] for row in rows if row["component_key"] == "worker"}


@pytest.fixture(scope="module")
def open_add(console: Console, failed_add: str) -> str:
    """The id of a failed operation with exits. That of `failed_add` has none after a later change of the instance."""
    console.cli("role", "reset-breaker", "lab", "worker", "--reason", "another add", expect=None)
    console.cli("member", "add", "lab", "--role", "worker", "--allocation", "gpu-5", expect=1)
    return seeded.failed_add(console)


def by_page(person: Person, recorder: Recorder, path: str, fields: dict[str, Any]) -> tuple[Sent, str]:
    """Send the form of a page. Return the request and the command line that the page shows."""
    query = {name: fields[name] for name in ("verb", "target", "within") if name in fields}
    etag = re.search(r'name="etag" value="([^"]*)"', person.page(path, **query))
    recorder.sent.clear()
    answer = person.post(path, **fields, step="do", etag=html.unescape(etag[1]) if etag else "")
    assert answer.status_code == 409, answer.text
    line = re.findall(r"<code>((?:printf|gpuaas) .*?)</code>", answer.text, re.DOTALL)[-1]
    return recorder.take(), html.unescape(line)


def by_line(console: Console, recorder: Recorder, line: str) -> Sent:
    """Run a command line that the console shows, with the answer yes to the questions of the command."""
    words, given = words_of(line)
    where = {"GPUAAS_SERVER": recorder.url, "GPUAAS_TOKEN": console.token()}
    console.cli(*words, *(["--yes"] if words[0] in ASKING else []), given=given, expect=None, **where)
    return recorder.take()


def test_every_act_and_every_change_has_a_case() -> None:
    assert set(ACTS) == set(controls.ACTS)
    assert set(CHANGES) <= set(changes.CHANGES)


@pytest.mark.parametrize("verb", ACTS)
@pytest.mark.parametrize("force", ["", "yes"], ids=["gently", "forced"])
def test_an_act_and_its_command_line_send_the_same_request(
    console: Console, lab_id: str, recorder: Recorder, person: Person, workers: dict[str, str], verb: str, force: str
) -> None:
    fields: dict[str, Any] = {**ACTS[verb], "verb": verb, "reason": "new memory; $(touch x)", "confirm": "lab"}
    fields |= {"force": force} if force else {}
    if "member" in fields:
        chosen = [fields["member"]] if isinstance(fields["member"], str) else fields["member"]
        fields["member"] = [workers[name] for name in chosen]
    sent, line = by_page(person, recorder, "PROJECT/instances/lab/act", fields)
    assert_same(sent, by_line(console, recorder, line), lab=lab_id)


@pytest.mark.parametrize("name", changes.CHANGES)
def test_a_change_and_its_command_line_send_the_same_request(
    console: Console, lab_id: str, recorder: Recorder, person: Person, name: str
) -> None:
    change = changes.CHANGES[name]
    fields: dict[str, Any] = CHANGES.get(name, {"target": "some", "in.reason": "new memory; $(touch x)"})
    fields = {**fields, "confirm": fields.get("target", "")}
    sent, line = by_page(person, recorder, f"PROJECT/change/{name}", fields)
    assert sent.method == change.endpoint.method
    assert_same(sent, by_line(console, recorder, line), lab=lab_id)


def test_a_deploy_and_its_command_line_send_the_same_request(
    console: Console, lab_id: str, recorder: Recorder, person: Person, tmp_path: Path
) -> None:
    fields = {"name": "two", "topology": "split", "in.head_allocation": "gpu-4", "in.worker_allocations": "gpu-5"}
    sent, line = by_page(person, recorder, "PROJECT/catalog/demo/1.0.0/deploy", fields)
    assert_same(sent, by_line(console, recorder, line), lab=lab_id)


def test_an_action_and_its_command_line_send_the_same_request(
    console: Console, lab_id: str, recorder: Recorder, person: Person
) -> None:
    fields = {"in.names": "ada\r\nbob", "reason": "course; $(touch x)"}
    sent, line = by_page(person, recorder, "PROJECT/instances/lab/actions/guests.list", fields)
    assert_same(sent, by_line(console, recorder, line), lab=lab_id)


@pytest.mark.parametrize("way", ["retry", "force_complete"])
def test_an_exit_and_its_command_line_send_the_same_request(
    console: Console, lab_id: str, recorder: Recorder, person: Person, open_add: str, way: str
) -> None:
    fields = {"reason": "the cable is in; $(touch x)", "confirm": "lab"}
    path = f"PROJECT/operations/{open_add}/exit/{way}"
    sent, line = by_page(person, recorder, path, fields)
    assert_same(sent, by_line(console, recorder, line), lab=lab_id)
