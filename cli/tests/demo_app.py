"""An app without machines, run as its own process by the tests: it reports what its inputs tell it to."""

import asyncio
import datetime
import sys
from pathlib import Path
from typing import Any

import structlog
from gpuaas_sdk.controller import (
    AccessBundle,
    App,
    Command,
    Connection,
    Evidence,
    Leftover,
    Member,
    Operation,
    Permanent,
    PlannedChange,
    Preview,
    Reconciliation,
    ReportedCondition,
    ReportedUsage,
    Work,
)

log = structlog.get_logger()
app = App("demo", manifest=Path(__file__).with_name("demo_manifest.yaml"), packages=["hello"])


@app.operation("deploy")
async def deploy(op: Operation) -> None:
    await op.step("read the inputs", _nothing)
    await op.secret("role_join", "join-key")
    for member in sorted(op.to_do, key=lambda member: (member.component_key, member.node_name)):
        await op.each([member], lambda member: _bring_up(op, member))
    head = next(member for member in op.members if member.component_key == "head")
    line = Command(title="Say hello", line="echo hello", allocation_id=head.allocation_id, user="nobody")
    await op.publish_access(
        AccessBundle(
            endpoints=[Connection(name="web", url="http://192.0.2.1")], paths={"log": "/tmp/x"}, commands=[line]
        )
    )


@app.operation("add", role="worker")
async def add(op: Operation) -> None:
    await op.each(op.targets, lambda member: _bring_up(op, member))


@app.undo("deploy")
async def undo_deploy(op: Operation) -> None:
    for member in op.to_do:
        await _take_away(op, member)


@app.operation("drain", role="worker")
@app.operation("stop")
async def drain(op: Operation) -> None:
    for member in op.targets:
        await op.report(member, status="draining", reason=op.reason)
        await op.report(member, status="drained", reason=op.reason)


@app.operation("resume", role="worker")
@app.operation("start")
async def resume(op: Operation) -> None:
    for member in op.targets:
        await op.report(member, status="ready")


@app.operation("restart")
async def restart(op: Operation) -> None:
    await drain(op)
    await resume(op)


@app.operation("upgrade")
@app.operation("rollback")
async def change_version(op: Operation) -> None:
    for member in op.targets:
        await op.report(member, status="ready", version=op.to_version)


@app.operation("reconfigure")
async def reconfigure(op: Operation) -> None:
    await op.step("change the inputs", _nothing)


@app.preview("reconfigure")
async def preview_reconfigure(op: Operation) -> Preview:
    before, after = op.inputs_before.get("replicas"), op.inputs_after.get("replicas")
    change = PlannedChange(subject="replicas", before=str(before), after=str(after), effect="the head restarts")
    return Preview(answered=True, source="demo status", changes=[change])


@app.operation("replace", role="worker")
async def replace(op: Operation) -> None:
    for member in op.targets:
        await op.report(member, status="removing", evidence=_idle())
        await _bring_up(op, member)


@app.preview("drain", role="worker")
@app.preview("stop")
async def preview(op: Operation) -> Preview:
    now = datetime.datetime.now(datetime.UTC)
    work = Work(
        work_id="job-7",
        member_ids=[op.targets[-1].member_id],
        owner="ada",
        gpus=8,
        started_at=now - datetime.timedelta(hours=3),
    )
    return Preview(
        answered=True,
        source="demo status",
        observed_at=now,
        running_work=[work],
        gpu_hours_at_stake=24,
        irreversible=["the scratch files of job-7"],
    )


@app.action("greet")
async def greet(op: Operation) -> dict[str, Any]:
    if op.inputs["name"] == "everybody":
        return {"rows": ["ada", "bob"]}  # no table: the manifest declares no columns
    return {"greeting": f"hello {op.inputs['name']}", "times": op.inputs.get("times", 1)}


@app.action("guests.list")
async def guests(op: Operation) -> dict[str, Any]:
    names = op.inputs.get("names", [])
    stays = [None, 1.5, 2]
    rows = [
        {"guest": name, "seat": "none" if name == "mallory" else seat, "stay": stays[seat], "came": seat % 2 == 0}
        for seat, name in enumerate(names)
    ]
    return {"rows": rows, "note": f"{len(rows)} guests"}


@app.operation("remove", role="worker")
async def remove(op: Operation) -> None:
    for member in op.targets:
        await _take_away(op, member)


@app.operation("decommission")
async def decommission(op: Operation) -> None:
    for member in op.targets:
        await op.step("clean up", _nothing, member=member)
        await _take_away(op, member)


@app.health()
async def look(seen: Reconciliation) -> None:
    """Only where a test asks for it: a condition that appears some time later would disturb the others."""
    behaviour = seen.instance.inputs.get("behaviour")
    if behaviour == "work":
        await seen.report([ReportedCondition(type="Greets", status="true", reason="Asked", message="it does")])
    if behaviour == "meter":
        await seen.report_usage([_used_yesterday("1.5"), _used_yesterday("2")])


def _used_yesterday(hours: str) -> ReportedUsage:
    now = datetime.datetime.now(datetime.UTC)
    then = now.replace(hour=8, minute=0, second=0, microsecond=0) - datetime.timedelta(days=1)
    return ReportedUsage(
        record_id=f"r-{hours}", meter="gpu-time", quantity=hours, unit="hours", started_at=then, ended_at=then
    )


async def _bring_up(op: Operation, member: Member) -> None:
    await op.report(member, status="provisioning")
    await op.step("install packages", _install, op, member, member=member)
    await op.report(member, status="joining", detail={"daemon": "demod", "log": "/var/log/demod.log"})
    await op.step("start the daemon", _start, op, member, member=member)
    await op.report(member, status="ready", version="1.2.3")


async def _install(op: Operation, member: Member) -> None:
    await op.say("unpacking 3 of 3")
    if op.instance.inputs.get("behaviour") == "hang":
        await asyncio.Event().wait()


async def _start(op: Operation, member: Member) -> None:
    behaviour = op.instance.inputs.get("behaviour")
    fails = behaviour == "fail" or (behaviour == "fail_once" and op.attempt == 1)
    fails = fails or (behaviour == "fail_add" and op.kind == "add")
    if fails and member.component_key == "worker":
        await op.report(member, detail={"daemon": "demod", "exit": 203, "journal": "demod: \x1b[31mno licence\x1b[0m"})
        key = await op.secret("role_join", "join-key")
        log.warning("daemon.ended", daemon="demod", status=203, command=f"demod --join {key}")
        raise Permanent("demod ended with status 203: no licence", fix="gpuaas ssh " + member.node_name)


async def _take_away(op: Operation, member: Member) -> None:
    await op.report(member, status="removing", evidence=_idle())
    left = [Leftover(what="/tmp/x", why="the log is kept")]
    await op.report(member, status="removed", removed=["the demo"], left=left)


def _idle() -> Evidence:
    return Evidence(state="idle", source="demo status", observed_at=datetime.datetime.now(datetime.UTC))


async def _nothing() -> None:
    return None


if __name__ == "__main__":
    sys.exit(app.main())
