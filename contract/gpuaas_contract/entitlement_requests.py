"""Requests of projects for apps that they may not deploy yet, and the published apps that a project can request."""

from gpuaas_contract.catalog import Reason, Slug
from gpuaas_contract.lifecycles import EntitlementRequestState
from gpuaas_contract.operations import OptionalReason
from gpuaas_contract.paths import ENTITLEMENT_REQUEST, PROJECT
from gpuaas_contract.wire import PageQuery, Request, Timestamp, Wire


class EntitlementRequest(Wire):
    """The request of a project for an app that it may not deploy."""

    project_id: str
    app_slug: str
    state: EntitlementRequestState
    reason: str
    """Why the project needs the app, as text for the admin who decides."""
    requested_by: str
    requested_at: Timestamp
    decided_by: str = ""
    """Who granted or refused it; empty while it is open."""
    decided_at: Timestamp | None = None
    decision_reason: str = ""
    """Why it was refused, as text for people."""

    @property
    def entitlement_request_id(self) -> str:
        return f"{self.project_id}/{self.app_slug}"


class RequestEntitlement(Request):
    """Requests that the project may deploy an app."""

    app_slug: Slug
    reason: OptionalReason = ""
    """Why the project needs the app; shown to the admin who decides."""


class RefuseEntitlement(Request):
    """Refuses the open request of a project."""

    reason: Reason
    """Why it is refused; shown to the project."""


class EntitlementRequestQuery(PageQuery):
    state: EntitlementRequestState | None = None
    """Only requests in this state."""


class AppOffer(Wire):
    """A published app, as a project sees it, without its manifest."""

    app_slug: str
    display_name: str
    summary: str
    version: str
    """The newest published version."""
    entitled: bool
    """Whether the project may deploy the app; its entitlement can limit the versions."""
    request: EntitlementRequest | None = None
    """The request of the project for the app, if there was one."""


ENTITLEMENT_REQUEST_CREATE = PROJECT.row(
    "/entitlement-requests",
    "catalog.entitlement_request.create",
    "Request that the project may deploy an app",
    "If a request for the app is open, that one is answered and nothing changes. A grant or a refusal closes it.",
).post(
    RequestEntitlement,
    EntitlementRequest,
    "catalog.entitlement.request",
    subject="app_slug",
    status=201,
    example={"app_slug": "tiny", "reason": "course in June"},
)
ENTITLEMENT_REQUEST_LIST = PROJECT.row(
    "/entitlement-requests", "catalog.entitlement_request.list", "List the requests of a project for apps"
).list(EntitlementRequest, "catalog.app.read", query=EntitlementRequestQuery)
ENTITLEMENT_REQUEST_GET = ENTITLEMENT_REQUEST.row(
    "", "catalog.entitlement_request.get", "Get the request of a project for one app"
).get(EntitlementRequest, "catalog.app.read")
ENTITLEMENT_REQUEST_REFUSE = ENTITLEMENT_REQUEST.row(
    "/refuse",
    "catalog.entitlement_request.refuse",
    "Refuse the open request of a project for an app",
    "To grant it, set the entitlement.",
).post(
    RefuseEntitlement,
    EntitlementRequest,
    "catalog.entitlement.change",
    subject="app_slug",
    example={"reason": "use the shared cluster"},
)
OFFER_LIST = PROJECT.row(
    "/app-offers",
    "catalog.offer.list",
    "List the published apps that a project can have",
    "Also those that it may not deploy yet, without their manifests. An app that a policy denies is left out.",
).list(AppOffer, "catalog.app.read")
