"""Apps of which the console has no code: registered by their manifest only, they have every page."""

import html
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clouds import at_work, end
from gpuaas_sdk import scaffold
from page_person import Person
from seeded import Console

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PLACE = ("--project", "others")
NODES = ["other-1", "other-2", "other-3"]
TINY = "PROJECT/instances/little"


@pytest.fixture(scope="module")
def project_id(console: Console) -> Iterator[str]:
    """A project with three machines."""
    console.cli("project", "create", "others", "--org", "acme")
    with at_work(console.cli, console.server, NODES):
        for name in NODES:
            console.cli("allocation", "request", "--node", name, "--wait", *PLACE)
        yield str(console.cli("get", "project", "others", "-o", "json").json["project_id"])
        for name in NODES:
            console.cli("allocation", "release", name, "--wait", *PLACE)
        console.cli("node", "retire", *NODES, "--reason", "test is over")


@pytest.fixture
def tiny(console: Console, project_id: str, tmp_path: Path) -> Iterator[None]:
    """The app of the how-to page, registered by its manifest, and its controller."""
    key, machines = tmp_path / "key.json", tmp_path / "machines"
    machines.mkdir()
    console.cli("app", "register", str(HOW_TO / "tiny_app.json"))
    console.cli("app", "publish", "tiny", "1.0.0")
    console.cli("app", "entitle", "tiny", *PLACE)
    console.cli("service-account", "create", "tiny", "--app", "tiny", "--key-file", str(key), *PLACE)
    where = ["--url", console.server.url, "--project", project_id, "--key-file", str(key)]
    with (tmp_path / "controller.log").open("w") as log:
        words = [sys.executable, str(HOW_TO / "tiny_controller.py"), *where]
        controller = subprocess.Popen(words, cwd=machines, stdout=log, stderr=log)
    try:
        yield
    finally:
        end(controller)


@pytest.fixture
def person(admin: Person, project_id: str) -> Person:
    """The admin, at the pages of the project `others`."""
    admin.project_id = project_id
    return admin


def machines(console: Console) -> list[str]:
    rows = console.cli("get", "allocations", "-o", "json", *PLACE).json["items"]
    return [str(row["allocation_id"]) for row in sorted(rows, key=lambda row: str(row["node_name"]))]


@pytest.mark.usefixtures("tiny")
def test_the_app_of_the_how_to_page_has_every_page_by_its_manifest_alone(person: Person, console: Console) -> None:
    def done(path: str, **fields: Any) -> None:
        person.page(path)
        answer = person.post(path, step="do", key=uuid.uuid4().hex, **fields)
        assert answer.status_code == 303, answer.text
        console.cli("op", "wait", answer.headers["location"].rpartition("/")[2], *PLACE)

    assert "/catalog/tiny/1.0.0/deploy" in person.page("PROJECT/catalog")
    assert "What runs" in person.page("PROJECT/catalog/tiny/1.0.0"), "its action"
    form = person.page("PROJECT/catalog/tiny/1.0.0/deploy")
    assert re.search(r'<select id="f-head_allocation".*?other-1 ·', form, re.DOTALL)
    assert re.search(r'type="checkbox" name="in.hand_allocations" value="alloc_\w+"> other-2 ·', form)
    head, *hands = machines(console)
    inputs = {"in.head_allocation": head, "in.hand_allocations": hands}
    done("PROJECT/catalog/tiny/1.0.0/deploy", name="little", topology="star", **inputs)
    page = person.page(TINY)
    assert re.search("head</strong>.*1 of 1 ready.*hand</strong>.*2 of 2 ready", page, re.DOTALL)
    for control in ("Stop", "Restart", "Drain", "Replace", "What runs"):
        assert control in page, control
    assert "Answer of" in person.post(f"{TINY}/actions/list-work", step="do", key=uuid.uuid4().hex).text
    drained = next(iter(re.findall(r'name="member" value="(mem_\w+)"[^>]*Choose other-2', page)))
    done(f"{TINY}/act?verb=drain", verb="drain", member=drained, reason="new memory")
    assert "drained" in person.page(TINY, of_role="hand", of_status="drained")
    done(f"{TINY}/act?verb=decommission", verb="decommission", reason="test is over", confirm="little")


@pytest.mark.parametrize("kind", sorted(scaffold.KINDS))
def test_an_app_from_the_scaffold_has_a_page_and_a_form_that_the_platform_accepts(
    person: Person, console: Console, tmp_path: Path, kind: str
) -> None:
    name = f"new-{kind}"
    files = scaffold.create(name, kind, tmp_path / name)
    [manifest] = [file for file in files if file.name == "manifest.yaml"]
    console.cli("app", "register", str(manifest))
    console.cli("app", "publish", name, "1.1.0")
    console.cli("app", "entitle", name, *PLACE)
    path = f"PROJECT/catalog/{name}/1.1.0"
    assert scaffold.KINDS[kind].summary in html.unescape(person.page(path))
    form = person.page(f"{path}/deploy")
    fields = dict.fromkeys(re.findall(r'type="checkbox" name="(in\.\w+)"', form))
    (head, *others) = machines(console)
    of_role = {"in.head_allocations": [head], "in.peer_allocations": [head, *others]}
    chosen = {field: of_role.get(field, others) for field in fields}
    checked = person.post(f"{path}/deploy", step="check", name="one", topology="default", **chosen)
    assert "The platform accepts this" in checked.text, checked.text
