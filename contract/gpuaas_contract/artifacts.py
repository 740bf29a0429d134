"""Artifacts: content identified by its digest, verified against trusted keys, promoted into channels, retired. Each
route exists twice: for a project, and for the platform's shared artifacts, which every project may use. `trust_keys`
has the trusted keys; `deliveries` and `placements` hand the content out."""

import dataclasses
from typing import Annotated, TypeVar, cast

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import ArtifactLifecycle, ArtifactTrust
from gpuaas_contract.paths import ADMIN, APP, ARTIFACT, PROJECT, AppArtifactPath, AppPath, ArtifactPath
from gpuaas_contract.policy import PolicyLimit
from gpuaas_contract.wire import (
    Label,
    LongText,
    OptionalLabel,
    PageQuery,
    Path,
    Query,
    Request,
    ShortText,
    Timestamp,
    Wire,
)

SHARED = "platform"
"""The scope of artifacts and trust keys that are valid for every project."""

Digest = Annotated[
    str,
    msgspec.Meta(
        min_length=71,
        max_length=71,
        pattern=r"^sha256:[0-9a-f]{64}(?!\n)$",
        description="A digest is sha256: and 64 hexadecimal digits in lower case.",
    ),
]
MediaType = Annotated[
    str,
    msgspec.Meta(
        min_length=3,
        max_length=127,
        pattern=r"^[a-z0-9][a-z0-9.+_-]*/[a-z0-9][a-z0-9.+_-]*(?!\n)$",
        description="A media type is type/subtype in lower case, without parameters.",
    ),
]
SizeBytes = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Reason = Annotated[
    str,
    msgspec.Meta(
        min_length=3, max_length=500, pattern=r"\S", description="A reason has 3 to 500 characters, not only blanks."
    ),
]
SourceToken = Annotated[
    str, msgspec.Meta(max_length=8192, pattern=r"^[!-~]*(?!\n)$", description="A token is printable ASCII.")
]


class LocalSource(Request, tag_field="kind", tag="local"):
    """Content that is uploaded to the platform."""


class HttpSource(Request, tag_field="kind", tag="http"):
    """Content that the platform fetches from a web server."""

    url: Annotated[str, msgspec.Meta(min_length=8, max_length=2000)]
    """`https://…` or `http://…`, without user, query and fragment."""


class OciSource(Request, tag_field="kind", tag="oci"):
    """Content that the platform fetches from a container registry."""

    reference: Annotated[str, msgspec.Meta(min_length=3, max_length=400)]
    """`registry/repository`: the blob with the artifact's digest. With `:tag` or `@sha256:…` that manifest must list
    the blob with the artifact's size and media type."""


Source = LocalSource | HttpSource | OciSource


class EnvelopeSignature(Wire):
    """One signature over an envelope."""

    sig: Annotated[str, msgspec.Meta(max_length=16_384)]
    """Base64."""
    keyid: LongText = ""
    """A hint by the signer; it is not used for verification."""


class Envelope(Wire):
    """A DSSE envelope around an in-toto statement whose subject is the artifact's digest."""

    payload_type: ShortText = msgspec.field(name="payloadType")
    """`application/vnd.in-toto+json`."""
    payload: Annotated[str, msgspec.Meta(max_length=262_144)]
    """The signed in-toto statement, base64."""
    signatures: Annotated[list[EnvelopeSignature], msgspec.Meta(min_length=1, max_length=16)]


class PublishArtifact(Request):
    """Declares an artifact and where its content comes from."""

    name: Label
    """Name and digest together are unique in the scope; apps refer to an artifact by both."""
    digest: Digest
    size_bytes: SizeBytes
    media_type: MediaType
    source: Source
    signature: Envelope | None = None
    """Signature of the artifact; it can also be sent later."""


class Artifact(Wire):
    """Content for machines, identified by its digest."""

    artifact_id: str
    scope: str
    """Owner of the artifact: a project id, or `platform` for an artifact that every project may use."""
    name: str
    digest: str
    size_bytes: int
    media_type: str
    source: Source
    """Where the platform gets the artifact's content from."""
    lifecycle: ArtifactLifecycle
    """Whether the artifact may be used: published, promoted, deprecated or retired. Independent of `trust`."""
    trust: ArtifactTrust
    """Whether the last verification of digest and signature succeeded."""
    trust_code: str
    """Error code of the last verification; empty if it succeeded or there was none."""
    trust_message: str
    """`trust_code` as a sentence for people."""
    channels: list[str]
    """Channels that the artifact was promoted into, in order."""
    signed: bool
    """Whether the artifact has a signature. The signature counts only after verification."""
    signers: list[str]
    """Fingerprints of the trusted keys that had signed it when it was verified."""
    reason: str
    """Why the artifact was deprecated, retired or revoked, as text for people."""
    created_by: str
    created_at: Timestamp
    content_checked_at: Timestamp | None = None
    """When the platform last compared the artifact's content with the published digest."""
    verified_at: Timestamp | None = None
    app_slug: str = ""
    """The app whose publishers look after this shared artifact; empty: admins of the platform do, or a project."""
    ended_at: Timestamp | None = None
    """When the artifact was first retired or revoked. Its content is deleted some time later."""


class ArtifactStorage(Wire):
    """Storage used by artifacts, and the limit."""

    bytes_used: int
    """Size of published artifacts, and of retired or revoked ones whose content is still stored."""
    artifact_count: int
    """Number of artifacts counted in `bytes_used`."""
    limit: PolicyLimit | None
    """The limit that applies here, and the policy layer that sets it; none: no limit."""
    org_bytes_used: int = 0
    """The same as `bytes_used` for all projects of the organisation together; 0 for shared artifacts."""
    org_bytes_max: int | None = None
    """Quota of the organisation, which the operator of the platform sets; none: no quota."""


class VerifyArtifact(Request):
    """Verifies an artifact's content and signature."""

    source_token: SourceToken = ""
    """Bearer token for the artifact's source; used for this request only, never stored."""


class PromoteArtifact(Request):
    """Releases a verified artifact into a channel."""

    channel: Label
    source_token: SourceToken = ""
    """Bearer token for the artifact's source, because the content is checked again; never stored."""


class EndArtifact(Request):
    """Deprecates, retires or revokes an artifact."""

    reason: Reason
    """Shown with the artifact, and to callers who are refused because of it."""


class ArtifactQuery(PageQuery):
    name: OptionalLabel = ""


class ProjectArtifactQuery(ArtifactQuery):
    shared: bool = False
    """List the platform's shared artifacts instead of the project's own."""


_PUBLISH = {
    "name": "hello",
    "digest": "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    "size_bytes": 5,
    "media_type": "text/plain",
    "source": {"kind": "local"},
}
_STORAGE_ERRORS = (errors.PolicyDenied, errors.StorageQuotaExceeded)
_CONTENT_ERRORS = (
    errors.ArtifactDigestMismatch,
    errors.ArtifactTooLarge,
    errors.ArtifactTruncated,
    errors.ArtifactMediaTypeMismatch,
    errors.ArtifactRedirectRefused,
    errors.ArtifactContentMissing,
    errors.ArtifactSourceDenied,
    errors.ArtifactSourceUnreachable,
    errors.InsufficientStorage,
)
TRUST_ERRORS = (
    errors.ArtifactUnverified,
    errors.ArtifactUnsigned,
    errors.ArtifactSignatureInvalid,
    errors.ArtifactSignerUnknown,
    errors.ArtifactSignerRevoked,
    errors.ArtifactRetired,
    errors.ArtifactRevoked,
)
HANDING_OUT_ERRORS = (*TRUST_ERRORS, errors.ArtifactNotPromoted, errors.ArtifactSourceDenied)
FETCHING_ERRORS = (*HANDING_OUT_ERRORS, errors.ArtifactDigestMismatch, errors.ArtifactContentMissing)


_Body = TypeVar("_Body")
_Answer = TypeVar("_Answer")
_Params = TypeVar("_Params", bound=Path)
_Query = TypeVar("_Query", bound=Query)


def shared(
    own: Endpoint[_Body, _Answer, Path, _Query], params: type[_Params]
) -> Endpoint[_Body, _Answer, _Params, _Query]:
    """Make the route of a project also for the platform's admins, on behalf of all projects."""
    if not (own.name.startswith("artifacts.") and own.path.startswith(PROJECT.path)):
        raise ValueError(f"{own.name} is not an endpoint of a project's artifacts")
    row = dataclasses.replace(
        own,
        name=f"artifacts.shared_{own.name.removeprefix('artifacts.')}",
        path=ADMIN.path + own.path.removeprefix(PROJECT.path),
        params=params,
        permission="artifacts.shared.change" if own.mutates else "artifacts.shared.read",
    )
    return cast("Endpoint[_Body, _Answer, _Params, _Query]", row)


def of_app(
    own: Endpoint[_Body, _Answer, Path, _Query], params: type[_Params]
) -> Endpoint[_Body, _Answer, _Params, _Query]:
    """Make the route of a project also for the publishers of an app. Every project may use the artifacts of an app."""
    return dataclasses.replace(
        shared(own, params),
        name=f"artifacts.app_{own.name.removeprefix('artifacts.')}",
        path=APP.path + own.path.removeprefix(PROJECT.path),
        permission="artifacts.app.publish" if own.mutates else "artifacts.app.read",
    )


PUBLISH = PROJECT.row(
    "/artifacts",
    "artifacts.artifact.publish",
    "Publish an artifact: its name, digest, size, media type and source",
    "Upload the content of a local artifact next. Then verify and promote it.",
).post(
    PublishArtifact,
    Artifact,
    status=201,
    errors=(errors.ArtifactSourceDenied, errors.ArtifactTooLarge, errors.ArtifactRevoked, *_STORAGE_ERRORS),
    example=_PUBLISH,
)
LIST = PROJECT.row("/artifacts", "artifacts.artifact.list", "List artifacts, oldest first").list(
    Artifact, "artifacts.artifact.read", query=ProjectArtifactQuery
)
STORAGE_GET = PROJECT.row(
    "/artifact-storage", "artifacts.storage.get", "Get the storage used by artifacts, and the limit"
).get(ArtifactStorage, "artifacts.artifact.read")
GET = ARTIFACT.row("", "artifacts.artifact.get", "Get one artifact").get(Artifact, "artifacts.artifact.read")
CONTENT_PUT = ARTIFACT.row(
    "/content",
    "artifacts.content.put",
    "Upload the content of a local artifact",
    "The body is the artifact's raw bytes. They are stored only if size and digest are as published.",
).put(
    bytes,
    Artifact,
    "artifacts.artifact.publish",
    errors=(
        errors.ArtifactDigestMismatch,
        errors.ArtifactTooLarge,
        errors.ArtifactTruncated,
        errors.ArtifactRetired,
        errors.ArtifactRevoked,
        errors.InsufficientStorage,
        *_STORAGE_ERRORS,
    ),
)
SIGNATURE_PUT = ARTIFACT.row(
    "/signature",
    "artifacts.signature.put",
    "Attach a signature to an artifact",
    "A DSSE envelope with an in-toto statement about the digest. It counts after verify.",
).put(Envelope, Artifact, "artifacts.artifact.publish", errors=(errors.ArtifactRetired, errors.ArtifactRevoked))
VERIFY = ARTIFACT.row(
    "/verify",
    "artifacts.artifact.verify",
    "Verify an artifact",
    "Fetches the content and checks size, digest, media type and signature. The result is the artifact's "
    "`trust`; the answer is 200 also if it failed.",
).post(
    VerifyArtifact,
    Artifact,
    errors=(
        errors.ArtifactSourceDenied,
        errors.ArtifactSourceUnreachable,
        errors.ArtifactRetired,
        errors.ArtifactRevoked,
        errors.InsufficientStorage,
        *_STORAGE_ERRORS,
    ),
    example={},
)
PROMOTE = ARTIFACT.row(
    "/promote",
    "artifacts.artifact.promote",
    "Promote a verified artifact into a channel",
    "The content is compared with the digest again.",
).post(PromoteArtifact, Artifact, errors=(*_CONTENT_ERRORS, *TRUST_ERRORS), example={"channel": "stable"})
DEPRECATE = ARTIFACT.row(
    "/deprecate",
    "artifacts.artifact.deprecate",
    "Deprecate an artifact",
    "New deploys do not use the artifact; running instances can still download it.",
).post(EndArtifact, Artifact, "artifacts.artifact.retire", example={"reason": "replaced by 1.1"})
RETIRE = ARTIFACT.row(
    "/retire",
    "artifacts.artifact.retire",
    "Retire an artifact",
    "The artifact cannot be downloaded or deployed any more.",
).post(EndArtifact, Artifact, example={"reason": "no longer supported"})
REVOKE = ARTIFACT.row(
    "/revoke",
    "artifacts.artifact.revoke",
    "Revoke an artifact permanently",
    "The digest is refused from now on, under every name.",
).post(EndArtifact, Artifact, example={"reason": "the build machine was broken into"})

SHARED_PUBLISH = shared(PUBLISH, Path)
SHARED_LIST = ADMIN.row("/artifacts", "artifacts.shared_artifact.list", "List artifacts, oldest first").list(
    Artifact, "artifacts.shared.read", query=ArtifactQuery
)
SHARED_STORAGE_GET = shared(STORAGE_GET, Path)
SHARED_GET = shared(GET, ArtifactPath)
SHARED_CONTENT_PUT = shared(CONTENT_PUT, ArtifactPath)
SHARED_SIGNATURE_PUT = shared(SIGNATURE_PUT, ArtifactPath)
SHARED_VERIFY = shared(VERIFY, ArtifactPath)
SHARED_PROMOTE = shared(PROMOTE, ArtifactPath)
SHARED_DEPRECATE = shared(DEPRECATE, ArtifactPath)
SHARED_RETIRE = shared(RETIRE, ArtifactPath)
SHARED_REVOKE = shared(REVOKE, ArtifactPath)

APP_PUBLISH = of_app(PUBLISH, AppPath)
APP_LIST = APP.row("/artifacts", "artifacts.app_artifact.list", "List the shared artifacts of an app").list(
    Artifact, "artifacts.app.read", query=ArtifactQuery
)
APP_GET = of_app(GET, AppArtifactPath)
APP_CONTENT_PUT = of_app(CONTENT_PUT, AppArtifactPath)
APP_SIGNATURE_PUT = of_app(SIGNATURE_PUT, AppArtifactPath)
APP_VERIFY = of_app(VERIFY, AppArtifactPath)
APP_PROMOTE = of_app(PROMOTE, AppArtifactPath)
APP_DEPRECATE = of_app(DEPRECATE, AppArtifactPath)
APP_RETIRE = of_app(RETIRE, AppArtifactPath)
