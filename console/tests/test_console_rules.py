"""Decisions of the console, without a server."""

import datetime
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
import yaml
from clouds import TESTS
from gpuaas_cli import kinds
from gpuaas_console import (
    app,
    attention,
    changes,
    commands,
    controls,
    details,
    forms,
    links,
    needs,
    sessions,
    settings,
    timeline,
    topology,
    view,
    web,
)
from gpuaas_console.pages import action_table, home, records
from gpuaas_contract import errors
from gpuaas_contract.artifacts import ArtifactStorage
from gpuaas_contract.bindings import PROJECT_BINDING_LIST
from gpuaas_contract.catalog import DetailSpec, Manifest
from gpuaas_contract.controllers import Controller, ControllerFailure, ControllerState
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.entitlement_requests import EntitlementRequest
from gpuaas_contract.identity import SERVICE_ACCOUNT_LIST, Binding, Me
from gpuaas_contract.instances import (
    INSTANCE_GET,
    MEMBER_OPERATION_CREATE,
    Instance,
    InstanceCount,
    Member,
    MemberOperationRequest,
    Role,
)
from gpuaas_contract.operations import Operation, Preview, Step
from gpuaas_contract.org_accounts import ACCEPTED_LIST
from gpuaas_contract.policy import PolicyLimit
from gpuaas_sdk import outcomes, scaffold

NOW = datetime.datetime(2030, 1, 31, 8, tzinfo=datetime.UTC)
MANIFEST = msgspec.convert(yaml.safe_load((TESTS / "demo_manifest.yaml").read_text()), Manifest)


def instance(**fields: Any) -> Instance:
    texts = dict.fromkeys(
        [
            "resource_name",
            "org_id",
            "topology",
            "operating_mode",
            "control_plane_scope",
            "runtime_backend",
            "status_reason",
            "requested_by",
            "operator_service_account_id",
            "correlation_id",
        ],
        "",
    )
    known: dict[str, Any] = {
        "instance_id": "inst_1",
        "project_id": "proj_1",
        "app_slug": "demo",
        "app_version": "1.0.0",
        "name": "lab",
        "status": "running",
        "placement": {},
        "inputs": {},
        "last_operation_id": "op_1",
        "revision": 1,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Instance(**{**texts, **known, **fields})


def member(number: int, **fields: Any) -> Member:
    texts = dict.fromkeys(
        [
            "org_id",
            "project_id",
            "status_reason",
            "address",
            "last_operation_id",
            "correlation_id",
            "observed_version",
            "node_id",
        ],
        "",
    )
    known: dict[str, Any] = {
        "member_id": f"mem_{number}",
        "instance_id": "inst_1",
        "component_key": "worker",
        "status": "ready",
        "allocation_id": f"alloc_{number}",
        "node_name": f"gpu-{number}",
        "adapter_detail": {},
        "was_ready": True,
        "revision": 1,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Member(**{**texts, **known, **fields})


def operation(**fields: Any) -> Operation:
    texts = dict.fromkeys(["org_id", "component_key", "reason", "requested_by", "correlation_id"], "")
    known: dict[str, Any] = {
        "operation_id": "op_1",
        "project_id": "proj_1",
        "instance_id": "inst_1",
        "instance_name": "lab",
        "app_slug": "demo",
        "kind": "deploy",
        "status": "running",
        "force": False,
        "attempts": 1,
        "epoch": 1,
        "lease": None,
        "deadline_at": NOW + datetime.timedelta(minutes=10),
        "error": None,
        "revision": 1,
        "created_at": NOW,
        "started_at": NOW,
        "ended_at": None,
        "targets": [],
        "steps": [],
    }
    return Operation(**{**texts, **known, **fields})


def test_a_link_signs_in_once(tmp_path: Path) -> None:
    code = links.make(tmp_path, "token", NOW)
    assert links.take(tmp_path, code, NOW) == "token"
    assert links.take(tmp_path, code, NOW) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_link_expires_and_is_deleted_when_the_next_one_is_made(tmp_path: Path) -> None:
    code, later = links.make(tmp_path, "token", NOW), NOW + links.VALID_FOR
    assert links.take(tmp_path, code, later) == ""
    links.make(tmp_path, "old", NOW)
    links.make(tmp_path, "new", later)
    assert len(list(tmp_path.iterdir())) == 1


def test_only_the_owner_can_read_the_file_of_a_link_and_it_does_not_name_the_code(tmp_path: Path) -> None:
    code = links.make(tmp_path / "links", "token", NOW)
    (file,) = (tmp_path / "links").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert code not in file.name + file.read_text()


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\nevil", ""]
)
def test_an_address_of_another_site_becomes_the_home_page(path: str) -> None:
    assert web.local(path) == "/"


def test_an_address_of_this_site_is_kept() -> None:
    assert web.local("/p/proj_1/instances/lab") == "/p/proj_1/instances/lab"


def test_each_kind_of_input_has_its_widget_and_is_read_back() -> None:
    schema = {
        "required": ["machine"],
        "properties": {
            "count": {"type": "integer", "default": 2},
            "names": {"type": "array", "items": {"type": "string"}},
            "extra": {"type": "object"},
            "mode": {"enum": ["a", "b"], "type": "string"},
            "on": {"type": "boolean"},
            "machine": {"type": "string", "x-gpuaas-picker": "allocation"},
            "machines": {"type": "array", "items": {"type": "string", "x-gpuaas-picker": "allocation"}},
        },
    }
    choices = {"allocation": [forms.Choice("alloc_1", "gpu-1")]}
    fields = {field.name: field for field in forms.fields(schema, {}, choices, {"count": "too small"})}
    assert next(iter(fields)) == "machine"
    assert {name: field.widget for name, field in fields.items()} == {
        "machine": "pick_one",
        "count": "number",
        "names": "lines",
        "extra": "json",
        "mode": "select",
        "on": "select",
        "machines": "pick_many",
    }
    assert (fields["count"].value, fields["count"].error) == ("2", "too small")
    sent = web.Form(
        {
            "in.count": ["3"],
            "in.names": ["ada\nbob\n"],
            "in.extra": ['{"a": 1}'],
            "in.mode": ["b"],
            "in.on": ["false"],
            "in.machine": ["alloc_1"],
            "in.machines": ["alloc_1", "alloc_2"],
            "in.other": ["ignored"],
        }
    )
    assert forms.read(schema, sent) == (
        {
            "count": 3,
            "names": ["ada", "bob"],
            "extra": {"a": 1},
            "mode": "b",
            "on": False,
            "machine": "alloc_1",
            "machines": ["alloc_1", "alloc_2"],
        },
        {},
    )


def test_a_list_with_a_picker_at_either_level_offers_several_and_is_read_as_a_list() -> None:
    hint = {"x-gpuaas-picker": "allocation"}
    on_items = {"type": "array", "items": {"type": "string", **hint}}
    on_list = {"type": "array", "items": {"type": "string"}, **hint}
    schema = {"properties": {"on_items": on_items, "on_list": on_list, "one": {"type": "string", **hint}}}
    made = {field.name: field for field in forms.fields(schema, {}, {"allocation": [forms.Choice("a1", "gpu-1")]}, {})}
    assert {name: field.widget for name, field in made.items()} == {
        "on_items": "pick_many",
        "on_list": "pick_many",
        "one": "pick_one",
    }
    assert all(field.choices == [forms.Choice("a1", "gpu-1")] for field in made.values())
    form = web.Form({f"in.{name}": ["a1"] for name in made})
    assert forms.read(schema, form) == ({"on_items": ["a1"], "on_list": ["a1"], "one": "a1"}, {})


@pytest.mark.parametrize("kind", sorted(scaffold.KINDS))
def test_the_deploy_form_of_each_kind_of_scaffold_is_read_back_as_lists_of_machines(kind: str, tmp_path: Path) -> None:
    files = scaffold.create("hello", kind, tmp_path / "hello")
    [text] = [file.read_text() for file in files if file.name == "manifest.yaml"]
    declared = msgspec.convert(yaml.safe_load(text), Manifest).deploy_form
    machines = [name for name, field in declared["properties"].items() if field["type"] == "array"]
    assert machines
    sent = web.Form({f"in.{name}": ["alloc_1"] for name in machines})
    assert forms.read(declared, sent) == ({name: ["alloc_1"] for name in machines}, {})
    assert {field.widget for field in forms.fields(declared, {}, {}, {}, machines)} == {"pick_many"}


def test_a_change_whose_outcome_is_unknown_has_a_next_step_for_people_with_a_browser() -> None:
    error = outcomes.OutcomeUnknown("No answer", idempotency_key="k", fix="Repeat the call with the key k")
    assert web.failure_of(error).fix == "Reload the page: it makes no second change."


def test_a_form_that_is_older_than_a_change_by_others_is_to_be_opened_again() -> None:
    assert "Open it again" in web.refusal(errors.PreconditionFailed())
    assert "If-Match" not in web.refusal(errors.PreconditionFailed())


def test_lines_of_a_text_are_read_as_people_wrote_them() -> None:
    schema = {"properties": {"script": {"type": "string", "maxLength": 65536}}}
    sent = web.parsed("in.script=%23%21%2Fbin%2Fsh%0D%0Ahostname%0D%0A")
    assert forms.read(schema, sent) == ({"script": "#!/bin/sh\nhostname"}, {})


def test_an_input_that_cannot_be_read_is_named() -> None:
    schema = {"properties": {"count": {"type": "integer"}, "extra": {"type": "object"}}}
    inputs, errors = forms.read(schema, web.Form({"in.count": ["many"], "in.extra": ["{"]}))
    assert inputs == {}
    assert errors["count"] == "'many' is no whole number"
    assert errors["extra"].startswith("This is no JSON")


def test_an_emptied_field_is_one_that_was_shown_and_sent_without_a_text() -> None:
    texts = {name: {"type": "string"} for name in ("emptied", "kept", "absent")}
    schema = {"properties": {**texts, "secret": {"type": "string", "x-secret": True}}}
    sent = web.Form({"in.emptied": [" "], "in.kept": ["a"], "in.secret": [""], "in.other": [""]})
    assert forms.emptied(schema, sent) == {"emptied"}


def test_bars_of_steps_stay_on_the_scale() -> None:
    steps = [
        Step(name="early", state="succeeded", started_at=NOW, ended_at=NOW),
        Step(name="late", state="running", started_at=NOW + datetime.timedelta(seconds=100)),
    ]
    bars = timeline.bars(operation(), steps, {}, NOW + datetime.timedelta(seconds=100))
    assert [bar.step.name for bar in bars] == ["early", "late"]
    assert all(bar.x >= 0 and bar.width >= timeline.SHORTEST and bar.x + bar.width <= timeline.SCALE for bar in bars)
    assert [bar.tone for bar in bars] == ["good", "busy"]


def role(**numbers: int) -> Role:
    count = sum(numbers.values())
    ready = numbers.get("ready", 0)
    return Role(
        component_key="worker", desired=count, current=count, ready=ready, health="healthy", by_status=dict(numbers)
    )


@pytest.mark.parametrize("count", [0, 1, 24])
def test_the_picture_has_a_card_for_each_of_some_members(count: int) -> None:
    (band,) = topology.picture([role(ready=count)], [member(number) for number in range(count)], {})
    assert (len(band.cards), band.parts) == (count, [])


@pytest.mark.parametrize(("ready", "failed", "shown"), [(25, 0, 25), (9_999, 1, 50), (1, 9_999, 50), (10, 1, 5)])
def test_the_picture_has_a_bar_for_many_members_or_for_those_on_other_pages(
    ready: int, failed: int, shown: int
) -> None:
    numbers = {"ready": ready, **({"failed": failed} if failed else {})}
    (band,) = topology.picture([role(**numbers)], [member(number) for number in range(shown)], {})
    assert band.cards == []
    assert {part.status: part.number for part in band.parts} == numbers
    assert all(part.width >= topology.PART_MIN for part in band.parts)
    assert band.parts[-1].x + band.parts[-1].width <= topology.SCALE
    assert band.parts[0].tone == ("bad" if failed else "good")


def facts(**fields: Any) -> attention.Facts:
    seen = Controller(
        controller_id="c", project_id="proj_1", app_slug="demo", holder="h", actor_id="sa", version="", last_seen_at=NOW
    )
    known: dict[str, Any] = {
        "project_id": "proj_1",
        "unwell": [],
        "counts": [InstanceCount(app_slug="demo", status="running", instances=1)],
        "operations": {},
        "controllers": [seen],
        "entitlements": [],
    }
    return attention.Facts(**{**known, **fields})


def test_nothing_needs_attention_while_all_is_well() -> None:
    assert attention.notices(facts(), NOW) == []


def test_what_failed_comes_before_what_is_degraded() -> None:
    unwell = [instance(name="a", status="degraded"), instance(name="b", status="failed", last_operation_id="")]
    assert [notice.subject for notice in attention.notices(facts(unwell=unwell), NOW)] == ["b", "a"]


def test_a_failed_operation_needs_attention_and_has_the_time_of_its_end() -> None:
    ended = operation(kind="drain", status="failed", ended_at=NOW)
    notice = attention.of_instance("p", instance(status="degraded"), ended)
    assert (notice.action, notice.text) == (
        "Choose an exit",
        "drain failed at 2030-01-31T08:00:00Z: no reason was reported",
    )


def test_an_operation_past_half_of_its_time_needs_attention() -> None:
    changing = facts(active=[operation()], controllers=None)
    assert attention.notices(changing, NOW + datetime.timedelta(minutes=4)) == []
    (notice,) = attention.notices(changing, NOW + datetime.timedelta(minutes=6))
    assert notice.text == "deploy used 60% of its time and is running"


def test_a_controller_that_was_not_seen_needs_attention_and_an_unknown_one_does_not() -> None:
    later = NOW + datetime.timedelta(minutes=5)
    assert attention.notices(facts(), later)[0].text.startswith("its controller was last seen 5 minutes ago")
    assert attention.notices(facts(controllers=[]), NOW)[0].level == "bad"
    assert attention.notices(facts(controllers=None), later) == []


def test_a_controller_that_reports_failures_needs_attention_while_it_runs() -> None:
    (seen,) = facts().controllers or ()
    failure = ControllerFailure(task="look", code="crashed", failed_since=NOW, observed_at=NOW)
    state = ControllerState(
        process="p", started_at=NOW, number=1, reported_at=NOW, failures=[failure], failures_total=3
    )
    known = facts(controllers=[msgspec.structs.replace(seen, state=state)])
    (notice,) = attention.notices(known, NOW)
    assert (notice.level, notice.text) == ("warn", "its controller reports 3 failures: look crashed")
    silent = attention.notices(known, NOW + datetime.timedelta(minutes=5))
    assert [item.text[:26] for item in silent] == ["its controller was last se"]


def limit(name: Any, most: int) -> PolicyLimit:
    return PolicyLimit(limit=name, max=most, layer="org", rule=f"The organisation allows {most}.")


@pytest.mark.parametrize(("used", "noticed"), [(8, False), (9, True), (10, True)])
def test_a_limit_of_which_little_is_left_needs_attention(used: int, noticed: bool) -> None:
    margins = attention.Margins(limits=[limit("allocations_max", 10)], allocations=used)
    notices = attention.notices(facts(margins=margins), NOW)
    expected = f"{used} of 10 are used. The organisation allows 10."
    assert [(notice.subject, notice.text) for notice in notices] == ([("allocations", expected)] if noticed else [])


def test_limits_of_instances_and_artifacts_need_attention_too() -> None:
    storage = ArtifactStorage(bytes_used=95, artifact_count=1, limit=None, org_bytes_used=950, org_bytes_max=1000)
    limits = [limit("instances_max", 1), limit("artifact_bytes_max", 100), limit("members_per_instance_max", 1)]
    margins = attention.Margins(limits=limits, storage=storage)
    notices = attention.notices(facts(margins=margins), NOW)
    assert [notice.subject for notice in notices] == ["instances", "bytes of artifacts", "artifacts"]
    assert notices[0].text.startswith("1 of 1 are used.")
    assert notices[2].text == "the organisation uses 95% of its quota"


@pytest.mark.parametrize(("days", "noticed"), [(-1, False), (13, True), (15, False)])
def test_keys_and_roles_that_end_within_two_weeks_need_attention(days: int, noticed: bool) -> None:
    ends_at = NOW + datetime.timedelta(days=days)
    keys = [attention.KeyOfAccount("robot", "key_1", ends_at, None)]
    notices = attention.notices(facts(margins=attention.Margins(keys=keys)), NOW)
    assert [notice.subject for notice in notices] == ["robot"] * noticed
    role = Binding(role="project_admin", scope="proj_1", expires_at=ends_at)
    me = Me(actor_type="user", actor_id="user_1", name="kim", bindings=[role])
    assert [notice.subject for notice in attention.of_person(me, NOW)] == ["kim"] * noticed


@pytest.mark.parametrize(
    ("age", "rest", "noticed"), [(352, 13, True), (350, 15, False), (366, -1, False), (0, 1, False)]
)
def test_a_lasting_secret_that_ends_within_two_weeks_needs_attention(age: int, rest: int, noticed: bool) -> None:
    issued_at, ends_at = NOW - datetime.timedelta(days=age), NOW + datetime.timedelta(days=rest)
    secret = attention.SecretOfInstance("inst_1", "store", "tls", issued_at, ends_at)
    notices = attention.notices(facts(margins=attention.Margins(secrets=[secret])), NOW)
    assert [(notice.subject, notice.url) for notice in notices] == [("store", "/p/proj_1/instances/inst_1")] * noticed


@pytest.mark.parametrize(("scope", "operates"), [("platform", True), ("proj_1", False)])
def test_people_with_a_role_for_the_platform_operate_it(scope: str, operates: bool) -> None:
    me = Me(actor_type="user", actor_id="user_1", name="kim", bindings=[Binding(role="any", scope=scope)])
    assert attention.operates(me) is operates


@pytest.mark.parametrize(("days", "noticed"), [(13, 1), (15, 0)])
def test_operators_see_that_the_certificate_of_the_server_ends(days: int, noticed: int) -> None:
    ends_at = NOW + datetime.timedelta(days=days)
    assert len(attention.of_server("https://cloud.example", ends_at, NOW)) == noticed
    assert attention.of_server("http://cloud.example", None, NOW) == []


def test_a_control_that_is_not_possible_has_the_reason() -> None:
    may = dict.fromkeys(controls.permissions(MANIFEST), "")
    of_running = {item.act.verb: item.why_not for item in controls.of_instance(MANIFEST, instance(), [], may)}
    assert of_running["stop"] == ""
    assert of_running["start"] == "The instance is running; start needs it failed or stopped."
    assert (
        of_running["rollback"]
        == "There is no version to return to: the instance was not upgraded since its deploy or its last rollback."
    )
    busy = controls.of_instance(MANIFEST, instance(), [operation(kind="drain")], may)
    assert all(item.why_not for item in busy if item.act.verb != "start")
    denied = controls.of_instance(MANIFEST, instance(), [], {**may, controls.ACTS["stop"].endpoint.permission: "no"})
    assert next(item.why_not for item in denied if item.act.verb == "stop") == "no"


def test_acts_on_members_need_a_member_in_a_fitting_state() -> None:
    may = dict.fromkeys(controls.permissions(MANIFEST), "")
    rows = {item.act.verb: item.why_not for item in controls.of_members(MANIFEST, instance(), [role(ready=1)], may)}
    assert rows["drain"] == rows["add"] == ""
    rows = {item.act.verb: item.why_not for item in controls.of_members(MANIFEST, instance(), [], may)}
    assert rows["drain"] == "No member is in a state from which drain can start."


def test_a_command_line_quotes_what_people_wrote() -> None:
    body = MemberOperationRequest(kind="drain", member_ids=["mem_1"], reason="new memory; rm -rf /")
    assert commands.member(body, "lab", "research") == (
        "gpuaas member drain lab mem_1 --reason 'new memory; rm -rf /' --project research"
    )


def test_a_value_of_an_app_is_shown_as_text() -> None:
    values: tuple[Any, ...] = (True, None, [], ["a", "b"], [1, {"a": 2}], 1.5)
    assert [view.value(item) for item in values] == ["yes", "", "", "a, b", '[1, {"a": 2}]', "1.5"]


def test_an_id_is_shown_with_its_name_if_it_has_one() -> None:
    names = {"alloc_1": "gpu-1"}
    assert view.value("alloc_1", names) == "gpu-1"
    assert view.value(["alloc_1", "alloc_2"], names) == "gpu-1, alloc_2"


def test_code_in_backticks_is_shown_as_code_and_the_rest_as_text() -> None:
    assert view.prose("Run `gpuaas get`; <b>") == "Run <code>gpuaas get</code>; &lt;b&gt;"
    assert view.prose("`<script>`") == "<code>&lt;script&gt;</code>"


ID = "01m7qqmn0j0005s0t34czncg9r"


def test_a_text_has_names_or_short_ids_and_links_to_their_pages() -> None:
    session: Any = SimpleNamespace(names={f"proj_{ID}": "<b>"})

    def shown(text: str) -> str:
        return str(view.references(text, session, "a/b"))

    assert shown(f"in proj_{ID}") == f'in <span class="id" title="proj_{ID}">&lt;b&gt;</span>'
    assert shown(f"mem_{ID}") == f'<span class="id" title="mem_{ID}">mem_…zncg9r</span>'
    assert shown(f"op_{ID}.") == f'<a class="id" href="/p/a%2Fb/operations/op_{ID}" title="op_{ID}">op_…zncg9r</a>.'
    assert f'href="/p/a%2Fb/triage?correlation_id=cor_{ID}"' in shown(f"cor_{ID}")
    assert shown("<script>apps.member.changed 1.0.0") == "&lt;script&gt;apps.<wbr>member.<wbr>changed 1.0.0"


def test_a_time_in_a_text_has_its_day_and_is_exact_in_its_title() -> None:
    session: Any = SimpleNamespace(names={})
    shown = view.references("closes_at=2019-03-04T05:06:07.089Z", session, "")
    exact = "2019-03-04T05:06:07Z"
    assert shown == f'closes_at=<time datetime="{exact}" title="{exact}">4 Mar 2019 05:06 UTC</time>'
    of_app = view.references("2019-03-04T06:06:07+01:00", session, "")
    assert f'datetime="{exact}" title="{exact}">' in of_app, "apps write times with an offset"
    for no_time in ("2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "2026-01-01T25:00:00Z"):
        assert view.references(no_time, session, "") == no_time, "people can write such a text"
    now = datetime.datetime.now(datetime.UTC)
    assert f">{now.day} {now:%b %H:%M:%S} UTC</time>" in view.clock(now)


@pytest.fixture
def show_as() -> Iterator[Callable[[str], None]]:
    """Choose how times are shown."""

    def choose(way: str) -> None:
        view.shown_as.set(way)

    before = view.shown_as.set("relative")
    yield choose
    view.shown_as.reset(before)


def text_of(shown: str) -> str:
    return re.sub("<[^>]+>", "", shown)


def test_times_are_shown_as_ages_or_by_a_clock(show_as: Callable[[str], None]) -> None:
    past, start = (datetime.datetime(2019, 3, 4, 5, 6, second, 89000, tzinfo=datetime.UTC) for second in (7, 5))
    cell = "2019-03-04T05:06:07.089Z"

    def texts() -> list[str]:
        shown = [view.when(past), view.clock(past), view.since(past, start)]
        return [text_of(item) for item in (*shown, view.references(cell), view.references(f"ends at {cell}."))]

    age, clock, *_ = relative = texts()
    assert re.fullmatch(r"\d+d ago", age)
    assert relative == [age, "4 Mar 2019 05:06 UTC", "+2.000s", age, f"ends at {clock}."]
    show_as("utc")
    assert texts() == ["4 Mar 2019 05:06", clock, "4 Mar 05:06:07.089", "4 Mar 2019 05:06", f"ends at {clock}."]
    show_as("local")
    assert texts() == [clock, clock, "4 Mar 05:06:07.089 UTC", clock, f"ends at {clock}."], "without scripts"
    assert 'datetime="2019-03-04T05:06:07Z" title="2019-03-04T05:06:07Z" data-local="zone"' in view.clock(past)
    assert 'datetime="2019-03-04T05:06:07.089Z" title="2019-03-04T05:06:07Z" data-local="fine"' in view.since(
        past, start
    )


def test_a_page_is_rendered_in_the_chosen_way_and_the_next_one_is_not() -> None:
    failure = web.Failure(404, "t", "m", "f")
    assert 'data-times="utc"' in view.render("failure.html", "utc", failure=failure, session=None, project="")
    assert 'data-times="relative"' in view.render("failure.html", failure=failure, session=None, project="")


def test_a_column_with_an_age_has_the_event_as_title() -> None:
    columns = kinds.get("nodes").table.columns + kinds.get("users").table.columns
    titles = {column.title: records.column_title(column) for column in columns}
    assert (titles["SEEN"], titles["AGE"], titles["MEMORY_MB"]) == ("LAST SEEN", "CREATED", "MEMORY MB")


@pytest.mark.parametrize(("shown", "address"), [({"node_1"}, "#node_1"), (set(), "/p/p/records/nodes?q=gpu-1#node_1")])
def test_the_picture_of_the_capacity_leads_to_the_row_of_a_machine(shown: set[str], address: str) -> None:
    node = SimpleNamespace(node_id="node_1", name="gpu-1")
    assert records.row_address(kinds.get("nodes"), "p", shown, node) == address


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("MEMORY_MB", "Memory MB"),
        ("SchedulerAnswers", "Scheduler answers"),
        ("operation.ended", "Operation ended"),
        ("head_allocation", "Head allocation"),
    ],
)
def test_a_name_of_a_program_is_shown_as_words(name: str, title: str) -> None:
    assert view.heading(name) == title


def test_a_list_leaves_out_columns_without_values() -> None:
    lines = [records.Line(["gpu-1", "-", "7", ""], []), records.Line(["gpu-2", "-", "8", "broken"], [])]
    titles, shown = records.filled(["NAME", "ZONE", "CURSOR", "WHY"], lines)
    assert titles == ["NAME", "WHY"]
    assert [line.cells for line in shown] == [["gpu-1", ""], ["gpu-2", "broken"]]


def test_a_state_is_shown_with_colour_icon_and_text() -> None:
    assert view.badge("failed") == '<span class="badge bad"><span aria-hidden="true">✕</span> failed</span>'
    assert "&lt;b&gt;" in view.badge("<b>")


def test_work_that_runs_is_not_shown_as_done() -> None:
    assert view.work("running") == '<span class="badge busy"><span aria-hidden="true">◔</span> running</span>'
    assert view.work("succeeded") == view.badge("succeeded")
    assert 'class="badge good"' in view.badge("running"), "an instance that runs is well"


def test_a_new_session_ends_expired_ones_and_the_oldest_own_ones_before_those_of_others() -> None:
    later, before = NOW + datetime.timedelta(hours=1), NOW - datetime.timedelta(seconds=1)
    own = {f"ada-{number}": ("ada", later) for number in range(sessions.PER_PERSON_MAX)}
    known = {"bob": ("bob", later), "old": ("bob", before), **own}
    assert sessions.surplus(known, "ada", NOW) == {"old", "ada-0"}
    assert sessions.surplus(known, "bob", NOW) == {"old"}
    full = {str(number): (f"person-{number}", later) for number in range(sessions.SESSIONS_MAX)}
    assert sessions.surplus(full, "ada", NOW) == {"0"}
    assert sessions.surplus(full, "person-7", NOW) == {"0"}


@pytest.mark.parametrize(
    "declared",
    [
        True,
        {"type": "array", "items": True, "default": 5},
        {"type": "array", "items": {"type": "string"}, "default": 5},
        {"type": "array", "items": {"type": "string", "x-gpuaas-picker": "allocation"}, "default": 5},
        {"type": ["string", "null"], "enum": [None, {"a": 1}, "b"], "examples": []},
        {"type": "integer", "default": "<b>", "minimum": 1},
    ],
)
def test_every_schema_that_the_platform_accepts_becomes_a_form(declared: Any) -> None:
    schema = {"type": "object", "properties": {'"><script>': declared}, "required": ["unknown"]}
    assert len(forms.fields(schema, {}, {}, {})) == 1
    assert forms.read(schema, web.Form({}))[1] == {}


def test_a_choice_of_numbers_is_sent_as_a_number() -> None:
    schema = {"type": "object", "properties": {"size": {"enum": [1, 2.5, "big"]}}}
    for text, value in (("1", 1), ("2.5", 2.5), ("big", "big"), ("other", "other")):
        assert forms.read(schema, web.Form({"in.size": [text]})) == ({"size": value}, {})


def test_a_topology_shows_what_it_needs() -> None:
    (split,) = needs.topologies(MANIFEST)
    assert [(part.role, part.least, part.most, part.count) for part in split.parts] == [
        ("head", 1, 1, "1 machine"),
        ("worker", 0, 9, "0 to 9 machines"),
    ]
    assert split.means == "Several machines work as one instance: head and worker.", "apps can put roles together"
    assert [needed for _, needed in split.parts[1].boxes] == [False], "a machine that can be left out"


def test_a_topology_of_one_machine_is_called_so() -> None:
    alone = msgspec.structs.replace(MANIFEST, topologies={"one": {"head": "head_allocation"}})
    (topology,) = needs.topologies(alone)
    assert topology.means == "Everything runs on one machine. If the machine fails, the instance fails."


def test_roles_that_share_a_machine_need_one_machine_together() -> None:
    fields = {"head": "head_allocation", "guide": "head_allocation", "worker": "worker_allocations"}
    (topology,) = needs.topologies(msgspec.structs.replace(MANIFEST, topologies={"small": fields}))
    assert topology.means == (
        "One machine is head and guide. If it fails, the instance fails. On further machines: worker."
    )


def test_details_of_members_follow_the_manifest_and_then_their_names() -> None:
    declared = {"memory": DetailSpec(title="Memory", unit="MiB"), "absent": DetailSpec(title="Absent")}
    row = member(1, adapter_detail={"time_zone": "a", "cpus": 4, "memory": 512})
    (detail,) = details.of_members([row, member(2)], declared)
    assert detail.rows == [("Memory", 512, "MiB"), ("cpus", 4, ""), ("time zone", "a", "")]


def test_versions_stand_side_by_side_by_role() -> None:
    rows = [
        member(1, component_key="head", node_name="n1", observed_version="2"),
        member(2, component_key="worker", node_name="n2", observed_version="1"),
        member(3, component_key="worker", node_name="n3", observed_version="2"),
    ]
    table = details.versions(rows)
    assert table == details.Versions(["1", "2"], [("head", [[], ["n1"]]), ("worker", [["n2"], ["n3"]])])
    assert details.versions([member(1, observed_version="")]) is None


def test_pages_of_a_person_share_a_reading_for_some_seconds() -> None:
    first = action_table.key("inst_1", "queue.read", NOW)
    assert action_table.key("inst_1", "queue.read", NOW + datetime.timedelta(seconds=5)) == first
    assert action_table.key("inst_1", "queue.read", NOW + datetime.timedelta(seconds=15)) != first
    assert action_table.key("inst_2", "queue.read", NOW) != first


def test_a_name_that_begins_with_a_hyphen_does_not_become_an_option_of_the_copied_command() -> None:
    grant, retire, trust = (changes.CHANGES[name] for name in ("grant-role", "retire-node", "trust-key"))
    words, _ = changes.line(grant, "", {"user_id": "--platform", "role": "viewer"}, "", "p")
    assert words == ["binding", "grant", "--project", "p", "--", "--platform", "viewer"]
    assert changes.line(retire, "-o", {}, "", "p")[0][-2:] == ["--", "-o"]
    assert changes.line(trust, "-o", {}, "", "p")[0][-3:] == ["--", "-o", "-"]
    assert "--" not in changes.line(retire, "gpu-1", {}, "", "p")[0]


@pytest.mark.parametrize("name", changes.CHANGES)
def test_each_change_declares_fields_that_its_request_has(name: str) -> None:
    change = changes.CHANGES[name]
    fields = set(changes.schema(change.endpoint.request)["properties"])
    named = {*change.arguments.split(), *change.flags, *change.fixed, *change.hidden.split(), *change.choices}
    assert named <= fields
    kind = next((item for item in kinds.KINDS if item.plural == change.of), None)
    assert not change.of or kind is not None
    if kind is not None and change.target:
        attributes = {change.key or change.target, *change.states.split()[:1]}
        assert attributes <= set(kind.struct.__struct_fields__)


def test_an_open_request_for_an_app_is_a_notice_for_those_who_decide() -> None:
    asked = EntitlementRequest(
        project_id="p", app_slug="tiny", state="open", reason="a course", requested_by="u", requested_at=NOW
    )
    facts = attention.Facts("p", [], {}, [], [], requests=[asked])
    (notice,) = attention.notices(facts, NOW)
    assert (notice.subject, notice.action, notice.url) == ("tiny", "Decide", "/p/p/catalog")
    assert "a course" in notice.text


@pytest.mark.parametrize(("source", "shows_work"), [("queue", True), ("", False)])
def test_a_check_shows_first_that_the_request_would_be_refused(source: str, shows_work: bool) -> None:
    preview = Preview(answered=True, source=source, refusal="2 jobs run <b>")
    operation = SimpleNamespace(kind="stop", instance_name="lab", targets=[], preview=preview, to_version="")
    macros: Any = view.TEMPLATES.get_template("macros.html").module
    page = str(macros.plan(operation, {}))
    assert "This would be refused: 2 jobs run &lt;b&gt;" in page
    assert ("No running work" in page) == shows_work


@pytest.mark.parametrize(("kind", "who"), [("add", "."), ("drain", " (mem_1).")])
def test_a_check_of_an_add_shows_no_id_of_a_member_that_does_not_exist(kind: str, who: str) -> None:
    operation = SimpleNamespace(
        kind=kind,
        instance_name="lab",
        component_key="worker",
        targets=[SimpleNamespace(member_id="mem_1")],
        preview=None,
        deadline_at=NOW,
    )
    macros: Any = view.TEMPLATES.get_template("macros.html").module
    assert f"1 worker {'to' if kind == 'add' else 'of'} lab: 1 member{who}</p>" in str(macros.plan(operation, {}))


def test_only_the_person_at_the_console_is_shown_as_you() -> None:
    names = {"sa_1": "you (service account)", "user_2": "you", "user_3": "ada", "sa_2": "ada (service account)"}
    session = SimpleNamespace(me=SimpleNamespace(actor_id="user_1"), names=names)
    shown = {actor: str(view.who(actor, session)) for actor in ("user:user_1", *names, "service_account:sa_2", "You")}
    assert shown == {
        "user:user_1": '<span title="user_1">you</span>',
        "sa_1": '<span title="sa_1">you (service account)</span>',
        "user_2": '<span title="user_2">you (another user)</span>',
        "user_3": '<span title="user_3">ada</span>',
        "sa_2": '<span title="sa_2">ada (service account)</span>',
        "service_account:sa_2": '<span title="sa_2">ada (service account)</span>',
        "You": '<span title="You">You (another user)</span>',
    }
    assert "&lt;b&gt;" in view.who("<b>", session)


async def test_programs_have_names_also_those_of_the_organisation() -> None:
    accounts = {
        SERVICE_ACCOUNT_LIST.name: [SimpleNamespace(service_account_id="sa_1", name="ada")],
        ACCEPTED_LIST.name: [SimpleNamespace(service_account_id="sa_2", name="fleet")],
        PROJECT_BINDING_LIST.name: [SimpleNamespace(user_id="user_1", user_name="ada")],
    }

    async def first(_: int, endpoint: AnyEndpoint, **__: Any) -> tuple[list[Any], bool]:
        return accounts[endpoint.name], False

    visit = web.Visit.__new__(web.Visit)
    me = SimpleNamespace(actor_id="user_9", name="eve")
    visit.project, visit.session = "proj_1", SimpleNamespace(me=me, names={}, remembered={})  # type: ignore[assignment]
    visit.calls = lambda project="": SimpleNamespace(first=first)  # type: ignore[method-assign,return-value,assignment]
    await visit.learn_names()
    assert visit.session.names == {
        "sa_1": "ada (service account)",
        "sa_2": "fleet (service account)",
        "user_1": "ada",
        "user_9": "eve",
    }


async def test_a_page_about_an_error_of_the_console_has_the_headers_of_every_page() -> None:
    broken = app.make_app(settings.Settings("http://127.0.0.1:1"))
    del broken.state.sessions
    transport = httpx.ASGITransport(app=broken, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
        answer = await browser.get("/")
    assert answer.status_code == 500
    assert "The console failed" in answer.text
    assert {name: answer.headers[name] for name in app.SECURITY} == app.SECURITY
    assert answer.headers["cache-control"] == "no-store"


def test_an_action_of_an_app_that_does_not_run_has_the_reason_why_it_is_not_possible() -> None:
    may = dict.fromkeys(controls.permissions(MANIFEST), "")
    stopped = controls.of_actions(MANIFEST, instance(status="stopped"), may)
    assert {why for _, why in stopped} == {"The instance is stopped; actions need it running."}
    assert {why for _, why in controls.of_actions(MANIFEST, instance(status="degraded"), may)} == {""}


def test_a_member_that_cannot_be_chosen_has_the_reason() -> None:
    def why(role: str, status: str) -> str:
        member = SimpleNamespace(component_key=role, status=status)
        return controls.why_not_member(MANIFEST, member, "drain")  # type: ignore[arg-type]

    assert why("head", "ready") == "The app offers no drain for head."
    assert why("worker", "failed") == "drain needs one of: ready, degraded, draining, drained."
    assert why("worker", "ready") == ""


def test_a_request_is_copied_as_a_command_as_curl_and_as_yaml() -> None:
    client = SimpleNamespace(server="http://127.0.0.1")
    visit: Any = SimpleNamespace(project="proj_1", session=SimpleNamespace(client=client))
    body = MemberOperationRequest(kind="drain", member_ids=["mem_1"], reason="a: b")
    same = commands.same(visit, "gpuaas drain", MEMBER_OPERATION_CREATE, body, instance_id="lab")
    assert yaml.safe_load(same.yaml) == msgspec.to_builtins(body)
    assert same.curl.startswith("curl -X POST http://127.0.0.1/")
    assert commands.same(visit, "gpuaas", INSTANCE_GET, None, instance_id="lab").yaml == ""


async def test_home_shows_a_project_that_is_not_among_the_first_ones() -> None:
    projects = [SimpleNamespace(project_id=f"proj_{number}", name=f"p{number}") for number in range(30)]

    async def first(limit: int, _: AnyEndpoint, *, query: dict[str, str] | None) -> tuple[list[Any], bool]:
        wanted = (query or {}).get("name")
        rows = [item for item in projects if wanted in (None, item.name, item.project_id)]
        return rows[:limit], len(rows) > limit

    def visit(wanted: str) -> Any:
        return SimpleNamespace(
            calls=lambda: SimpleNamespace(first=first), query=web.Form({"project": [wanted]} if wanted else {})
        )

    offered, more, chosen = await home._projects(visit(""))
    assert (len(offered), more, chosen == offered) == (home.PROJECTS_MAX, True, True)
    for wanted in ("p3", "p29", "proj_29"):
        offered, more, chosen = await home._projects(visit(wanted))
        assert [item.name for item in chosen] == ["p" + wanted.strip("proj_")]
        assert (chosen[0] in offered, more) == (True, True)
    assert (await home._projects(visit("nothing")))[2] == []


def test_usage_of_all_days_is_shown_for_any_number_of_meters() -> None:
    rows = [
        SimpleNamespace(day=f"{day}", meter=f"m{number}", quantity="1", unit="h")
        for day in range(30)
        for number in range(3)
    ]
    macros: Any = view.TEMPLATES.get_template("macros.html").module
    assert str(macros.usage(rows)).count("<tr>") == 1 + len(rows)
