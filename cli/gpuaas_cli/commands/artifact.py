"""`gpuaas artifact`: content by its digest, from publishing to revoking, and whose signatures on it count.

gpuaas artifact
    Content is published by digest, verified against trusted keys, and promoted into channels.
gpuaas artifact sign art_01k9z0c5p3v2m8q7r6t5w4x3y2 installer.dsse
    Attach a signature that was made elsewhere: a DSSE envelope with an in-toto statement about the digest.
    body FILE: DSSE envelope, JSON; - is stdin.
gpuaas artifact verify art_01k9z0c5p3v2m8q7r6t5w4x3y2
    Have size, digest, media type and signature checked: 0 verified, 1 not.
    with_token --source-token: Ask for the source's bearer token, or read it from stdin.
gpuaas artifact promote art_01k9z0c5p3v2m8q7r6t5w4x3y2 --channel stable
    Promote a verified artifact into a channel; its content is checked against the digest once more.
    --channel: Where it may be used from now on.
    with_token --source-token: Ask for the source's bearer token, or read it from stdin.
gpuaas artifact deprecate art_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "replaced by 1.1"
    Stop new deploys of it; what runs can still fetch it.
gpuaas artifact retire art_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "no longer supported"
    Stop every use of it.
gpuaas artifact revoke art_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "the build machine was broken into"
    Withdraw trust for good: this digest is refused from now on, under every name.
gpuaas artifact list -o wide
    Artifacts of the project, or those shared with every project.
gpuaas artifact storage
    How much room the artifacts take, and the limit that holds.
gpuaas artifact trust
    Keys whose signatures on artifacts count.
gpuaas artifact trust list
    Keys whose signatures count, and those that were revoked.
gpuaas artifact trust add release release.pem
    Trust a public key. A key never changes, and never comes back after it was revoked.
    public_key_pem FILE: Public key, PEM; - is stdin.
gpuaas artifact trust revoke release
    Revoke a key: what it alone vouched for is refused from now on.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer
from gpuaas_contract import artifacts, trust_keys
from gpuaas_contract.artifacts import Artifact, Envelope, HttpSource, LocalSource, OciSource, PublishArtifact

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import session
from gpuaas_cli.input import ask, files
from gpuaas_cli.output import table
from gpuaas_cli.runner import SWITCH, Call, Command, Field, asked, run, shared

app = run.group("artifact", __doc__)


CHUNK_BYTES = 1 << 20
CONTENT_S = 900.0
"""The platform fetches and hashes the whole content before it answers."""

Shared = Annotated[bool, typer.Option("--platform", help="Shared with every project, not the project's own.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, change nothing.")]


_PUBLISHING = (artifacts.PUBLISH, artifacts.CONTENT_PUT, artifacts.SHARED_PUBLISH, artifacts.SHARED_CONTENT_PUT)


@run.by_hand(app, reaches=_PUBLISHING)
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
    platform: Shared = False,
    dry_run: DryRun = False,
) -> None:
    """Publish content: a file of yours, or what a server or a registry keeps.

    Example: gpuaas artifact publish installer --file installer.tgz --media-type application/gzip --signature i.dsse
    """
    flags = run.flags_of(context)
    if sum(map(bool, (file, url, oci))) != 1:
        raise failures.usage("Exactly one of --file, --url and --oci is needed", "gpuaas artifact publish --help")
    if file:
        digest, size = _measured(file)
    envelope = files.document(signature, Envelope) if signature else None
    source = HttpSource(url=url) if url else OciSource(reference=oci) if oci else LocalSource()
    body = PublishArtifact(
        name=name, digest=digest, size_bytes=size, media_type=media_type, source=source, signature=envelope
    )

    async def work(connection: session.Session) -> Artifact:
        endpoint = artifacts.SHARED_PUBLISH if platform else artifacts.PUBLISH
        made = await connection.call(endpoint, body, dry_run=dry_run)
        return await _send(connection, made, file, platform=platform) if file and not dry_run else made

    made = session.run(flags, work)
    kinds.show(flags, "artifacts", made)
    verify = f"  next: gpuaas artifact verify {made.artifact_id}{_flag(made)}"
    output.talk("Nothing was changed." if dry_run else verify)


@run.by_hand(app, reaches=(artifacts.CONTENT_PUT, artifacts.SHARED_CONTENT_PUT, artifacts.GET, artifacts.SHARED_GET))
def upload(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ARTIFACT", help="Id, digest, or a name only one has.")],
    file: Annotated[str, typer.Argument(metavar="FILE")],
    platform: Shared = False,
) -> None:
    """Send the content of an artifact that was published as local; kept only if size and digest are as published.

    Example: gpuaas artifact upload art_01k9z0c5p3v2m8q7r6t5w4x3y2 installer.tgz
    """
    _measured(file)

    async def work(connection: session.Session) -> Artifact:
        endpoint = artifacts.SHARED_GET if platform else artifacts.GET
        return await _send(connection, await connection.call(endpoint, artifact_id=name), file, platform=platform)

    flags = run.flags_of(context)
    kinds.show(flags, "artifacts", session.run(flags, work))


def _token(call: Call) -> str:
    if not call["with_token"]:
        return ""
    return ask.secret(call.flags, f"Token for the source of {call['artifact_id']}", "gpuaas artifact verify")


def _verified(call: Call, artifact: Artifact) -> int:
    if artifact.trust == "verified" or call.dry_run:
        return failures.OK
    raise failures.Failure(
        f"{artifact.name} is not verified: {artifact.trust_message or artifact.trust}",
        fix=f"gpuaas artifact list{_flag(artifact)} -o yaml",
        code=artifact.trust_code or artifact.trust,
    )


def _promote(artifact: Artifact) -> str:
    promote = f"gpuaas artifact promote {artifact.artifact_id} --channel stable{_flag(artifact)}"
    return promote if artifact.trust == "verified" else ""


_SECRET, _WITH_TOKEN = {"source_token": asked(_token)}, {"with_token": SWITCH}
run.declare(
    app,
    "artifact",
    __doc__,
    sign=Command(shared(artifacts.SIGNATURE_PUT, artifacts.SHARED_SIGNATURE_PUT), timeout_s=CONTENT_S),
    verify=Command(
        shared(artifacts.VERIFY, artifacts.SHARED_VERIFY),
        fields=_SECRET,
        extra=_WITH_TOKEN,
        next=_promote,
        then=_verified,
        timeout_s=CONTENT_S,
    ),
    promote=Command(
        shared(artifacts.PROMOTE, artifacts.SHARED_PROMOTE), fields=_SECRET, extra=_WITH_TOKEN, timeout_s=CONTENT_S
    ),
    deprecate=Command(shared(artifacts.DEPRECATE, artifacts.SHARED_DEPRECATE), timeout_s=CONTENT_S),
    retire=Command(shared(artifacts.RETIRE, artifacts.SHARED_RETIRE), timeout_s=CONTENT_S),
    revoke=Command(shared(artifacts.REVOKE, artifacts.SHARED_REVOKE), timeout_s=CONTENT_S),
    list=Command(shared(artifacts.LIST, artifacts.SHARED_LIST), fields={"shared": None}),
    storage=Command(
        shared(artifacts.STORAGE_GET, artifacts.SHARED_STORAGE_GET),
        table=table(
            "BYTES=bytes_used ARTIFACTS=artifact_count LIMIT",
            LIMIT=lambda item: f"{item.limit.max} ({item.limit.layer} policy)" if item.limit else "none",
        ),
    ),
)
trust = run.group(
    "artifact trust",
    __doc__,
    list=shared(trust_keys.TRUST_KEY_LIST, trust_keys.SHARED_TRUST_KEY_LIST),
    add=Command(
        shared(trust_keys.TRUST_KEY_PUT, trust_keys.SHARED_TRUST_KEY_PUT),
        fields={"public_key_pem": Field(read=lambda _, path: files.text(path))},
    ),
    revoke=shared(trust_keys.TRUST_KEY_REVOKE, trust_keys.SHARED_TRUST_KEY_REVOKE),
)
app.add_typer(trust, name="trust")


async def _send(connection: session.Session, artifact: Artifact, file: str, *, platform: bool) -> Artifact:
    endpoint = artifacts.SHARED_CONTENT_PUT if platform else artifacts.CONTENT_PUT
    path = {"artifact_id": artifact.artifact_id, **({} if platform else {"project_id": await connection.project()})}
    output.talk(f"Sending {file} ({artifact.size_bytes} bytes).")
    return await connection.client.upload(endpoint, _chunks(file), **path)


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


def _flag(artifact: Artifact) -> str:
    return " --platform" if artifact.scope == artifacts.SHARED else ""
