"""Take the work in a project away from a service account that was dismissed, disabled or deleted."""

from msgspec.structs import replace

from gpuaas_platform.identity.facts import AccountLostAccess
from gpuaas_platform.instances import stewardships
from gpuaas_platform.kit import db
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.operations import state, store

reactions = Reactions()


@reactions.to(AccountLostAccess)
async def account_lost_access(tx: db.Tx, lost: AccountLostAccess) -> None:
    """End the leases of the account. If it soon gets its access back, it must claim again: its epochs are old."""
    project_id, actor_id = lost.project_id, lost.service_account_id
    for operation in await store.held_by(tx, project_id, actor_id):
        await state.save(tx, operation, replace(operation, lease=None))
        tx.wake(state.claims_topic(project_id, operation.app_slug))
    await stewardships.withdraw_from(tx, project_id, actor_id, lost.origin.now)
