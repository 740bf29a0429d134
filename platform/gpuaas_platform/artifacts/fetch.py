"""Fetch content from its source, only from allowed hosts, with limits for size and time. Used by `content`.

Tenants choose the source, and the platform connects to it. So each address is checked before the connection, and a
redirect to another host is followed only if a policy names that host.
"""

import asyncio
import contextlib
import functools
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Collection
from typing import Annotated, TypeVar
from urllib.request import parse_http_list, parse_keqv_list

import httpx
import msgspec
from gpuaas_contract import errors
from gpuaas_contract.artifacts import Artifact, HttpSource, OciSource

from gpuaas_platform.artifacts import documents, rules
from gpuaas_platform.kit import addresses
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.policy import rules as policy_rules

_CONNECT_S_MAX, _PAUSE_S_MAX = 10.0, 30.0
_REDIRECTS_MAX = 3
_DOCUMENT_BYTES_MAX = 4 << 20
_UNSPECIFIC = frozenset({"", "application/octet-stream", "binary/octet-stream"})
"""Media types that servers send for unknown content. Registries send them for every blob."""
_MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"


@functools.cache
def _trusted_authorities() -> ssl.SSLContext:
    """Return the trusted TLS authorities. Loading them is slow, so they are loaded once, at the first fetch."""
    return httpx.create_ssl_context()


class _Descriptor(msgspec.Struct):
    digest: str
    size: int
    media_type: str = msgspec.field(name="mediaType", default="")


class _Manifest(msgspec.Struct):
    layers: list[_Descriptor] = []


class _Granted(msgspec.Struct):
    token: Annotated[str, msgspec.Meta(max_length=16_384)] = ""
    access_token: Annotated[str, msgspec.Meta(max_length=16_384)] = ""


@contextlib.asynccontextmanager
async def opened(
    artifact: Artifact, settings: Settings, layers: policy_rules.Layers, token: str
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the content in chunks, as the source sends it. They can be read while the context is open."""
    transport, timeout = _Guarded(settings.artifact_internal_hosts), httpx.Timeout(_PAUSE_S_MAX, connect=_CONNECT_S_MAX)
    client = httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False, follow_redirects=False)
    try:
        async with asyncio.timeout(settings.artifact_fetch_s_max), client:
            fetch = _Fetch(client, artifact, layers, token)
            async with fetch.content() as response:
                yield _body(response)
    except TimeoutError as error:
        raise errors.ArtifactSourceUnreachable(
            f"The source had not sent everything after {settings.artifact_fetch_s_max:g} s."
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise errors.ArtifactSourceUnreachable(
            f"The source does not answer: {error or type(error).__name__}"
        ) from error


class _Fetch:
    """One fetch. It decides which hosts to connect to, and which of them receive the token."""

    def __init__(self, client: httpx.AsyncClient, artifact: Artifact, layers: policy_rules.Layers, token: str) -> None:
        self._client, self._artifact, self._layers, self._token = client, artifact, layers, token
        self._home: httpx.URL = httpx.URL("")

    @contextlib.asynccontextmanager
    async def content(self) -> AsyncIterator[httpx.Response]:
        source, size_bytes = self._artifact.source, self._artifact.size_bytes
        url = source.url if isinstance(source, HttpSource) else await self._blob_url(source)
        async with contextlib.aclosing(await self._get(url)) as response:
            sent = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if sent not in _UNSPECIFIC and sent != self._artifact.media_type:
                raise _other_media_type(sent, self._artifact.media_type)
            length = response.headers.get("content-length", "")
            if length.isdigit() and int(length) > size_bytes:
                raise errors.ArtifactTooLarge(f"The source has {length} bytes; {size_bytes} were published.")
            yield response

    async def _blob_url(self, source: object) -> str:
        if not isinstance(source, OciSource):
            raise TypeError(f"{source} is not fetched")
        reference = rules.reference(source)
        host = reference.registry.rpartition(":")[0] or reference.registry
        scheme = "http" if addresses.is_loopback(host) else "https"
        base = f"{scheme}://{reference.registry}/v2/{reference.repository}"
        if reference.manifest:
            raw = await self._document(f"{base}/manifests/{reference.manifest}", _MANIFESTS)
            self._check_listed(raw, reference.manifest)
        return f"{base}/blobs/{self._artifact.digest}"

    def _check_listed(self, raw: bytes, name: str) -> None:
        artifact = self._artifact
        seen = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        if name.startswith("sha256:") and seen != name:
            raise errors.ArtifactDigestMismatch(f"The registry's manifest is {seen}, not {name}.")
        listed = _decoded(raw, _Manifest).layers
        layer = next((entry for entry in listed if entry.digest == artifact.digest), None)
        if layer is None:
            raise errors.ArtifactDigestMismatch(f"The registry's manifest {name} does not list {artifact.digest}.")
        if layer.media_type != artifact.media_type:
            raise _other_media_type(layer.media_type, artifact.media_type)
        if layer.size != artifact.size_bytes:
            kind = errors.ArtifactTooLarge if layer.size > artifact.size_bytes else errors.ArtifactTruncated
            raise kind(f"The registry's manifest lists {layer.size} bytes, not {artifact.size_bytes}.")

    async def _document(self, url: str, accept: str) -> bytes:
        async with contextlib.aclosing(await self._get(url, accept)) as response:
            return await _whole(response)

    async def _get(self, url: str, accept: str = "*/*") -> httpx.Response:
        """Return a response with status 200. Its body has not been read yet."""
        self._home = httpx.URL(url)
        response = await self._followed(self._home, accept)
        if response.status_code == 401 and not self._token:
            await response.aclose()
            self._token = await self._anonymous_token(response.headers.get("www-authenticate", ""))
            response = await self._followed(self._home, accept)
        if response.status_code != 200:
            await response.aclose()
            raise errors.ArtifactSourceUnreachable(f"{url} answered {response.status_code}.")
        return response

    async def _followed(self, url: httpx.URL, accept: str) -> httpx.Response:
        for _ in range(_REDIRECTS_MAX + 1):
            response = await self._send(url, accept)
            if not response.has_redirect_location:
                return response
            await response.aclose()
            target = url.join(response.headers["location"])
            self._check_way(url, target, "redirects to")
            url = target
        raise errors.ArtifactRedirectRefused(f"{self._home} redirects more than {_REDIRECTS_MAX} times.")

    async def _send(self, url: httpx.URL, accept: str) -> httpx.Response:
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        if self._token and _same_host(url, self._home):
            if url.scheme != "https" and not addresses.is_loopback(url.host):
                raise errors.ArtifactSourceDenied(f"{url} is not https: a token is not sent there.")
            headers["Authorization"] = f"Bearer {self._token}"
        return await self._client.send(self._client.build_request("GET", url, headers=headers), stream=True)

    def _check_way(self, url: httpx.URL, target: httpx.URL, verb: str) -> None:
        stays_encrypted = target.scheme in ("https", url.scheme)
        if stays_encrypted and (_same_host(target, self._home) or self._is_listed(str(target))):
            return
        place = str(target.copy_with(query=None, fragment=None))
        raise errors.ArtifactRedirectRefused(f"{self._home} {verb} {place[:300]}.", details={"target": place[:300]})

    def _is_listed(self, target: str) -> bool:
        """Return whether an allow list of a policy names the target. Without any list the result is False."""
        try:
            verdict = policy_rules.verdict(self._layers, "artifact_source", rules.canonical_url(target))
        except errors.ValidationFailed:
            return False
        return verdict.allowed and verdict.layer is not None

    async def _anonymous_token(self, challenge: str) -> str:
        """Get an anonymous token: registries need one even for public content. Its host is checked like a redirect."""
        scheme, _, rest = challenge.partition(" ")
        challenge_values = parse_keqv_list([part for part in parse_http_list(rest) if "=" in part])
        if scheme.lower() != "bearer" or "realm" not in challenge_values:
            raise errors.ArtifactSourceUnreachable(f"{self._home} needs a token.")
        asked = {name: value for name, value in challenge_values.items() if name in ("service", "scope")}
        realm = self._home.join(challenge_values["realm"]).copy_merge_params(asked)
        self._check_way(self._home, realm, "has its tokens at")
        async with contextlib.aclosing(await self._send(realm, "application/json")) as response:
            granted = _decoded(await _whole(response), _Granted) if response.status_code == 200 else _Granted()
        if not (granted.token or granted.access_token):
            raise errors.ArtifactSourceUnreachable(f"{self._home} has no public access; send a token.")
        return granted.token or granted.access_token


class _Guarded(httpx.AsyncHTTPTransport):
    """Connects to the address that it checked, so that the host name cannot resolve to another one after the check."""

    def __init__(self, internal_hosts: Collection[str]) -> None:
        # Connections are made by address, so they are not reused: the next request may be for another host name.
        super().__init__(
            verify=_trusted_authorities(), trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )
        self._internal_hosts = internal_hosts

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        address = await _address(host, request.url.port or 443)
        if host not in self._internal_hosts and not addresses.is_public(address):
            details = {"rule": "internal addresses are closed unless the operator names the host", "host": host}
            fix = "Have the operator start the server with --artifact-internal-host."
            raise errors.ArtifactSourceDenied(f"{host} is on an internal address.", details=details, fix=fix)
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=address)
        return await super().handle_async_request(request)


async def _address(host: str, port: int) -> str:
    try:
        known = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise errors.ArtifactSourceUnreachable(f"{host} has no address: {error.strerror or error}") from error
    return str(known[0][4][0])


def _same_host(url: httpx.URL, other: httpx.URL) -> bool:
    """Return whether `url` has the scheme, host and port of `other`, or is the https version of it."""
    upgraded = url.scheme == "https" and other.scheme == "http" and url.port is None and other.port is None
    return url.host == other.host and ((url.scheme, url.port) == (other.scheme, other.port) or upgraded)


async def _body(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_raw(1 << 18):
            yield chunk
    except httpx.RemoteProtocolError as error:
        raise errors.ArtifactTruncated(f"The source closed the connection early: {error}") from error


async def _whole(response: httpx.Response) -> bytes:
    raw = bytearray()
    async for chunk in _body(response):
        raw += chunk
        if len(raw) > _DOCUMENT_BYTES_MAX:
            raise errors.ArtifactTooLarge(f"The registry's answer has more than {_DOCUMENT_BYTES_MAX} bytes.")
    return bytes(raw)


def _other_media_type(sent: str, media_type: str) -> errors.ArtifactMediaTypeMismatch:
    return errors.ArtifactMediaTypeMismatch(f"The source sends {sent[:127] or 'nothing'}, not {media_type}.")


_Form = TypeVar("_Form")


def _decoded(raw: bytes, kind: type[_Form]) -> _Form:
    try:
        return documents.decode(raw, kind)
    except documents.Unreadable as error:
        raise errors.ArtifactSourceUnreachable(f"The registry's answer cannot be read: {error}.") from error
