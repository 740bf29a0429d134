"""The console in a real browser, headless: live updates, the keyboard, accessibility in both themes, small screens."""

import re
from collections.abc import Iterator

import chromium
import pytest
import seeded
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect
from seeded import Console

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.running() as browser:
        yield browser


@pytest.fixture
def signed_in(browser: Browser, console: Console) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=console.url)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(console.link(console.token()))
    page.get_by_role("button", name="Sign in").press("Enter")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible(timeout=WAIT_MS)
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(signed_in: BrowserContext) -> Iterator[Page]:
    """A page on which every message of the browser's console fails the test: a broken script, a refused style."""
    tab, complaints = signed_in.new_page(), []
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    yield tab
    assert complaints == []


def test_no_page_has_a_serious_barrier_in_either_theme_and_none_scrolls_sideways_on_a_small_screen(
    page: Page, console: Console, failed_add: str
) -> None:
    for name, path in seeded.pages(console, failed_add).items():
        page.set_viewport_size({"width": 1280, "height": 900})
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        page.goto(path)
        assert barriers(page, "tag", "wcag2a", "wcag2aa", "wcag21a", "wcag21aa") == [], name
        page.emulate_media(color_scheme="dark")
        assert barriers(page, "rule", "color-contrast") == [], f"{name}, dark"
        page.set_viewport_size({"width": 320, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, name


def barriers(page: Page, kind: str, *names: str) -> list[tuple[str, list[str]]]:
    report = Axe().run(page, options={"runOnly": {"type": kind, "values": list(names)}})
    assert report.response["passes"], "axe checked nothing"
    return [
        (item["id"], [node["html"] for node in item["nodes"]][:3])
        for item in report.response["violations"]
        if item["impact"] in ("serious", "critical")
    ]


def test_a_change_appears_on_the_open_page_without_a_reload(page: Page, console: Console) -> None:
    page.goto(f"/p/{console.project_id}/instances/lab")
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT_MS)
    row = page.locator("tr", has=page.get_by_role("checkbox", name="Choose gpu-3 worker"))
    row.get_by_role("checkbox").check()
    console.cli("member", "drain", "lab", "gpu-3", "--reason", "seen live")
    expect(row.locator(".badge")).to_contain_text("drained", timeout=WAIT_MS)
    expect(row.get_by_role("checkbox")).to_be_checked()
    console.cli("member", "resume", "lab", "gpu-3")
    expect(row.locator(".badge")).to_contain_text("ready", timeout=WAIT_MS)


def test_a_drain_by_keyboard_alone_from_the_home_page_to_its_end(page: Page, console: Console) -> None:
    page.goto("/")
    focus(page, "link", "lab")
    page.keyboard.press("Enter")
    focus(page, "checkbox", "Choose gpu-2 worker")
    page.keyboard.press("Space")
    focus(page, "button", "Drain", backwards=True)
    page.keyboard.press("Enter")
    expect(page.get_by_text("24 GPU hours at stake")).to_be_visible(timeout=WAIT_MS)
    focus(page, "textbox", "Reason (optional)")
    page.keyboard.type("by keyboard")
    focus(page, "button", "Drain")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/operations/op_"))
    expect(page.locator(".lead .badge")).to_contain_text("succeeded", timeout=WAIT_MS)
    expect(page.get_by_text("by keyboard").first).to_be_visible(timeout=WAIT_MS)
    console.cli("member", "resume", "lab", "gpu-2")


def test_a_page_that_lost_its_stream_shows_it_and_resumes(signed_in: BrowserContext, console: Console) -> None:
    page = signed_in.new_page()
    page.goto(f"/p/{console.project_id}/instances/lab")
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT_MS)
    signed_in.set_offline(True)
    page.evaluate("htmx.trigger('#live', 'sse:changed')")
    expect(page.locator("#live-state")).to_contain_text("Connection lost", timeout=WAIT_MS)
    signed_in.set_offline(False)
    page.evaluate("htmx.trigger('#live', 'sse:changed')")
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT_MS)


def test_hostile_texts_do_not_run(page: Page, console: Console) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\">"
    console.cli("member", "drain", "lab", "gpu-2", "--reason", hostile)
    console.cli("member", "resume", "lab", "gpu-2")
    page.goto(f"/p/{console.project_id}/records/operations")
    page.goto(f"/p/{console.project_id}/instances/lab")
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT_MS)
    assert page.title() == "lab · GPUaaS"


def focus(page: Page, role: str, name: str, *, backwards: bool = False) -> None:
    """Press Tab until the control has the focus."""
    for _ in range(120):
        page.keyboard.press("Shift+Tab" if backwards else "Tab")
        control = page.get_by_role(role, name=name, exact=True)  # type: ignore[arg-type]
        if control.count() and control.first.evaluate("node => node === document.activeElement"):
            return
    pytest.fail(f"the {role} {name} cannot be reached with the keyboard")
