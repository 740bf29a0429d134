"""The actions `accounting.*`: back up the accounting database, list backups, restore one. Used by `controller`."""

from typing import Any

import msgspec
from gpuaas_contract.protocol.result import NOTE_LENGTH_MAX
from gpuaas_sdk.controller import Operation, Refused
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import reports, roles, usage, user_actions
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import accounting, accounting_backups, config, moves, nodes, state


class Restore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `accounting.restore`."""

    name: str
    confirm: str


async def back_up(op: Operation) -> dict[str, Any]:
    head = await op.machine(roles.controller_of(op.members))
    made = await accounting_backups.back_up(head, accounting_backups.name_of(op.id))
    copy = f"gpuaas ssh {head.hostname} --root -- sudo cat {accounting_backups.FOLDER}/{made.name} > {made.name}"
    return {"rows": [_row(made)], "note": f"It is removed with the cluster. To copy it: {copy}"}


async def list_backups(op: Operation) -> dict[str, Any]:
    head = await op.machine(roles.controller_of(op.members))
    return {"rows": [_row(backup) for backup in await accounting_backups.listed(head)]}


async def restore(op: Operation, settings: Settings) -> dict[str, Any]:
    """Put a backup in the place of the accounting database. The present one is backed up first."""
    wanted, inputs = op.inputs_as(Restore), config.parse_inputs(op.instance.inputs)
    if wanted.confirm != inputs.cluster_name:
        raise Refused("`confirm` is not the name of the cluster", fix=f"repeat with confirm={inputs.cluster_name}")
    head = await op.machine(roles.controller_of(op.members))
    await moves.refuse_begun(head)
    # An earlier attempt may have ended while the daemons were stopped.
    await head.run("systemctl", "start", "slurmdbd", "slurmctld", check=False)
    async with reports.opened_after_failure(op, head):
        await accounting_backups.stage(head, wanted.name, inputs.cluster_name)
        before, missing = await _exchange(op, head, settings)
    await reports.open_partitions(op, head)
    await user_actions.sync(op, settings)
    restored = next(backup for backup in await accounting_backups.listed(head) if backup.name == wanted.name)
    note = f"The database before the restore is in {before.name}. Users and people have their place in Slurm again."
    return {"rows": [_row(restored)], "note": f"{note} Also, {missing}."[:NOTE_LENGTH_MAX] if missing else note}


async def _exchange(op: Operation, head: Machine, settings: Settings) -> tuple[accounting_backups.Backup, str]:
    """Put the staged database in the place of the present one while no job runs. Return the backup of the latter, and
    which usage may be missing. slurmctld answers again afterwards."""
    await reports.head(op)
    await _close(op, head)
    missing = await usage.report_before_loss(op, roles.controller_of(op.members), settings)
    await op.say("restoring the accounting database")
    before = await accounting_backups.back_up(head, accounting_backups.name_of(op.id, "before-restore"))
    await accounting_backups.exchange(head)
    await accounting.wait_for_slurmdbd(head, settings, op.say)
    await op.until_deadline(lambda: reports.head(op))
    return before, missing


async def _close(op: Operation, head: Machine) -> None:
    """Close the partitions, and refuse if there are jobs: their records would be lost."""
    await reports.set_partitions(op, head, "down")
    check = state.cluster_quiet(await nodes.jobs_of_cluster(head))
    if not check.ok:
        raise Refused(f"{check.reason}; a restore would lose their records", fix="let the jobs end: squeue")


def _row(backup: accounting_backups.Backup) -> dict[str, Any]:
    return {
        "name": backup.name,
        "made_at": backup.made_at.isoformat(),
        "size": backup.size_bytes,
        "sha256": backup.sha256,
    }
