"""The loop of machine grants: end grants whose conditions are no longer met, and make the machines refuse them."""

import functools

from gpuaas_contract.access import MachineGrant
from gpuaas_contract.runtime import LEASE_S_MAX

from gpuaas_platform.access.machines import revoke, rules, store
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.allocations.facts import MachinePrepared
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.identity import authority
from gpuaas_platform.identity import service as identity
from gpuaas_platform.instances import stewardships
from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.nodes import presence
from gpuaas_platform.operations import read as operations
from gpuaas_platform.record import service as record

TOPIC = "grants"
reactions = Reactions()
_LEASES_COUNT_AFTER_S = float(LEASE_S_MAX)
"""Until heartbeats could be received for this long, an expired lease does not end a grant."""


async def sweep(site: Site) -> None:
    if await _over(site, site.database.reader):
        await site.database.write(functools.partial(_end_all, site))
    await revoke.follow_up(site)


@reactions.to(MachinePrepared)
async def machine_prepared(tx: db.Tx, prepared: MachinePrepared) -> None:
    """Schedule sending the revoked serials again: after a reinstallation the machine refuses no certificate yet."""
    await store.expect(tx, store.Sent(prepared.allocation.node_id, "", clock.micros(prepared.origin.now)))
    tx.wake(TOPIC)


async def _end_all(site: Site, tx: db.Tx) -> None:
    """End all grants that are over. Read them again first, because they may have changed since the sweep read them."""
    origin = system_origin(site.clock())
    over = await _over(site, tx)
    for grant, reason in over:
        ended = await revoke.end(tx, origin, grant, reason)
        target = f"{ended.allocation_id}/{ended.grant_id}"
        details = {"reason": reason, "actor_id": ended.actor_id, "serial": ended.serial}
        await record.audit(tx, origin, "access.machine.end", target, ended, details=details)
    for node_id in sorted({grant.node_id for grant, _ in over}):
        await revoke.send(tx, site, origin, node_id)


async def _over(site: Site, reader: db.Reader) -> list[tuple[MachineGrant, str]]:
    """Return the active grants that must end, with the reason. The number of SQL statements is constant."""
    active, now = await store.active(reader), site.clock()
    leases_count = await presence.received_for_s(reader, site, now) >= _LEASES_COUNT_AFTER_S
    held = await allocations.many(reader, sorted({grant.allocation_id for grant in active}))
    heads = await operations.heads_by_id(reader, sorted({grant.operation_id for grant in active} - {""}))
    entitled = await catalog.entitled(reader, {(head.project_id, head.app_slug) for head in heads.values()})
    observed = await stewardships.many(reader, sorted({grant.instance_id for grant in active} - {""}))
    sessions = await identity.existing_sessions(reader, {grant.session_id for grant in active} - {""})
    actors = await authority.actors(reader, {grant.actor_id for grant in active}, now)

    def why_over(grant: MachineGrant) -> str:
        actor, operation = actors.get(grant.actor_id), heads.get(grant.operation_id)
        scopes = authority.scopes_of(grant.org_id, grant.project_id)
        may_enter = actor is not None and authority.can(actor.caller, rules.permission(grant), scopes) == "allowed"
        steward = observed.get(grant.instance_id)
        app_slug = operation.app_slug if operation else steward.app_slug if steward else ""
        operates = actor is not None and (not app_slug or app_slug in actor.caller.apps)
        present = rules.Conditions(
            allocation=held.get(grant.allocation_id),
            operation=operation,
            actor_state=actor.state if actor else "",
            session_exists=not grant.session_id or grant.session_id in sessions,
            is_permitted=may_enter and operates,
            is_entitled=operation is not None and (operation.project_id, operation.app_slug) in entitled,
            steward=steward.steward if steward else None,
            leases_count=leases_count,
        )
        return rules.why_over(grant, present, now)

    return [(grant, reason) for grant in active if (reason := why_over(grant))]
