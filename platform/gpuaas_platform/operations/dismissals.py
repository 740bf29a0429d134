"""Take the work in a project away from a service account of the organisation that the project no longer accepts."""

from msgspec.structs import replace

from gpuaas_platform.identity.facts import AccountDismissed
from gpuaas_platform.instances import stewardships
from gpuaas_platform.kit import db
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.operations import state, store

reactions = Reactions()


@reactions.to(AccountDismissed)
async def account_dismissed(tx: db.Tx, dismissed: AccountDismissed) -> None:
    """End the leases of the account. If it is accepted again soon, it must claim again: its epochs are old."""
    project_id, actor_id = dismissed.project_id, dismissed.service_account_id
    for operation in await store.held_by(tx, project_id, actor_id):
        await state.save(tx, operation, replace(operation, lease=None))
        tx.wake(state.claims_topic(project_id, operation.app_slug))
    await stewardships.withdraw_from(tx, project_id, actor_id, dismissed.origin.now)
