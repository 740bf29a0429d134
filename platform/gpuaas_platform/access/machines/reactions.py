"""What happens to machine grants after a machine was installed again."""

from gpuaas_platform.access.machines import store
from gpuaas_platform.allocations.facts import MachinePrepared
from gpuaas_platform.kit import db
from gpuaas_platform.kit.reactions import Reactions

TOPIC = "grants"
reactions = Reactions()


@reactions.to(MachinePrepared)
async def machine_prepared(tx: db.Tx, prepared: MachinePrepared) -> None:
    """The machine refuses no certificate yet: have the loop send the revoked serials again."""
    await store.send_again(tx, prepared.allocation.node_id, prepared.origin.now)
    tx.wake(TOPIC)
