"""A real OpenID provider in a process of its own, from the package oidc-provider-mock, made strict and mischievous.

Strict: it insists on PKCE, which the package leaves out. Mischievous: `POST /mischief/{name}` spoils the next ID token
in a named way, and `POST /rotate` gives it a new signing key. Run as a program: `oidc_provider.py PORT`.
"""

import base64
import contextlib
import hmac
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from gpuaas_sdk.testing import free_port
from joserfc import jwk, jwt

MISCHIEF = ("nonce", "audience", "issuer", "expired", "tampered", "unsigned", "other_key", "shared_secret")
_ANSWER_S_MAX = 60.0


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The issuer's URL."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(Path(__file__)), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until_ready(f"http://127.0.0.1:{port}/.well-known/openid-configuration", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def sign_in(authorization_url: str, subject: str) -> dict[str, str]:
    """What a person does in the browser; the answer is what the browser brings back."""
    with httpx.Client(trust_env=False, verify=False, timeout=_ANSWER_S_MAX) as browser:
        answer = browser.post(authorization_url, data={"sub": subject})
    assert answer.status_code == 302, answer.text
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}


def tell(issuer: str, method: str, path: str, content: dict[str, Any] | None = None) -> None:
    with httpx.Client(trust_env=False, verify=False, timeout=_ANSWER_S_MAX) as client:
        client.request(method, f"{issuer}{path}", json=content or {}).raise_for_status()


def _until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    ends_at = time.monotonic() + 60
    with httpx.Client(trust_env=False, verify=False, timeout=_ANSWER_S_MAX) as client:
        while True:
            assert process.poll() is None, "the provider ended"
            assert time.monotonic() < ends_at, "the provider did not start"
            with contextlib.suppress(httpx.TransportError):
                if client.get(url).is_success:
                    return
            time.sleep(0.05)


def _serve(port: int) -> None:
    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
    import flask  # noqa: PLC0415 - only the provider's own process loads it, with its warnings
    import oidc_provider_mock._app as package  # noqa: PLC0415
    import uvicorn  # noqa: PLC0415
    from authlib import jose  # noqa: PLC0415
    from authlib.oauth2.rfc7636 import CodeChallenge  # noqa: PLC0415

    challenges: dict[str, tuple[str | None, str | None]] = {}
    planned: list[str] = []

    class Grant(package.AuthorizationCodeGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post", "none"]

        def save_authorization_code(self, code: str, request: Any) -> None:
            asked = request.payload.data
            challenges[code] = (asked.get("code_challenge"), asked.get("code_challenge_method"))
            super().save_authorization_code(code, request)

    class Pkce(CodeChallenge):  # type: ignore[misc]
        def get_authorization_code_challenge(self, authorization_code: Any) -> str | None:
            return challenges[authorization_code.code][0]

        def get_authorization_code_challenge_method(self, authorization_code: Any) -> str | None:
            return challenges[authorization_code.code][1]

    class Extension(package.OpenIDCode):  # type: ignore[misc]
        def __call__(self, grant: Any) -> None:
            super().__call__(grant)
            Pkce(required=True)(grant)

    package.AuthorizationCodeGrant = Grant
    package.OpenIDCode = Extension
    application = package.app(require_nonce=True)

    @application.post("/mischief/<name>")  # type: ignore[untyped-decorator]
    def plan(name: str) -> str:
        planned.append(name)
        return ""

    @application.post("/rotate")  # type: ignore[untyped-decorator]
    def rotate() -> str:
        flask.g.oidc_provider_mock_storage.jwk = jose.RSAKey.generate_key(is_private=True)
        return ""

    @application.after_request  # type: ignore[untyped-decorator]
    def spoil(response: Any) -> Any:
        if planned and response.is_json and "id_token" in (response.json or {}):
            private = flask.g.oidc_provider_mock_storage.jwk.as_dict(is_private=True)
            answer = dict(response.json)
            answer["id_token"] = _spoiled(planned.pop(), answer["id_token"], private)
            response.set_data(json.dumps(answer))
        return response

    uvicorn.run(application, interface="wsgi", host="127.0.0.1", port=port, log_config=None)


def _spoiled(how: str, token: str, private: dict[str, Any]) -> str:
    head, body, signature = token.split(".")
    header, claims = _decoded(head), _decoded(body)
    if how == "tampered":
        return f"{head}.{_encoded({**claims, 'sub': 'somebody-else'})}.{signature}"
    if how == "unsigned":
        return f"{_encoded({**header, 'alg': 'none'})}.{body}."
    if how == "shared_secret":
        # The oldest trick: the public key, used as if it were a shared secret.
        public = jwk.RSAKey.import_key(private).as_pem(private=False)
        signed_part = f"{_encoded({**header, 'alg': 'HS256'})}.{body}"
        return f"{signed_part}.{_base64(hmac.digest(public, signed_part.encode(), 'sha256'))}"
    changes: dict[str, dict[str, Any]] = {
        "nonce": {"nonce": "another"},
        "audience": {"aud": ["another"]},
        "issuer": {"iss": "https://another.test"},
        "expired": {"exp": int(time.time()) - 3600},
        "other_key": {},
    }
    key = jwk.RSAKey.generate_key(2048) if how == "other_key" else jwk.RSAKey.import_key(private)
    return jwt.encode(header, {**claims, **changes[how]}, key, algorithms=[header["alg"]])


def _decoded(part: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return fields


def _encoded(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def fresh_subject() -> str:
    return f"person-{secrets.token_hex(4)}"


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
