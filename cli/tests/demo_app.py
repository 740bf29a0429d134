"""An app without machines, run as its own process by the tests: it reports what its inputs tell it to."""

import asyncio
import datetime
import sys
from pathlib import Path

from gpuaas_sdk.controller import AccessBundle, App, Command, Connection, Evidence, Member, Operation, Permanent

app = App("demo", manifest=Path(__file__).with_name("demo_manifest.yaml"), packages=["hello"])


@app.operation("deploy")
async def deploy(op: Operation) -> None:
    await op.step("read the inputs", _nothing)
    for member in sorted(op.targets, key=lambda one: (one.component_key, one.node_name)):
        await op.each([member], lambda one: _bring_up(op, one))
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


@app.operation("drain", role="worker")
async def drain(op: Operation) -> None:
    for member in op.targets:
        await op.report(member, status="draining", reason=op.reason)
        await op.report(member, status="drained", reason=op.reason)


@app.operation("remove", role="worker")
async def remove(op: Operation) -> None:
    for member in op.targets:
        await _take_away(op, member)


@app.operation("decommission")
async def decommission(op: Operation) -> None:
    for member in op.targets:
        await op.step("clean up", _nothing, member=member)
        await _take_away(op, member)


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
    if op.instance.inputs.get("behaviour") == "fail" and member.component_key == "worker":
        await op.report(member, detail={"daemon": "demod", "exit": 203, "journal": "demod: \x1b[31mno licence\x1b[0m"})
        raise Permanent("demod ended with status 203: no licence", fix="gpuaas ssh " + member.node_name)


async def _take_away(op: Operation, member: Member) -> None:
    seen = Evidence(state="idle", source="demo status", observed_at=datetime.datetime.now(datetime.UTC))
    await op.report(member, status="removing")
    await op.report(member, status="removed", evidence=seen)


async def _nothing() -> None:
    return None


if __name__ == "__main__":
    sys.exit(app.main())
