"""Which service accounts of an organisation a project accepts. `admission` reads it for each request of an account."""

from collections.abc import Iterable, Sequence

from gpuaas_contract import errors
from gpuaas_contract.event_types import ServiceAccountAccepted, ServiceAccountDismissed
from gpuaas_contract.identity import ServiceAccount
from gpuaas_contract.org_accounts import DISMISS, AcceptedAccount
from gpuaas_contract.paths import OrgAccountPath, ProjectPath, ServiceAccountPath
from gpuaas_contract.wire import NoBody, Page, PageQuery

from gpuaas_platform.call import Call
from gpuaas_platform.identity import store
from gpuaas_platform.identity.accounts import service
from gpuaas_platform.identity.facts import AccountLostAccess
from gpuaas_platform.kit import db, paging, structs
from gpuaas_platform.record import service as record

ENTITLEMENT_DISABLED = "the entitlement of the project for the app was disabled"
ACCOUNT_DELETED = "the service account was deleted"


async def of_organisation(reader: db.Reader, call: Call[ServiceAccountPath]) -> ServiceAccount:
    """Return the account of the project's organisation that the path names by id or name."""
    account = await service.owned(reader, call.in_project().org_id, call.path.service_account_id)
    if account is None or account.state == "deleted":
        raise errors.NotFound(
            "The organisation has no service account with this name or id.",
            fix="A tenant admin lists them: gpuaas service-account list --org ORG",
        )
    return account


async def accept(tx: db.Tx, call: Call[ServiceAccountPath], account: ServiceAccount) -> AcceptedAccount:
    """Store that the project accepts the account. The calling code has checked the entitlement."""
    project = call.in_project()
    acceptance = store.Acceptance(
        service_account_id=account.service_account_id,
        name=account.name,
        org_id=project.org_id,
        project_id=project.project_id,
        app_slug=account.apps[0],
        accepted_by=call.caller.actor_id,
        accepted_at=call.now,
    )
    present = await store.ACCEPTED_ACCOUNTS.get(tx, acceptance.acceptance_id)
    if present is not None:
        return _shown(present, account)
    await store.ACCEPTED_ACCOUNTS.insert(tx, acceptance)
    call.details.update(name=account.name, app_slug=acceptance.app_slug, permissions=account.permissions)
    payload = structs.pick(ServiceAccountAccepted, acceptance)
    await record.emit(tx, call.origin, "identity.service_account.accepted", payload, project)
    return _shown(acceptance, account)


async def dismiss(tx: db.Tx, call: Call[ServiceAccountPath], _: NoBody) -> AcceptedAccount:
    acceptance = await service.accepted(tx, call.path.project_id, call.path.service_account_id)
    if acceptance is None:
        raise errors.NotFound(
            "The project accepts no service account with this name or id.", fix="gpuaas service-account accepted"
        )
    call.details.update(name=acceptance.name, app_slug=acceptance.app_slug)
    await _end(tx, call, acceptance)
    (shown,) = await _all_shown(tx, [acceptance])
    return shown


async def list_accepted(reader: db.Reader, call: Call[ProjectPath, PageQuery]) -> Page[AcceptedAccount]:
    page = await paging.documents(reader, store.ACCEPTED_ACCOUNTS, call.query, "project_id = $1", call.path.project_id)
    return Page(items=await _all_shown(reader, page.items), next_page_token=page.next_page_token)


async def end_of_app(tx: db.Tx, call: Call, project_id: str, app_slug: str) -> None:
    """End the acceptances of the app's accounts in a project whose entitlement was disabled."""
    present = await store.ACCEPTED_ACCOUNTS.find(tx, "project_id = $1", project_id)
    await _end_all(tx, call, (item for item in present if item.app_slug == app_slug), ENTITLEMENT_DISABLED)


async def delete_account(tx: db.Tx, call: Call[OrgAccountPath], body: NoBody) -> ServiceAccount:
    """Delete an account of the organisation. No project accepts it any more."""
    account = await service.delete(tx, call, body)
    await _end_all(tx, call, await _of_account(tx, account), ACCOUNT_DELETED)
    return account


async def disable_account(tx: db.Tx, call: Call[OrgAccountPath], body: NoBody) -> ServiceAccount:
    """Disable an account of the organisation. Projects still accept it, but its leases end in all of them."""
    account = await service.disable(tx, call, body)
    for accepted in await _of_account(tx, account):
        await _end_leases(tx, call, accepted)
    return account


async def _all_shown(reader: db.Reader, acceptances: Sequence[store.Acceptance]) -> list[AcceptedAccount]:
    if not acceptances:
        return []
    accounts = await store.accounts_with_ids(reader, [item.service_account_id for item in acceptances])
    by_id = {account.service_account_id: account for account in accounts}
    return [_shown(item, by_id[item.service_account_id]) for item in acceptances]


def _shown(acceptance: store.Acceptance, account: ServiceAccount) -> AcceptedAccount:
    return structs.pick(AcceptedAccount, acceptance, state=account.state, permissions=account.permissions)


async def _of_account(tx: db.Tx, account: ServiceAccount) -> list[store.Acceptance]:
    return await store.ACCEPTED_ACCOUNTS.find(tx, "service_account_id = $1", account.service_account_id)


async def _end_all(tx: db.Tx, call: Call, ended: Iterable[store.Acceptance], reason: str) -> None:
    for accepted in ended:
        await _end(tx, call, accepted, reason)
        details = {"reason": reason, "name": accepted.name, "app_slug": accepted.app_slug}
        await record.audit(tx, call.origin, DISMISS.name, accepted.service_account_id, accepted, details=details)


async def _end(tx: db.Tx, call: Call, accepted: store.Acceptance, reason: str = "") -> None:
    await store.ACCEPTED_ACCOUNTS.delete(tx, accepted.acceptance_id)
    payload = structs.pick(ServiceAccountDismissed, accepted, dismissed_by=call.caller.actor_id, reason=reason)
    await record.emit(tx, call.origin, "identity.service_account.dismissed", payload, accepted)
    await _end_leases(tx, call, accepted)


async def _end_leases(tx: db.Tx, call: Call, accepted: store.Acceptance) -> None:
    lost = AccountLostAccess(call.origin, accepted.project_id, accepted.service_account_id)
    await call.site.reactions.react(tx, lost)
