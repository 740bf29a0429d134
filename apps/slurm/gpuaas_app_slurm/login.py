"""Login machines: where people log in and submit, apart from the controller and the workers. Called by `bring_up`."""

from gpuaas_sdk.controller import Member, Operation, Permanent

from gpuaas_app_slurm.workload import packages, slurm, warnings


async def report_ready(op: Operation, member: Member, user: str) -> None:
    """Check that a normal user reaches the scheduler from the login machine, then report the member as ready."""
    machine = await op.machine(member)
    check = await slurm.controller_answers(machine, as_user=user)
    if not check.ok:
        raise Permanent(f"login machine {machine.hostname}: {check.reason}", fix="scontrol ping; sinfo")
    version = await slurm.running_version(machine)
    package = await packages.installed_version(machine, "slurm-client")
    detail = {"node_name": machine.hostname, "package_version": package, "daemon_version": version}
    await op.report(member, status="ready", detail=detail | await warnings.of(machine), version=version)
