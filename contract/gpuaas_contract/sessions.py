"""Your own sessions, and sign-in through an identity provider (OpenID Connect, authorization code with PKCE)."""

from typing import Annotated

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.identity import Token
from gpuaas_contract.paths import API, SESSION
from gpuaas_contract.wire import NoBody, Request, Timestamp, Wire

ProviderText = Annotated[str, msgspec.Meta(max_length=8192)]
"""A value that the identity provider made."""


class Session(Wire):
    """One sign-in of a person or a service account."""

    session_id: str
    """Identifies the session; it is not a token."""
    created_at: Timestamp
    expires_at: Timestamp
    current: bool
    """Whether this request was made with this session."""
    key_id: str = ""
    """The service-account key that the session was started with; empty for people."""


class OidcStart(Wire):
    """Where to sign in with the identity provider."""

    authorization_url: str
    """Address to open in a browser; the identity provider sends the browser back with `code` and `state`."""
    state: str
    """Random value of this sign-in; the identity provider must send back the same `state`."""


class OidcExchange(Request):
    """What the identity provider sent back; it is exchanged for a token."""

    code: ProviderText
    """Code that the identity provider sent back. It works once, within ten minutes. A dry run checks only the state,
    does not use the code, and answers with an empty token."""
    state: ProviderText


SESSION_LIST = API.row("/me/sessions", "auth.session.list", "List your sessions").list(Session, permission="")
SESSION_END = SESSION.row("", "auth.session.end", "End one of your sessions").delete(Session, permission="")
LOGOUT = API.row("/auth/logout", "auth.logout", "Sign out: end the session of this request").post(
    NoBody, Session, permission="", repeat="natural"
)
OIDC_AUTHORIZE = API.row(
    "/auth/oidc/authorize", "auth.oidc.authorize", "Start a sign-in through the identity provider"
).get(OidcStart, audience="public", errors=(errors.OidcNotConfigured,))
OIDC_EXCHANGE = API.row(
    "/auth/oidc/exchange", "auth.oidc.exchange", "Finish a sign-in through the identity provider"
).post(
    OidcExchange,
    Token,
    subject="",
    audience="public",
    secret_answer=True,
    errors=(errors.OidcNotConfigured, errors.SignInRefused),
)
