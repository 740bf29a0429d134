"""Your own sessions, and sign-in through an identity provider (OpenID Connect, authorization code with PKCE)."""

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.identity import Token
from gpuaas_contract.paths import SessionPath
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Timestamp, Wire


class Session(Wire):
    """One sign-in of a person or a service account."""

    session_id: str
    """Identifies the session; it is not a token."""
    created_at: Timestamp
    expires_at: Timestamp
    current: bool
    """Whether it is the session of this request."""
    key_id: str = ""
    """The service-account key it was made with; empty for people."""


class OidcStart(Wire):
    """Where to sign in with the identity provider."""

    authorization_url: str
    """Open it in a browser; the provider sends the browser back with `code` and `state`."""
    state: str
    """Must equal the `state` that comes back."""


class OidcExchange(Request):
    """What the identity provider sent back; it is exchanged for a token."""

    code: str
    """As the identity provider sent it back, within ten minutes. It works once. A dry run checks only the state, does
    not use the code, and answers with an empty token."""
    state: str


SESSION_LIST = Endpoint(
    "auth.session.list",
    "GET",
    "/api/v1/me/sessions",
    "List your sessions",
    request=NoBody,
    query=PageQuery,
    response=Page[Session],
)
SESSION_END = Endpoint(
    "auth.session.end",
    "DELETE",
    "/api/v1/me/sessions/{session_id}",
    "End one of your sessions",
    params=SessionPath,
    request=NoBody,
    response=Session,
    subject="session_id",
)
LOGOUT = Endpoint(
    "auth.logout",
    "POST",
    "/api/v1/auth/logout",
    "Sign out: end the session of this request",
    repeat="natural",
    request=NoBody,
    response=Session,
    subject="session_id",
)
OIDC_AUTHORIZE = Endpoint(
    "auth.oidc.authorize",
    "GET",
    "/api/v1/auth/oidc/authorize",
    "Start a sign-in through the identity provider",
    audience="public",
    request=NoBody,
    response=OidcStart,
    errors=(errors.OidcNotConfigured,),
)
OIDC_EXCHANGE = Endpoint(
    "auth.oidc.exchange",
    "POST",
    "/api/v1/auth/oidc/exchange",
    "Finish a sign-in through the identity provider",
    audience="public",
    repeat="natural",
    request=OidcExchange,
    response=Token,
    secret_answer=True,
    errors=(errors.OidcNotConfigured, errors.SignInRefused),
)
ENDPOINTS = (SESSION_LIST, SESSION_END, LOGOUT, OIDC_AUTHORIZE, OIDC_EXCHANGE)
