"""Service accounts of an organisation: each operates one app, in the projects of the organisation that accept it.

The structs are those of `identity`. Projects accept and dismiss the accounts."""

from gpuaas_contract import errors
from gpuaas_contract.identity import (
    BindServiceAccount,
    CreateServiceAccount,
    RotateServiceAccountKey,
    ServiceAccount,
    ServiceAccountKey,
    ServiceAccountKeyInfo,
)
from gpuaas_contract.paths import ACCEPTED_ACCOUNT, ORG, ORG_ACCOUNT, ORG_ACCOUNT_KEY, PROJECT
from gpuaas_contract.wire import NoBody, Timestamp, Wire


class AcceptedAccount(Wire):
    """An account of the organisation that operates an app here."""

    service_account_id: str
    name: str
    org_id: str
    project_id: str
    app_slug: str
    """The app that the service account operates; it never changes."""
    accepted_by: str
    accepted_at: Timestamp
    state: str
    """State of the account in its organisation: `active` or `disabled`."""
    permissions: list[str]
    """The only permission keys that the account can use here. A tenant admin can change them; the project then gets the
    event `identity.service_account.bound`."""


CREATE = ORG.row(
    "/service-accounts",
    "identity.org_service_account.create",
    "Create a service account of an organisation",
    "For one controller process that serves several projects. `apps` names exactly one app, which never changes. The "
    "account may do nothing until a project accepts it.",
).post(
    CreateServiceAccount,
    ServiceAccount,
    "identity.service_account.create",
    status=201,
    errors=(errors.AppUnknown, errors.Conflict),
    example={"name": "app-fleet", "apps": ["app"]},
)
BIND = ORG_ACCOUNT.row(
    "/apps",
    "identity.org_service_account.bind",
    "Set the permissions of an organisation's service account",
    "`apps` names the app that the account operates; another one is refused. Without `permissions` the account gets "
    "all that the app's manifests list now. If its permissions change, each project that accepts it gets the event "
    "`identity.service_account.bound`.",
).put(
    BindServiceAccount,
    ServiceAccount,
    "identity.service_account.bind",
    errors=(errors.AppUnknown, errors.Conflict),
    example={"apps": ["app"]},
)
LIST = ORG.row(
    "/service-accounts", "identity.org_service_account.list", "List the service accounts of an organisation"
).list(ServiceAccount, "identity.service_account.read")
GET = ORG_ACCOUNT.row(
    "", "identity.org_service_account.get", "Get one service account of an organisation, also a deleted one"
).get(ServiceAccount, "identity.service_account.read")
DISABLE = ORG_ACCOUNT.row(
    "/disable",
    "identity.org_service_account.disable",
    "Disable a service account of an organisation",
    "The account's tokens and its leases end at once, and it gets no new ones. Its keys stay, and projects still "
    "accept it.",
).post(NoBody, ServiceAccount, "identity.service_account.change")
ENABLE = ORG_ACCOUNT.row(
    "/enable",
    "identity.org_service_account.enable",
    "Enable a disabled service account of an organisation",
    "The service account can sign in again with its existing keys.",
).post(NoBody, ServiceAccount, "identity.service_account.change")
DELETE = ORG_ACCOUNT.row(
    "",
    "identity.org_service_account.delete",
    "Delete a service account of an organisation with its keys and tokens",
    "No project accepts it any more. The account's name can be used again.",
).delete(ServiceAccount, "identity.service_account.delete")
KEY_CREATE = ORG_ACCOUNT.row(
    "/keys", "identity.org_service_account_key.create", "Create a key for a service account of an organisation"
).post(
    NoBody,
    ServiceAccountKey,
    "identity.service_account_key.create",
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
)
KEY_LIST = ORG_ACCOUNT.row(
    "/keys",
    "identity.org_service_account_key.list",
    "List the keys of an organisation's service account, without their secrets",
).list(ServiceAccountKeyInfo, "identity.service_account_key.read")
KEY_ROTATE = ORG_ACCOUNT_KEY.row(
    "/rotate",
    "identity.org_service_account_key.rotate",
    "Replace a key of an organisation's service account",
    "The old key ends after `grace_s`.",
).post(
    RotateServiceAccountKey,
    ServiceAccountKey,
    "identity.service_account_key.rotate",
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
    example={"grace_s": 3600},
)
KEY_REVOKE = ORG_ACCOUNT_KEY.row(
    "",
    "identity.org_service_account_key.revoke",
    "Revoke a key of an organisation's service account and every token made with it",
).delete(ServiceAccountKeyInfo, "identity.service_account_key.revoke")

ACCEPT = ACCEPTED_ACCOUNT.row(
    "",
    "identity.service_account.accept",
    "Let a service account of the organisation operate its app in this project",
    "The project needs an enabled entitlement for the app. The account gets the permissions in the response, in this "
    "project; a dry run shows them first. Disabling the entitlement ends the acceptance.",
).put(NoBody, AcceptedAccount, repeat="key", errors=(errors.NotEntitled,))  # a late copy must not undo a dismissal
DISMISS = ACCEPTED_ACCOUNT.row(
    "",
    "identity.service_account.dismiss",
    "End the access of an organisation's service account to this project",
    "Counts from the next request of the account. Its leases end at once, and its access to machines within five "
    "seconds.",
).delete(AcceptedAccount)
ACCEPTED_LIST = PROJECT.row(
    "/accepted-accounts",
    "identity.service_account.accepted",
    "List the service accounts of the organisation that this project accepts",
).list(AcceptedAccount, "identity.service_account.read")
