"""Artifacts: content identified by its digest, verified against trusted keys, promoted into channels, retired. Each
route exists twice: for a project, and for the platform's shared artifacts, which every project may use. `trust_keys`
has the trusted keys; `deliveries` and `placements` hand the content out."""

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint, Repeat
from gpuaas_contract.lifecycles import ArtifactLifecycle, ArtifactTrust
from gpuaas_contract.paths import ArtifactPath, Path, ProjectArtifactPath, ProjectPath
from gpuaas_contract.policy import PolicyLimit
from gpuaas_contract.wire import Label, NoBody, NoQuery, OptionalLabel, Page, PageQuery, Query, Request, Timestamp, Wire

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
Reason = Annotated[str, msgspec.Meta(min_length=3, max_length=500, description="A reason has 3 to 500 characters.")]
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

    sig: str
    """Base64."""
    keyid: str = ""
    """A hint by the signer; it is not used for verification."""


class Envelope(Wire):
    """A DSSE envelope around an in-toto statement whose subject is the artifact's digest."""

    payload_type: str = msgspec.field(name="payloadType")
    """`application/vnd.in-toto+json`."""
    payload: Annotated[str, msgspec.Meta(max_length=262_144)]
    """Base64 of the statement."""
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
    """Can also be sent later."""


class Artifact(Wire):
    """Content for machines, identified by its digest."""

    artifact_id: str
    scope: str
    """A project id, or `platform` for one that every project may use."""
    name: str
    digest: str
    size_bytes: int
    media_type: str
    source: Source
    """Where its content comes from."""
    lifecycle: ArtifactLifecycle
    """Release state; independent of its trust."""
    trust: ArtifactTrust
    """Result of the last verification."""
    trust_code: str
    """Error code of the last verification; empty when it passed or there was none."""
    trust_message: str
    """The same as a sentence."""
    channels: list[str]
    """Channels it was promoted into, in order."""
    signed: bool
    """Whether a signature was sent. It counts after verification."""
    signers: list[str]
    """Fingerprints of the trusted keys that had signed it when it was verified."""
    reason: str
    """Why it was deprecated, retired or revoked."""
    created_by: str
    created_at: Timestamp
    content_checked_at: Timestamp | None = None
    """When its content was last compared with the published digest."""
    verified_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    """When it was first retired or revoked. Its content is deleted some time later."""


class ArtifactStorage(Wire):
    """Storage used by artifacts, and the limit."""

    bytes_used: int
    """Size of published artifacts, and of retired or revoked ones whose content is still stored."""
    artifact_count: int
    """Number of artifacts counted in `bytes_used`."""
    limit: PolicyLimit | None
    """The limit that applies here, and the policy layer that sets it; none: no limit."""


class VerifyArtifact(Request):
    """Verifies an artifact's content and signature."""

    source_token: SourceToken = ""
    """Bearer token for the source; used for this request only, never stored."""


class PromoteArtifact(Request):
    """Releases a verified artifact into a channel."""

    channel: Label
    source_token: SourceToken = ""
    """As for verify: the content is checked again."""


class EndArtifact(Request):
    """Deprecates, retires or revokes an artifact."""

    reason: Reason
    """Shown with the artifact, and to callers who are refused because of it."""


class ArtifactQuery(PageQuery):
    name: OptionalLabel = ""


class ProjectArtifactQuery(ArtifactQuery):
    shared: bool = False
    """List the platform's shared artifacts instead of the project's own."""


_Body = TypeVar("_Body")
_Answer = TypeVar("_Answer")
_Path = TypeVar("_Path", bound=Path)
_OwnPath = TypeVar("_OwnPath", bound=Path)
_SharedPath = TypeVar("_SharedPath", bound=Path)
_Query = TypeVar("_Query", bound=Query)
_OwnQuery = TypeVar("_OwnQuery", bound=Query)
_SharedQuery = TypeVar("_SharedQuery", bound=Query)
_PLACE = (ProjectPath, Path)
_ARTIFACT = (ProjectArtifactPath, ArtifactPath)
NO_QUERY = (NoQuery, NoQuery)

_DIGEST = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
_PUBLISH = {
    "name": "hello",
    "digest": _DIGEST,
    "size_bytes": 5,
    "media_type": "text/plain",
    "source": {"kind": "local"},
}
_CONTENT_ERRORS = (
    errors.ArtifactDigestMismatch,
    errors.ArtifactTooLarge,
    errors.ArtifactTruncated,
    errors.ArtifactMediaTypeMismatch,
    errors.ArtifactRedirectRefused,
    errors.ArtifactContentMissing,
    errors.ArtifactSourceDenied,
    errors.ArtifactSourceUnreachable,
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


def own_and_shared(
    thing: str,
    verb: str,
    method: Literal["GET", "POST", "PUT", "DELETE"],
    path: str,
    summary: str,
    request: type[_Body],
    response: type[_Answer],
    *,
    permission: str,
    subject: str = "",
    description: str = "",
    shared_permission: str = "artifacts.shared.change",
    status: int = 200,
    params: tuple[type[_OwnPath], type[_SharedPath]],
    query: tuple[type[_OwnQuery], type[_SharedQuery]],
    repeat: Repeat = "key",
    errors: tuple[type[errors.ApiError], ...] = (),
    example: dict[str, Any] | None = None,
) -> tuple[Endpoint[_Body, _Answer, _OwnPath, _OwnQuery], Endpoint[_Body, _Answer, _SharedPath, _SharedQuery]]:
    """Make the same route for a project, and for the platform's admins on behalf of all projects."""

    def row(
        name: str, prefix: str, key: str, path_params: type[_Path], asked: type[_Query]
    ) -> Endpoint[_Body, _Answer, _Path, _Query]:
        return Endpoint(
            f"artifacts.{name}.{verb}",
            method,
            f"{prefix}/{path}",
            summary,
            params=path_params,
            permission=key,
            request=request,
            response=response,
            status=status,
            query=asked,
            repeat=repeat,
            errors=errors,
            example=example or {},
            description=description,
            subject=subject,
        )

    return (
        row(thing, "/api/v1/projects/{project_id}", permission, params[0], query[0]),
        row(f"shared_{thing}", "/api/v1/admin", shared_permission, params[1], query[1]),
    )


PUBLISH, SHARED_PUBLISH = own_and_shared(
    "artifact",
    "publish",
    "POST",
    "artifacts",
    "Publish an artifact: its name, digest, size, media type and source",
    PublishArtifact,
    Artifact,
    params=_PLACE,
    query=NO_QUERY,
    permission="artifacts.artifact.publish",
    status=201,
    errors=(errors.ArtifactSourceDenied, errors.ArtifactTooLarge, errors.ArtifactRevoked, errors.PolicyDenied),
    example=_PUBLISH,
    subject="artifact_id",
    description="Upload the content of a local artifact next. Then verify and promote it.",
)
LIST, SHARED_LIST = own_and_shared(
    "artifact",
    "list",
    "GET",
    "artifacts",
    "List artifacts, oldest first",
    NoBody,
    Page[Artifact],
    params=_PLACE,
    permission="artifacts.artifact.read",
    shared_permission="artifacts.shared.read",
    query=(ProjectArtifactQuery, ArtifactQuery),
)
STORAGE_GET, SHARED_STORAGE_GET = own_and_shared(
    "storage",
    "get",
    "GET",
    "artifact-storage",
    "Get the storage used by artifacts, and the limit",
    NoBody,
    ArtifactStorage,
    params=_PLACE,
    query=NO_QUERY,
    permission="artifacts.artifact.read",
    shared_permission="artifacts.shared.read",
)
GET, SHARED_GET = own_and_shared(
    "artifact",
    "get",
    "GET",
    "artifacts/{artifact_id}",
    "Get one artifact",
    NoBody,
    Artifact,
    params=_ARTIFACT,
    query=NO_QUERY,
    permission="artifacts.artifact.read",
    shared_permission="artifacts.shared.read",
)
CONTENT_PUT, SHARED_CONTENT_PUT = own_and_shared(
    "content",
    "put",
    "PUT",
    "artifacts/{artifact_id}/content",
    "Upload the content of a local artifact",
    bytes,
    Artifact,
    params=_ARTIFACT,
    query=NO_QUERY,
    permission="artifacts.artifact.publish",
    repeat="natural",
    errors=(
        errors.ArtifactDigestMismatch,
        errors.ArtifactTooLarge,
        errors.ArtifactTruncated,
        errors.ArtifactRetired,
        errors.ArtifactRevoked,
        errors.PolicyDenied,
    ),
    subject="artifact_id",
    description="Raw bytes. They are stored only if size and digest are as published.",
)
SIGNATURE_PUT, SHARED_SIGNATURE_PUT = own_and_shared(
    "signature",
    "put",
    "PUT",
    "artifacts/{artifact_id}/signature",
    "Attach a signature to an artifact",
    Envelope,
    Artifact,
    params=_ARTIFACT,
    query=NO_QUERY,
    permission="artifacts.artifact.publish",
    repeat="natural",
    errors=(errors.ArtifactRetired, errors.ArtifactRevoked),
    subject="artifact_id",
    description="A DSSE envelope with an in-toto statement about the digest. It counts after verify.",
)
VERIFY, SHARED_VERIFY = own_and_shared(
    "artifact",
    "verify",
    "POST",
    "artifacts/{artifact_id}/verify",
    "Verify an artifact",
    VerifyArtifact,
    Artifact,
    params=_ARTIFACT,
    query=NO_QUERY,
    permission="artifacts.artifact.verify",
    errors=(
        errors.ArtifactSourceDenied,
        errors.ArtifactSourceUnreachable,
        errors.ArtifactRetired,
        errors.ArtifactRevoked,
        errors.PolicyDenied,
    ),
    example={},
    subject="artifact_id",
    description="Fetches the content and checks size, digest, media type and signature. The result is the artifact's "
    "`trust`; the answer is 200 also if it failed.",
)
PROMOTE, SHARED_PROMOTE = own_and_shared(
    "artifact",
    "promote",
    "POST",
    "artifacts/{artifact_id}/promote",
    "Promote a verified artifact into a channel",
    PromoteArtifact,
    Artifact,
    params=_ARTIFACT,
    query=NO_QUERY,
    permission="artifacts.artifact.promote",
    errors=(*_CONTENT_ERRORS, *TRUST_ERRORS),
    example={"channel": "stable"},
    subject="artifact_id",
    description="The content is compared with the digest again.",
)
DEPRECATE, SHARED_DEPRECATE = own_and_shared(
    "artifact",
    "deprecate",
    "POST",
    "artifacts/{artifact_id}/deprecate",
    "Deprecate an artifact",
    EndArtifact,
    Artifact,
    params=_ARTIFACT,
    query=NO_QUERY,
    permission="artifacts.artifact.retire",
    example={"reason": "replaced by 1.1"},
    subject="artifact_id",
    description="New deploys do not use it; running instances can still download it.",
)
RETIRE, SHARED_RETIRE = own_and_shared(
    "artifact",
    "retire",
    "POST",
    "artifacts/{artifact_id}/retire",
    "Retire an artifact",
    EndArtifact,
    Artifact,
    params=_ARTIFACT,
    query=NO_QUERY,
    permission="artifacts.artifact.retire",
    example={"reason": "no longer supported"},
    subject="artifact_id",
    description="It cannot be used any more.",
)
REVOKE, SHARED_REVOKE = own_and_shared(
    "artifact",
    "revoke",
    "POST",
    "artifacts/{artifact_id}/revoke",
    "Revoke an artifact permanently",
    EndArtifact,
    Artifact,
    params=_ARTIFACT,
    query=NO_QUERY,
    permission="artifacts.artifact.revoke",
    example={"reason": "the build machine was broken into"},
    subject="artifact_id",
    description="The digest is refused from now on, under every name.",
)
_PAIRS: tuple[tuple[Endpoint[Any, Any], Endpoint[Any, Any]], ...] = (
    (PUBLISH, SHARED_PUBLISH),
    (LIST, SHARED_LIST),
    (STORAGE_GET, SHARED_STORAGE_GET),
    (GET, SHARED_GET),
    (CONTENT_PUT, SHARED_CONTENT_PUT),
    (SIGNATURE_PUT, SHARED_SIGNATURE_PUT),
    (VERIFY, SHARED_VERIFY),
    (PROMOTE, SHARED_PROMOTE),
    (DEPRECATE, SHARED_DEPRECATE),
    (RETIRE, SHARED_RETIRE),
    (REVOKE, SHARED_REVOKE),
)
ENDPOINTS: tuple[Endpoint[Any, Any], ...] = (
    *(own for own, _ in _PAIRS),
    *(shared for _, shared in _PAIRS),
)
