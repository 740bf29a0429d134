"""`gpuaas artifact`: content by its digest, from publishing to revoking, and whose signatures on it count.

gpuaas artifact
    An artifact is content for machines. It is published by digest, verified with trusted keys and promoted into
    channels.
gpuaas artifact publish installer --file installer.tgz --media-type application/gzip --signature i.dsse
    Publish an artifact: a local file, or content at a URL or in an OCI registry.
    name NAME
    --media-type: type/subtype
    --file FILE: File to upload; its digest and size are computed.
    --url URL: URL from which the content is fetched; needs --digest and --size.
    --oci REFERENCE: Blob of an OCI registry that is the content; needs --digest and --size.
    --digest SHA256: sha256: and 64 digits.
    --size: Bytes.
    --signature FILE: File with the signature: a DSSE envelope in JSON. It can be added later with gpuaas artifact sign.
gpuaas artifact upload art_01k9z0c5p3v2m8q7r6t5w4x3y2 installer.tgz
    Upload the content of an artifact that was published as local. Content with another size or digest is refused.
    file FILE
gpuaas artifact sign art_01k9z0c5p3v2m8q7r6t5w4x3y2 --key release.key
gpuaas artifact sign art_01k9z0c5p3v2m8q7r6t5w4x3y2 installer.dsse
    Sign an artifact on this machine with a private key, or attach a signature that was made elsewhere.
    signature FILE: File with the signature: a DSSE envelope in JSON; - is stdin.
    key --key FILE: Private key in PEM form: Ed25519, ECDSA or RSA. It is not sent.
gpuaas artifact signature installer installer.tgz --key release.key > installer.dsse
    Sign a file on this machine without a server, and print the signature: a DSSE envelope for publish and sign.
    name NAME: Name under which the artifact is published.
    file FILE: The content of the artifact.
    key --key FILE: Private key in PEM form: Ed25519, ECDSA or RSA. It is not sent.
gpuaas artifact verify art_01k9z0c5p3v2m8q7r6t5w4x3y2
    Have the platform check size, digest, media type and signature of an artifact. Exit status 0: verified; 1: not.
    with_token --source-token: The artifact's source needs a bearer token: ask for it, or read it from stdin.
gpuaas artifact promote art_01k9z0c5p3v2m8q7r6t5w4x3y2 --channel stable
    Promote a verified artifact into a channel; its content is checked against the digest once more.
    --channel: Channel in which the artifact may be used from now on.
    with_token --source-token: The artifact's source needs a bearer token: ask for it, or read it from stdin.
gpuaas artifact deprecate art_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "replaced by 1.1"
    Stop new deployments that use an artifact. Running instances can still fetch it.
gpuaas artifact retire art_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "no longer supported"
    Stop every use of an artifact: machines can no longer fetch it.
gpuaas artifact revoke art_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "the build machine was broken into"
    Withdraw trust in an artifact permanently: content with its digest is refused from now on, under every name.
gpuaas artifact list -o wide
    Artifacts of the project, or those shared with every project.
gpuaas artifact storage
    Show how much storage the artifacts use, and the limit that applies.
gpuaas artifact trust
    Trust keys are public keys whose signatures on artifacts are accepted.
gpuaas artifact trust list
    List the trusted and the revoked keys.
gpuaas artifact trust add release release.pem
    Accept signatures of a public key on artifacts. A revoked key cannot be trusted again.
    public_key_pem FILE: File with the public key in PEM form; - is stdin.
gpuaas artifact trust revoke release
    Revoke a trusted key: artifacts that no other trusted key has signed are refused from now on.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from gpuaas_contract import artifacts, trust_keys
from gpuaas_contract.artifacts import Artifact, Envelope, HttpSource, LocalSource, OciSource, PublishArtifact
from gpuaas_sdk import signatures
from msgspec.inspect import IntType

from gpuaas_cli import failures, output, terminal
from gpuaas_cli.input import ask, files
from gpuaas_cli.output import table
from gpuaas_cli.runner import REQUIRED, SWITCH, Call, Command, Field, asked, shared

CHUNK_BYTES = 1 << 20
CONTENT_S = 900.0
"""Timeout of requests for which the platform fetches and hashes the whole content."""
NEW_KEY = "openssl genpkey -algorithm ed25519 -out release.key"
_GET = shared(artifacts.GET, artifacts.SHARED_GET, artifacts.APP_GET)
_CONTENT = shared(artifacts.CONTENT_PUT, artifacts.SHARED_CONTENT_PUT, artifacts.APP_CONTENT_PUT)


def _check_source(call: Call) -> None:
    if sum(map(bool, (call["file"], call["url"], call["oci"]))) != 1:
        raise failures.usage("Exactly one of --file, --url and --oci is needed", "gpuaas artifact publish --help")


async def _publish(call: Call) -> Artifact:
    file, url, oci = call["file"], call["url"], call["oci"]
    digest, size = _measured(file) if file else (call["digest"], call["size"])
    made: Artifact = await call.send(
        name=call["name"],
        digest=digest,
        size_bytes=size,
        media_type=call["media_type"],
        source=HttpSource(url=url) if url else OciSource(reference=oci) if oci else LocalSource(),
        signature=files.document(call["signature"], Envelope) if call["signature"] else None,
    )
    return await _send(call, made) if file and not call.dry_run else made


async def _upload(call: Call) -> Artifact:
    return await _send(call, await call.session.call(getattr(_GET, call.level), **await call.path()))


async def _sign(call: Call) -> Artifact:
    """Attach the signature from the file, or sign the artifact's digest here."""
    endpoint, path = call.endpoint, await call.path()
    if not call["key"]:
        envelope = files.document(call["signature"], Envelope)
    else:
        artifact = await call.session.call(getattr(_GET, call.level), **path)
        envelope = _envelope(artifact.name, artifact.digest, call["key"])
    timeout_s = call.command.timeout_s
    made: Artifact = await call.session.call(endpoint, envelope, dry_run=call.dry_run, timeout_s=timeout_s, **path)
    return made


def _check_signature(call: Call) -> None:
    if bool(call["key"]) == bool(call["signature"]):
        raise failures.usage(
            "Exactly one of --key KEY and a file with a signature is needed", "gpuaas artifact sign --help"
        )


def _print_signature(call: Call) -> None:
    digest, _ = _measured(call["file"])
    envelope = _envelope(call["name"], digest, call["key"])
    terminal.out(msgspec.json.format(msgspec.json.encode(envelope)).decode())


def _envelope(name: str, digest: str, key_file: str) -> Envelope:
    signed = signatures.envelope(name, digest.removeprefix("sha256:"), _signing_key(key_file))
    return msgspec.json.decode(signed, type=Envelope)


def _signing_key(path: str) -> signatures.SigningKey:
    """Read a private key that signs artifacts."""
    try:
        return signatures.read_key(Path(path).read_bytes())
    except OSError as error:
        raise failures.usage(f"{path} cannot be read: {error.strerror}", NEW_KEY) from error
    except ValueError as error:
        raise failures.usage(f"{path} is no private key for signatures: {error}", NEW_KEY) from error


async def _send(call: Call, artifact: Artifact) -> Artifact:
    path = {"artifact_id": artifact.artifact_id}
    if call.level == "project":
        path["project_id"] = await call.session.project()
    if call.level == "app":
        path["app_slug"] = call["app"]
    output.talk(f"Sending {call['file']} ({artifact.size_bytes} bytes).")
    endpoint = getattr(_CONTENT, call.level)
    return await call.session.client.upload(endpoint, _chunks(call["file"]), dry_run=call.dry_run, **path)


async def _chunks(file: str) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(Path(file).open, "rb") as content:
        while chunk := await asyncio.to_thread(content.read, CHUNK_BYTES):
            yield chunk


def _measured(file: str) -> tuple[str, int]:
    """Return digest and size of a file."""
    try:
        with Path(file).open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            return f"sha256:{digest}", content.tell()
    except OSError as error:
        raise failures.usage(f"{file} cannot be read: {error.strerror}", "Name a file") from error


def _sign_or_verify(artifact: Artifact) -> str:
    """Return the command after publishing: without a signature, a verification always fails."""
    if not artifact.signed:
        return f"gpuaas artifact sign {artifact.artifact_id}{_flag(artifact)} --key FILE"
    return f"gpuaas artifact verify {artifact.artifact_id}{_flag(artifact)}"


def _flag(artifact: Artifact) -> str:
    """Return the option with which other commands find the artifact."""
    if artifact.app_slug:
        return f" --app {artifact.app_slug}"
    return " --platform" if artifact.scope == artifacts.SHARED else ""


def _token(call: Call) -> str:
    if not call["with_token"]:
        return ""
    return ask.secret(call.flags, f"Token for the source of {call['artifact_id']}", "gpuaas artifact verify")


def _verified(call: Call, artifact: Artifact) -> int:
    if artifact.trust == "verified" or call.dry_run:
        return failures.OK
    message = f"{artifact.name} is not verified: {artifact.trust_message or artifact.trust}"
    shown = f"gpuaas artifact list{_flag(artifact)} -o yaml"
    fix, code = shown if artifact.signed else _sign_or_verify(artifact), artifact.trust_code or artifact.trust
    raise failures.Failure(message, fix, code=code)


def _promote(artifact: Artifact) -> str:
    promote = f"gpuaas artifact promote {artifact.artifact_id} --channel stable{_flag(artifact)}"
    return promote if artifact.trust == "verified" else ""


_SECRET, _WITH_TOKEN = {"source_token": asked(_token)}, {"with_token": SWITCH}
COMMANDS = {
    "artifact publish": Command(
        shared(artifacts.PUBLISH, artifacts.SHARED_PUBLISH, artifacts.APP_PUBLISH),
        calls=_CONTENT.every,
        fields=dict.fromkeys(PublishArtifact.__struct_fields__),
        extra={
            **dict.fromkeys(("name", "media_type"), Field(default=REQUIRED)),
            **dict.fromkeys(("digest", "signature"), Field()),
            "size": Field(type=IntType(ge=0), default=0),
        },
        check=_check_source,
        work=_publish,
        next=_sign_or_verify,
    ),
    "artifact upload": Command(
        _CONTENT,
        calls=_GET.every,
        check=lambda call: _measured(call["file"]),
        work=_upload,
    ),
    "artifact sign": Command(
        shared(artifacts.SIGNATURE_PUT, artifacts.SHARED_SIGNATURE_PUT, artifacts.APP_SIGNATURE_PUT),
        fields=dict.fromkeys(Envelope.__struct_fields__),
        extra={"signature": Field(default=""), "key": Field()},
        check=_check_signature,
        work=_sign,
        next=lambda made: f"gpuaas artifact verify {made.artifact_id}{_flag(made)}",
        timeout_s=CONTENT_S,
    ),
    "artifact signature": Command(
        offline=_print_signature, extra=dict.fromkeys(("name", "file", "key"), Field(default=REQUIRED))
    ),
    "artifact verify": Command(
        shared(artifacts.VERIFY, artifacts.SHARED_VERIFY, artifacts.APP_VERIFY),
        fields=_SECRET,
        extra=_WITH_TOKEN,
        next=_promote,
        then=_verified,
        timeout_s=CONTENT_S,
    ),
    "artifact promote": Command(
        shared(artifacts.PROMOTE, artifacts.SHARED_PROMOTE, artifacts.APP_PROMOTE),
        fields=_SECRET,
        extra=_WITH_TOKEN,
        timeout_s=CONTENT_S,
    ),
    "artifact deprecate": Command(
        shared(artifacts.DEPRECATE, artifacts.SHARED_DEPRECATE, artifacts.APP_DEPRECATE), timeout_s=CONTENT_S
    ),
    "artifact retire": Command(
        shared(artifacts.RETIRE, artifacts.SHARED_RETIRE, artifacts.APP_RETIRE), timeout_s=CONTENT_S
    ),
    "artifact revoke": Command(shared(artifacts.REVOKE, artifacts.SHARED_REVOKE), timeout_s=CONTENT_S),
    "artifact list": Command(
        shared(artifacts.LIST, artifacts.SHARED_LIST, artifacts.APP_LIST), fields={"shared": None}
    ),
    "artifact storage": Command(
        shared(artifacts.STORAGE_GET, artifacts.SHARED_STORAGE_GET),
        table=table(
            "BYTES=bytes_used ARTIFACTS=artifact_count LIMIT ORG_BYTES=org_bytes_used ORG_QUOTA",
            LIMIT=lambda item: f"{item.limit.max} ({item.limit.layer} policy)" if item.limit else "none",
            ORG_QUOTA=lambda item: "none" if item.org_bytes_max is None else str(item.org_bytes_max),
        ),
    ),
    "artifact trust list": shared(trust_keys.TRUST_KEY_LIST, trust_keys.SHARED_TRUST_KEY_LIST),
    "artifact trust add": Command(
        shared(trust_keys.TRUST_KEY_PUT, trust_keys.SHARED_TRUST_KEY_PUT),
        fields={"public_key_pem": Field(read=lambda _, path: files.text(path))},
    ),
    "artifact trust revoke": shared(trust_keys.TRUST_KEY_REVOKE, trust_keys.SHARED_TRUST_KEY_REVOKE),
}
