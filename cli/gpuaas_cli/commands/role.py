"""`gpuaas role`: the circuit breaker of a role."""

from typing import Annotated

import typer
from gpuaas_contract.instances import BREAKER_RESET, ResetBreaker

from gpuaas_cli import failures, kinds
from gpuaas_cli.client import session
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import InstanceName, NeededReason

app = run.command_group()


@app.callback()
def role() -> None:
    """When too many members of a role fail to join, its breaker opens and the role takes no more for a while."""


@run.command(app, "reset-breaker")
def reset_breaker(
    context: typer.Context,
    instance: InstanceName,
    role: Annotated[str, typer.Argument(metavar="ROLE")],
    reason: NeededReason,
) -> int:
    """Let a role take new members again; gpuaas get roles INSTANCE shows its breaker.

    Example: gpuaas role reset-breaker slurm worker --reason "the image is repaired"
    """
    flags = run.flags_of(context)
    body = ResetBreaker(reason=reason)
    reset = session.run(
        flags, lambda opened: opened.call(BREAKER_RESET, body, instance_id=instance, component_key=role)
    )
    kinds.show_one(flags, "roles", reset)
    return failures.OK
