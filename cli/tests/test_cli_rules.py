"""What the CLI decides by itself, without a server."""

import datetime
import json
import os
import shlex
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml
from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import home, machine
from gpuaas_cli.client.home import Config, Context
from gpuaas_cli.commands import access
from gpuaas_cli.flags import Flags, check, take
from gpuaas_cli.input import values
from gpuaas_cli.local import plan, processes
from gpuaas_cli.show import controllers, steps, story
from gpuaas_contract.capacity import Allocation, Facts, Node
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.controllers import Controller, ControllerFailure, ControllerState
from gpuaas_contract.custody import CustodyStatus
from gpuaas_contract.errors import ApiError, NotFound, OperationInProgress, TokenExpired, ValidationFailed
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import Instance
from gpuaas_contract.operations import Exit, Operation, Preview, Step, Target

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
MANIFEST = msgspec.convert(yaml.safe_load(Path(__file__).with_name("demo_manifest.yaml").read_text()), Manifest)
CONFIG = Config(current="one", contexts={"one": Context(server="http://one", token="t1", project_id="proj_1")})


def make(struct: Any, /, **given: Any) -> Any:
    """A struct whose other fields are empty."""
    empty: Mapping[str, Any] = {"int": 0, "bool": False, "dict": {}, "list": [], "datetime": NOW, "NoneType": None}
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if field.name in given:
            values[field.name] = given[field.name]
        elif field.required:
            matches = [value for name, value in empty.items() if name in str(field.type)]
            values[field.name] = matches[-1] if matches else ""
    return struct(**values)


def allocation(node_name: str, status: str = "active") -> Allocation:
    made: Allocation = make(Allocation, allocation_id=f"alloc_{node_name}", node_name=node_name, status=status)
    return made


def node(name: str, *, status: str = "ready", seen_at: datetime.datetime = NOW) -> Node:
    facts = Facts(hostname=name, cpus=1, memory_mb=1)
    made: Node = make(Node, name=name, status=status, last_seen_at=seen_at, facts=facts)
    return made


def instance(name: str, status: str) -> Instance:
    made: Instance = make(Instance, name=name, status=status, last_operation_id="op_1")
    return made


def test_flags_may_stand_anywhere_but_not_after_two_dashes() -> None:
    flags, words = take(["--project", "p", "get", "-o", "json", "nodes", "--context=c", "--", "-o", "yaml"])
    assert (flags.project, flags.output, flags.context) == ("p", "json", "c")
    assert words == ["get", "nodes", "--", "-o", "yaml"]


def test_a_flag_without_its_value_is_refused() -> None:
    with pytest.raises(failures.Failure, match="-o needs a value"):
        take(["get", "nodes", "-o"])
    with pytest.raises(failures.Failure, match="not 'xml'"):
        check(Flags(output="xml"))


def test_flags_beat_the_environment_which_beats_the_file() -> None:
    environment = {"GPUAAS_PROJECT": "by-environment"}
    assert home.resolve(Flags(), {}, CONFIG).project == "proj_1"
    assert home.resolve(Flags(), environment, CONFIG).project == "by-environment"
    assert home.resolve(Flags(project="by-flag"), environment, CONFIG).project == "by-flag"


def test_a_token_stays_with_its_server() -> None:
    assert home.resolve(Flags(server="http://one/"), {}, CONFIG).token == "t1"
    assert home.resolve(Flags(server="http://two"), {}, CONFIG).token == ""
    assert home.resolve(Flags(), {"GPUAAS_SERVER": "http://two"}, CONFIG).token == ""


def test_an_unknown_context_is_refused_by_name() -> None:
    with pytest.raises(failures.Failure, match="no context 'three'; there is one"):
        home.resolve(Flags(context="three"), {}, CONFIG)


@pytest.mark.parametrize(
    ("error", "code"),
    [(TokenExpired(), 3), (NotFound(), 4), (OperationInProgress(), 5), (ValidationFailed(), 1), (ApiError(), 2)],
)
def test_every_refusal_has_its_exit_code(error: ApiError, code: int) -> None:
    assert failures.as_failure(error).exit_code == code


def test_an_error_ends_with_the_next_command() -> None:
    error = NotFound("There is no operation op_1.")
    error.correlation_id = "cor_1"
    text = failures.text(failures.as_failure(error), as_json=False)
    assert text.splitlines()[0] == "ERROR: There is no operation op_1 (code=not_found, correlation_id=cor_1)"
    assert text.splitlines()[1].startswith("  next: ")


def test_only_the_last_cell_of_a_table_has_spaces() -> None:
    shape = output.table("A B", A=lambda row: row[0], B=lambda row: row[1])
    assert output.listing([("x y", "p q"), ("", "")], shape) == ["A    B", "x_y  p q", "-    -"]
    assert output.cells(("x y", "p q"), shape, spaces=True) == ["x y", "p q"], "a page does not split lines"


def test_a_time_in_a_list_is_an_age_or_exact() -> None:
    shape, row = output.table("AGE=created_at ENDS=created_at"), SimpleNamespace(created_at=NOW)
    assert output.cells(row, shape, ages=False) == ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z"]
    assert output.cells(row, shape)[0] != "2030-01-01T00:00:00Z"


def test_a_payload_is_shown_without_the_brackets_of_its_lists() -> None:
    assert output.payload_text({"kind": "add", "members": ["m1", "m2"], "none": [], "reason": ""}) == (
        "kind=add members=m1,m2"
    )


def test_ids_that_do_not_fit_the_window_are_shortened_but_not_the_first() -> None:
    whole = "op_01m7gd33a3y8w7c1z35h55an7a"
    shape = output.table("A B", A=str, B=str)
    assert output.listing([whole], shape, width=40)[1] == f"{whole}  op_…55an7a"
    assert output.listing([whole], shape, width=80)[1] == f"{whole}  {whole}"


def test_values_are_typed_by_the_form() -> None:
    sets = ["head_allocation=gpu-1", 'worker_allocations=["gpu-2"]', "replicas=3"]
    assert values.build(MANIFEST, sets) == {
        "head_allocation": "gpu-1",
        "worker_allocations": ["gpu-2"],
        "replicas": 3,
    }
    assert values.build(MANIFEST, ["worker_allocations=a, b"]) == {"worker_allocations": ["a", "b"]}


def test_a_value_that_is_no_number_is_answered_with_the_kind_of_value_that_is_needed() -> None:
    with pytest.raises(failures.Failure, match="replicas takes an integer, not 'many'") as caught:
        values.build(MANIFEST, ["replicas=many"])
    assert caught.value.fix == "--set replicas=INTEGER"


def test_the_only_topology_needs_no_name() -> None:
    assert values.topology(MANIFEST, "") == "split"
    with pytest.raises(failures.Failure, match="choose from split"):
        values.topology(MANIFEST, "ring")


def test_an_app_is_spread_over_all_machines() -> None:
    topology, inputs = plan.deployment(MANIFEST, ["a1", "a2", "a3"])
    assert topology == "split"
    assert inputs == {"head_allocation": "a1", "worker_allocations": ["a1", "a2", "a3"]}


def test_only_the_first_role_for_several_machines_gets_them() -> None:
    login = msgspec.structs.replace(MANIFEST.roles[0], component_key="login", min=0)
    properties = {**MANIFEST.deploy_form["properties"], "login_allocations": {"type": "array"}}
    manifest = msgspec.structs.replace(
        MANIFEST,
        roles=[*MANIFEST.roles, login],
        topologies={"split": {**MANIFEST.topologies["split"], "login": "login_allocations"}},
        deploy_form={**MANIFEST.deploy_form, "properties": properties},
    )
    assert "login_allocations" not in plan.deployment(manifest, ["a1", "a2"])[1]


def test_required_inputs_take_the_default_or_the_first_example() -> None:
    form = {
        "required": ["name", "size", "head_allocation"],
        "properties": {**MANIFEST.deploy_form["properties"], "name": {"examples": ["lab"]}, "size": {"default": 2}},
    }
    _, inputs = plan.deployment(msgspec.structs.replace(MANIFEST, deploy_form=form), ["a1"])
    assert (inputs["name"], inputs["size"]) == ("lab", 2)


def test_only_nodes_that_responded_since_the_start_count_as_ready() -> None:
    before = NOW - datetime.timedelta(seconds=1)
    nodes = [node("gpu-1"), node("gpu-2", seen_at=before), node("gpu-3", status="lost")]
    assert plan.not_ready(["gpu-1", "gpu-2", "gpu-3", "gpu-4"], nodes, NOW) == ["gpu-2", "gpu-3", "gpu-4"]


def test_only_machines_without_a_node_get_a_token() -> None:
    known, machines = [node("gpu-2", status="lost"), node("gpu-3")], {"gpu-1", "gpu-2"}
    assert plan.to_enrol(plan.node_names(3), known, machines) == ["gpu-1", "gpu-3"]


def test_only_nodes_without_a_live_allocation_get_one() -> None:
    held = [allocation("gpu-1"), allocation("gpu-2", "released"), allocation("gpu-3", "provisioning")]
    assert plan.to_allocate(plan.node_names(3), held) == ["gpu-2"]
    assert [kept.node_name for kept in plan.allocations_of(plan.node_names(3), held)] == ["gpu-1", "gpu-3"]


@pytest.mark.parametrize(
    ("status", "step"),
    [
        *(("running", "use"), ("degraded", "use"), ("stopped", "start"), ("failed", "give_up")),
        *(("deploying", "follow"), ("upgrading", "follow"), ("deleting", "follow")),
    ],
)
def test_what_up_does_follows_from_the_instance(status: str, step: str) -> None:
    assert plan.instance_step([instance("slurm", "deleted"), instance("slurm", status)], "slurm")[0] == step


def test_a_deleted_instance_makes_room_for_a_new_one() -> None:
    assert plan.instance_step([instance("slurm", "deleted"), instance("other", "running")], "slurm")[0] == "deploy"


def test_the_admin_is_made_before_a_server_could_print_the_password() -> None:
    assert plan.must_make_admin(has_token=True, data_is_empty=True)
    assert plan.must_make_admin(has_token=False, data_is_empty=False)
    assert not plan.must_make_admin(has_token=True, data_is_empty=False)


def test_without_machines_the_server_listens_on_loopback_only() -> None:
    request = plan.CloudRequest(Path("/home"), port=1)
    assert plan.server_command("p", request, "") == [
        "p",
        "server",
        "--data",
        "/home/local/data",
        "--agent-release-key",
        "/home/local/agent-release.key.pub",
        "--agent-release-approvals",
        "0",
        "--listen",
        "127.0.0.1:1",
    ]
    assert plan.server_command("p", request, "10.0.0.1")[-1] == "10.0.0.1:7443"


@pytest.mark.parametrize(
    ("command", "line"), [(["a; b"], "a; b"), (["ls", "-l", "a b"], "ls -l 'a b'"), (["nvidia-smi"], "nvidia-smi")]
)
def test_one_word_is_a_line_for_the_shell_and_several_are_its_words(command: list[str], line: str) -> None:
    assert machine.remote_line(command) == line


def test_a_step_is_printed_once_per_change() -> None:
    operation: Operation = make(Operation, created_at=NOW, status="running", kind="deploy")
    running = Step(name="install", state="running", started_at=NOW + datetime.timedelta(seconds=2), member_id="m")
    seen: steps.Seen = {}
    first = msgspec.structs.replace(operation, steps=[running])
    later = NOW + datetime.timedelta(seconds=7)
    assert steps.news(first, seen, {"m": "gpu-2"}, later) == ["   2.0s  gpu-2  install  running"]
    assert steps.news(first, seen, {"m": "gpu-2"}, later) == []
    ended = msgspec.structs.replace(running, state="succeeded", ended_at=NOW + datetime.timedelta(seconds=12.3))
    second = msgspec.structs.replace(operation, steps=[ended])
    assert steps.news(second, seen, {"m": "gpu-2"}, later) == ["  12.3s  gpu-2  install  succeeded"]


def test_a_message_that_changes_while_its_step_runs_shows_the_time_of_the_change() -> None:
    started = Step(name="install", state="running", started_at=NOW, member_id="m", message="1 of 2")
    operation: Operation = make(Operation, created_at=NOW, status="running", kind="deploy", steps=[started])
    seen: steps.Seen = {}
    steps.news(operation, seen, {"m": "gpu-2"}, NOW)
    again = msgspec.structs.replace(operation, steps=[msgspec.structs.replace(started, message="2 of 2")])
    later = NOW + datetime.timedelta(seconds=40)
    assert steps.news(again, seen, {"m": "gpu-2"}, later) == ["  40.0s  gpu-2  install  running  2 of 2"]


@pytest.mark.parametrize("previous", ["", "a-old"], ids=["before it moved", "after it moved"])
def test_a_member_that_is_replaced_is_called_by_both_nodes(previous: str) -> None:
    target = Target(member_id="m", allocation_id="a-new", previous_allocation_id=previous)
    operation = make(Operation, kind="replace", targets=[target])
    names, nodes = {"m": "gpu-5" if previous else "gpu-2"}, {"a-old": "gpu-2", "a-new": "gpu-5"}
    assert steps.moved(operation, names, nodes) == {"m": "gpu-2->gpu-5"}


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({"kind": "stop"}, "stop lab"),
        ({"kind": "upgrade", "to_version": "1.1.0"}, "upgrade lab to 1.1.0"),
        ({"kind": "action", "action": "greet"}, "action greet of lab"),
        ({"kind": "preview", "preview_of": "drain"}, "preview drain of lab"),
        ({"kind": "drain", "component_key": "worker"}, "drain 0 workers of lab"),
    ],
)
def test_an_operation_is_called_by_what_it_does(fields: dict[str, str], title: str) -> None:
    assert steps.title(make(Operation, instance_name="lab", **fields)) == title


def test_an_active_grant_shows_until_when_it_opens_sessions_and_until_when_they_last() -> None:
    """A grant stays active for hours after its certificate expired: with one time it read as over and active."""
    shape = kinds.get("grants").table
    titles = [column.title for column in shape.shown(wide=False)]
    assert [title for title in titles if title.endswith("UNTIL")] == ["LOGINS_UNTIL", "SESSIONS_UNTIL"]


def test_a_list_of_operations_shows_which_action_ran() -> None:
    fields = {"kind": "action", "action": "users.limits", "created_at": NOW, "requested_by": "", "component_key": ""}
    operation = make(Operation, operation_id="op_1", instance_name="lab", correlation_id="cor_1", error=None, **fields)
    shape = kinds.get("operations").table
    for wide in (False, True):
        assert output.cells(operation, shape, wide=wide)[1] == "action/users.limits"
    drain = make(Operation, kind="drain", operation_id="op_1", created_at=NOW, error=None)
    assert steps.kind(drain) == "drain"
    assert steps.kind(make(Operation, kind="preview", preview_of="drain")) == "preview/drain"


def test_a_dry_run_of_an_action_shows_what_was_checked_and_that_the_app_was_not_asked() -> None:
    preview = Preview(answered=False, notes=["Checked: the form.", "The app was not asked."])
    operation = make(Operation, kind="action", action="greet", instance_name="lab", preview=preview)
    assert steps.plan(operation, "Greet a person", {}, NOW) == [
        "would run action greet of lab: Greet a person",
        "  Checked: the form.",
        "  The app was not asked.",
    ]


def test_an_exit_that_the_caller_may_not_take_is_shown_with_its_permission() -> None:
    forbidden = [Exit(name="tombstone", permission="apps.operation.tombstone", permitted=False, meaning="give up")]
    assert steps.exit_commands(make(Operation, operation_id="op_1", exits=[])) == []
    assert steps.exit_commands(make(Operation, operation_id="op_1", exits=forbidden)) == [
        "tombstone needs apps.operation.tombstone"
    ]


def test_exits_are_commands_to_paste_where_the_caller_may_take_them() -> None:
    exits = [
        Exit(name="retry", permission="apps.operation.retry", permitted=True, meaning="again"),
        Exit(name="force_complete", permission="apps.operation.force_complete", permitted=False, meaning="done"),
    ]
    assert steps.exit_commands(make(Operation, operation_id="op_1", exits=exits)) == [
        "gpuaas op retry op_1 --reason REASON  # again",
        "force-complete needs apps.operation.force_complete",
    ]


def test_a_preview_without_an_answer_is_not_called_safe() -> None:
    preview = Preview(answered=False, notes=["No app controller answered within 10 s."])
    operation = make(Operation, kind="stop", instance_name="lab", preview=preview)
    assert steps.plan(operation, "3 members", {}, NOW) == [
        "would stop lab: 3 members",
        "  it is unknown which work this would interrupt, so do not assume that it is safe",
        "  No app controller answered within 10 s.",
    ]


def test_a_preview_without_work_shows_its_source() -> None:
    preview = Preview(answered=True, source="squeue", observed_at=NOW, done_by=NOW, irreversible=["scratch files"])
    operation = make(Operation, kind="stop", instance_name="lab", preview=preview)
    assert steps.plan(operation, "3 members", {}, NOW)[1:] == [
        "  affects no running work (seen by squeue, 0.0s ago)",
        "  nothing would be interrupted after 2030-01-01T00:00:00Z",
        "  cannot be undone: scratch files",
    ]


def test_a_preview_shows_first_that_the_request_would_be_refused() -> None:
    seen = Preview(answered=True, source="squeue", observed_at=NOW, refusal="1 job running: 7 (ada). Fix: wait")
    unseen = Preview(answered=True, refusal="there is no backup")
    shown = [steps.plan(make(Operation, kind="stop", preview=each), "", {}, NOW)[1:] for each in (seen, unseen)]
    assert shown == [
        [
            "  would be refused: 1 job running: 7 (ada). Fix: wait",
            "  affects no running work (seen by squeue, 0.0s ago)",
        ],
        ["  would be refused: there is no backup"],
    ]


def test_times_are_typed_as_spans_or_moments() -> None:
    assert (values.span_s("30m", "--for"), values.span_s("7d", "--for")) == (1800, 604_800)
    assert values.moment("2h", "--since", NOW) == NOW - datetime.timedelta(hours=2)
    assert values.moment("2030-01-01", "--since") == NOW
    assert values.moment("2030-01-01T01:00:00+01:00", "--since") == NOW
    with pytest.raises(failures.Failure, match="--for takes a number and s, m, h or d, not 'long'"):
        values.span_s("long", "--for")
    with pytest.raises(failures.Failure, match="--since takes a moment or how long ago"):
        values.moment("yesterday", "--since")


def test_a_hold_is_active_until_it_is_lifted_or_expires() -> None:
    later = NOW + datetime.timedelta(hours=1)
    assert story.state_of_hold(make(Hold, expires_at=later, lifted_at=None), NOW) == "active"
    assert story.state_of_hold(make(Hold, expires_at=NOW, lifted_at=None), NOW) == "expired"
    assert story.state_of_hold(make(Hold, expires_at=later, lifted_at=NOW), NOW) == "lifted"


def test_a_background_process_is_found_again_and_stopped(tmp_path: Path) -> None:
    process = processes.Process(tmp_path, "sleeper")
    started = process.start(["sleep", "600"])
    running = processes.Process(tmp_path, "sleeper").running()
    assert running == started
    assert processes.Process(tmp_path, "sleeper").stop()
    assert process.running() is None
    assert not process.stop()


def test_a_background_process_may_end_by_itself_just_before_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = processes.Process(tmp_path, "sleeper")

    def was_alive(record: processes.Record) -> bool:
        os.kill(record.pid, signal.SIGKILL)
        os.waitpid(record.pid, 0)
        return True

    process.start(["sleep", "600"])
    monkeypatch.setattr(processes, "_is_alive", was_alive)
    assert process.stop()


def test_a_recycled_pid_is_never_killed(tmp_path: Path) -> None:
    process = processes.Process(tmp_path, "sleeper")
    started = process.start(["sleep", "600"])
    file = tmp_path / "sleeper.pid"
    try:
        foreign = {**json.loads(file.read_bytes()), "started_ticks": started.started_ticks + 1}
        file.write_text(json.dumps(foreign))
        assert process.running() is None
        assert not process.stop()
        assert processes._is_alive(started)
    finally:
        processes._end(started)


def test_commands_that_remember_something_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"cloud-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: home.set_context(tmp_path, name, home.Context("http://here")), names))
    assert sorted(home.load(tmp_path).contexts) == sorted(names)


def test_custody_that_refuses_is_not_called_sealed_and_names_its_own_next_command() -> None:
    sealed = CustodyStatus(store="embedded", sealed=True, key="")
    refused = CustodyStatus(store="vault", sealed=True, key="", refused=True, fix="vault token create")
    assert [access.state(status) for status in (sealed, refused)] == ["sealed", "refused"]
    assert [access.next_command(status) for status in (sealed, refused)] == [
        "gpuaas custody unseal",
        "vault token create",
    ]


HOSTILE = (
    "inst_1; rm -rf ~",
    "inst_$(id)",
    "inst_1\nNext\n  rm -rf ~",
    "--server=http://evil",
    "\u0130nst_1",
    "inst_`id`",
)


def failing_controller(holder: str, *instance_ids: str) -> Controller:
    failures = [
        make(ControllerFailure, task="look", code="crashed", instance_id=instance_id, count=1)
        for instance_id in instance_ids
    ]
    state = make(ControllerState, failures=failures, failures_total=len(failures))
    made: Controller = make(
        Controller, controller_id=f"proj_1/demo/{holder}", holder=holder, app_slug="demo", state=state
    )
    return made


def test_only_ids_of_the_platform_are_in_the_commands_on_the_page_of_a_controller() -> None:
    page = controllers.page(failing_controller("one", "", *HOSTILE, "inst_01hz", "inst_01hz"), [])
    commands = [line.strip() for line in page if line.strip().startswith("gpuaas")]
    assert commands == ["gpuaas describe instance inst_01hz"]
    assert not [line for line in page if line.strip().startswith("rm ")]


@pytest.mark.parametrize("holder", ["one; rm -rf ~", "$(id)", "`id`", "a'b", "one\nNext\n  rm -rf ~"])
def test_a_command_with_the_name_of_a_controller_is_safe_to_copy(holder: str) -> None:
    shown = make(Instance, instance_id="inst_1", app_slug="demo", operator_service_account_id="")
    lines = story._controllers(shown, [failing_controller(holder, "inst_1")])
    (line,) = [line for line in lines if line.startswith("failures: ")]
    words = shlex.split(line.removeprefix("failures: "))
    assert words == ["gpuaas", "describe", "controller", f"proj_1/demo/{' '.join(holder.split())}"]
    assert len(lines) == len("\n".join(lines).splitlines()) == 2
