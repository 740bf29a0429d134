"""Client of one OpenID provider: authorization code flow with PKCE (S256). `server` makes it, `identity.oidc` uses it.

Libraries build the requests and check the ID token. This module only sends the requests, in the right order.
"""

import datetime
import time
from dataclasses import dataclass
from typing import Any

import httpx
from authlib.common.security import generate_token
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwk, jwt
from joserfc.errors import JoseError

from gpuaas_platform.kit import urls

_METADATA_KEPT_S = 600.0
_TIMEOUT_S = 10.0
_CLOCK_SKEW_S = 60
Fields = dict[str, Any]
"""A JSON object from the provider."""
_SCOPE = "openid profile email"
_ACCEPT = {"Accept": "application/json"}
_SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Accepted signature algorithms. All are asymmetric: the provider's public key cannot be misused as a shared secret."""


class Unreachable(Exception):
    """The provider does not answer, or its answer is not usable."""


class Refused(Exception):
    """The provider refused the code, or its ID token is not valid."""


@dataclass(frozen=True)
class Start:
    url: str
    state: str
    nonce: str
    code_verifier: str


class Provider:
    def __init__(self, issuer: str, client_id: str, client_secret: str, redirect_url: str) -> None:
        self.issuer = issuer.rstrip("/")
        _check_transport(self.issuer)
        self._client_id, self._client_secret, self._redirect_url = client_id, client_secret, redirect_url
        # Loading the trusted TLS authorities takes time, so it is done once, not for each request.
        self._tls = httpx.create_ssl_context()
        self._metadata: Fields = {}
        self._metadata_until = 0.0

    async def start(self) -> Start:
        """Return the URL for the browser, and the values to store until the user returns from the provider."""
        metadata = await self._discover()
        state, nonce, code_verifier = generate_token(48), generate_token(48), generate_token(64)
        url = prepare_grant_uri(
            metadata["authorization_endpoint"],
            client_id=self._client_id,
            response_type="code",
            redirect_uri=self._redirect_url,
            scope=_SCOPE,
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(code_verifier),
            code_challenge_method="S256",
        )
        return Start(url, state, nonce, code_verifier)

    async def finish(self, code: str, code_verifier: str, nonce: str, now: datetime.datetime) -> Fields:
        """Return the claims about the user who signed in. Reads the provider's keys each time: they may be rotated."""
        metadata = await self._discover()
        answer = await self._redeem(metadata, code, code_verifier)
        key_set = await self._send("GET", metadata["jwks_uri"])
        try:
            return self._verified(answer, metadata, key_set, nonce, now)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise Refused(f"its ID token is not valid: {error}") from error

    async def _discover(self) -> Fields:
        if time.monotonic() >= self._metadata_until:
            metadata = await self._send("GET", f"{self.issuer}/.well-known/openid-configuration")
            if str(metadata.get("issuer", "")).rstrip("/") != self.issuer:
                raise Unreachable(f"{self.issuer} identifies itself as {metadata.get('issuer')!r}")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                _check_transport(str(metadata.get(name, "")))
            self._metadata, self._metadata_until = metadata, time.monotonic() + _METADATA_KEPT_S
        return self._metadata

    async def _redeem(self, metadata: Fields, code: str, code_verifier: str) -> Fields:
        body = prepare_token_request(
            "authorization_code", code=code, redirect_uri=self._redirect_url, code_verifier=code_verifier
        )
        supported = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        method = "client_secret_basic" if "client_secret_basic" in supported else "client_secret_post"
        authentication = ClientAuth(self._client_id, self._client_secret, method if self._client_secret else "none")
        form = {"Content-Type": "application/x-www-form-urlencoded", **_ACCEPT}
        return await self._send("POST", *authentication.prepare("POST", metadata["token_endpoint"], form, body))

    def _verified(self, answer: Fields, metadata: Fields, key_set: Any, nonce: str, now: datetime.datetime) -> Fields:
        supported = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = [name for name in _SIGNATURES if name in supported]
        token = jwt.decode(answer["id_token"], jwk.KeySet.import_key_set(key_set), algorithms=algorithms)
        claims = CodeIDToken(
            token.claims,
            token.header,
            options={
                "iss": {"essential": True, "value": metadata["issuer"]},
                "aud": {"essential": True, "value": self._client_id},
                "sub": {"essential": True},
            },
            params={"nonce": nonce, "client_id": self._client_id, "access_token": answer.get("access_token")},
        )
        claims.validate(now=int(now.timestamp()), leeway=_CLOCK_SKEW_S)
        return dict(claims)

    async def _send(self, method: str, url: str, headers: dict[str, str] = _ACCEPT, body: str = "") -> Fields:
        trust_env = not urls.on_loopback(url)
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_S, verify=self._tls, trust_env=trust_env) as client:
                response = await client.request(method, url, headers=headers, content=body.encode())
            content = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise Unreachable(f"{url} gave no answer that can be read: {error}") from error
        if isinstance(content, dict):
            if response.is_success:
                return content
            if method == "POST" and response.is_client_error:
                raise Refused(f"it answered {content.get('error', response.status_code)}")
        raise Unreachable(f"{url} answered {response.status_code}")


def _check_transport(url: str) -> None:
    if not urls.is_protected(url):
        raise Unreachable(f"{url!r} is not an https URL; plain http is for loopback only")
