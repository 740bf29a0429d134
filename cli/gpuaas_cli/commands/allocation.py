"""`gpuaas allocation`: claim nodes for a project, choose who is on them, give them back."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
import typer
from gpuaas_contract.capacity import (
    ALLOCATION_CREATE,
    ALLOCATION_FORCE_RELEASE,
    ALLOCATION_GET,
    ALLOCATION_LIST,
    ALLOCATION_RELEASE,
    ALLOCATION_RELEASE_USED,
    ALLOCATIONS_PER_REQUEST_MAX,
    Allocation,
    CreateAllocation,
    OverrideRelease,
)
from gpuaas_contract.errors import NoCapacity
from gpuaas_contract.ssh_keys import ALLOCATION_KEYS_GET, ALLOCATION_KEYS_SET, AllocationKeys, SetAllocationPeople

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.flags import Flags
from gpuaas_cli.runner import options, run
from gpuaas_cli.runner.options import DryRun, NeededReason, Reason
from gpuaas_cli.show import machines

app = run.command_group()

POLL_S = 0.5
WAIT_S = 180.0
SETTLED = frozenset({"active", "failed", "released", "release_failed"})

Wait = Annotated[bool, typer.Option("--wait", help="Return when it is done.")]
AllocationName = Annotated[str, typer.Argument(metavar="ALLOCATION|NODE")]
AllocationNames = Annotated[list[str], typer.Argument(metavar="ALLOCATION|NODE")]
Sku = Annotated[str, typer.Option(help="Nodes sold as this.")]
Region = Annotated[str, typer.Option(help="Nodes that stand there; else all of one request share any region.")]
Change = Callable[[session.Session, Allocation], Awaitable[Allocation]]


@app.callback()
def allocation() -> None:
    """An allocation is a project's claim on a node."""


@run.command(app)
def request(
    context: typer.Context,
    node: Annotated[str, typer.Option(help="This node; else any free one that fits.")] = "",
    sku: Sku = "",
    region: Region = "",
    count: Annotated[int, typer.Option(min=1, max=ALLOCATIONS_PER_REQUEST_MAX, help="So many, or none.")] = 1,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> int:
    """Claim nodes. With --dry-run: which ones it would be, or what keeps each node out.

    Example: gpuaas allocation request --count 3 --sku h100x8 --wait
    """
    if node and count > 1:
        raise failures.usage(
            "--node names one node, so --count cannot be more than 1", "gpuaas allocation request --help"
        )
    flags = run.flags_of(context)
    body = CreateAllocation(node_name=node, sku=sku, region=region, count=count)
    made = session.run(flags, lambda opened: _request(opened, body, wait=wait, dry_run=dry_run))
    kinds.show_list(flags, "allocations", made)
    if dry_run:
        output.talk("Nothing was changed.")
    return _verdict(made, "active") if wait and not dry_run else failures.OK


@run.command(app, "list")
def list_allocations(
    context: typer.Context,
    free: Annotated[bool, typer.Option("--free", help="Only those an app can be put on.")] = False,
    sku: Sku = "",
    region: Annotated[str, typer.Option(help="Only there.")] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also released ones.")] = False,
) -> int:
    """Allocations of the project.

    Example: gpuaas allocation list --free
    """

    async def work(opened: session.Session) -> list[Allocation]:
        query = {"free": "true" if free else "false", "sku": sku, "region": region}
        found = await opened.every(ALLOCATION_LIST, query=query)
        return [one for one in found if everything or one.status != "released"]

    flags = run.flags_of(context)
    kinds.show_list(flags, "allocations", session.run(flags, work))
    return failures.OK


@run.command(app)
def people(
    context: typer.Context,
    allocation: AllocationName,
    only: Annotated[
        str | None, typer.Option(metavar="USER,…", help='Exactly these, names or ids; "" takes everybody off.')
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Whose SSH keys are on a machine; with --only, choose.

    Example: gpuaas allocation people gpu-3 --only ada,grace
    """

    async def work(opened: session.Session) -> AllocationKeys:
        found = await lookup.live_allocation(opened, allocation)
        if only is None:
            return await opened.call(ALLOCATION_KEYS_GET, allocation_id=found.allocation_id)
        body = SetAllocationPeople(user_ids=[await lookup.user_id(opened, name) for name in options.words([only])])
        return await opened.call(ALLOCATION_KEYS_SET, body, dry_run=dry_run, allocation_id=found.allocation_id)

    flags = run.flags_of(context)
    found = session.run(flags, work)
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(found)))
    else:
        print("\n".join(machines.of_people(found)))
    return failures.OK


@run.command(app)
def release(
    context: typer.Context,
    allocations: AllocationNames,
    used: Annotated[
        bool, typer.Option("--used", help="Even while an app uses it, whose work there is lost; needs --reason.")
    ] = False,
    reason: Reason = "",
    wait: Wait = False,
    dry_run: DryRun = False,
) -> int:
    """Give nodes back, or try again to.

    Example: gpuaas allocation release gpu-3 gpu-4 --wait
    """
    if used and not reason.strip():
        raise failures.usage("--used needs a reason", 'gpuaas allocation release NODE --used --reason "WHY"')

    async def change(opened: session.Session, found: Allocation) -> Allocation:
        named = found.allocation_id
        if not used:
            return await opened.call(ALLOCATION_RELEASE, dry_run=dry_run, allocation_id=named)
        body = OverrideRelease(reason=reason)
        return await opened.call(ALLOCATION_RELEASE_USED, body, dry_run=dry_run, allocation_id=named)

    return _each(run.flags_of(context), allocations, change, wait=wait and not dry_run)


@run.command(app)
def force_release(
    context: typer.Context, allocations: AllocationNames, reason: NeededReason, dry_run: DryRun = False
) -> int:
    """Give up allocations whose release failed. Their nodes are cordoned, for nobody knows that they are clean.

    Example: gpuaas allocation force-release gpu-3 --reason "the machine burnt"
    """

    async def change(opened: session.Session, found: Allocation) -> Allocation:
        body = OverrideRelease(reason=reason)
        return await opened.call(ALLOCATION_FORCE_RELEASE, body, dry_run=dry_run, allocation_id=found.allocation_id)

    return _each(run.flags_of(context), allocations, change)


async def settled(opened: session.Session, allocation_id: str, *, timeout_s: float = WAIT_S) -> Allocation:
    """The allocation once nothing moves it any more."""
    ends_at = time.monotonic() + timeout_s
    while True:
        found = await opened.call(ALLOCATION_GET, allocation_id=allocation_id)
        if found.status in SETTLED:
            return found
        if time.monotonic() >= ends_at:
            raise failures.Failure(
                f"{allocation_id} is still {found.status} after {timeout_s:g} s",
                fix=f"gpuaas get allocation {allocation_id}",
                code="timeout",
                exit_code=failures.SERVER,
            )
        await asyncio.sleep(POLL_S)


async def _request(opened: session.Session, body: CreateAllocation, *, wait: bool, dry_run: bool) -> list[Allocation]:
    try:
        made = (await opened.call(ALLOCATION_CREATE, body, dry_run=dry_run)).items
    except NoCapacity as refused:
        for name, why in refused.details.get("why_not", {}).items():
            output.talk(f"{name}: {output.clean(why)}")
        raise
    return [await settled(opened, one.allocation_id) for one in made] if wait and not dry_run else made


def _each(flags: Flags, named: list[str], change: Change, *, wait: bool = False) -> int:
    """All names are found before the first allocation changes, so that a typo changes nothing."""

    async def work(opened: session.Session) -> list[Allocation]:
        found = [await lookup.live_allocation(opened, name) for name in options.words(named)]
        changed = [await change(opened, one) for one in found]
        return [await settled(opened, one.allocation_id) for one in changed] if wait else changed

    changed = session.run(flags, work)
    kinds.show_list(flags, "allocations", changed)
    return _verdict(changed, "released") if wait else failures.OK


def _verdict(allocations: list[Allocation], wanted: str) -> int:
    return failures.OK if all(one.status == wanted for one in allocations) else failures.FAILED
