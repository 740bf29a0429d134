"""Write refused requests to the audit trail: one row per network, action and minute for those that are counted, and
one row each for the first ones of a signed-in caller in a minute.

The sweep runs in a loop of `server`, and once when the server stops. If the process is killed, the counts of the
current minute are lost."""

from collections.abc import Mapping, Sequence
from typing import Literal

import structlog
from gpuaas_contract import errors

from gpuaas_platform.call import Caller, Origin, Owned, Site
from gpuaas_platform.kit import db
from gpuaas_platform.kit.refusals import OTHERS, Refusal, Tally
from gpuaas_platform.record import service

log = structlog.get_logger()

TOPIC = "audit-refusals"


Denial = Literal["authz.deny", "policy.deny"]


async def deny(
    site: Site, origin: Origin, action: Denial, target: str, of: Owned, details: Mapping[str, object]
) -> None:
    """Write the audit row of a refused request of a signed-in caller. If the caller sends too many of them, count it
    instead: rows are never deleted, and they are on the chain of the organisation that the request names."""
    caller = origin.caller
    if site.refusals.takes_row(caller.actor_id, origin.now):
        await site.database.write(
            lambda tx: service.audit(tx, origin, action, target, of, result="failure", details=details)
        )
        return
    code = (errors.PermissionDenied if action == "authz.deny" else errors.PolicyDenied).code
    place = (origin.route, origin.peer, origin.correlation_id, origin.now)
    site.refusals.count(Refusal(action, *place, code, account=caller.actor_id))


async def sweep(site: Site) -> None:
    """Write the rows of the minutes that are over."""
    await _write(site, site.refusals.take(site.clock()))


async def flush(site: Site) -> None:
    """Write all rows, before the process ends."""
    try:
        await _write(site, site.refusals.take())
    except db.Unavailable as error:
        log.error("audit.refusals_not_written", error=str(error))


async def _write(site: Site, tallies: Sequence[Tally]) -> None:
    async def use_case(tx: db.Tx) -> None:
        for tally in tallies:
            origin, action, details = _origin(tally), tally.first.action, _details(tally)
            await service.audit(tx, origin, action, tally.network, result="failure", details=details)

    if not tallies:
        return
    try:
        await site.database.write(use_case)
    except BaseException:
        site.refusals.give_back(tallies)
        raise


def _origin(tally: Tally) -> Origin:
    first = tally.first
    peer = "" if tally.network == OTHERS else first.peer
    return Origin(Caller("anonymous", ""), first.correlation_id, tally.last_at, peer, first.route)


def _details(tally: Tally) -> dict[str, object]:
    details: dict[str, object] = {
        "count": tally.count,
        "first_at": tally.first.at.isoformat(),
        "last_at": tally.last_at.isoformat(),
        "codes": tally.codes,
        "accounts": tally.accounts,
    }
    return {**details, "reasons": tally.reasons} if tally.reasons else details
