"""The pages of the console over HTTP: a real platform with a demo app, and a browser without scripts."""

import datetime
import html
import json
import os
import re
import shlex
import signal
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import oidc_provider
import pytest
from clouds import TESTS, until
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract.catalog import Manifest
from gpuaas_sdk.conformance import ScoreCard, Verdict, statement
from seeded import Console

LAB = "PROJECT/instances/lab"
Visitor = Callable[[], Any]


def operations(console: Console, kind: str, instance: str = "lab") -> list[dict[str, Any]]:
    rows = console.cli("get", "operations", "--instance", instance, "-o", "json").json["items"]
    return [row for row in rows if row["kind"] == kind]


def members(console: Console, role: str = "worker", instance: str = "lab") -> dict[str, str]:
    """Return the live members by node."""
    rows = console.cli("get", "members", "--instance", instance, "-o", "json").json["items"]
    return {row["node_name"]: row["member_id"] for row in rows if row["component_key"] == role}


def test_a_wrong_password_starts_no_session(visitor: Visitor) -> None:
    person = visitor()
    refused = person.sign_in("admin", "wrong")
    assert refused.status_code == 401
    assert "These credentials are not valid" in refused.text
    assert person.get("/").headers["location"] == "/sign-in"


def test_people_return_to_the_page_that_they_asked_for(visitor: Visitor, console: Console) -> None:
    person = visitor()
    wanted = person.path("PROJECT/records/nodes?q=gpu-2&wide=1")
    asked = httpx.URL(person.get(wanted).headers["location"])
    assert (asked.path, asked.params["next"]) == ("/sign-in", wanted), "the filters of the page are in its address"
    form = re.search('name="next" value="([^"]+)"', person.page(str(asked)))
    assert form
    answer = person.sign_in("admin", console.server.password, next=html.unescape(form[1]))
    assert answer.headers["location"] == wanted
    assert person.get("/").status_code == 200
    assert visitor().get("/").headers["location"] == "/sign-in"


def test_a_sign_in_link_works_once_and_its_end_leaves_the_command_line_signed_in(
    visitor: Visitor, console: Console
) -> None:
    path = console.link(console.token()).removeprefix(console.url)
    first, second = visitor(), visitor()
    first.get(path)
    second.get(path)
    assert first.post(path).headers["location"] == "/"
    assert "Needs attention" in first.page("/")
    refused = second.post(path)
    assert refused.status_code == 410
    assert "A link works once" in refused.text
    first.post("/sign-out")
    assert first.get("/").status_code == 303
    console.cli("whoami")


def test_people_sign_in_through_the_identity_provider(visitor: Visitor) -> None:
    person = visitor()
    person.get("/sign-in")
    page = person.post("/sign-in/provider").text
    url = re.search(r'class="button" href="([^"]+)"', page)
    assert url
    answer = oidc_provider.sign_in(html.unescape(url[1]), "kim@example.com")
    assert visitor().get("/signed-in", **answer).status_code == 403, "another browser started this sign-in"
    assert "Signed in" in person.page("/signed-in", **answer)
    assert "You can see no project yet" in person.page("/")


def test_after_sign_out_the_cookie_is_worthless(admin: Any) -> None:
    cookies = dict(admin.http.cookies)
    admin.post("/sign-out")
    again = httpx.get(f"{admin.http.base_url}/", cookies=cookies, trust_env=False)
    assert again.status_code == 303


def test_a_session_is_ended_with_its_button_or_with_the_command_line_beside_it(
    admin: Any, visitor: Visitor, console: Console
) -> None:
    other = visitor()
    other.sign_in("admin", console.server.password)
    page = other.page("/sessions")
    current = re.search(r'title="(ses_\w+)">\S+</span> <span[^>]*>.*?this one', page)
    assert current
    line = f"gpuaas session end {current[1]}"
    assert line not in page, "people sign out to end the session of this page"
    beside = html.unescape(admin.page("/sessions"))
    assert f"<code>{line}</code>" in beside
    assert re.search(rf"<code>curl -X \w+ http\S+/sessions/{current[1]} ", beside)
    console.cli("session", "end", current[1])
    assert other.get("/").status_code == 303


def test_every_page_answers_and_is_not_stored_by_the_browser(admin: Any, console: Console, failed_add: str) -> None:
    correlation = operations(console, "deploy")[0]["correlation_id"]
    paths = [
        "/",
        "/?status=running&sort=name&project=research&q=lab",
        "/sessions",
        LAB,
        *(f"{LAB}/act?verb={verb}" for verb in ("add", "drain", "stop", "upgrade", "reconfigure", "decommission")),
        f"{LAB}/actions/greet",
        f"PROJECT/operations/{failed_add}",
        f"PROJECT/operations/{failed_add}/exit/retry",
        "PROJECT/catalog",
        "PROJECT/catalog/demo/1.0.0",
        "PROJECT/catalog/demo/1.0.0/deploy",
        "PROJECT/records",
        f"PROJECT/triage?correlation_id={correlation}",
        "PROJECT/triage",
        "PROJECT/policy?region=local&permission=capacity.node.read",
    ]
    index = admin.page("PROJECT/records")
    lists = re.findall(r'href="(/p/[^/]+/records/[a-z-]+)"', index)
    assert len(lists) > 15
    for path in [*paths, *lists]:
        answer = admin.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        assert answer.headers["cache-control"] == "no-store", path


def test_home_shows_what_needs_attention_before_the_instances(admin: Any, failed_add: str) -> None:
    page = admin.page("/")
    attention, _, instances = page.partition("Instances of research")
    assert re.search(r'class="notice (bad|warn)">.*lab</strong>.*failed', attention)
    assert "lab</strong></a>" in instances


def test_a_filter_in_the_address_limits_the_list(admin: Any) -> None:
    assert "No instance matches the filters" in admin.page("/", q="nothing-has-this-name")


def test_the_instance_page_has_members_health_access_and_why_a_control_is_off(admin: Any) -> None:
    page = html.unescape(admin.page(LAB))
    for text in ("gpu-2", "worker", "http://192.0.2.1", "Say hello", "Observed by the app", "Details from the app"):
        assert text in page
    assert (
        "There is no version to return to: the instance was not upgraded since its deploy or its last rollback." in page
    )
    assert re.search("<dt>Head allocation</dt><dd>gpu-1</dd>", page), "the machine and not the id of its allocation"


def test_a_control_of_members_that_is_off_can_have_the_focus_and_its_reason_is_text_of_the_page(
    visitor: Visitor, console: Console
) -> None:
    console.cli("user", "create", "otto", "--password", given="a long password 1\n")
    console.cli("binding", "grant", "otto", "viewer", "--project", "research")
    viewer = visitor()
    viewer.sign_in("otto", "a long password 1")
    page = html.unescape(viewer.page(LAB))
    assert re.search('<span class="button off" tabindex="0" role="button"[^>]* aria-describedby="why-drain"', page)
    reasons = page[page.index('<details class="why" id="why-not-members">') :].partition("</details>")[0]
    assert re.search("<strong>Drain</strong>: .*apps.member.operate", reasons), reasons


def test_the_page_of_an_unwell_instance_has_the_next_step_of_the_home_page(admin: Any, failed_add: str) -> None:
    notice = re.search(r"lab</strong> (.+?)(?: <span|</span>)", admin.page("/"))
    assert notice
    page = admin.page(LAB)
    assert f" {notice[1]}" in page.partition("What you can do")[0]
    assert "Last operation on the whole instance succeeded" in page, "beside a failed change of members"


def test_a_failed_operation_shows_what_happened_and_what_people_can_do(admin: Any, failed_add: str) -> None:
    page = admin.page(f"PROJECT/operations/{failed_add}")
    assert "1 member failed" in page
    assert "A retry alone will not help: remove the cause first." in page
    assert "The operation has ended and does not continue by itself." in page


def test_a_page_that_does_not_exist_names_the_next_step(admin: Any) -> None:
    answer = admin.get("PROJECT/instances/nothing")
    assert answer.status_code == 404
    assert "<code>gpuaas get</code>" in answer.text
    assert 'aria-label="Pages"' in answer.text, "the navigation stays"
    assert admin.get("/nothing").status_code == 404


def test_a_person_without_a_role_sees_nothing_of_the_project(visitor: Visitor, console: Console) -> None:
    console.cli("user", "create", "eve", "--password", given="a long enough password\n")
    eve = visitor()
    assert eve.sign_in("eve", "a long enough password").status_code == 303
    assert "You can see no project yet" in eve.page("/")
    for path in (LAB, "PROJECT/catalog", "PROJECT/records/members", "PROJECT/records/nodes"):
        answer = eve.get(path)
        assert answer.status_code in (403, 404), path
        assert "gpu-2" not in answer.text


def test_home_is_not_live_for_a_person_without_a_project_or_with_a_filter_that_no_project_has(
    visitor: Visitor, admin: Any, console: Console
) -> None:
    """A page that follows nothing would report that its connection is lost."""
    console.cli("user", "create", "newcomer", "--password", given="correct horse battery\n")
    person = visitor()
    person.sign_in("newcomer", "correct horse battery")
    assert "You can see no project yet" in person.page("/")
    for page in (person.page("/"), admin.page("/", project="nothing-has-this-name")):
        assert "sse-connect" not in page
        assert "Connecting…" not in page
    assert 'sse-connect="/stream"' in admin.page("/")


def test_a_check_shows_the_running_work_and_changes_nothing(admin: Any, console: Console) -> None:
    before = len(operations(console, "drain"))
    admin.page(f"{LAB}/act", verb="drain")
    page = admin.post(f"{LAB}/act", verb="drain", member=members(console)["gpu-2"], step="check").text
    assert "job-7" in page
    assert "24 GPU hours at stake" in page
    assert "Cannot be undone: the scratch files of job-7" in page
    assert len(operations(console, "drain")) == before


def test_a_check_shows_the_deadline_that_the_platform_sets(admin: Any, console: Console) -> None:
    page = admin.post(f"{LAB}/act", verb="drain", member=members(console)["gpu-2"], step="check").text
    assert re.search(r"Deadline: <time[^>]+>in 2[34]h\d\dm</time>", page)


@pytest.mark.parametrize("path", ["/", LAB, "PROJECT/records/nodes?wide=1", f"{LAB}/act?verb=drain", "/sessions"])
def test_every_page_has_the_switch_of_the_times_and_leads_back_to_itself(admin: Any, path: str) -> None:
    page = admin.page(path)
    assert re.findall(r'name="times" value="(\w+)" aria-pressed="(\w+)"', page) == [
        ("relative", "true"),
        ("utc", "false"),
        ("local", "false"),
    ]
    back = re.search(r'name="next" value="([^"]+)"', page)
    assert back
    assert html.unescape(back[1]) == admin.path(path)
    answer = admin.post("/times", times="utc", next=html.unescape(back[1]))
    assert (answer.status_code, answer.headers["location"]) == (303, admin.path(path))
    assert 'value="utc" aria-pressed="true"' in admin.page(path)
    assert not re.search(r"<time[^>]*>[^<]* ago<", admin.page(path))


def test_the_switch_of_the_times_stores_nothing_else_and_leads_to_no_other_site(admin: Any) -> None:
    assert admin.post("/times", times="mars", next="/").status_code == 400
    chosen = admin.post("/times", times="local", next="//evil.example/")
    assert chosen.headers["location"] == "/"
    cookie = chosen.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("gpuaas-console-times=local", "httponly", "samesite=strict", "max-age="))
    admin.http.cookies.set("gpuaas-console-times", "<script>")
    assert 'data-times="relative"' in admin.page("/")


def test_a_node_in_the_picture_of_the_capacity_leads_to_its_row(admin: Any) -> None:
    page = admin.page("PROJECT/records/nodes")
    anchors = re.findall(r'<li><a class="dot \w+" href="#([^"]+)">', page)
    assert len(anchors) >= 6
    assert all(f'<tr id="{anchor}" tabindex="-1">' in page for anchor in anchors)
    searched = admin.page("PROJECT/records/nodes", q="gpu-2")
    assert f'href="{admin.path("PROJECT/records/nodes")}?q=gpu-1#' in searched


def test_a_check_that_is_refused_shows_why_in_place_of_the_wait(admin: Any) -> None:
    assert "Asking the platform and the app" in admin.page(f"{LAB}/act", verb="start")
    fields = {"verb": "start", "csrf": admin.csrf}
    answer = admin.http.post(admin.path(f"{LAB}/act"), data=fields, headers={"HX-Request": "true"})
    assert answer.status_code == 200, "htmx does not show other answers"
    assert "start needs it failed or stopped" in answer.text


def test_programs_are_shown_by_their_name(admin: Any, failed_add: str) -> None:
    rows = admin.page("PROJECT/records/audit", action="runtime.fail")
    assert re.search('data-label="Actor"[^>]*><span title="sa_[a-z0-9]+">demo-controller [(]service account[)]<', rows)
    assert re.search('data-label="Service account".*>sa_[a-z0-9]+</td>', admin.page("PROJECT/records/service-accounts"))


def test_the_console_and_its_command_line_make_the_same_request(admin: Any, console: Console) -> None:
    chosen = {"verb": "drain", "member": members(console)["gpu-3"], "reason": "new memory; $(touch x)"}
    admin.page(f"{LAB}/act", verb="drain")
    checked = admin.post(f"{LAB}/act", **chosen, step="check").text
    line = html.unescape(re.findall(r"<code>(gpuaas member drain .*?)</code>", checked)[0])
    key = uuid.uuid4().hex
    answer = admin.post(f"{LAB}/act", **chosen, step="do", key=key)
    assert answer.status_code == 303
    assert admin.post(f"{LAB}/act", **chosen, step="do", key=key).headers["location"] == answer.headers["location"]
    console.cli("op", "wait", answer.headers["location"].rpartition("/")[2])
    console.cli("member", "resume", "lab", "gpu-3")
    console.cli(*shlex.split(line)[1:])
    console.cli("member", "resume", "lab", "gpu-3")
    by_page, by_line = operations(console, "drain")[-2:]
    for name in ("kind", "component_key", "reason", "force", "requested_by", "stop_after_failures"):
        assert by_page[name] == by_line[name], name
    assert [target["member_id"] for target in by_page["targets"]] == [
        target["member_id"] for target in by_line["targets"]
    ]


def test_a_dangerous_act_needs_the_reason_and_the_typed_name(admin: Any, console: Console) -> None:
    admin.page(f"{LAB}/act", verb="stop")
    refused = admin.post(f"{LAB}/act", verb="stop", step="do", confirm="other")
    assert refused.status_code == 400
    assert "Type lab to confirm." in refused.text
    assert "Write why you do this" in refused.text
    assert operations(console, "stop") == []


def test_force_is_offered_to_those_who_may_use_it_and_needs_the_reason_and_the_typed_name(
    admin: Any, visitor: Visitor, console: Console
) -> None:
    page, given = f"{LAB}/act", {"verb": "drain", "member": members(console)["gpu-3"], "force": "yes"}
    assert "Ignore holds, the disruption budget and missing evidence" in admin.page(page, verb="drain")
    assert 'name="force"' not in admin.page(page, verb="add"), "an add has nothing to ignore"
    console.cli("user", "create", "finn", "--password", given="a long password 1\n")
    console.cli("binding", "grant", "finn", "project_member", "--project", "research")
    member = visitor()
    member.sign_in("finn", "a long password 1")
    assert 'name="force"' not in member.page(page, verb="drain")
    assert member.post(page, **given, step="check").status_code == 403, "the platform decides"
    admin.page(page, verb="drain")
    refused = admin.post(page, **given, step="do")
    assert refused.status_code == 400
    assert "Type lab to confirm." in refused.text
    assert "Write why you do this" in refused.text
    given["reason"] = "the machine burns"
    done = admin.post(page, **given, step="do", confirm="lab", key=uuid.uuid4().hex)
    console.cli("op", "wait", done.headers["location"].rpartition("/")[2])
    assert operations(console, "drain")[-1]["force"] is True
    assert "<strong>forced</strong>" in admin.page(f"PROJECT{done.headers['location'].partition(admin.project_id)[2]}")
    console.cli("member", "resume", "lab", "gpu-3")


def test_an_exit_is_taken_with_a_reason(admin: Any, console: Console, failed_add: str) -> None:
    path = f"PROJECT/operations/{failed_add}/exit/retry"
    admin.page(path)
    assert "Type lab to confirm." in admin.post(path, reason="again", confirm="").text
    refused = admin.post(path, reason="again", confirm="lab", key=uuid.uuid4().hex)
    assert refused.status_code == 409
    assert "reset-breaker" in refused.text
    console.cli("role", "reset-breaker", "lab", "worker", "--reason", "the licence is there")
    taken = admin.post(path, reason="again", confirm="lab", key=uuid.uuid4().hex)
    assert taken.headers["location"] == admin.path(f"PROJECT/operations/{failed_add}")
    console.cli("op", "wait", failed_add, expect=1)
    page = admin.page(f"PROJECT/operations/{failed_add}")
    assert "again" in page
    assert "demod ended with status 203: no licence" in page
    assert "daemon.ended" in page


def test_a_role_that_failed_too_often_is_opened_again_on_the_page_of_its_instance(
    admin: Any, visitor: Visitor, console: Console, failed_add: str
) -> None:
    for _ in range(5):
        roles = console.cli("get", "roles", "--instance", "lab", "-o", "json").json["items"]
        if any(role["breaker"]["open"] for role in roles):
            break
        console.cli("member", "add", "lab", "--role", "worker", "--allocation", "gpu-5", expect=None)
    page = html.unescape(admin.page(LAB))
    path = re.search(r'href="(/p/\S+/change/reset-breaker[^"]*)">Allow adding worker again<', page)
    assert path
    form = html.unescape(admin.page(path[1]))
    assert "gpuaas role reset-breaker lab worker" in form
    done = admin.post(path[1], step="do", target="worker", within="lab", **{"in.reason": "the licence is there"})
    assert "Done." in done.text
    assert f'href="{admin.path(LAB)}">Back to lab<' in done.text
    assert "Allow adding worker again" not in admin.page(LAB)
    assert admin.get("PROJECT/change/reset-breaker", target="worker").status_code == 400, "of no instance"


def test_an_act_that_the_platform_refuses_shows_why(admin: Any, failed_add: str, console: Console) -> None:
    admin.page(f"{LAB}/act", verb="remove")
    refused = admin.post(f"{LAB}/act", verb="drain", member="mem_unknown", step="check")
    assert refused.status_code in (404, 409, 400)
    assert 'role="alert"' in refused.text


def test_a_deploy_form_shows_an_error_at_its_field_and_a_check_changes_nothing(admin: Any, console: Console) -> None:
    path = "PROJECT/catalog/demo/1.0.0/deploy"
    page = admin.page(path)
    assert "gpu-5 · 0 GPUs" in page
    allocations = console.cli("get", "allocations", "-o", "json").json["items"]
    machine = next(row["allocation_id"] for row in allocations if row["node_name"] == "gpu-5")
    given = {"name": "second", "topology": "split", "in.head_allocation": machine}
    wrong = admin.post(path, **given, **{"in.replicas": "many"}, step="check")
    assert wrong.status_code == 400
    assert "is no whole number" in html.unescape(wrong.text)
    unknown = admin.post(path, **{**given, "in.head_allocation": "alloc_x"}, step="check")
    assert unknown.status_code in (400, 404)
    checked = admin.post(path, **given, step="check")
    assert "gpu-5 as head" in checked.text
    assert "second" not in console.cli("get", "instances", "-o", "name").out
    done = admin.post(path, **given, step="do", key=uuid.uuid4().hex)
    console.cli("op", "wait", done.headers["location"].rpartition("/")[2])
    admin.page("PROJECT/instances/second/act", verb="decommission")
    gone = admin.post(
        "PROJECT/instances/second/act",
        verb="decommission",
        step="do",
        reason="test is over",
        confirm="second",
        key=uuid.uuid4().hex,
    )
    ended = gone.headers["location"].rpartition("/")[2]
    console.cli("op", "wait", ended)
    page = html.unescape(admin.page(f"PROJECT/operations/{ended}"))
    stated = page[page.index("Removed and left") :].partition("</section>")[0]
    assert "removed: the demo" in stated
    assert "left: /tmp/x</strong>: the log is kept" in stated
    file = admin.get(f"PROJECT/operations/{ended}/statement.json")
    assert file.headers["content-disposition"] == 'attachment; filename="statement.json"'
    assert file.headers["cache-control"] == "no-store"
    assert json.loads(file.json()["document"])["operation_id"] == ended
    assert file.json()["signature"]


@pytest.mark.parametrize(
    ("field", "value"), [("name", "Not A Name!"), ("topology", "ring"), ("operator_service_account_id", "sa_unknown")]
)
def test_an_error_of_the_own_fields_of_a_deploy_form_is_at_the_field(
    admin: Any, console: Console, field: str, value: str
) -> None:
    path = "PROJECT/catalog/demo/1.0.0/deploy"
    allocations = console.cli("get", "allocations", "-o", "json").json["items"]
    machine = next(row["allocation_id"] for row in allocations if row["node_name"] == "gpu-5")
    admin.page(path)
    given = {"name": "third", "topology": "split", "in.head_allocation": machine, field: value}
    page = admin.post(path, **given, step="check").text
    place = page[page.index(f'aria-describedby="{field}-error"') :]
    shown = re.search(r'<p id="(\w+)-error" class="help"><strong class="error">[^<]+<', place)
    assert shown, page
    assert shown[1] == field
    assert "f-head_allocation" not in place[: shown.start()] or field == "operator_service_account_id"


def test_a_deploy_form_offers_the_accounts_of_the_organisation_that_are_accepted_for_the_app(
    admin: Any, console: Console, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    manifest = (TESTS / "demo_manifest.yaml").read_text()
    other.write_text(manifest.replace("slug: demo", "slug: fleet", 1).replace("demo.", "fleet."))
    console.cli("app", "register", str(other))
    console.cli("app", "publish", "fleet", "1.0.0")
    console.cli("app", "entitle", "fleet")
    for app in ("demo", "fleet"):
        key = tmp_path / f"{app}.json"
        console.cli("service-account", "create", f"{app}-fleet", "--org", "acme", "--app", app, "--key-file", str(key))
    page = admin.page("PROJECT/catalog/demo/1.0.0/deploy")
    assert "demo-fleet" not in page, "it is not accepted yet"
    accounts = console.cli("service-account", "list", "--org", "acme", "-o", "json").json["items"]
    for row in accounts:
        console.cli("service-account", "accept", row["service_account_id"])
    page = admin.page("PROJECT/catalog/demo/1.0.0/deploy")
    chosen = re.search(r'<option value="(sa_\w+)">demo-fleet · of the organisation</option>', page)
    assert chosen
    assert "fleet-fleet" not in page, "it operates another app"
    for row in accounts:
        console.cli("service-account", "dismiss", row["service_account_id"])


def test_inputs_are_changed_with_a_form_and_the_effect_is_shown(admin: Any, console: Console) -> None:
    def changed(**given: str) -> dict[str, Any]:
        done = admin.post(f"{LAB}/act", verb="reconfigure", **given, step="do", key=uuid.uuid4().hex)
        console.cli("op", "wait", done.headers["location"].rpartition("/")[2])
        inputs: dict[str, Any] = console.cli("get", "instance", "lab", "-o", "json").json["inputs"]
        return inputs

    admin.page(f"{LAB}/act", verb="reconfigure")
    given = {"in.replicas": "4"}
    assert "the head restarts" in admin.post(f"{LAB}/act", verb="reconfigure", **given, step="check").text
    assert changed(**given)["replicas"] == 4
    emptied = admin.post(f"{LAB}/act", verb="reconfigure", **{"in.replicas": ""}, step="check").text
    assert "--unset replicas" in emptied
    assert "replicas" not in changed(**{"in.replicas": ""}), "an empty field removes the input"


def test_an_action_of_the_app_is_a_form_and_its_result_a_typed_table(admin: Any) -> None:
    admin.page(f"{LAB}/actions/guests.list")
    page = admin.post(f"{LAB}/actions/guests.list", **{"in.names": "ada\nbob"}, key=uuid.uuid4().hex).text
    assert re.search(r"Longest stay <span[^>]*>\[h\]", page)
    assert re.search(r'<td[^>]* class="number">1.5</td>', page)
    assert "2 guests" in page
    assert re.search(r'Answer of <time datetime="\d{4}-\d\d-\d\d', page)
    assert "Refresh</button>" in page
    assert page.index("<h1>") < page.index("Answer of") < page.index('<form method="post" class="stack"'), (
        "below a long form it is off the screen, and people send the form again"
    )
    missing = admin.post(f"{LAB}/actions/greet", key=uuid.uuid4().hex)
    assert missing.status_code == 400
    assert "name" in missing.text


def test_an_action_is_checked_before_it_runs_and_one_that_changes_something_has_no_button_to_repeat_it(
    admin: Any, console: Console
) -> None:
    def greetings() -> int:
        rows = console.cli("get", "operations", "-o", "json").json["items"]
        return len([row for row in rows if row["action"] == "greet"])

    admin.page(f"{LAB}/actions/greet")
    before = greetings()
    checked = admin.post(f"{LAB}/actions/greet", **{"in.name": "ada"}, step="check", key=uuid.uuid4().hex).text
    assert "The app was not asked" in checked
    assert ("Nothing was changed yet" in checked, greetings()) == (True, before)
    done = admin.post(f"{LAB}/actions/greet", **{"in.name": "ada"}, step="do", key=uuid.uuid4().hex).text
    assert ("Answer of" in done, greetings()) == (True, before + 1)
    assert "Refresh</button>" not in done


def test_an_open_page_is_woken_by_a_change(admin: Any, console: Console) -> None:
    """The first message is sent at once, because a page may have missed changes; the second by the change."""
    with admin.http.stream("GET", admin.path(f"{LAB}/stream")) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("event:"))
        assert next(lines) == "event: changed"
        change = threading.Thread(target=console.cli, args=("member", "drain", "lab", "gpu-2", "--reason", "test"))
        change.start()
        assert next(lines) == "event: changed"
        change.join()
    console.cli("member", "resume", "lab", "gpu-2")


def test_home_is_woken_by_a_change_in_any_of_its_projects(admin: Any, console: Console, other_project: str) -> None:
    """The first message is sent when all projects are followed, so the second one comes from the change."""
    with admin.http.stream("GET", "/stream") as stream:
        lines = (line for line in stream.iter_lines() if line.startswith(("event:", ":")))
        assert next(lines) == "event: changed"
        words = ("deploy", "demo", "--name", "quiet", "--topology", "split", "--set", "head_allocation=gpu-6")
        console.cli(*words, "--detach", "--project", other_project)
        assert next(lines) == "event: changed"
        lines.close()
    assert "quiet</strong></a>" in admin.page("/")


def test_home_shows_a_limit_that_is_nearly_used_and_a_key_that_ends(
    visitor: Visitor, console: Console, other_project: str, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"allocations_max": 1, "reason": "a small project"}))
    console.cli("policy", "set", str(policy), "--project", other_project)
    account = ("robot", "--project", other_project)
    console.cli("service-account", "create", *account, "--key-file", str(tmp_path / "old.json"))
    key = json.loads((tmp_path / "old.json").read_text())["key_id"]
    words = ("robot", key, "--grace", "1h", "--key-file", str(tmp_path / "new.json"), "--project", other_project)
    console.cli("service-account", "rotate-key", *words)
    person = visitor()
    person.sign_in("admin", console.server.password)
    page = html.unescape(person.page("/", project=other_project))
    assert "allocations</strong> 1 of 1 are used. " in page
    assert f"robot</strong> its key {key} ends at " in page


def test_a_list_has_short_ids_as_links_and_all_columns_have_them_whole(admin: Any, failed_add: str) -> None:
    page, whole = (admin.page("PROJECT/records/events", wide=wide) for wide in ("", "1"))
    assert re.search(rf'<a class="id" href="[^"]*/operations/{failed_add}" title="{failed_add}">op_…\w{{6}}</a>', page)
    assert f"operation_id={failed_add}" in whole
    assert "Cursor" in whole
    assert "Cursor" not in page


def test_the_project_of_a_page_is_shown_by_its_name(admin: Any, visitor: Visitor, console: Console) -> None:
    assert re.search('class="place"[^>]*>.*research</a>', admin.page("PROJECT/records"))
    stranger = visitor()
    console.cli("user", "create", "sara", "--password", given="a long password 1\n")
    stranger.sign_in("sara", "a long password 1")
    assert "research" not in stranger.get("PROJECT/records").text


def test_the_newest_operations_and_audit_rows_come_first(admin: Any, console: Console) -> None:
    deploy = operations(console, "deploy")[0]["operation_id"]
    rows = re.findall(r"<td[^>]*><a[^>]*>(op_[a-z0-9]+)</a></td>", admin.page("PROJECT/records/operations"))
    assert rows == sorted(rows, reverse=True)
    assert deploy == rows[-1]
    items = console.cli("audit", "list", "--platform", "--order", "newest", "-o", "json").json["items"]
    trail = [row["audit_id"] for row in items]
    shown = re.findall(r"<td[^>]*>(aud_[a-z0-9]+)</td>", admin.page("PROJECT/records/audit", wide="1"))
    before = [audit_id for audit_id in shown if audit_id in trail]  # a row may have been added since
    assert len(before) > 10
    assert before == trail[: len(before)]
    assert before == shown[-len(before) :]


def test_a_page_that_opens_beside_another_reads_what_it_may_have_missed(admin: Any) -> None:
    with admin.http.stream("GET", admin.path(f"{LAB}/stream")) as first:
        lines = (line for line in first.iter_lines() if line.startswith("event:"))
        assert next(lines) == "event: changed"
        with admin.http.stream("GET", admin.path(f"{LAB}/stream"), timeout=20) as second:
            others = (line for line in second.iter_lines() if line)
            assert next(others) == "event: changed"
        lines.close()  # an open generator keeps the first stream open until here


def test_the_audit_trail_has_the_person_as_actor(admin: Any, console: Console) -> None:
    me = console.cli("whoami", "-o", "json").json["actor_id"]
    fields = {"verb": "drain", "member": members(console)["gpu-3"], "reason": "who was it?", "step": "do"}
    drained = admin.post(f"{LAB}/act", **fields, key=uuid.uuid4().hex).headers["location"].rpartition("/")[2]
    console.cli("op", "wait", drained)
    console.cli("member", "resume", "lab", "gpu-3")
    correlation = console.cli("get", "operation", drained, "-o", "json").json["correlation_id"]
    rows = console.cli("audit", "list", "--correlation", correlation, "-o", "json").json["items"]
    assert {row["actor_id"] for row in rows if row["actor_type"] == "user"} == {me}
    assert json.dumps(rows).count("console") == 0


@pytest.mark.parametrize("name", ["console.css", "console.js", "htmx.js", "sse.js"])
def test_scripts_and_styles_come_from_the_console(admin: Any, name: str) -> None:
    assert len(admin.page(f"/static/{name}")) > 500


def test_a_project_requests_an_app_and_an_admin_grants_it_from_home(
    admin: Any, visitor: Visitor, console: Console, tmp_path: Path
) -> None:
    manifest = (TESTS / "demo_manifest.yaml").read_text().replace("slug: demo", "slug: wished", 1)
    (tmp_path / "wished.yaml").write_text(manifest.replace("display_name: Demo", "display_name: Wished", 1))
    console.cli("app", "register", str(tmp_path / "wished.yaml"))
    console.cli("app", "publish", "wished", "1.0.0")
    console.cli("user", "create", "mona", "--password", given="a long password 1\n")
    console.cli("binding", "grant", "mona", "project_member", "--project", "research")
    member = visitor()
    assert member.sign_in("mona", "a long password 1").status_code == 303
    page = member.page("PROJECT/catalog")
    assert "Apps that this project may not deploy yet" in page
    assert "A tenant admin of the organisation lets the project deploy an app" in page
    assert "Let this project deploy it" not in page, "a member cannot grant it"
    member.page("PROJECT/change/request-app", **{"in.app_slug": "wished"})
    asked = member.post("PROJECT/change/request-app", step="do", **{"in.app_slug": "wished", "in.reason": "a course"})
    assert "Done." in asked.text
    assert "PROJECT/records/app-requests".replace("PROJECT", f"/p/{console.project_id}") in asked.text
    assert "A tenant admin decides" in member.page("PROJECT/catalog")
    assert "was requested for this project" not in member.page("/"), "only those who can decide see the line"
    home = admin.page("/")
    assert re.search(r"wished</strong> was requested for this project at .*: a course", home)
    assert re.search(r'by <span title="user_\w+">mona</span>: a course', admin.page("PROJECT/catalog")), "no id"
    refused = admin.post("PROJECT/change/refuse-app", step="do", target="wished", **{"in.reason": "not this year"})
    assert "Done." in refused.text
    assert "not this year" in member.page("PROJECT/catalog")
    member.post("PROJECT/change/request-app", step="do", **{"in.app_slug": "wished", "in.reason": "next year"})
    checked = admin.post("PROJECT/change/entitle-app", step="check", target="wished")
    assert "Nothing was changed yet" in checked.text
    assert "Done." in admin.post("PROJECT/change/entitle-app", step="do", target="wished").text
    assert "was requested" not in admin.page("/")
    assert "/catalog/wished/1.0.0/deploy" in member.page("PROJECT/catalog")


def test_the_page_of_an_app_shows_its_conformance_card(admin: Any, console: Console, tmp_path: Path) -> None:
    assert "no conformance card" in admin.page("PROJECT/catalog/demo/1.0.0")
    key, card, public = Ed25519PrivateKey.generate(), tmp_path / "card.dsse", tmp_path / "public.pem"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    console.cli("artifact", "trust", "add", "cards", str(public), "--platform")
    shown = console.cli("app", "show", "demo", "1.0.0", "--platform", "-o", "json").json
    verdicts = [
        Verdict("operations", "Every operation succeeds.", "passed", 1.0),
        Verdict("residue", "Nothing stays.", "failed", 1.0, "n1 has <b>/opt</b>"),
    ]
    now = datetime.datetime.now(datetime.UTC)
    manifest = msgspec.convert(shown["manifest"], Manifest)
    card.write_bytes(statement.signed(ScoreCard("demo", "1.0.0", verdicts), manifest, key, now))
    console.cli("app", "attach-card", "demo", "1.0.0", str(card))
    page = admin.page("PROJECT/catalog/demo/1.0.0")
    assert "does not conform: 1 passed, 1 failed, 0 not applicable" in page
    assert "n1 has &lt;b&gt;/opt&lt;/b&gt;" in page


def test_a_change_of_an_entitlement_keeps_the_limits_that_it_does_not_change(admin: Any, console: Console) -> None:
    limits = ("--versions", "1.*", "--channels", "stable", "--instances-max", "40", "--members-max", "400")
    console.cli("app", "entitle", "demo", *limits)
    page = admin.page("PROJECT/change/stop-app", target="demo")
    assert re.search(r'name="in.instances_max"[^>]*value="40"', page)
    assert "--instances-max 40" in page, "the command line replaces everything, too"
    stopped = admin.post("PROJECT/change/stop-app", step="do", target="demo", confirm="demo")
    assert "Done." in stopped.text
    assert "change/entitle-app?target=demo" in admin.page("PROJECT/records/app-offers")
    started = admin.post("PROJECT/change/entitle-app", step="do", target="demo", **{"in.members_max": ""})
    assert "Done." in started.text
    present = console.cli("get", "entitlements", "-o", "json").json["items"]
    (demo,) = [row for row in present if row["app_slug"] == "demo"]
    assert (demo["enabled"], demo["versions"], demo["channels"]) == (True, ["1.*"], ["stable"])
    assert (demo["instances_max"], demo.get("members_max")) == (40, None), "an empty field removes its limit"
    assert "change/entitle-app?target=demo" not in admin.page("PROJECT/records/app-offers"), "it is entitled"
    console.cli("app", "entitle", "demo")


def test_lists_offer_the_changes_that_a_row_allows_and_that_the_person_may_make(
    admin: Any, visitor: Visitor, console: Console
) -> None:
    nodes = admin.page("PROJECT/records/nodes")
    assert "change/enrol-node" in nodes
    assert "change/cordon-node?target=gpu-1" in nodes
    assert "change/uncordon-node?target=gpu-1" not in nodes, "it is not cordoned"
    console.cli("user", "create", "vera", "--password", given="a long password 1\n")
    console.cli("binding", "grant", "vera", "viewer", "--project", "research")
    viewer = visitor()
    viewer.sign_in("vera", "a long password 1")
    assert "/change/" not in viewer.page("PROJECT/records/service-accounts")
    assert "/change/" in admin.page("PROJECT/records/service-accounts")


def test_a_new_key_is_shown_once_and_a_dangerous_change_needs_the_typed_name(admin: Any, console: Console) -> None:
    made = admin.post("PROJECT/change/create-account", step="do", **{"in.name": "typed"})
    assert "Done." in made.text
    key = admin.post("PROJECT/change/make-key", step="do", target="typed")
    assert re.search(r"client secret</dt><dd>.*data-copy", key.text, re.DOTALL)
    refused = admin.post("PROJECT/change/delete-account", step="do", target="typed", confirm="other")
    assert refused.status_code == 400
    assert "Type typed to confirm." in refused.text
    assert "Done." in admin.post("PROJECT/change/delete-account", step="do", target="typed", confirm="typed").text


def test_the_policy_of_a_project_is_changed_and_a_page_that_is_out_of_date_is_refused(
    admin: Any, console: Console
) -> None:
    page = admin.page("PROJECT/change/set-policy")
    etag = html.unescape(re.findall(r'name="etag" value="([^"]*)"', page)[0])
    fields = {"in.instances_max": "40", "in.reason": "a test", "etag": etag}
    assert "Done." in admin.post("PROJECT/change/set-policy", step="do", **fields).text
    assert "40" in admin.page("PROJECT/policy")
    refused = admin.post("PROJECT/change/set-policy", step="do", **fields)
    assert refused.status_code == 412
    present = html.unescape(re.findall(r'name="etag" value="([^"]*)"', admin.page("PROJECT/change/set-policy"))[0])
    assert "Done." in admin.post("PROJECT/change/set-policy", step="do", etag=present).text


def test_unseal_offers_no_check_because_a_check_cannot_try_the_passphrase(admin: Any) -> None:
    assert 'value="check"' not in admin.page("PROJECT/change/unseal")
    assert 'value="check"' in admin.page("PROJECT/change/create-user")
    answer = admin.post("PROJECT/change/unseal", step="check", **{"in.passphrase": "wrong-wrong-wrong"})
    assert answer.status_code == 400
    assert "The platform accepts this" not in answer.text


def test_a_secret_field_is_in_no_page(admin: Any) -> None:
    answer = admin.post("PROJECT/change/unseal", step="check", **{"in.passphrase": "hunter2-hunter2"})
    assert "hunter2" not in answer.text


def test_events_are_shown_newest_first_in_pages(admin: Any, console: Console) -> None:
    rows = sorted(console.cli("get", "events", "-o", "json").json["items"], key=lambda row: row["cursor"])
    middle = rows[len(rows) // 2]["cursor"]
    page = admin.page("PROJECT/records/events", before=str(middle), wide="1")
    place = re.findall('<th scope="col">([^<]+)</th>', page).index("Cursor")
    lines = re.findall("<tr>(.*?)</tr>", page.partition("<tbody>")[2], re.DOTALL)
    shown = [int(re.findall("<td[^>]*>(.*?)</td>", line, re.DOTALL)[place]) for line in lines]
    assert shown == [row["cursor"] for row in rows if row["cursor"] < middle][::-1][: len(shown)]
    assert shown


def test_a_table_of_the_app_is_read_on_the_page_of_the_instance(admin: Any) -> None:
    page = admin.page(LAB)
    assert 'class="reading"' in page
    table = admin.page(f"{LAB}/readings/guests.list")
    assert '<th scope="col">Guest</th>' in table
    assert "Read " in table
    assert admin.get(f"{LAB}/readings/greet").status_code == 404, "an action that is not for reading"


def test_a_table_that_the_app_has_not_answered_is_not_asked_for_twice(admin: Any, console: Console) -> None:
    before, reading = len(operations(console, "action")), f"{LAB}/readings/guests.list"
    os.kill(console.controller_pid, signal.SIGSTOP)
    try:
        # Pages within some seconds share a reading: the first one can be that of another test.
        until(lambda: "has not answered yet" in admin.page(reading), "a reading waits for the app")
        assert "has not answered yet" in admin.page(reading)
        assert len(operations(console, "action")) == before + 1
    finally:
        os.kill(console.controller_pid, signal.SIGCONT)
    until(lambda: "Read " in admin.page(reading), "the app has answered")


def test_readings_do_not_hide_the_changes_of_an_instance(admin: Any, console: Console) -> None:
    admin.page(f"{LAB}/readings/guests.list")
    assert operations(console, "action")
    page = admin.page(LAB)
    listed = page[page.index('aria-labelledby="h-operations"') :].partition("</section>")[0]
    assert not any(row["operation_id"] in listed for row in operations(console, "action"))
    described = console.cli("describe", "instance", "lab", "-o", "json").json["operations"]
    assert described[-1]["operation_id"] in listed, "the newest change; other tests may have made more than one page"
    assert {row["kind"] for row in described} & {"deploy", "action", "preview"} == {"deploy"}


def test_the_command_line_of_a_question_about_the_policy_asks_the_same(admin: Any, console: Console) -> None:
    asked = {"region": "local", "sku": "h100", "permission": "capacity.node.read"}
    page = html.unescape(admin.page("PROJECT/policy", **asked))
    (lines,) = re.findall("<code>(gpuaas [^<]*)</code>", page)
    explain, can = lines.splitlines()
    where = f"--project {console.project_id}"
    assert explain == f"gpuaas policy explain --region local --sku h100 {where}"
    assert can == f"gpuaas can-i capacity.node.read {where}"
    assert "Region local is allowed" in page
    assert "local" in console.cli(*shlex.split(explain)[1:]).out
    console.cli(*shlex.split(can)[1:])
    assert "can-i" not in admin.page("PROJECT/policy")


def test_the_command_line_of_a_list_has_its_filters(admin: Any, console: Console) -> None:
    page = html.unescape(admin.page("PROJECT/records/audit", action="apps.instance.deploy", wide="1"))
    (line,) = re.findall("<code>(gpuaas audit list .*?)</code>", page)
    assert "--action apps.instance.deploy" in line
    assert "-o wide" in line
    console.cli(*shlex.split(line)[1:])


def test_a_filter_that_nothing_matches_does_not_show_a_list_as_empty(admin: Any) -> None:
    page = admin.page("PROJECT/records/audit", action="nothing.has.this")
    assert "There are none yet" not in page
    assert "No row matches" in page
    assert "No row contains “nothing-has-this”" in admin.page("PROJECT/records/nodes", q="nothing-has-this")


def test_a_page_of_a_project_that_does_not_exist_leaves_the_links_of_other_pages(admin: Any) -> None:
    admin.page(LAB)
    assert admin.get("/p/nothing/catalog").status_code in (403, 404)
    assert f'href="{admin.path("PROJECT/catalog")}"' in admin.page("/sessions")


def test_a_deploy_that_the_person_may_not_request_is_off_and_has_the_reason(visitor: Visitor, console: Console) -> None:
    console.cli("user", "create", "dora", "--password", given="a long password 1\n")
    console.cli("binding", "grant", "dora", "viewer", "--project", "research")
    viewer = visitor()
    viewer.sign_in("dora", "a long password 1")
    for path in ("PROJECT/catalog", "PROJECT/catalog/demo/1.0.0"):
        page = html.unescape(viewer.page(path))
        assert "demo/1.0.0/deploy" not in page
        assert re.search('<span class="button off"[^>]* aria-describedby="why-deploy', page)
        assert "apps.instance.create" in page


def test_a_drain_needs_a_reason(admin: Any, console: Console) -> None:
    given = {"verb": "drain", "member": members(console)["gpu-3"]}
    page = admin.page(f"{LAB}/act", verb="drain")
    assert ("(optional)" in page, "(required)" in page, "Force needs one" in page) == (False, True, False)
    assert "(optional)" in admin.page(f"{LAB}/act", verb="resume")
    refused = admin.post(f"{LAB}/act", **given, step="do")
    assert refused.status_code == 400
    assert "Write why you do this" in refused.text
    assert "Nothing was changed" in refused.text or 'role="alert"' in refused.text


def test_a_command_to_copy_has_a_place_for_the_reason_that_the_change_needs(admin: Any, console: Console) -> None:
    member = members(console)["gpu-3"]
    (line,) = re.findall(
        "<code>(gpuaas member drain .*?)</code>", admin.page(f"{LAB}/act", verb="drain", member=member)
    )
    assert "--reason REASON " in line
    given = admin.post(f"{LAB}/act", verb="drain", member=member, reason="new fan", step="check").text
    assert "--reason &#39;new fan&#39;" in given
    assert "--reason" not in admin.page(f"{LAB}/act", verb="resume", member=member)


def test_a_form_that_lacks_the_reason_still_shows_what_would_happen(admin: Any, console: Console) -> None:
    given = {"verb": "remove", "member": members(console)["gpu-3"]}
    admin.page(f"{LAB}/act", verb="remove")
    lacking = admin.post(f"{LAB}/act", **given, step="do")
    assert (lacking.status_code, 'hx-trigger="load"' in lacking.text) == (400, True)
    assert 'hx-trigger="load"' not in admin.post(f"{LAB}/act", **given, step="check").text, "it has the answer already"


def test_an_empty_list_leads_to_the_form_that_makes_the_first_row(admin: Any, console: Console) -> None:
    page = admin.page("PROJECT/records/trust-keys")
    assert re.search(r'There are none yet. Make one: <a href="[^"]+">Trust a key</a>', page)
    assert "There are none now. Tick “also ended and deleted”" in admin.page("PROJECT/records/credentials")


def test_the_time_line_of_a_correlation_id_has_the_day_and_the_name_of_the_person(
    admin: Any, console: Console, failed_add: str
) -> None:
    row = console.cli("get", "operation", failed_add, "-o", "json").json
    page = admin.page("PROJECT/triage", correlation_id=row["correlation_id"])
    assert re.search(r"It began <time[^>]*>\d+ [A-Z][a-z]{2} \d\d:\d\d:\d\d UTC</time>", page)
    assert re.search(r'user <span class="id" title="user_\w+">admin</span>', page)


def test_a_correlation_id_that_nothing_has_can_be_corrected_in_its_form(admin: Any) -> None:
    answer = admin.get("PROJECT/triage?correlation_id=cor_nothing")
    assert answer.status_code == 404
    assert "Nothing in this project happened under cor_nothing" in answer.text
    assert re.search(r'<input id="correlation_id"[^>]* value="cor_nothing"', answer.text)


def test_machines_are_requested_and_released_on_the_list_of_allocations(admin: Any, console: Console) -> None:
    def nodes() -> set[str]:
        rows = console.cli("get", "allocations", "-o", "json").json["items"]
        return {row["node_name"] for row in rows if row["status"] != "released"}

    page, before = "PROJECT/change/request-allocation", nodes()
    assert "change/request-allocation" in admin.page("PROJECT/records/allocations")
    given = {"in.node_name": "gpu-8", "in.count": "1"}
    assert "Nothing was changed yet" in admin.post(page, **given, step="check").text
    assert nodes() == before
    done = admin.post(page, **given, step="do", key=uuid.uuid4().hex).text
    assert re.search("<dt>allocations</dt><dd>gpu-8</dd>", done), "the machines, and not the whole answer"
    until(lambda: "release-allocation?target=gpu-8" in admin.page("PROJECT/records/allocations"), "it can be released")
    release = "PROJECT/change/release-allocation"
    assert admin.post(release, target="gpu-8", step="do", confirm="gpu-1").status_code == 400
    assert "gpu-8" in nodes()
    assert "Done." in admin.post(release, target="gpu-8", step="do", confirm="gpu-8", key=uuid.uuid4().hex).text
    until(lambda: nodes() == before, "the allocation has ended")
    admin.page("PROJECT/change/release-allocation", target="gpu-8")
