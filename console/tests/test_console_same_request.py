"""Each change of the console shows a command line and a curl call that send the same request."""

import html
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
    "request-allocation": {"in.sku": "h100", "in.region": "eu-1", "in.count": "2"},
    "release-allocation": {"target": "gpu-4"},
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
    "uncordon-node": {"target": "some", "in.reason": "--force is no option here"},
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
def open_add(console: Console, failed_add: str) -> Iterator[str]:
    """The id of a failed operation with exits. That of `failed_add` has none after a later change of the instance."""
    console.cli("role", "reset-breaker", "lab", "worker", "--reason", "another add", expect=None)
    console.cli("member", "add", "lab", "--role", "worker", "--allocation", "gpu-5", expect=1)
    yield seeded.failed_add(console)
    console.cli("member", "remove", "lab", "gpu-5")


class Shown(NamedTuple):
    """A change as its page shows it."""

    line: str
    curl: str


def by_page(person: Person, recorder: Recorder, path: str, fields: dict[str, Any]) -> tuple[Sent, Shown]:
    """Send the form of a page. Return the request, and how the page shows it."""
    query = {name: fields[name] for name in ("verb", "target", "within") if name in fields}
    etag = re.search(r'name="etag" value="([^"]*)"', person.page(path, **query))
    recorder.sent.clear()
    answer = person.post(path, **fields, step="do", etag=html.unescape(etag[1]) if etag else "")
    assert answer.status_code == 409, answer.text
    forms = [
        re.findall(rf"<code>((?:{form}) .*?)</code>", answer.text, re.DOTALL) for form in ("printf|gpuaas", "curl")
    ]
    return recorder.take(), Shown(*(html.unescape(texts[-1]) for texts in forms))


def assert_shown(console: Console, recorder: Recorder, sent: Sent, shown: Shown, lab_id: str) -> None:
    """The command line and the curl call send the request of the page."""
    assert_same(sent, by_line(console, recorder, shown.line), lab=lab_id)
    assert_same(sent, by_curl(console, recorder, shown.curl), lab=lab_id)


def by_curl(console: Console, recorder: Recorder, text: str) -> Sent:
    """Send what a curl call sends that the console shows."""
    words = shlex.split(text)
    assert words[:2] == ["curl", "-X"]
    options = list(zip(words[4::2], words[5::2], strict=True))
    headers = dict(value.split(": ", 1) for name, value in options if name == "-H")
    assert headers["Authorization"] == "Bearer $GPUAAS_TOKEN", "the token is in no page"
    headers["Authorization"] = f"Bearer {console.token()}"
    content = next((value for name, value in options if name == "-d"), None)
    httpx.request(words[2], words[3], content=content, headers=headers, trust_env=False, timeout=60)
    return recorder.take()


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
    sent, shown = by_page(person, recorder, "PROJECT/instances/lab/act", fields)
    assert_shown(console, recorder, sent, shown, lab_id)


@pytest.mark.parametrize("name", changes.CHANGES)
def test_a_change_and_its_command_line_send_the_same_request(
    console: Console, lab_id: str, recorder: Recorder, person: Person, name: str
) -> None:
    change = changes.CHANGES[name]
    fields: dict[str, Any] = CHANGES.get(name, {"target": "some", "in.reason": "new memory; $(touch x)"})
    fields = {**fields, "confirm": fields.get("target", "")}
    sent, shown = by_page(person, recorder, f"PROJECT/change/{name}", fields)
    assert sent.method == change.endpoint.method
    assert_shown(console, recorder, sent, shown, lab_id)


def test_a_deploy_and_its_command_line_send_the_same_request(
    console: Console, lab_id: str, recorder: Recorder, person: Person, tmp_path: Path
) -> None:
    fields = {"name": "two", "topology": "split", "in.head_allocation": "gpu-4", "in.worker_allocations": "gpu-5"}
    sent, shown = by_page(person, recorder, "PROJECT/catalog/demo/1.0.0/deploy", fields)
    assert_shown(console, recorder, sent, shown, lab_id)


def test_an_action_and_its_command_line_send_the_same_request(
    console: Console, lab_id: str, recorder: Recorder, person: Person
) -> None:
    fields = {"in.names": "ada\r\nbob", "reason": "course; $(touch x)"}
    sent, shown = by_page(person, recorder, "PROJECT/instances/lab/actions/guests.list", fields)
    assert_shown(console, recorder, sent, shown, lab_id)


@pytest.mark.parametrize("way", ["retry", "tombstone", "force_complete"])
def test_an_exit_and_its_command_line_send_the_same_request(
    console: Console, lab_id: str, recorder: Recorder, person: Person, open_add: str, way: str
) -> None:
    fields = {"reason": "the cable is in; $(touch x)", "confirm": "lab"}
    path = f"PROJECT/operations/{open_add}/exit/{way}"
    sent, shown = by_page(person, recorder, path, fields)
    assert_shown(console, recorder, sent, shown, lab_id)
