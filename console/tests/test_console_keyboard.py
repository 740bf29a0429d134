"""The story of an instance by keyboard alone, from the sign-in to its end. Every focus is visible.

Long: it presses Tab some thousand times. A drain by keyboard is in `test_console_browser`."""

from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
from clouds import TESTS
from keyboard import WAIT_MS, Keyboard
from playwright.sync_api import Browser, expect
from seeded import Console


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.running() as browser:
        yield browser


@pytest.fixture
def offers(console: Console, tmp_path: Path) -> None:
    """An app that the project may not deploy, a second version of the demo app, and machines."""
    manifest = (TESTS / "demo_manifest.yaml").read_text()
    (tmp_path / "notes.yaml").write_text(
        manifest.replace("slug: demo", "slug: notes", 1).replace("display_name: Demo", "display_name: Notes", 1)
    )
    (tmp_path / "next.yaml").write_text(manifest.replace("version: 1.0.0", "version: 1.0.1", 1))
    for name, app, version in (("notes.yaml", "notes", "1.0.0"), ("next.yaml", "demo", "1.0.1")):
        console.cli("app", "register", str(tmp_path / name))
        console.cli("app", "publish", app, version)
    for node in ("gpu-7", "gpu-8", "gpu-9"):
        console.cli("allocation", "request", "--node", node, "--wait")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("offers")
def test_the_story_of_an_instance_by_keyboard_alone(browser: Browser, console: Console) -> None:
    context = browser.new_context(base_url=console.url)
    context.set_default_timeout(WAIT_MS)
    hands = Keyboard(context.new_page())
    _sign_in(hands, console)
    _request_and_grant(hands)
    _deploy_with_a_failure_and_its_exit(hands)
    _add_drain_resume_and_remove(hands)
    _run_an_action(hands)
    _upgrade(hands)
    _decommission(hands)
    context.close()


def _sign_in(hands: Keyboard, console: Console) -> None:
    page = hands.page
    page.goto("/sign-in")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("admin")
    page.keyboard.press("Tab")
    page.keyboard.type(console.server.password)
    hands.send("Sign in")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()


def _request_and_grant(hands: Keyboard) -> None:
    hands.follow("Catalog")
    hands.follow("Request Notes")
    hands.write("Reason", "course in June")
    hands.send("Request an app")
    expect(hands.page.get_by_text("Done.")).to_be_visible()
    hands.follow("Home")
    expect(hands.page.get_by_text("course in June")).to_be_visible()
    hands.follow("Decide")
    hands.follow("Let this project deploy Notes")
    hands.send("Let the project deploy it")
    expect(hands.page.get_by_text("Done.")).to_be_visible()


def _deploy_with_a_failure_and_its_exit(hands: Keyboard) -> None:
    """The worker fails at the first attempt, and an exit of the operation tries again."""
    hands.follow("Catalog")
    hands.follow("Demo")
    hands.follow("1.0.0")
    hands.follow("Deploy")
    hands.write("Name of the instance (required)", "keys")
    hands.choose("Head allocation (required)", "gpu-7")
    hands.tick("gpu-8 ")
    hands.choose("Behaviour", "fail_once")
    hands.send("Check, change nothing")
    expect(hands.page.get_by_text("Nothing was changed yet")).to_be_visible()
    hands.send("Deploy")
    hands.ended("failed")
    hands.follow("Retry")
    hands.write("Reason", "the licence is there")
    hands.write("Type keys to confirm", "keys")
    hands.send("Retry")
    hands.ended()


def _add_drain_resume_and_remove(hands: Keyboard) -> None:
    hands.follow("keys")
    _on_members(hands, "Add members")
    hands.tick("gpu-9 ")
    hands.send("Add members")
    hands.ended("failed")  # its first attempt, too
    hands.follow("keys")
    hands.follow("Allow adding worker again")
    hands.write("Reason", "the licence is there")
    hands.send("Allow adding again")
    expect(hands.page.get_by_text("Done.")).to_be_visible()
    hands.follow("Back to keys")
    hands.follow("Choose an exit")
    hands.follow("Retry")
    hands.write("Reason", "again")
    hands.write("Type keys to confirm", "keys")
    hands.send("Retry")
    hands.ended()
    for verb in ("Drain", "Resume", "Remove"):
        hands.follow("keys")
        hands.tick("Choose gpu-8 worker")
        _on_members(hands, verb)
        if verb != "Resume":
            hands.write("Reason", "needed elsewhere")
        if verb == "Remove":
            hands.write("Type keys to confirm", "keys")
        hands.send(verb)
        hands.ended()


def _on_members(hands: Keyboard, verb: str) -> None:
    expect(hands.page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT_MS)
    hands.send(verb)


def _run_an_action(hands: Keyboard) -> None:
    hands.follow("keys")
    hands.follow("Greet a person")
    hands.write("Name (required)", "ada")
    hands.send("Run")
    expect(hands.page.get_by_text("hello ada")).to_be_visible()
    hands.follow("Back")


def _upgrade(hands: Keyboard) -> None:
    hands.follow("Upgrade")
    hands.choose("Version", "1.0.1")
    hands.write("Reason", "new version")
    hands.write("Type keys to confirm", "keys")
    hands.send("Upgrade")
    hands.ended()
    hands.follow("keys")
    expect(hands.page.locator("#live .lead")).to_contain_text("1.0.1")


def _decommission(hands: Keyboard) -> None:
    hands.follow("Decommission")
    hands.write("Reason", "the course ended")
    hands.write("Type keys to confirm", "keys")
    hands.send("Decommission")
    hands.ended()
