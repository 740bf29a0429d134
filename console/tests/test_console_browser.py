"""The console in a real browser, headless: live updates, the keyboard, accessibility in both themes, small screens."""

import datetime
import re
from collections.abc import Iterator

import chromium
import pytest
import seeded
from axe_playwright_python.sync_playwright import Axe
from keyboard import SEEN
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, expect
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

    def note(message: ConsoleMessage) -> None:
        is_own_answer = "the server responded with a status of 4" in message.text and message.location["url"] == tab.url
        if message.type == "error" and not is_own_answer:  # a page about an error has its status
            complaints.append(message.text)

    tab.on("console", note)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    yield tab
    assert complaints == []


def test_a_second_click_sends_a_form_once(page: Page, console: Console) -> None:
    """The browser shows the answer to the last request, and the secret of a key is in the first answer only."""
    console.cli("service-account", "create", "clicked")
    sent: list[Route] = []
    page.goto(f"/p/{console.project_id}/change/make-key?target=clicked")
    page.route("**/change/make-key*", lambda route: sent.append(route))
    box = page.get_by_role("button", name="Make a key").bounding_box()
    assert box
    with page.expect_request("**/change/make-key*"):
        page.mouse.click(box["x"] + 5, box["y"] + 5)
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    sent[-1].continue_()
    expect(page.get_by_text("client secret")).to_be_visible(timeout=WAIT_MS)
    assert len(sent) == 1


def test_a_page_that_cannot_be_read_any_more_is_not_called_live(browser: Browser, console: Console) -> None:
    console.cli("user", "create", "leaver", "--password", given="correct horse battery\n")
    console.cli("binding", "grant", "leaver", "viewer")
    page = browser.new_context(base_url=console.url).new_page()
    page.goto("/sign-in")
    page.get_by_label("Name").fill("leaver")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.goto(f"/p/{console.project_id}/instances/lab")
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT_MS)
    rows = console.cli("get", "bindings", "-o", "json").json["items"]
    console.cli("binding", "revoke", next(row["binding_id"] for row in rows if row["user_name"] == "leaver"))
    page.evaluate("htmx.trigger('#live', 'sse:changed')")
    expect(page.locator("#live")).to_contain_text("you have no access to it", timeout=WAIT_MS)
    expect(page.locator("#live-state")).to_have_text("Connection lost. Trying again…", timeout=WAIT_MS)
    page.context.close()


def test_no_page_has_a_serious_barrier_in_either_theme_and_none_scrolls_sideways_on_a_small_screen(
    page: Page, browser: Browser, console: Console, failed_add: str
) -> None:
    """Every kind of page. `test_every_single_page` has all lists, changes and acts."""
    for name, path in seeded.pages(console, failed_add).items():
        page.goto(path)
        assert_usable(page, name)
    stranger = browser.new_context(base_url=console.url).new_page()
    for path in ("/sign-in", console.link(console.token()).removeprefix(console.url)):
        stranger.goto(path)
        assert_usable(stranger, path)
    stranger.goto("/sign-in")
    stranger.get_by_role("button", name="identity provider").press("Enter")
    expect(stranger.get_by_role("link", name="Continue")).to_be_visible(timeout=WAIT_MS)
    assert_usable(stranger, "identity provider")
    stranger.context.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_single_page_has_no_serious_barrier_and_does_not_scroll_sideways(
    page: Page, console: Console, failed_add: str
) -> None:
    for name, path in seeded.every_page(console, failed_add).items():
        page.goto(path)
        assert_usable(page, name)


def test_names_ids_and_values_that_are_long_do_not_make_a_page_scroll_sideways(page: Page, console: Console) -> None:
    """The names of the project, the machine and the instance, a reason and a search have no place to wrap."""
    long, cli = seeded.LONG, console.cli
    cli("project", "create", long, "--org", "acme")
    cli("allocation", "request", "--node", long, "--wait", "--project", long)
    cli("app", "entitle", "demo", "--project", long)
    where = ("--topology", "split", "--set", f"head_allocation={long}", "--project", long)
    operation = cli("deploy", "demo", "--name", long, *where, "--detach").out.strip()
    cli("op", "cancel", operation, "--reason", "x" * 400, "--project", long)
    project = str(cli("get", "project", long, "-o", "json").json["project_id"])
    place = f"/p/{project}"
    instance = f"{place}/instances/{long}"
    page.set_viewport_size({"width": 320, "height": 700})
    for path in (
        f"/?project={long}",
        f"/?q={'x' * 190}",
        instance,
        f"{instance}?q={'x' * 190}",
        f"{instance}/act?verb=decommission",
        f"{instance}/act?verb=add&reason={'x' * 400}",
        f"{place}/operations/{operation}",
        f"{place}/catalog/demo/1.0.0/deploy",
        f"{place}/records/nodes?wide=1",
        f"{place}/records/allocations?wide=1",
        f"{place}/records/operations?wide=1",
        f"{place}/records/events",
        f"{place}/records/audit?wide=1",
        f"{place}/policy?region={'x' * 190}&permission={'x' * 190}",
        f"{place}/triage?correlation_id={'x' * 100}",
        f"{place}/change/cordon-node?target={long}",
    ):
        page.goto(path)
        assert sideways(page) == [], path


def assert_usable(page: Page, name: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    assert barriers(page, "tag", "wcag2a", "wcag2aa", "wcag21a", "wcag21aa") == [], name
    page.emulate_media(color_scheme="dark")
    assert barriers(page, "rule", "color-contrast") == [], f"{name}, dark"
    page.set_viewport_size({"width": 320, "height": 700})
    assert sideways(page) == [], name


def sideways(page: Page) -> list[str]:
    """Return the parts that scroll sideways: the page itself, and tables in it."""
    return list(
        page.evaluate(
            """() => [document.documentElement, ...document.querySelectorAll("main *")]
            .filter((part) => part.scrollWidth > part.clientWidth && part.clientWidth > 1)
            .filter((part) => part === document.documentElement
                || ["auto", "scroll"].includes(getComputedStyle(part).overflowX))
            .filter((part) => !["TEXTAREA", "INPUT"].includes(part.tagName))
            .map((part) => part.outerHTML.slice(0, 200))"""
        )
    )


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


def test_the_page_does_not_change_between_the_press_and_the_release_of_a_click(page: Page, console: Console) -> None:
    page.goto(f"/p/{console.project_id}/instances/lab")
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT_MS)
    box = page.get_by_role("checkbox", name="Choose gpu-3 worker")
    box.hover()
    page.evaluate("document.querySelector('#live h2').dataset.old = '1'")
    page.mouse.down()
    with page.expect_response(lambda answer: "/instances/" in answer.url, timeout=WAIT_MS):
        page.evaluate("htmx.trigger('#live', 'sse:changed')")
    page.mouse.up()
    expect(box).to_be_checked()
    expect(page.locator("#live h2[data-old]")).to_have_count(0, timeout=WAIT_MS)
    expect(box).to_be_checked()


def test_the_focus_stays_where_it_is_when_the_page_changes(page: Page, console: Console) -> None:
    page.goto(f"/p/{console.project_id}/instances/lab")
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT_MS)
    page.get_by_role("button", name="Drain", exact=True).focus()
    page.evaluate("document.querySelector('#live h2').dataset.old = '1'")
    page.evaluate("htmx.trigger('#live', 'sse:changed')")
    expect(page.locator("#live h2[data-old]")).to_have_count(0, timeout=WAIT_MS)
    expect(page.get_by_role("button", name="Drain", exact=True)).to_be_focused(timeout=WAIT_MS)


def test_a_drain_by_keyboard_alone_from_the_home_page_to_its_end(page: Page, console: Console) -> None:
    page.goto("/")
    focus(page, "link", "lab")
    page.keyboard.press("Enter")
    focus(page, "checkbox", "Choose gpu-2 worker")
    page.keyboard.press("Space")
    focus(page, "button", "Drain", backwards=True)
    page.keyboard.press("Enter")
    expect(page.get_by_text("24 GPU hours at stake")).to_be_visible(timeout=WAIT_MS)
    focus(page, "textbox", "Reason (required)")
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


def test_after_the_sign_out_the_back_button_shows_nothing(browser: Browser, console: Console) -> None:
    context = browser.new_context(base_url=console.url)
    page = context.new_page()
    page.goto("/sign-in")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(console.server.password)
    page.get_by_role("button", name="Sign in", exact=True).press("Enter")
    page.wait_for_url(f"{console.url}/")
    page.goto(f"/p/{console.project_id}/instances/lab")
    page.get_by_role("button", name="Sign out").press("Enter")
    page.wait_for_url(re.compile("/sign-in"))
    page.go_back()
    page.wait_for_url(re.compile("/sign-in"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_text("gpu-2")).to_have_count(0)
    context.close()


def test_a_machine_in_the_picture_leads_to_its_row(page: Page, console: Console) -> None:
    page.goto(f"/p/{console.project_id}/instances/lab")
    focus(page, "link", "gpu-3 worker: ready")
    page.keyboard.press("Enter")
    row = page.locator("tr", has=page.get_by_role("checkbox", name="Choose gpu-3 worker"))
    expect(row).to_be_focused(timeout=WAIT_MS)


def test_a_node_in_the_picture_of_the_capacity_leads_to_its_row(page: Page, console: Console) -> None:
    page.goto(f"/p/{console.project_id}/records/nodes")
    focus(page, "link", "gpu-3 0 GPUs")
    page.keyboard.press("Enter")
    expect(page.locator("tr", has=page.get_by_role("cell", name="gpu-3", exact=True))).to_be_focused(timeout=WAIT_MS)


def test_times_are_those_of_the_own_clock_on_every_page_also_after_a_live_update(
    browser: Browser, console: Console
) -> None:
    context = browser.new_context(base_url=console.url, timezone_id="Asia/Kolkata", locale="en-US")
    page = context.new_page()
    page.goto(console.link(console.token()))
    page.get_by_role("button", name="Sign in").press("Enter")
    page.wait_for_url(f"{console.url}/")
    page.goto(f"/p/{console.project_id}/instances/lab")
    focus(page, "button", "local")
    page.keyboard.press("Enter")
    expect(page.locator("html[data-times=local]")).to_be_attached(timeout=WAIT_MS)
    for _ in range(2):
        shown = page.locator("#live > p.quiet time").last
        expect(shown).to_have_text(re.compile(r"^\d+ [A-Z][a-z]{2} \d\d:\d\d:\d\d GMT\+5:30$"), timeout=WAIT_MS)
        exact = datetime.datetime.fromisoformat(str(shown.get_attribute("datetime")))
        assert f"{exact + datetime.timedelta(hours=5, minutes=30):%-d %b %H:%M:%S}" in shown.inner_text()
        assert page.locator("time", has_text=re.compile("UTC|ago")).count() == 0
        page.evaluate("document.querySelector('#live h2').dataset.old = '1'")
        page.evaluate("htmx.trigger('#live', 'sse:changed')")
        expect(page.locator("#live h2[data-old]")).to_have_count(0, timeout=WAIT_MS)
    context.close()


def test_no_table_of_an_instance_is_cut_off_on_a_usual_screen_with_the_times_of_a_clock(
    page: Page, console: Console
) -> None:
    """A time of which the end is cut off reads as another time."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"/p/{console.project_id}/instances/lab")
    focus(page, "button", "UTC")
    page.keyboard.press("Enter")
    expect(page.locator("html[data-times=utc]")).to_be_attached(timeout=WAIT_MS)
    cut = "[...document.querySelectorAll('#live .scroll')].filter((part) => part.scrollWidth > part.clientWidth)"
    assert page.evaluate(f"{cut}.map((part) => part.ariaLabel)") == []


def test_a_view_is_saved_in_the_browser_and_opened_again(page: Page, console: Console) -> None:
    nodes = f"/p/{console.project_id}/records/nodes"
    page.goto(f"{nodes}?q=gpu-2&wide=1")
    page.get_by_text("Save this view").press("Enter")
    page.get_by_label("Name of the view").fill("<b>second</b>")
    page.get_by_role("button", name="Save in this browser").press("Enter")
    view = page.get_by_role("link", name="<b>second</b>", exact=True)
    page.goto("/")
    view.press("Enter")
    page.wait_for_url(f"{console.url}{nodes}?q=gpu-2&wide=1")
    page.goto(f"/p/{console.project_id}/records/operations")
    expect(view).to_have_count(0)
    page.goto(nodes)
    page.get_by_role("button", name="Remove the view <b>second</b>").press("Enter")
    expect(view).to_have_count(0)


def focus(page: Page, role: str, name: str, *, backwards: bool = False) -> None:
    """Press Tab until the control has the focus."""
    for _ in range(120):
        page.keyboard.press("Shift+Tab" if backwards else "Tab")
        control = page.get_by_role(role, name=name, exact=True)  # type: ignore[arg-type]
        if control.count() and control.first.evaluate("node => node === document.activeElement"):
            assert control.first.evaluate(SEEN), f"the focus of {name} cannot be seen"
            return
    pytest.fail(f"the {role} {name} cannot be reached with the keyboard")
