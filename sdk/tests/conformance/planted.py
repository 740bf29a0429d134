"""The controller of the scaffold with one planted fault: python planted.py FAULT run …

Each function plants one fault, the kind of mistake that a reviewer can miss."""

import asyncio
import contextlib
import secrets
import sys
from typing import Any

from gpuaas_app_hello import controller, members, workload  # type: ignore[import-not-found]  # made by the test
from gpuaas_sdk.controller import Check, Member, Operation, Preview
from gpuaas_sdk.machine import Machine

app: Any = controller.app
kit: Any = (members, workload, Operation, Machine)
_TASKS: set[asyncio.Task[None]] = set()
_WAITS: list[str] = []


def early_success() -> None:
    async def open_(op: Operation, member: Member, name: str) -> None:
        await op.report(member, status="ready", version=await op.on(member, workload.version))

    members.open = open_


def non_idempotent_step() -> None:
    install = workload.install

    async def append(machine: Machine, version: str, secret: str) -> None:
        await install(machine, version, secret)
        lines = await machine.get(f"{workload.HOME}/log") or b""
        await machine.put(f"{workload.HOME}/log", lines + b"installed\n")

    workload.install = append


def dishonest_drain() -> None:
    async def idle(machine: Machine) -> Check:
        return Check(True)

    workload.idle = idle


def stale_evidence() -> None:
    async def leave(op: Operation, member: Member, name: str) -> None:
        seen = await op.on(member, workload.evidence)
        await members.step(op, member, "close", workload.close)
        await op.report(member, status="removing", evidence=seen)
        await members.step(op, member, name, workload.remove)
        await op.report(member, status="removed")

    members.leave = leave


def ignored_cancel() -> None:
    async def stubborn(op: Operation) -> None:
        work = asyncio.ensure_future(controller.bring_up(op))
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(work)
        work.result()

    app._handlers.operations["deploy", ""] = stubborn


def residue() -> None:
    workload.PLACES = [workload.HOME, workload.DATA]


def old_epoch_write() -> None:
    install = workload.install

    async def beat(machine: Machine) -> None:
        while True:
            with contextlib.suppress(Exception):
                await machine.put(f"{workload.DATA}/beat", "")
            await asyncio.sleep(0.02)

    async def never_closed(self: Operation) -> None:
        return None

    async def and_beat(machine: Machine, version: str, secret: str) -> None:
        await install(machine, version, secret)
        _TASKS.add(asyncio.create_task(beat(machine)))

    workload.install, kit[2].close = and_beat, never_closed


def wrong_version() -> None:
    async def version(machine: Machine) -> str:
        return str(app.manifest.version)

    workload.version = version


def unbounded_wait() -> None:
    async def step(op: Operation, member: Member, name: str, work: Any, on: Member | None = None) -> None:
        async def run() -> None:
            while True:
                with contextlib.suppress(Exception):
                    await work(await op.machine(on or member))
                    return
                await asyncio.sleep(0.1)

        await op.step(name, run, member=member)

    members.step = step


def unreported_failure() -> None:
    async def serves(machine: Machine) -> Check:
        return Check(True)

    kit[3]._checked = lambda self, command, completed: completed
    workload.serves = serves


def unreported_removal() -> None:
    async def remove(machine: Machine) -> None:
        await machine.run("systemctl", "disable", "--now", workload.UNIT, check=False)
        await machine.run("rm", "-rf", *workload.PLACES, check=False)

    workload.remove = remove


def impatient_drain() -> None:
    async def idle(machine: Machine) -> Check:
        """Wait for the work as long as a person would."""
        _WAITS.append("")
        return Check(len(_WAITS) > 2, "the work has not ended")

    workload.idle = idle


def uncounted_failure() -> None:
    join = members.join

    async def clean_up(op: Operation, member: Member) -> None:
        try:
            await join(op, member)
        except Exception:  # "leave no failed member behind": people and the platform see none
            await op.report(member, status="removing")
            await op.report(member, status="removed")
            raise

    members.join = clean_up


def removed_unseen() -> None:
    async def leave(op: Operation, member: Member, name: str) -> None:
        await op.report(member, status="removing")
        await op.report(member, status="removed")

    members.leave = leave


def lying_preview() -> None:
    async def nothing(op: Operation) -> Preview:
        return Preview(answered=True, source="memory")

    for key in app._handlers.previews:
        app._handlers.previews[key] = nothing


def lost_secret() -> None:
    own = secrets.token_hex()

    async def remembered(self: Operation, purpose: str, name: str) -> str:
        return own

    kit[2].secret = remembered


def double_effect() -> None:
    join = members.join

    async def mark(op: Operation, member: Member) -> None:
        machine = await op.machine(member)
        await machine.put(f"{workload.DATA}/start-{op.attempt}", "")
        await join(op, member)

    members.join = mark


def health_never_reported() -> None:
    async def look(now: Any) -> None:
        return None

    app._handlers.health = look


def undo_does_nothing() -> None:
    async def take_back(op: Operation) -> None:
        for member in op.to_do:
            await op.report(member, status="removing")
            await op.report(member, status="removed")

    app._handlers.undos["deploy", ""] = take_back


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    sys.exit(app.main(sys.argv[2:]))
