"""Attack: every text that the platform sends contains a script. Each page shows it as text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile_relay
import httpx
import pytest
import seeded
from clouds import TESTS
from page_person import Person
from seeded import Console

ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"


@pytest.fixture(scope="module")
def victim(console: Console, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """A person at a console whose platform sends hostile texts."""
    folder = tmp_path_factory.mktemp("hostile")
    with hostile_relay.relaying(console.server.url) as url:
        server = type(console.server)(**{**vars(console.server), "url": url})
        with (
            seeded.console(console.cli, server, console.project_id, folder) as attacked,
            httpx.Client(base_url=attacked.url, timeout=60, trust_env=False) as client,
        ):
            link = attacked.link(console.token()).removeprefix(attacked.url)
            person = Person(client, console.project_id)
            person.get(link)
            person.post(link)
            yield person


SHOWN = {
    "home": ("lab" + ESCAPED, "research" + ESCAPED, "admin" + ESCAPED),
    "instance": (
        "gpu-4" + ESCAPED,
        "demod ended with status 203: no licence" + ESCAPED,
        "/var/log/demod.log" + ESCAPED,
        "fail_add" + ESCAPED,
        "http://192.0.2.1" + ESCAPED,
        "echo hello" + ESCAPED,
        "demo-1" + ESCAPED,
        "operations on members show in the members" + ESCAPED,
        "1 member is failed" + ESCAPED,
        "List the guests" + ESCAPED,
    ),
    "operation": (
        "no licence" + ESCAPED,
        "daemon.ended" + ESCAPED,
        "start the daemon" + ESCAPED,
        "gpu-4" + ESCAPED,
    ),
    "exit": ("lab" + ESCAPED,),
    "act": ("lab" + ESCAPED, "gpu-4" + ESCAPED),
    "nodes": ("gpu-4" + ESCAPED,),
    "events": (ESCAPED,),
    "triage": ("no licence" + ESCAPED,),
    "controller": ("demo-1" + ESCAPED, "look.failed" + ESCAPED, "no licence" + ESCAPED),
    "app": ("Demo" + ESCAPED, "List the guests" + ESCAPED),
    "deploy": ("Demo" + ESCAPED,),
    "catalog": ("Demo" + ESCAPED,),
    "action": ("List the guests" + ESCAPED,),
    "failure": ("in this project." + ESCAPED,),
    "policy": ("no layer denies local", ESCAPED),
}
"""Page -> texts that it shows, each escaped."""


def test_scripts_in_texts_of_the_platform_are_shown_as_text_on_every_page(
    victim: Person, console: Console, failed_add: str
) -> None:
    for name, path in seeded.every_page(console, failed_add).items():
        page = victim.get(path).text
        assert hostile_relay.SCRIPT not in page, name
        assert hostile_relay.SCHEME not in page, name
        missing = [text for text in SHOWN.get(name, ()) if text not in page]
        assert missing == [], f"{name}: {page}"


def test_scripts_in_the_result_of_an_action_are_shown_as_text(victim: Any) -> None:
    path = "PROJECT/instances/lab/actions/greet"
    victim.page(path)
    page = victim.post(path, **{"in.name": "ada"}, step="do", key="hostile-result-1").text
    assert f"hello ada{ESCAPED}" in page
    assert hostile_relay.SCRIPT not in page


def test_scripts_in_the_table_of_an_action_are_shown_as_text(victim: Any) -> None:
    path = "PROJECT/instances/lab/actions/guests.list"
    victim.page(path)
    page = victim.post(path, **{"in.names": "ada"}, step="do", key="hostile-table-1").text
    assert f'<td data-label="Guest{ESCAPED}">ada{ESCAPED}</td>' in page
    assert f"1 guests{ESCAPED}" in page
    assert hostile_relay.SCRIPT not in page


def test_scripts_in_what_a_change_would_do_are_shown_as_text(victim: Any) -> None:
    path = "PROJECT/instances/lab/act"
    victim.page(path, verb="stop")
    stopped = victim.post(path, verb="stop", step="check").text
    for text in ("job-7", "ada", "the scratch files of job-7"):
        assert text + ESCAPED in stopped
    changed = victim.post(path, verb="reconfigure", step="check", **{"in.replicas": "3"}).text
    assert f"3{ESCAPED}" in changed
    assert f"the head restarts{ESCAPED}" in changed
    assert hostile_relay.SCRIPT not in stopped + changed


def test_scripts_in_holds_and_in_requests_for_apps_are_shown_as_text(
    victim: Any, admin: Person, console: Console, tmp_path: Path
) -> None:
    manifest = (TESTS / "demo_manifest.yaml").read_text().replace("slug: demo", "slug: bait", 1)
    (tmp_path / "bait.yaml").write_text(manifest)
    console.cli("app", "register", str(tmp_path / "bait.yaml"))
    console.cli("app", "publish", "bait", "1.0.0")
    console.cli("entitlement", "request", "bait", "--reason", "a course")
    console.cli("hold", "place", "lab", "gpu-2", "--name", "fan", "--kind", "no-work", "--reason", "a bad fan")
    held, asked = victim.get("PROJECT/instances/lab").text, victim.get("PROJECT/catalog").text
    console.cli("hold", "lift", "lab", "fan")
    admin.post("PROJECT/change/refuse-app", step="do", target="bait", **{"in.reason": "not this year"})
    refused = victim.page("PROJECT/catalog")
    assert f"a bad fan{ESCAPED}" in held
    assert f"a course{ESCAPED}" in asked
    assert f"not this year{ESCAPED}" in refused
    assert hostile_relay.SCRIPT not in held + asked + refused
