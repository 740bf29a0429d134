"""Bind service accounts of earlier releases to the apps that they operate. Runs at the start of the server."""

import structlog
from gpuaas_contract.identity import ServiceAccount

from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.identity.accounts import service as accounts
from gpuaas_platform.kit import db
from gpuaas_platform.operations import controllers, store

log = structlog.get_logger()


async def bind_accounts(site: Site) -> None:
    """Bind each account to the apps for which there is proof that it operates them, and to no other app."""
    if not await accounts.to_bind(site.database.reader):
        return

    async def use_case(tx: db.Tx) -> None:
        origin = system_origin(site.clock())
        for account in await accounts.to_bind(tx):
            apps = await _operated(tx, account)
            await accounts.bind_at_upgrade(tx, origin, account, apps)
            log.warning("service_account.bound", service_account_id=account.service_account_id, apps=sorted(apps))

    await site.database.write(use_case)


async def _operated(reader: db.Reader, account: ServiceAccount) -> set[str]:
    """Return the apps of which the account was seen as a controller, has claimed an operation, or is the operator."""
    seen = await controllers.apps_of(reader, account.project_id, account.service_account_id)
    return seen | await store.apps_operated_by(reader, account.project_id, account.service_account_id)
