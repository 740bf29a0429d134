"""The life of an instance and the exits of failed operations, with a real server and a real controller process."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Cli = Any
Until = Callable[..., None]

MANIFEST = Path(__file__).with_name("demo_manifest.yaml")


@pytest.fixture(scope="module")
def lively(cloud: Cli) -> Iterator[Cli]:
    """An instance on gpu-1 and gpu-2 that reports a condition."""
    cloud(*_deploy("lively", "gpu-1", "gpu-1,gpu-2", "work"))
    yield cloud
    cloud("decommission", "lively", "--yes")


@pytest.fixture
def broken(cloud: Cli) -> Iterator[str]:
    """A deploy on gpu-3 and gpu-4 that failed once and works when it is tried again; its operation id."""
    ended = cloud(*_deploy("broken", "gpu-3", "gpu-4", "fail_once"), "-o", "json", expect=1)
    yield str(ended.json["operation_id"])
    if "broken" in cloud("get", "instances", "-o", "name").out.split():
        cloud("decommission", "broken", "--yes")


def test_an_app_is_stopped_started_and_restarted(lively: Cli) -> None:
    assert "stop lively succeeded in " in lively("stop", "lively", "--reason", "maintenance").out
    assert _status(lively) == "stopped"
    assert "gpuaas start lively" in lively("describe", "instance", "lively").out
    lively("start", "lively")
    assert "restart lively succeeded in " in lively("restart", "lively").out
    assert _status(lively) == "running"


def test_describe_shows_the_operations_of_an_instance_with_the_newest_last(lively: Cli) -> None:
    lively("restart", "lively")
    read = lively("describe", "instance", "lively", "-o", "json").json["operations"]
    assert [operation["kind"] for operation in read if operation["kind"] != "preview"][-1] == "restart"
    assert read == sorted(read, key=lambda operation: operation["created_at"])


@pytest.mark.parametrize("command", [("decommission", "lively"), ("secret", "revoke", "lively", "join-key")])
def test_what_cannot_be_undone_needs_yes_without_a_terminal(lively: Cli, command: tuple[str, ...]) -> None:
    ended = lively(*command, expect=64)
    assert "must be confirmed, but there is no terminal" in ended.err
    assert f"gpuaas {' '.join(command)}" in ended.err
    assert "--yes" in ended.err
    assert _status(lively) == "running"


def test_an_upgrade_to_a_version_that_does_not_exist_names_those_that_do(lively: Cli) -> None:
    ended = lively("upgrade", "lively", "--version", "9.9.9", expect=4)
    assert "demo has no version 9.9.9 that this project may deploy; it has 1.0.0" in ended.err
    assert "entitle" not in ended.err


def test_what_the_state_forbids_is_a_conflict(lively: Cli) -> None:
    ended = lively("start", "lively", expect=5)
    assert "The instance is running; start needs it failed or stopped" in ended.err


def test_an_upgrade_takes_the_newest_version_and_can_be_rolled_back(lively: Cli) -> None:
    lively("app", "register", "-", given=MANIFEST.read_text().replace("version: 1.0.0", "version: 1.1.0"))
    lively("app", "publish", "demo", "1.1.0", "--channel", "stable,canary")
    would = lively("upgrade", "lively", "--dry-run")
    assert would.out.startswith("would upgrade lively to 1.1.0: 3 members, from 1.0.0\n")
    lively("upgrade", "lively", "--set", "replicas=2")
    upgraded = lively("get", "instance", "lively", "-o", "json").json
    assert (upgraded["app_version"], upgraded["previous_version"]) == ("1.1.0", "1.0.0")
    assert upgraded["inputs"]["replicas"] == 2
    assert "App          demo 1.1.0 (before: 1.0.0)" in lively("describe", "instance", "lively").out
    lively("rollback", "lively", "--reason", "trying it")
    assert lively("get", "instance", "lively", "-o", "json").json["app_version"] == "1.0.0"
    lively("app", "withdraw", "demo", "1.1.0", "--reason", "the other tests deploy 1.0.0")


def test_inputs_of_a_running_instance_are_changed_and_changed_back(lively: Cli) -> None:
    would = lively("reconfigure", "lively", "--set", "replicas=3", "--dry-run").out
    assert would.startswith("would reconfigure lively: replicas: default → 3\n")
    assert "changes replicas: None → 3 (the head restarts)" in would
    assert "reconfigure lively succeeded in " in lively("reconfigure", "lively", "--set", "replicas=3").out
    assert lively("get", "instance", "lively", "-o", "json").json["inputs"]["replicas"] == 3
    lively("reconfigure", "lively", "--previous", "--reason", "trying it")
    assert "replicas" not in lively("get", "instance", "lively", "-o", "json").json["inputs"]
    lively("reconfigure", "lively", "--set", "replicas=4")
    lively("reconfigure", "lively", "--unset", "replicas")
    assert "replicas" not in lively("get", "instance", "lively", "-o", "json").json["inputs"]


@pytest.mark.parametrize(
    ("options", "expect", "message"),
    [
        ((), 64, "Name inputs with --set or --unset, or add --previous"),
        (("--previous", "--set", "replicas=1"), 64, "Name inputs with --set or --unset, or add --previous"),
        (("--set", "behaviour=fail"), 1, "does not allow a change of behaviour after the deploy"),
        (("--set", "behaviour=fail"), 1, "These inputs can be changed: replicas"),
        (("--set", "replica=1"), 64, "has no input 'replica'"),
        (("--unset", "replicas"), 5, "Nothing would change"),
    ],
)
def test_a_reconfigure_that_is_not_possible_is_explained(
    lively: Cli, options: tuple[str, ...], expect: int, message: str
) -> None:
    assert message in lively("reconfigure", "lively", *options, expect=expect).err
    assert _status(lively) == "running"


def test_a_dry_run_shows_what_would_be_interrupted(lively: Cli) -> None:
    would = lively("stop", "lively", "--dry-run").out
    assert "1 running piece of work, 24 GPU-hours at stake (seen by demo status" in would
    assert "job-7  gpu-" in would
    assert "cannot be undone: the scratch files of job-7" in would
    assert _status(lively) == "running"


def test_a_dry_run_without_a_preview_does_not_claim_to_be_safe(lively: Cli) -> None:
    would = lively("member", "remove", "lively", "gpu-2", "--dry-run").out
    assert "it is unknown which work this would interrupt, so do not assume that it is safe" in would
    assert "demo has no preview of remove" in would


def test_a_dry_run_is_whole_as_json(lively: Cli) -> None:
    planned = lively("member", "drain", "lively", "gpu-2", "--dry-run", "-o", "json").json
    assert planned["preview"]["running_work"][0]["owner"] == "ada"


def test_force_needs_a_reason_before_anything_is_sent(lively: Cli) -> None:
    ended = lively("member", "remove", "lively", "gpu-2", "--force", expect=64)
    assert ended.err.splitlines()[-1] == '  next: gpuaas member remove lively gpu-2 --force --reason "WHY"'


def test_several_members_change_in_one_operation(lively: Cli) -> None:
    ended = lively("member", "drain", "lively", "gpu-1,gpu-2", "--stop-after", "1")
    assert "drain 2 workers of lively succeeded" in ended.out
    assert "resume 2 workers of lively succeeded" in lively("member", "resume", "lively", "gpu-1", "gpu-2").out


def test_a_replaced_member_keeps_its_id(lively: Cli) -> None:
    before = _member_on(lively, "gpu-2")
    lively("member", "replace", "lively", "gpu-2", "--with", "gpu-6")
    assert _member_on(lively, "gpu-6") == before
    lively("member", "replace", "lively", "gpu-6", "--with", "gpu-2")


def test_as_many_allocations_as_members_are_needed(lively: Cli) -> None:
    ended = lively("member", "replace", "lively", "gpu-1", "gpu-2", "--with", "gpu-6", expect=64)
    assert "2 members need as many allocations, not 1" in ended.err


def test_a_hold_keeps_a_member_until_its_owner_lifts_it(lively: Cli) -> None:
    words = ("--name", "bad-fan", "--kind", "no-removal", "--for", "3d", "--reason", "technician on Monday")
    lively("hold", "place", "lively", "gpu-2", *words)
    ended = lively("member", "remove", "lively", "gpu-2", expect=5)
    assert "code=member_held" in ended.err
    assert "technician on Monday" in lively("describe", "instance", "lively").out
    assert "bad-fan" in lively("hold", "list", "lively").out
    lively("hold", "lift", "lively", "bad-fan")
    assert lively("hold", "list", "lively").err == "Nothing found.\n"
    assert "lifted" in lively("hold", "list", "lively", "--all").out


def test_an_action_brings_its_result(lively: Cli) -> None:
    assert "demo.greeting.send" in lively("action", "list", "lively").out
    ended = lively("action", "run", "lively", "greet", "--input", "name=ada", "--input", "times=2")
    assert ended.out.splitlines()[-2:] == ["greeting: hello ada", "times: 2"]
    ended = lively("action", "run", "lively", "greet", "--inputs-file", "-", "-o", "json", given="name: bob\n")
    assert ended.json["result"] == {"greeting": "hello bob", "times": 1}


def test_actions_are_listed_with_their_inputs_and_described_one_by_one(lively: Cli) -> None:
    header, *lines = lively("action", "list", "lively").out.splitlines()
    assert header.split() == ["ACTION", "PERMISSION", "INPUTS", "MEANING"]
    assert [line.split()[2] for line in lines] == ["name*,times", "names"]
    page = lively("action", "describe", "lively", "greet").out
    assert page.splitlines() == [
        "greet: Greet a person",
        "Permission  demo.greeting.send",
        "Deadline    300 s",
        "Runs        beside other operations",
        "",
        "INPUT  REQUIRED  DEFAULT  TYPE     VALUES  MEANING",
        "name   yes       -        string   -       -",
        "times  no        -        integer  -       -",
        "",
        "Run it: gpuaas action run lively greet --input name=VALUE",
    ]
    assert lively("action", "describe", "lively", "greet", "-o", "json").json["name"] == "greet"
    assert "it has greet, guests.list" in lively("action", "describe", "lively", "dance", expect=4).err


def test_a_dry_run_of_an_action_states_that_the_app_was_not_asked(lively: Cli) -> None:
    checked = lively("action", "run", "lively", "greet", "--input", "name=ada", "--dry-run")
    assert checked.out.splitlines()[0] == "would run action greet of lively: Greet a person"
    assert "that its inputs fit its form" in checked.out
    assert "The app was not asked" in checked.out
    assert checked.err == "Nothing was changed.\n"


def test_the_list_of_operations_names_the_action(lively: Cli) -> None:
    lively("action", "run", "lively", "greet", "--input", "name=ada")
    assert " action/greet " in lively("get", "operations", "--instance", "lively").out
    rows = lively("get", "operations", "--instance", "lively", "-o", "json").json["items"]
    assert ("action", "greet") in {(row["kind"], row["action"]) for row in rows}


def test_the_result_of_an_action_with_columns_is_a_table_and_its_data_are_rows(lively: Cli) -> None:
    guests = ("action", "run", "lively", "guests.list", "--input")
    table = [
        "GUEST  SEAT  LONGEST_STAY[H]  CAME",
        "ada    0     -                yes",
        "bob    1     1.5              no",
    ]
    ended = lively(*guests, "names=ada,bob")
    assert ended.out.splitlines()[-4:] == [*table, "2 guests"]
    ended = lively(*guests, "names=ada", "-o", "json")
    assert ended.json["result"]["rows"] == [{"guest": "ada", "seat": 0, "stay": None, "came": True}]
    page = lively("describe", "operation", ended.json["operation_id"]).out
    assert "GUEST  SEAT  STAY  CAME" in page, "a page without the manifest has the names of the columns"
    assert lively(*guests, "names=").out.splitlines()[-2:] == ["No rows.", "0 guests"]


def test_a_result_that_does_not_fit_its_columns_fails_the_action(lively: Cli) -> None:
    ended = lively("action", "run", "lively", "guests.list", "--input", "names=mallory", expect=1)
    assert "The result of guests.list does not fit the columns in the manifest: row 1: seat is not" in ended.err


def test_an_action_is_checked_before_it_is_asked_for(lively: Cli) -> None:
    assert (
        "Demo has no action 'dance'; it has greet, guests.list"
        in lively("action", "run", "lively", "dance", expect=4).err
    )
    ended = lively("action", "run", "lively", "greet", "--input", "nam=ada", expect=64)
    assert "greet has no input 'nam'; did you mean name?" in ended.err
    assert "code=validation_error" in lively("action", "run", "lively", "greet", expect=1).err


def test_an_instance_shows_conditions_controllers_roles_and_versions(lively: Cli, until: Until) -> None:
    until(lambda: "Greets" in lively("describe", "instance", "lively").out, "the controller has looked")
    page = lively("describe", "instance", "lively").out
    for known in ("Conditions", "it does", "Controllers", "last seen ", "Roles", "closed", "1.0.0"):
        assert known in page
    titles, row = lively("get", "controllers").out.splitlines()[:2]
    assert titles.split() == ["CONTROLLER", "APP", "VERSION", "ACTOR", "LAST_SEEN", "FAILING"]
    assert row[titles.index("LAST_SEEN") : titles.index("FAILING")].strip()[-1] in "smhd"


def test_a_controller_shows_what_fails_in_it_and_its_log(lively: Cli, until: Until) -> None:
    until(lambda: "none" in lively("get", "controllers").out, "the controller has reported itself")
    holder = lively("get", "controllers", "-o", "name").out.split()[0]
    page = lively("describe", "controller", holder).out
    for known in ("Started", "Reported", "Failures", "Log, the newest lines"):
        assert known in page
    ended = lively("describe", "controller", "nothing", expect=4)
    assert "next: gpuaas get controllers" in ended.err


def test_secrets_are_listed_without_their_values(lively: Cli) -> None:
    ended = lively("get", "secrets", "lively")
    assert "role_join" in ended.out
    assert "join-key" in ended.out
    assert "next: gpuaas get secrets INSTANCE" in lively("get", "secrets", expect=64).err


def test_a_failed_operation_lists_its_exits(broken: str, cloud: Cli) -> None:
    report = cloud("op", "follow", broken, expect=1).err
    page = cloud("describe", "operation", broken).out
    for way in ("retry", "compensate", "tombstone", "force-complete"):
        assert f"or:   gpuaas op {way} {broken} --reason REASON" in report
        assert f"gpuaas op {way} {broken} --reason REASON" in page


def test_a_retry_is_followed_to_its_end(broken: str, cloud: Cli) -> None:
    ended = cloud("op", "retry", broken, "--reason", "licence renewed")
    assert ended.out.splitlines()[-1].startswith("deploy broken succeeded in ")
    ended = cloud("op", "retry", broken, "--reason", "again", expect=5)
    assert "code=exit_unavailable" in ended.err


def test_compensated_is_the_good_end_of_compensate(broken: str, cloud: Cli) -> None:
    assert "deploy broken cancelled after" in cloud("op", "compensate", broken, "--reason", "not needed").out


def test_a_tombstone_gives_up_what_failed(broken: str, cloud: Cli) -> None:
    cloud("op", "tombstone", broken, "--member", "gpu-4", "--reason", "burnt down")
    members = cloud("get", "members", "--instance", "broken", "-a", "-o", "json").json["items"]
    assert {member["node_name"] for member in members if member["status"] == "tombstoned"} == {"gpu-4"}


def test_an_operation_that_no_controller_can_finish_is_declared_done(broken: str, cloud: Cli) -> None:
    ended = cloud("op", "force-complete", broken, "--reason", "checked by hand", "-o", "json")
    assert (ended.json["status"], ended.json["exits_taken"][0]["name"]) == ("succeeded", "force_complete")


def test_an_exit_needs_a_reason(broken: str, cloud: Cli) -> None:
    assert "--reason" in cloud("op", "cancel", broken, expect=64).err


def test_a_cancelled_deploy_leaves_nothing_behind(cloud: Cli) -> None:
    operation_id = cloud(*_deploy("dropped", "gpu-3", "gpu-4", "hang"), "--detach").out.strip()
    assert "deploy dropped cancelled after" in cloud("op", "cancel", operation_id, "--reason", "wrong machine").out
    members = cloud("get", "members", "--instance", "dropped", "-a", "-o", "json").json["items"]
    assert {member["status"] for member in members} == {"removed"}
    cloud("decommission", "dropped", "--yes")


def test_an_open_breaker_shows_how_to_close_it(cloud: Cli) -> None:
    cloud(*_deploy("fragile", "gpu-3", "gpu-3", "fail_add"))
    cloud("member", "add", "fragile", "--role", "worker", "--allocation", "gpu-4", expect=1)
    again = cloud("member", "add", "fragile", "--role", "worker", "--allocation", "gpu-6", expect=5)
    assert "code=circuit_open" in again.err
    assert "gpuaas role reset-breaker fragile worker --reason REASON" in cloud("describe", "instance", "fragile").out
    assert "open until" in cloud("get", "roles", "fragile").out
    cloud("role", "reset-breaker", "fragile", "worker", "--reason", "image repaired")
    assert "open until" not in cloud("get", "roles", "fragile").out
    cloud("decommission", "fragile", "--yes")


def test_an_instance_is_handed_to_another_controller(lively: Cli) -> None:
    account = lively("get", "service-account", "demo-controller", "-o", "json").json["service_account_id"]
    given = lively("operator", "set", "lively", "demo-controller", "--reason", "it is the one", "-o", "json").json
    assert given["operator_service_account_id"] == account
    rows = lively("audit", "list", "--action", "apps.instance.set_operator", "-o", "json").json["items"]
    assert rows[-1]["details"]["reason"] == "it is the one"
    freed = lively("operator", "set", "lively", "--any", "--reason", "any controller", "-o", "json").json
    assert freed["operator_service_account_id"] == ""
    assert "Name a service account, or add --any" in lively("operator", "set", "lively", "--reason", "x", expect=64).err
    unknown = lively("operator", "set", "lively", "absent", "--reason", "x", expect=1)
    assert "There is no active service account absent" in unknown.err


def test_a_service_account_shows_its_apps_and_is_bound_to_others(lively: Cli, tmp_path: Path) -> None:
    lively("service-account", "create", "pipeline", "--key-file", str(tmp_path / "key.json"))
    refused = lively("operator", "set", "lively", "pipeline", "--reason", "x", expect=1)
    assert "gpuaas service-account bind pipeline --app demo" in refused.err
    assert "it can claim no operation" in lively("service-account", "get", "pipeline").out
    bound = lively("service-account", "bind", "pipeline", "--app", "demo", "--permission", "apps.operation.execute")
    assert "demo" in bound.out
    shown = lively("service-account", "get", "pipeline", "-o", "json").json
    assert (shown["apps"], shown["permissions"]) == (["demo"], ["apps.operation.execute"])
    lively("operator", "set", "lively", "pipeline", "--reason", "x", "--dry-run")
    lively("service-account", "delete", "pipeline")


def test_a_project_accepts_and_dismisses_an_account_of_its_organisation(lively: Cli, tmp_path: Path) -> None:
    org_id = lively("get", "orgs", "-o", "json").json["items"][0]["org_id"]
    file = tmp_path / "fleet.json"
    lively("service-account", "create", "fleet", "--app", "demo", "--org", org_id, "--key-file", str(file))
    assert "fleet" not in lively("service-account", "list", "-o", "name").out.split()
    listed = lively("service-account", "list", "--org", org_id, "-o", "json").json["items"]
    assert [(account["name"], account["project_id"], account["apps"]) for account in listed] == [
        ("fleet", "", ["demo"])
    ]
    absent = lively("service-account", "accept", "ghost", expect=4)
    assert "The organisation has no service account" in absent.err
    assert "fleet" in lively("service-account", "accept", "fleet").out
    assert "fleet" in lively("service-account", "accepted").out
    dismissed = lively("service-account", "dismiss", "fleet", "-o", "json").json
    assert (dismissed["name"], dismissed["app_slug"]) == ("fleet", "demo")
    assert lively("service-account", "accepted", "-o", "json").json == {"items": []}
    assert set(json.loads(file.read_text())) == {"key_id", "client_secret"}
    lively("service-account", "delete", "fleet", "--org", org_id)


def test_accepting_an_account_names_the_project_and_the_organisation_and_shows_the_permissions(lively: Cli) -> None:
    org_id = lively("get", "orgs", "-o", "json").json["items"][0]["org_id"]
    project_id = lively("get", "project", "research", "-o", "json").json["project_id"]
    lively("service-account", "create", "named", "--app", "demo", "--org", org_id)
    try:
        for verb in ("accept", "dismiss"):
            shown = lively("service-account", verb, "named").out
            assert all(word in shown for word in (project_id, org_id, "demo", "apps.operation.execute")), shown
    finally:
        lively("service-account", "delete", "named", "--org", org_id)


def test_accepting_a_disabled_account_prints_a_warning(lively: Cli) -> None:
    org_id = lively("get", "orgs", "-o", "json").json["items"][0]["org_id"]
    lively("service-account", "create", "asleep", "--app", "demo", "--org", org_id)
    try:
        assert "warning" not in lively("service-account", "accept", "asleep", "--dry-run").err
        lively("service-account", "disable", "asleep", "--org", org_id)
        warned = lively("service-account", "accept", "asleep").err
        assert "warning: asleep is disabled" in warned
        assert f"gpuaas service-account enable asleep --org {org_id}" in warned
        assert "disabled" in lively("service-account", "accepted").out
    finally:
        lively("service-account", "delete", "asleep", "--org", org_id)


def test_what_is_not_found_is_followed_by_the_servers_advice_and_the_list_of_the_level(lively: Cli) -> None:
    absent = lively("service-account", "accept", "ghost", expect=4).err
    assert "A tenant admin lists them: gpuaas service-account list --org ORG" in absent
    assert "next: gpuaas service-account accepted" in lively("service-account", "dismiss", "ghost", expect=4).err
    absent = lively("service-account", "get", "ghost", "--org", "acme", expect=4).err
    assert "There is no service account ghost in organisation acme" in absent
    assert "next: gpuaas service-account list --org acme" in absent


def test_stopping_new_deploys_warns_about_instances_that_may_have_no_controller(lively: Cli) -> None:
    warned = lively("app", "entitle", "demo", "--off", "--dry-run").err
    live = len(lively("get", "instances", "-o", "name").out.split())
    assert f"warning: {live} live instance" in warned
    assert "gpuaas service-account create NAME --app demo" in warned
    assert "warning" not in lively("app", "entitle", "demo", "--dry-run").err


def test_a_secret_is_listed_and_destroyed_but_never_shown(lively: Cli) -> None:
    (issued,) = lively("secret", "list", "lively", "-o", "json").json["items"]
    assert "value" not in issued
    lively("secret", "revoke", "lively", "join-key", "--dry-run")
    ended = lively("secret", "revoke", "lively", "join-key", "--yes", "-o", "json").json
    assert (ended["secret_id"], ended["state"]) == (issued["secret_id"], "revoked")
    assert lively("secret", "list", "lively").out == ""
    assert "revoked" in lively("secret", "list", "lively", "--all").out
    assert "next: gpuaas get secrets lively" in lively("secret", "revoke", "lively", "join-key", "--yes", expect=4).err


def test_a_version_is_shown_with_its_manifest(lively: Cli) -> None:
    assert "slug: demo" in lively("app", "show", "demo", "1.0.0").out
    assert lively("app", "show", "demo", "1.0.0", "--platform", "-o", "json").json["manifest"]["slug"] == "demo"
    lively("app", "show", "demo", "9.9.9", expect=4)


def test_events_are_followed_from_a_cursor(lively: Cli) -> None:
    newest = lively("get", "events", "--instance", "lively", "-o", "json").json["items"][-1]
    with _following(lively, "--instance", "lively", "--after", str(newest["cursor"] - 1)) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["event_id"] == newest["event_id"]
        lively("restart", "lively")
        assert json.loads(following.stdout.readline())["app_instance_id"] == newest["app_instance_id"]
        following.send_signal(signal.SIGINT)
        following.communicate()  # a pipe that is closed while it still writes would be another end
    assert following.returncode == 130


def test_events_of_the_platform_are_followed_too(lively: Cli) -> None:
    with _following(lively, "--platform", "--after", "0") as following:
        assert following.stdout is not None
        event = json.loads(following.stdout.readline())
        following.send_signal(signal.SIGINT)
        following.communicate()
    assert (event["org_id"], event["project_id"]) == ("", "")


def test_only_a_project_has_instances_to_follow(lively: Cli) -> None:
    refused = lively("events", "--platform", "--instance", "lively", expect=64)
    assert "--instance is for a project's events" in refused.err


def _following(cli: Cli, *words: str) -> "subprocess.Popen[str]":
    program = [str(Path(sys.executable).parent / "gpuaas"), "events", "-o", "json", *words]
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=cli.full_environment())


def _deploy(name: str, head: str, workers: str, behaviour: str) -> list[str]:
    sets = {"head_allocation": head, "worker_allocations": workers, "behaviour": behaviour}
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    return ["deploy", "demo", "--name", name, "--version", "1.0.0", *words]


def _status(cli: Cli, name: str = "lively") -> str:
    return str(cli("get", "instance", name, "-o", "json").json["status"])


def _member_on(cli: Cli, node: str) -> str:
    items = json.loads(cli("get", "members", "--instance", "lively", "-o", "json").out)["items"]
    (worker,) = [member for member in items if member["node_name"] == node and member["component_key"] == "worker"]
    return str(worker["member_id"])
