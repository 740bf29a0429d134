"""The loop of machine grants: end what no longer stands, and see to it that the machines hear of it."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuaas_contract.access import MACHINE_ACCESS, MachineGrant
from gpuaas_contract.operations import OperationHead

from gpuaas_platform.access.machines import reactions
from gpuaas_platform.access.machines import revoke as revoking
from gpuaas_platform.access.machines import service as grants
from gpuaas_platform.access.machines import standing as grant_rules
from gpuaas_platform.access.machines import store as grants_store
from gpuaas_platform.access.machines.standing import Standing
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Origin, Site, system_origin
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import presence
from gpuaas_platform.operations import read as operations
from gpuaas_platform.record import service as record

TOPIC = reactions.TOPIC
_LEASES_COUNT_AFTER_S = 60.0
"""The longest lease: a platform that has listened for less may have missed its heartbeat."""


async def sweep(site: Site) -> None:
    looking = await _look(site, site.database.reader)
    over = [found for found in await grants_store.active(site.database.reader) if await looking.why_over(found)]
    if over:
        await site.database.write(functools.partial(_end_all, site, over))
    await revoking.settle(site)


async def _end_all(site: Site, seen: Sequence[MachineGrant], tx: db.Tx) -> None:
    """Looks again: meanwhile one may have ended, or stand again."""
    origin, looking = system_origin(site.clock()), await _look(site, tx)
    nodes = set[str]()
    for grant_id in [found.grant_id for found in seen]:
        present = await grants_store.GRANTS.get(tx, grant_id)
        reason = await looking.why_over(present) if present and present.state == "active" else ""
        if present and reason:
            await _end(tx, origin, present, reason)
            nodes.add(present.node_id)
    for node_id in sorted(nodes):
        await revoking.tell_node(tx, site, origin, node_id)


async def _end(tx: db.Tx, origin: Origin, grant: MachineGrant, reason: str) -> None:
    ended = await revoking.end(tx, origin, grant, reason)
    await record.audit(
        tx,
        origin,
        "access.machine.end",
        f"{ended.allocation_id}/{ended.grant_id}",
        org_id=ended.org_id,
        project_id=ended.project_id,
        details={"reason": reason, "actor_id": ended.actor_id, "serial": ended.serial},
    )


async def _look(site: Site, reader: db.Reader) -> "_Look":
    heard_s = await presence.received_for_s(reader, site, site.clock())
    return _Look(site, reader, heard_s >= _LEASES_COUNT_AFTER_S)


@dataclass
class _Look:
    """Facts about many grants: operations and actors are shared by most, so each is read once."""

    site: Site
    reader: db.Reader
    leases_count: bool
    operations: dict[str, OperationHead | None] = field(default_factory=dict)
    actors: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)

    async def why_over(self, grant: MachineGrant) -> str:
        operation = await self._operation(grant.operation_id) if grant.operation_id else None
        state, is_permitted = await self._actor(grant)
        standing = Standing(
            allocation=(await allocations.many(self.reader, [grant.allocation_id])).get(grant.allocation_id),
            operation=operation,
            actor_state=state,
            is_permitted=is_permitted,
            is_entitled=operation is None or await grants.is_entitled(self.reader, operation),
            leases_count=self.leases_count,
        )
        return grant_rules.why_over(grant, standing, self.site.clock())

    async def _operation(self, operation_id: str) -> OperationHead | None:
        if operation_id not in self.operations:
            found = await operations.heads_by_id(self.reader, [operation_id])
            self.operations[operation_id] = found.get(operation_id)
        return self.operations[operation_id]

    async def _actor(self, grant: MachineGrant) -> tuple[str, bool]:
        key = (grant.actor_id, grant.project_id)
        if key not in self.actors:
            self.actors[key] = await self._read_actor(grant)
        return self.actors[key]

    async def _read_actor(self, grant: MachineGrant) -> tuple[str, bool]:
        if grant.actor_type == "service_account":
            account = await identity_store.SERVICE_ACCOUNTS.get(self.reader, grant.actor_id)
            return (account.state, True) if account is not None else ("", False)
        person = await identity_store.user(self.reader, grant.actor_id)
        bindings = await identity_store.bindings(self.reader, grant.actor_id, self.site.clock())
        scopes = ["platform", grant.org_id, grant.project_id]
        verdict = identity_rules.decide(bindings, MACHINE_ACCESS.permission, scopes)
        return (person["state"], verdict == "allowed") if person is not None else ("", False)
