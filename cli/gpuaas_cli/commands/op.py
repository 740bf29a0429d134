"""`gpuaas op`: watch operations, and take an exit from those that stopped.

gpuaas op
    An operation is a long change of an app instance. These commands watch an operation, or end one that failed.
gpuaas op follow op_01k9z0c5p3v2m8q7r6t5w4x3y2
    Show the steps of an operation until it ends. Ctrl-C stops showing them; the operation continues.
    operation OPERATION
gpuaas op wait op_01k9z0c5p3v2m8q7r6t5w4x3y2 --timeout 600
    Wait until an operation ends. Exit status 0: succeeded; 1: failed or cancelled; 2: not ended in time.
    operation OPERATION
    --timeout: Longest time to wait, in seconds; 0: until the operation ends.
gpuaas op log op_01k9z0c5p3v2m8q7r6t5w4x3y2
    Show the lines of the app controller's log about an operation, oldest first. Secrets are replaced.
gpuaas op statement op_01k9z0c5p3v2m8q7r6t5w4x3y2 --verify
gpuaas op statement op_01k9z0c5p3v2m8q7r6t5w4x3y2 -o json > statement.json
    Show what a remove or a decommission removed and what it left, and why. The platform signs it.
    --verify: Check the signature with the platform's public key; exit status 1 if it does not match.
    --key FILE: Check the signature with this public key instead, which you have saved before.
gpuaas op statement-key > statement-key.pem
    Print the public key of the platform's statements. Store it apart from them.
gpuaas op retry op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "the network is back"
    Retry a failed operation. Steps that succeeded are not repeated, unless a member was repaired since.
gpuaas op cancel op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "wrong machine"
    Stop an operation and undo its changes. An operation that no controller has started ends at once.
gpuaas op compensate op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "give the machines back"
    Undo the changes of a failed operation.
gpuaas op force-complete op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "checked by hand: the machine is empty"
    Mark an operation as done that no controller can finish. Nothing is changed on any machine.
gpuaas op tombstone op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "the machine burnt down"
    Give up members of a failed operation that cannot be recovered.
    --reason
    member_ids --member MEMBER|NODE: Give up only these members, named by id, node or node/role; by default every member
    that failed.
        Repeatable.
"""

import asyncio

from gpuaas_contract.operations import EXITS, OPERATION_GET, OPERATION_LOG, LogLine
from gpuaas_contract.statements import STATEMENT_GET, STATEMENT_KEY_GET, SignedStatement
from gpuaas_sdk import statements as signatures
from msgspec.inspect import FloatType

from gpuaas_cli import failures, output
from gpuaas_cli.input import files
from gpuaas_cli.output import table
from gpuaas_cli.runner import SWITCH, Call, Command, Field, nothing
from gpuaas_cli.show import statements, steps
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


def _time(line: LogLine) -> str:
    return steps.moment(line.logged_at)


async def _statement(call: Call) -> SignedStatement:
    signed: SignedStatement = await call.send()
    if call["key"] or call["verify"]:
        key = files.text(call["key"]) if call["key"] else (await call.session.call(STATEMENT_KEY_GET)).public_key_pem
        try:
            signatures.verify(signed, key)
        except signatures.NotVerified as error:
            raise failures.Failure(f"The statement is not verified: {error}", "Do not trust the statement") from error
    return signed


def _verified(call: Call, signed: SignedStatement) -> None:
    if call["key"] or call["verify"]:
        output.talk(f"The signature is valid (key {signed.key_id}).")


_TIMEOUT = Field(type=FloatType(ge=0), default=0)
COMMANDS = {
    "op follow": Command(calls=(OPERATION_GET,), work=_follow, show=nothing),
    "op wait": Command(calls=(OPERATION_GET,), extra={"timeout": _TIMEOUT}, work=_wait, show=nothing),
    "op log": Command(
        OPERATION_LOG,
        table=table("TIME LEVEL EVENT DETAIL", "event", TIME=_time, DETAIL=steps.log_detail),
    ),
    "op statement": Command(
        STATEMENT_GET,
        also=(STATEMENT_KEY_GET,),
        extra={"verify": SWITCH, "key": Field(type=str, default="")},
        work=_statement,
        page=statements.page,
        then=_verified,
    ),
    "op statement-key": Command(STATEMENT_KEY_GET, page=lambda key: key.public_key_pem.splitlines()),
    "op retry": EXITS["retry"],
    "op cancel": Command(EXITS["cancel"], wanted="cancelled"),
    "op compensate": Command(EXITS["compensate"], wanted="cancelled"),
    "op force-complete": Command(EXITS["force_complete"], follows=False),
    "op tombstone": Command(EXITS["tombstone"], follows=False),
}
