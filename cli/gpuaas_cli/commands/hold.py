"""`gpuaas hold`: keep a member from work or from removal, for a while and for a reason."""

from typing import Annotated, Literal

import typer
from gpuaas_contract.holds import HOLD_LIFT, HOLD_PLACE, Hold, PlaceHold

from gpuaas_cli import failures, kinds
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import times
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import InstanceName, NeededReason

app = run.command_group()


@app.callback()
def hold() -> None:
    """A hold ends by itself; before that only whoever placed it lifts it."""


@run.command(app)
def place(
    context: typer.Context,
    instance: InstanceName,
    member: Annotated[str, typer.Argument(metavar="MEMBER|NODE")],
    name: Annotated[str, typer.Option(help="What to call it.")],
    kind: Annotated[
        Literal["no-work", "no-removal"],
        typer.Option(help="no-work: not resumed. no-removal: not removed, replaced or decommissioned."),
    ],
    reason: NeededReason,
    lasts: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 30m, 24h, 7d.")] = "24h",
) -> int:
    """Place a hold on a member.

    Example: gpuaas hold place slurm gpu-2 --name bad-fan --kind no-work --for 3d --reason "technician on Monday"
    """
    flags = run.flags_of(context)
    ttl_s = times.span_s(lasts, "--for")
    body = PlaceHold(name=name, kind="no_work" if kind == "no-work" else "no_removal", reason=reason, ttl_s=ttl_s)
    kinds.show_one(flags, "holds", session.run(flags, lambda opened: _place(opened, instance, member, body)))
    return failures.OK


@run.command(app, "list")
def list_holds(
    context: typer.Context,
    instance: InstanceName,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also lifted and expired ones.")] = False,
) -> int:
    """Holds on the members of an instance.

    Example: gpuaas hold list slurm
    """
    flags = run.flags_of(context)
    filters = kinds.Filters(instance=instance, everything=everything)
    kinds.list_all(flags, "holds", filters)
    return failures.OK


@run.command(app)
def lift(
    context: typer.Context,
    instance: InstanceName,
    hold: Annotated[str, typer.Argument(metavar="HOLD", help="Its name or id.")],
) -> int:
    """Lift a hold of yours.

    Example: gpuaas hold lift slurm bad-fan
    """
    flags = run.flags_of(context)
    kinds.show_one(flags, "holds", session.run(flags, lambda opened: _lift(opened, instance, hold)))
    return failures.OK


async def _place(opened: session.Session, instance: str, named: str, body: PlaceHold) -> Hold:
    found = await lookup.member(opened, named, instance)
    return await opened.call(HOLD_PLACE, body, instance_id=found.instance_id, member_id=found.member_id)


async def _lift(opened: session.Session, instance: str, named: str) -> Hold:
    found = await lookup.hold(opened, instance, named)
    return await opened.call(HOLD_LIFT, instance_id=found.instance_id, hold_id=found.hold_id)
