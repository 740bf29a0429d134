"""`gpuaas artifact`: content by its digest, from publishing to revoking, and whose signatures on it count."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from gpuaas_contract import artifacts, trust_keys
from gpuaas_contract.artifacts import (
    Artifact,
    EndArtifact,
    Envelope,
    HttpSource,
    LocalSource,
    OciSource,
    PromoteArtifact,
    PublishArtifact,
    Source,
    VerifyArtifact,
)
from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.trust_keys import PutTrustKey, TrustKey

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import ask, documents
from gpuaas_cli.output import Column
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import NeededReason

app = run.command_group()
trust = run.command_group()
app.add_typer(trust, name="trust")

CHUNK_BYTES = 1 << 20
CONTENT_S = 900.0
"""The platform fetches and hashes the whole content before it answers."""

ArtifactName = Annotated[str, typer.Argument(metavar="ARTIFACT", help="Id, digest, or a name only one has.")]
Shared = Annotated[bool, typer.Option("--platform", help="Shared with every project, not the project's own.")]
SourceToken = Annotated[
    bool, typer.Option("--source-token", help="Ask for the source's bearer token, or read it from stdin.")
]
KeyName = Annotated[str, typer.Argument(metavar="KEY")]
_STORAGE_COLUMNS = (
    Column("BYTES", lambda one: str(one.bytes_used)),
    Column("ARTIFACTS", lambda one: str(one.artifact_count)),
    Column("LIMIT", lambda one: f"{one.limit.max} ({one.limit.layer} policy)" if one.limit else "none"),
)
Pair = tuple[Endpoint[RequestBody, Answer], Endpoint[RequestBody, Answer]]
"""The same act in a project, and for every project."""


@app.callback()
def artifact() -> None:
    """Content is published by digest, verified against trusted keys, and promoted into channels."""


@trust.callback()
def whom_to_trust() -> None:
    """Keys whose signatures on artifacts count."""


@run.command(app)
def publish(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    media_type: Annotated[str, typer.Option(help="type/subtype")],
    file: Annotated[str, typer.Option(metavar="FILE", help="Upload this; digest and size are taken from it.")] = "",
    url: Annotated[str, typer.Option(metavar="URL", help="Fetch it from there; needs --digest and --size.")] = "",
    oci: Annotated[str, typer.Option(metavar="REFERENCE", help="A registry's blob; needs --digest and --size.")] = "",
    digest: Annotated[str, typer.Option(metavar="SHA256", help="sha256: and 64 digits.")] = "",
    size: Annotated[int, typer.Option(min=0, help="Bytes.")] = 0,
    signature: Annotated[str, typer.Option(metavar="FILE", help="DSSE envelope, JSON; can come later.")] = "",
    shared: Shared = False,
) -> int:
    """Publish content: a file of yours, or what a server or a registry keeps.

    Example: gpuaas artifact publish installer --file installer.tgz --media-type application/gzip --signature i.dsse
    """
    flags = run.flags_of(context)
    if sum(map(bool, (file, url, oci))) != 1:
        raise failures.usage("Exactly one of --file, --url and --oci is needed", "gpuaas artifact publish --help")
    if file:
        digest, size = _measured(file)
    body = PublishArtifact(
        name=name,
        digest=digest,
        size_bytes=size,
        media_type=media_type,
        source=_source(url, oci),
        signature=documents.read(signature, Envelope, "an envelope") if signature else None,
    )

    async def work(opened: session.Session) -> Artifact:
        made = await opened.call(_at((artifacts.PUBLISH, artifacts.SHARED_PUBLISH), shared), body)
        return await _send(opened, made, file, shared=shared) if file else made

    made = session.run(flags, work)
    kinds.show_one(flags, "artifacts", made)
    output.talk(f"  next: gpuaas artifact verify {made.artifact_id}{_flag(shared)}")
    return failures.OK


@run.command(app)
def upload(
    context: typer.Context,
    name: ArtifactName,
    file: Annotated[str, typer.Argument(metavar="FILE")],
    shared: Shared = False,
) -> int:
    """Send the content of an artifact that was published as local; kept only if size and digest are as published.

    Example: gpuaas artifact upload art_01k9z0c5p3v2m8q7r6t5w4x3y2 installer.tgz
    """
    _measured(file)

    async def work(opened: session.Session) -> Artifact:
        return await _send(opened, await lookup.artifact(opened, name, shared=shared), file, shared=shared)

    flags = run.flags_of(context)
    kinds.show_one(flags, "artifacts", session.run(flags, work))
    return failures.OK


@run.command(app)
def sign(
    context: typer.Context,
    name: ArtifactName,
    signature: Annotated[str, typer.Argument(metavar="FILE", help="DSSE envelope, JSON; - is stdin.")],
    shared: Shared = False,
) -> int:
    """Attach a signature that was made elsewhere: a DSSE envelope with an in-toto statement about the digest.

    Example: gpuaas artifact sign art_01k9z0c5p3v2m8q7r6t5w4x3y2 installer.dsse
    """
    body = documents.read(signature, Envelope, "an envelope")
    _act(context, (artifacts.SIGNATURE_PUT, artifacts.SHARED_SIGNATURE_PUT), name, body, shared=shared)
    return failures.OK


@run.command(app)
def verify(
    context: typer.Context, name: ArtifactName, source_token: SourceToken = False, shared: Shared = False
) -> int:
    """Have size, digest, media type and signature checked: 0 verified, 1 not.

    Example: gpuaas artifact verify art_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    body = VerifyArtifact(source_token=_token(context, name) if source_token else "")
    found = _act(context, (artifacts.VERIFY, artifacts.SHARED_VERIFY), name, body, shared=shared)
    if found.trust == "verified":
        output.talk(f"  next: gpuaas artifact promote {found.artifact_id} --channel stable{_flag(shared)}")
        return failures.OK
    raise failures.Failure(
        f"{found.name} is not verified: {found.trust_message or found.trust}",
        fix=f"gpuaas artifact list{_flag(shared)} -o yaml",
        code=found.trust_code or found.trust,
    )


@run.command(app)
def promote(
    context: typer.Context,
    name: ArtifactName,
    channel: Annotated[str, typer.Option(help="Where it may be used from now on.")],
    source_token: SourceToken = False,
    shared: Shared = False,
) -> int:
    """Promote a verified artifact into a channel; its content is checked against the digest once more.

    Example: gpuaas artifact promote art_01k9z0c5p3v2m8q7r6t5w4x3y2 --channel stable
    """
    body = PromoteArtifact(channel=channel, source_token=_token(context, name) if source_token else "")
    _act(context, (artifacts.PROMOTE, artifacts.SHARED_PROMOTE), name, body, shared=shared)
    return failures.OK


def _ending_command(verb: str, pair: Pair[EndArtifact, Artifact], meaning: str, why: str) -> None:
    example = f'Example: gpuaas artifact {verb} art_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "{why}"'

    @run.command(app, verb, help=f"{meaning}\n\n{example}")
    def end(context: typer.Context, name: ArtifactName, reason: NeededReason, shared: Shared = False) -> int:
        _act(context, pair, name, EndArtifact(reason=reason), shared=shared)
        return failures.OK


_ending_command(
    "deprecate",
    (artifacts.DEPRECATE, artifacts.SHARED_DEPRECATE),
    "Stop new deploys of it; what runs can still fetch it.",
    "replaced by 1.1",
)
_ending_command("retire", (artifacts.RETIRE, artifacts.SHARED_RETIRE), "Stop every use of it.", "no longer supported")
_ending_command(
    "revoke",
    (artifacts.REVOKE, artifacts.SHARED_REVOKE),
    "Withdraw trust for good: this digest is refused from now on, under every name.",
    "the build machine was broken into",
)


@run.command(app, "list")
def list_artifacts(
    context: typer.Context,
    shared: Shared = False,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also retired ones.")] = False,
) -> int:
    """Artifacts of the project, or those shared with every project.

    Example: gpuaas artifact list -o wide
    """

    async def work(opened: session.Session) -> Sequence[Artifact]:
        found = await opened.every(_at((artifacts.LIST, artifacts.SHARED_LIST), shared))
        return [one for one in found if everything or one.lifecycle != "retired"]

    flags = run.flags_of(context)
    kinds.show_list(flags, "artifacts", session.run(flags, work))
    return failures.OK


@run.command(app)
def storage(context: typer.Context, shared: Shared = False) -> int:
    """How much room the artifacts take, and the limit that holds.

    Example: gpuaas artifact storage
    """
    flags = run.flags_of(context)
    endpoint = _at((artifacts.STORAGE_GET, artifacts.SHARED_STORAGE_GET), shared)
    found = session.run(flags, lambda opened: opened.call(endpoint))
    output.show_one(flags, found, _STORAGE_COLUMNS, lambda one: str(one.bytes_used))
    return failures.OK


@run.command(trust, "list")
def list_keys(context: typer.Context, shared: Shared = False) -> int:
    """Keys whose signatures count, and those that were revoked.

    Example: gpuaas artifact trust list
    """
    flags = run.flags_of(context)
    endpoint = _at((trust_keys.TRUST_KEY_LIST, trust_keys.SHARED_TRUST_KEY_LIST), shared)
    kinds.show_list(flags, "trust-keys", session.run(flags, lambda opened: opened.every(endpoint)))
    return failures.OK


@run.command(trust)
def add(
    context: typer.Context,
    key: KeyName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Public key, PEM; - is stdin.")],
    shared: Shared = False,
) -> int:
    """Trust a public key. A key never changes, and never comes back after it was revoked.

    Example: gpuaas artifact trust add release release.pem
    """
    body = PutTrustKey(public_key_pem=documents.text(file))
    endpoint = _at((trust_keys.TRUST_KEY_PUT, trust_keys.SHARED_TRUST_KEY_PUT), shared)
    return _show_key(context, lambda opened: opened.call(endpoint, body, trust_key_id=key))


@run.command(trust)
def revoke(context: typer.Context, key: KeyName, shared: Shared = False) -> int:
    """Revoke a key: what it alone vouched for is refused from now on.

    Example: gpuaas artifact trust revoke release
    """
    endpoint = _at((trust_keys.TRUST_KEY_REVOKE, trust_keys.SHARED_TRUST_KEY_REVOKE), shared)
    return _show_key(context, lambda opened: opened.call(endpoint, trust_key_id=key))


def _at(pair: Pair[RequestBody, Answer], shared: bool) -> Endpoint[RequestBody, Answer]:
    return pair[1] if shared else pair[0]


def _act(
    context: typer.Context, pair: Pair[RequestBody, Artifact], named: str, body: RequestBody, *, shared: bool
) -> Artifact:
    """Do something with one artifact, and show it as it is then."""

    async def work(opened: session.Session) -> Artifact:
        found = await lookup.artifact(opened, named, shared=shared)
        return await opened.call(_at(pair, shared), body, timeout_s=CONTENT_S, artifact_id=found.artifact_id)

    flags = run.flags_of(context)
    changed = session.run(flags, work)
    kinds.show_one(flags, "artifacts", changed)
    return changed


def _show_key(context: typer.Context, work: Callable[[session.Session], Coroutine[Any, Any, TrustKey]]) -> int:
    flags = run.flags_of(context)
    kinds.show_one(flags, "trust-keys", session.run(flags, work))
    return failures.OK


async def _send(opened: session.Session, found: Artifact, file: str, *, shared: bool) -> Artifact:
    endpoint = _at((artifacts.CONTENT_PUT, artifacts.SHARED_CONTENT_PUT), shared)
    path = {"artifact_id": found.artifact_id, **({} if shared else {"project_id": await opened.project_id()})}
    output.talk(f"Sending {file} ({found.size_bytes} bytes).")
    return await opened.client.upload(endpoint, _chunks(file), **path)


async def _chunks(file: str) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(Path(file).open, "rb") as content:
        while chunk := await asyncio.to_thread(content.read, CHUNK_BYTES):
            yield chunk


def _measured(file: str) -> tuple[str, int]:
    """Digest and size of a file that can be read."""
    try:
        with Path(file).open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            return f"sha256:{digest}", content.tell()
    except OSError as error:
        raise failures.usage(f"{file} cannot be read: {error.strerror}", "Name a file") from error


def _source(url: str, oci: str) -> Source:
    if url:
        return HttpSource(url=url)
    return OciSource(reference=oci) if oci else LocalSource()


def _token(context: typer.Context, named: str) -> str:
    return ask.secret(run.flags_of(context), f"Token for the source of {named}", "gpuaas artifact verify")


def _flag(shared: bool) -> str:
    return " --platform" if shared else ""
