"""Finish a command that started an operation: follow it to its end, or show what a dry run found."""

import datetime

from gpuaas_contract.lifecycles import OperationStatus
from gpuaas_contract.operations import Operation

from gpuaas_cli import failures, output
from gpuaas_cli.client.session import Session
from gpuaas_cli.show import plans
from gpuaas_cli.work import follow


async def finish(
    session: Session,
    operation: Operation,
    *,
    about: str,
    detach: bool,
    dry_run: bool,
    wanted: OperationStatus = "succeeded",
) -> int:
    """`about` names what the operation touches, in the caller's words."""
    if not dry_run:
        return await follow.started(session, operation, detach=detach, wanted=wanted)
    if session.flags.output in ("json", "yaml"):
        follow.show(session.flags, operation)
    else:
        hit = operation.preview is not None and operation.preview.running_work
        names = await follow.names_in(session, operation) if hit else {}
        print("\n".join(plans.of_operation(operation, about, names, datetime.datetime.now(datetime.UTC))))
    output.talk("Nothing was changed.")
    return failures.OK
