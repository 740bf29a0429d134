"""Attack: every text that the platform sends contains a script. Each page shows it as text."""

from collections.abc import Iterator
from typing import Any

import hostile_relay
import httpx
import pytest
import seeded
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
    "home": ("lab" + ESCAPED,),
    "instance": (
        "gpu-4" + ESCAPED,
        "demod ended with status 203: no licence" + ESCAPED,
        "/var/log/demod.log" + ESCAPED,
        "fail_add" + ESCAPED,
        "http://192.0.2.1" + ESCAPED,
        "echo hello" + ESCAPED,
        "demo-1" + ESCAPED,
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
}
"""Page -> texts that it shows, each escaped."""


def test_scripts_in_texts_of_the_platform_are_shown_as_text_on_every_page(
    victim: Person, console: Console, failed_add: str
) -> None:
    for name, path in seeded.every_page(console, failed_add).items():
        page = victim.get(path).text
        assert hostile_relay.SCRIPT not in page, name
        missing = [text for text in SHOWN.get(name, ()) if text not in page]
        assert missing == [], f"{name}: {page}"


def test_scripts_in_the_result_of_an_action_are_shown_as_text(victim: Any) -> None:
    path = "PROJECT/instances/lab/actions/greet"
    victim.page(path)
    page = victim.post(path, **{"in.name": "ada"}, step="do", key="hostile-result-1").text
    assert f"hello ada{ESCAPED}" in page
    assert hostile_relay.SCRIPT not in page
