"""A provisioner behind an HTTP hook: `POST URL` starts an attempt, `GET URL/ATTEMPT_ID` returns its state.

`docs/how-to/connect-a-provisioner.md` describes the hook for its authors.
"""

import ssl
from pathlib import Path
from typing import Literal

import httpx
import msgspec

from gpuaas_platform.kit import urls
from gpuaas_platform.nodes.sanitise.port import Order, Progress, Unavailable

_TIMEOUT_S = 10.0
_REASON_MAX = 500
_NOT_FOUND = 404


class _Answer(msgspec.Struct):
    """The answer of the hook. It cannot be `unknown`: the status 404 expresses that."""

    state: Literal["pending", "done", "failed"]
    reason: str = ""


class HttpProvisioner:
    def __init__(self, url: str, token_file: Path, ca_file: Path | None = None) -> None:
        if not urls.is_protected(url):
            raise ValueError(f"{url!r} is not an https URL; plain http is for loopback only")
        self._url, self._token_file = url.rstrip("/"), token_file
        self._tls = ssl.create_default_context(cafile=ca_file)
        self.name = httpx.URL(url).netloc.decode()

    async def begin(self, order: Order) -> Progress:
        response = await self._send("POST", self._url, msgspec.json.encode(order))
        return _progress(response)

    async def state(self, attempt_id: str) -> Progress:
        response = await self._send("GET", f"{self._url}/{attempt_id}")
        return Progress(state="unknown") if response.status_code == _NOT_FOUND else _progress(response)

    async def _send(self, method: str, url: str, body: bytes = b"") -> httpx.Response:
        trust_env = not urls.on_loopback(url)
        try:
            # The file is read for each call, so that a token can be replaced while the server runs.
            headers = {
                "Authorization": f"Bearer {self._token_file.read_text().strip()}",
                "Content-Type": "application/json",
            }
            async with httpx.AsyncClient(timeout=_TIMEOUT_S, verify=self._tls, trust_env=trust_env) as client:
                return await client.request(method, url, headers=headers, content=body)
        except (httpx.HTTPError, OSError) as error:
            raise Unavailable(f"{self.name} does not answer: {error or type(error).__name__}") from error


def _progress(response: httpx.Response) -> Progress:
    if not response.is_success:
        raise Unavailable(f"{response.url.netloc.decode()} answered {response.status_code}")
    try:
        answer = msgspec.json.decode(response.content, type=_Answer)
    except msgspec.DecodeError as error:
        raise Unavailable(f"{response.url.netloc.decode()} sent an answer that cannot be read: {error}") from error
    return Progress(state=answer.state, reason=answer.reason[:_REASON_MAX])
