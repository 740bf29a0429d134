"""Login machines: where people log in and submit, apart from the controller and the workers. Used by the handlers."""

from gpuaas_sdk.controller import Member, Operation, Permanent
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import details
from gpuaas_app_slurm.workload import slurm, warnings


async def report_ready(op: Operation, member: Member, user: str, **more: object) -> None:
    """Check that a normal user reaches the scheduler from the login machine, then report the member as ready."""
    machine = await op.machine(member)
    await require_scheduler(machine, user)
    version = await slurm.running_version(machine)
    detail = {"node_name": machine.hostname, "daemon_version": version} | await warnings.of(machine, "slurm-client")
    kept = details.replaced(op.now(member).adapter_detail)
    await op.report(member, status="ready", detail=detail | kept | more, version=version)


async def require_scheduler(machine: Machine, user: str) -> None:
    """Check that a normal user reaches the scheduler from the login machine."""
    check = await slurm.controller_answers(machine, as_user=user)
    if not check.ok:
        raise Permanent(f"login machine {machine.hostname}: {check.reason}", fix="scontrol ping; sinfo")
