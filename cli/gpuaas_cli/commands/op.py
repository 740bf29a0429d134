"""`gpuaas op`: watch operations, and take an exit from those that stopped.

gpuaas op
    Every long change is an operation; watching it never changes it, and each exit needs a reason.
gpuaas op follow op_01k9z0c5p3v2m8q7r6t5w4x3y2
    Show the steps as they happen, until the operation ends. Ctrl-C detaches.
    operation OPERATION
gpuaas op wait op_01k9z0c5p3v2m8q7r6t5w4x3y2 --timeout 600
    Wait for any end: 0 succeeded, 1 failed or cancelled, 2 not ended in time.
    operation OPERATION
    --timeout: Seconds; 0 waits until it ends.
gpuaas op retry op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "the network is back"
    Take a failed operation up again; steps that succeeded are not repeated.
gpuaas op cancel op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "wrong machine"
    Stop an operation and have it undone; one that no controller took up yet ends at once.
gpuaas op compensate op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "give the machines back"
    Have the half-done work of a failed operation undone.
gpuaas op force-complete op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "checked by hand: the machine is empty"
    Declare an operation done that no controller can finish. Nothing is done on any machine.
gpuaas op tombstone op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "the machine burnt down"
    Give up members of a failed operation that cannot be recovered.
    --reason
    member_ids --member MEMBER|NODE: Only these, by id, node or node/role; else every member that failed.
        Repeatable.
"""

import asyncio

from gpuaas_contract.operations import EXITS, OPERATION_GET
from msgspec.inspect import FloatType

from gpuaas_cli import failures
from gpuaas_cli.runner import Call, Command, Field, nothing
from gpuaas_cli.work import follow


async def _follow(call: Call) -> int:
    return await follow.to_the_end(call.session, call["operation"])


async def _wait(call: Call) -> int:
    operation_id, timeout_s = call["operation"], call["timeout"]
    waiting = asyncio.ensure_future(follow.to_the_end(call.session, operation_id, quiet=True))
    done, _ = await asyncio.wait({waiting}, timeout=timeout_s or None)
    if done:
        return waiting.result()
    message = f"{operation_id} has not ended within {timeout_s:g} s; it continues in the background"
    raise failures.timeout(message, f"gpuaas op follow {operation_id}")


_TIMEOUT = Field(type=FloatType(ge=0), default=0)
COMMANDS = {
    "op follow": Command(calls=(OPERATION_GET,), work=_follow, show=nothing),
    "op wait": Command(calls=(OPERATION_GET,), extra={"timeout": _TIMEOUT}, work=_wait, show=nothing),
    "op retry": EXITS["retry"],
    "op cancel": Command(EXITS["cancel"], wanted="cancelled"),
    "op compensate": Command(EXITS["compensate"], wanted="cancelled"),
    "op force-complete": Command(EXITS["force_complete"], follows=False),
    "op tombstone": Command(EXITS["tombstone"], follows=False),
}
