"""Sign in through an identity provider. A sign-in that was started can be finished only once, within ten minutes."""

import datetime
from typing import NoReturn

from gpuaas_contract import errors
from gpuaas_contract.identity import Token
from gpuaas_contract.sessions import OidcExchange, OidcStart
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Call, Caller
from gpuaas_platform.identity import rules, service, store
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.kit import clock, db, ids, openid
from gpuaas_platform.record import service as record

_SIGN_IN_S = 600
_NAMESAKES_MAX = 9999


async def start(call: Call, _: NoBody) -> OidcStart:
    try:
        begun = await _provider(call).start()
    except openid.Unreachable as error:
        raise _unavailable(error) from error
    expires_at = clock.micros(call.now + datetime.timedelta(seconds=_SIGN_IN_S))

    await call.site.database.write(
        lambda tx: token_store.add_sign_in(tx, ids.digest(begun.state), begun.code_verifier, begun.nonce, expires_at)
    )
    return OidcStart(authorization_url=begun.url, state=begun.state)


async def finish(call: Call, body: OidcExchange) -> Token:
    provider, database = _provider(call), call.site.database
    kept = await database.write(lambda tx: token_store.take_sign_in(tx, ids.digest(body.state), call.now))
    if kept is None:
        _refuse(call, "This sign-in was not started here, was used, or is older than ten minutes.")
    if call.dry_run:
        # A dry run cannot check the code: only the provider can, and it accepts a code only once.
        return Token(access_token="", expires_in_s=call.site.settings.session_ttl_s)
    try:
        claims = await provider.finish(body.code, kept["code_verifier"], kept["nonce"], call.now)
    except openid.Refused as error:
        _refuse(call, f"The identity provider's answer was refused: {error}.")
    except openid.Unreachable as error:
        raise _unavailable(error) from error
    token = await database.write(lambda tx: _sign_in(tx, call, provider.issuer, claims))
    if token is None:
        _refuse(call, "This person is disabled here.")
    return token


async def _sign_in(tx: db.Tx, call: Call, issuer: str, claims: dict[str, object]) -> Token | None:
    user = await store.user_by_subject(tx, issuer, str(claims["sub"]))
    if user is not None and user["state"] != "active":
        return None
    caller = Caller("user", user["user_id"], user["name"]) if user else await _new_user(tx, call, issuer, claims)
    return await service.issue_token(tx, service.origin_of(call, caller), caller, call.site.settings.session_ttl_s)


async def _new_user(tx: db.Tx, call: Call, issuer: str, claims: dict[str, object]) -> Caller:
    """Create the user at the first sign-in. A new user has no role bindings."""
    name, subject = await _free_name(tx, rules.wished_user_name(claims)), str(claims["sub"])
    user_id = await store.add_user(tx, name, issuer=issuer, subject=subject, created_by="oidc", now=call.now)
    caller, details = Caller("user", user_id, name), {"external_id": f"oidc:{subject}"}
    await record.audit(tx, service.origin_of(call, caller), "identity.user.create", user_id, details=details)
    return caller


async def _free_name(tx: db.Tx, wished: str) -> str:
    for name in (wished, *(f"{wished}-{number}" for number in range(2, _NAMESAKES_MAX))):
        if await store.user_by_name(tx, name) is None:
            return name
    raise errors.Conflict(f"Too many people are named {wished}.")


def _provider(call: Call) -> openid.Provider:
    if call.site.openid is None:
        raise errors.OidcNotConfigured
    return call.site.openid


def _unavailable(error: openid.Unreachable) -> errors.Unavailable:
    return errors.Unavailable(f"The identity provider cannot be used right now: {error}")


def _refuse(call: Call, message: str) -> NoReturn:
    service.refuse(call, errors.SignInRefused(message), "auth.oidc.exchange", reason=message)
