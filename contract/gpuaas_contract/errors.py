"""The error catalogue: one class per stable code. The platform raises them, the edge alone writes them as
problem documents, and the SDK raises the same class again on the other side of the wire."""

from typing import Any, ClassVar

from gpuaas_contract.wire import Wire


class Problem(Wire):
    """RFC 9457 problem details plus the platform's canonical envelope, on every failure of every route."""

    type: str
    """URI of the error's type: `urn:gpuaas:error:` and the code."""
    title: str
    """What kind of failure it is; the same for every failure with this code."""
    status: int
    detail: str
    """The same text as `message`, under the name that RFC 9457 defines."""
    code: str
    """Code of the error, for programs; a code never changes. docs/reference/errors.md lists all."""
    message: str
    """What happened, for people; its wording may change."""
    correlation_id: str
    """Under which everything about the request is on record."""
    details: dict[str, Any]
    """Facts about the error: fields, ids, limits."""
    retryable: bool
    """Whether the same request may succeed later."""
    fix: str
    """What the caller can do about the error."""


class ApiError(Exception):
    """Base of all errors. `code` is on the wire and never renamed; `message` is for people and may change."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "The platform failed internally"
    retryable: ClassVar[bool] = True
    default_fix: ClassVar[str] = (
        "Retry with the same idempotency key. If it fails again, search the logs for the correlation id."
    )

    def __init__(self, message: str = "", *, details: dict[str, Any] | None = None, fix: str = "") -> None:
        super().__init__(message or self.title)
        self.message = message or self.title
        self.details = details or {}
        self.fix = fix or self.default_fix
        self.correlation_id = ""


class InvalidRequest(ApiError):
    code, status, title, retryable = "invalid_request", 400, "The request could not be read", False
    default_fix = "Correct the request. GET /api/v1/openapi.json describes it."


class ValidationFailed(ApiError):
    code, status, title, retryable = "validation_error", 400, "A field has a value that is not allowed", False
    default_fix = "Correct the field that the message names, and send the request again."


class IdempotencyKeyMissing(ApiError):
    code, status, title, retryable = "idempotency_key_missing", 400, "Changes need an X-Idempotency-Key header", False
    default_fix = "Send the header X-Idempotency-Key: one random key per change, the same key on retries."


class TokenMissing(ApiError):
    code, status, title, retryable = "token_missing", 401, "No bearer token was sent", False
    default_fix = "gpuaas login"


class TokenInvalid(ApiError):
    code, status, title, retryable = "token_invalid", 401, "The bearer token is not valid", False
    default_fix = "gpuaas login"


class TokenExpired(ApiError):
    code, status, title, retryable = "token_expired", 401, "The bearer token has expired", False
    default_fix = "gpuaas login"


class CredentialsInvalid(ApiError):
    code, status, title, retryable = "credentials_invalid", 401, "These credentials are not valid", False
    default_fix = "Check the name and the secret; both are case-sensitive."


class SignInRefused(ApiError):
    code, status, title, retryable = "sign_in_refused", 401, "The identity provider's answer is not valid", False
    default_fix = "Start again: GET /api/v1/auth/oidc/authorize, then sign in within ten minutes."


class TooManyAttempts(ApiError):
    code, status, title, retryable = "too_many_attempts", 429, "Too many failed sign-ins", True
    default_fix = "Wait for the number of seconds in Retry-After."


class OidcNotConfigured(ApiError):
    code, status, title, retryable = "oidc_not_configured", 409, "This platform has no identity provider", False
    default_fix = "Sign in with name and password, or start the server with --oidc-issuer and --oidc-client-id."


class PermissionDenied(ApiError):
    """`details.permission` and the fix name the permission, where one is missing."""

    code, status, title, retryable = (
        "insufficient_permissions",
        403,
        "You do not have the permission for this request",
        False,
    )
    default_fix = "Use an account that may do this; `details.permission` names the permission if one is missing."

    def __init__(self, message: str = "", *, details: dict[str, Any] | None = None, fix: str = "") -> None:
        permission = (details or {}).get("permission", "")
        named = f"Ask an admin for a role that holds {permission}." if permission else ""
        super().__init__(message, details=details, fix=fix or named)


class NotFound(ApiError):
    code, status, title, retryable = "not_found", 404, "Not found, or you have no access to it", False
    default_fix = "Check the id or name; `gpuaas get` lists what you can see."


class NameAmbiguous(ApiError):
    code, status, title, retryable = "name_ambiguous", 409, "The name matches several resources", False
    default_fix = "Use one of the ids in `details.candidates`."


class MethodNotAllowed(ApiError):
    code, status, title, retryable = "method_not_allowed", 405, "This path does not support the method", False
    default_fix = "Use an HTTP method that the Allow header of the answer lists."


class Conflict(ApiError):
    code, status, title, retryable = (
        "conflict",
        409,
        "The present state of the resource does not allow this request",
        False,
    )
    default_fix = "Read the present state of the resource, then decide what to do."


class IllegalMove(Conflict):
    """`details` has `member_id`, `from`, `to` and `allowed`."""

    code, title = "illegal_move", "The member cannot move to this status now"
    default_fix = "Report a status out of `details.allowed`, or the status the member has."


class OperationUnfinished(Conflict):
    """`details` has `members` (member id -> status) and `wanted`."""

    code, title = "operation_unfinished", "Some members of the operation are neither done nor failed"
    default_fix = "Report each member of `details.members` as `details.wanted` or `failed`, then complete again."


class StatementUnavailable(Conflict):
    code, title = "statement_unavailable", "The operation has no statement"
    default_fix = "Wait until the remove or decommission has ended: gpuaas op wait OPERATION."


class AppUnknown(NotFound):
    """Retryable, because an app controller may start before its app is registered."""

    code, title, retryable = "app_unknown", "No app is registered under this slug", True
    default_fix = "Check the slug. If the app is not registered yet, register it; then ask again."


class ProjectNotEmpty(Conflict):
    """`details.owns` lists ids by kind, the first 20 of each."""

    code, title = "project_not_empty", "The project still owns resources"
    default_fix = "Delete, release, revoke or decommission what `details.owns` lists, then delete the project."


class OperationInProgress(ApiError):
    code, status, title, retryable = (
        "operation_in_progress",
        409,
        "Another operation on this instance is in progress",
        True,
    )
    default_fix = "gpuaas op follow OPERATION, then try again."


class LeaseLost(ApiError):
    code, status, title, retryable = (
        "lease_lost",
        409,
        "Another controller has the lease, or the lease has ended",
        False,
    )
    default_fix = "Stop working on the operation or the instance. The controller with the newer epoch continues it."


class RequestInFlight(ApiError):
    code, status, title, retryable = (
        "request_in_flight",
        409,
        "The first request with this idempotency key is still running",
        True,
    )
    default_fix = "Wait until the first request has ended, then send the same request again."


class SecretAlreadyDelivered(ApiError):
    code, status, retryable = "secret_already_delivered", 409, False
    title = "The secret of this request was already shown"
    default_fix = "Create a new key; the platform stores no copy of the secret."


class PurposeUndeclared(ApiError):
    code, status, title, retryable = "purpose_undeclared", 422, "The app does not declare this secret purpose", False
    default_fix = "Add the purpose to `secret_purposes` in the manifest and register a new version."


class CursorExpired(ApiError):
    code, status, title, retryable = "cursor_expired", 410, "Events after this cursor are no longer stored", False
    default_fix = "Read the present state, then follow from `details.oldest` - 1, or from 0 for all stored events."


class IdempotencyKeyReused(ApiError):
    code, status, title, retryable = (
        "idempotency_key_reused",
        422,
        "This idempotency key was used for another request",
        False,
    )
    default_fix = "Send a new random X-Idempotency-Key with each new change."


class NotEntitled(ApiError):
    code, status, title, retryable = "not_entitled", 422, "This project may not deploy this app version", False
    default_fix = "Request the app: gpuaas entitlement request APP. A tenant admin grants it: gpuaas app entitle APP"


class PolicyDenied(ApiError):
    code, status, title, retryable = "policy_denied", 422, "A policy overlay denies this request", False
    default_fix = "`details.layer` names the policy layer: ask its admin, or choose a value that the policy allows."


class StorageQuotaExceeded(ApiError):
    """The artifacts of an organisation or an app would need more than its quota. `details` has `max`, `present` and
    `asked`, in bytes."""

    code, status, retryable = "storage_quota_exceeded", 422, False
    title = "The artifacts of the organisation or app would need more storage than it may use"
    default_fix = (
        "Retire artifacts that are not needed: gpuaas artifact list, then gpuaas artifact retire ARTIFACT --reason"
        " TEXT. Or ask the operator of the platform for a larger --artifact-quota-bytes or"
        " --app-artifact-quota-bytes."
    )


class NoCapacity(ApiError):
    code, status, title, retryable = "no_capacity", 422, "No node fits the request", True
    default_fix = (
        "See `details.reasons` for why nodes do not fit. Ask for fewer nodes or another SKU or region, or release one."
    )


class NoSpare(ApiError):
    code, status, title, retryable = "no_spare", 409, "The project has no spare machine", True
    default_fix = "Allocate a machine of the same SKU and region: gpuaas allocation request --sku SKU --region REGION"


class EvidenceRequired(ApiError):
    """`details.missing` and the subclass's code name what is missing."""

    code, status, title, retryable = "evidence_required", 422, "An observation must show that the member is idle", False
    default_fix = "Send a fresh observation that the member is idle, or use force with a reason."


class EvidenceMissing(EvidenceRequired):
    code, title = "evidence_missing", "No observation shows whether the member is idle"


class EvidenceStale(EvidenceRequired):
    code, title = "evidence_stale", "The observation whether the member is idle is too old"
    default_fix = "Observe again and send the new observation, or use force with a reason."


class EvidenceBusy(EvidenceRequired):
    code, title = "evidence_busy", "The member still runs work"
    default_fix = "Drain the member and wait until its work has ended, or repeat the request with force and a reason."


class EvidenceUnknown(EvidenceRequired):
    code, title = "evidence_unknown", "It is unknown whether the member is idle"
    default_fix = "Repair what prevents the observation, or use force with a reason."


class MemberHeld(ApiError):
    code, status, title, retryable = "member_held", 409, "A hold on this member prevents the change", False
    default_fix = "`details.owner` can lift the hold. It expires at `details.expires_at`."


class DisruptionBudget(ApiError):
    code, status, title, retryable = "disruption_budget", 409, "Too many members would be out of service", True
    default_fix = "Wait until the members in `details.unavailable` are ready, or change fewer at a time."


class CircuitOpen(ApiError):
    code, status, title, retryable = "circuit_open", 409, "Too many members failed to join recently", True
    default_fix = (
        "Find out why the members failed, then: gpuaas role reset-breaker INSTANCE ROLE --reason TEXT. Or wait until"
        " `details.closes_at`."
    )


class StewardBudgetUsed(ApiError):
    code, status, title, retryable = (
        "steward_budget_used",
        409,
        "The controller has requested this too often in the last hour",
        True,
    )
    default_fix = (
        "Request it again after `details.next_at`, or have a person repair the member. The app's manifest sets the"
        " limit in `steward.requests_per_hour`."
    )


class ExitUnavailable(ApiError):
    code, status, title, retryable = "exit_unavailable", 409, "The operation cannot be ended in this way now", False
    default_fix = "Read the operation: `exits` lists what is possible."


class ArtifactRefused(ApiError):
    """Base of the errors of an artifact's content or signature. Verify stores the code as its result."""

    code, status, title, retryable = (
        "artifact_refused",
        422,
        "The content or the signature of the artifact is not valid",
        False,
    )
    default_fix = "Publish the correct content under its own digest, sign it and verify it again."


class ArtifactDigestMismatch(ArtifactRefused):
    code, title = "artifact_digest_mismatch", "The content of the artifact does not match the published digest"


class ArtifactTooLarge(ArtifactRefused):
    code, title = "artifact_too_large", "The content is larger than published, or than the platform accepts"


class ArtifactTruncated(ArtifactRefused):
    code, title = "artifact_truncated", "The content of the artifact is incomplete"


class ArtifactMediaTypeMismatch(ArtifactRefused):
    code, title = "artifact_media_type_mismatch", "The source reports another media type than was published"


class ArtifactRedirectRefused(ArtifactRefused):
    code, title = "artifact_redirect_refused", "The source redirects to a host that no policy allows"
    default_fix = "Publish the final address, or ask an admin to add the host to `artifact_sources.allow`."


class ArtifactContentMissing(ArtifactRefused):
    code, title = "artifact_content_missing", "The platform does not have the content of the artifact"
    default_fix = "Upload the content of a local artifact; verify any other artifact again."


class ArtifactUnsigned(ArtifactRefused):
    code, title = "artifact_unsigned", "The artifact has no signature"
    default_fix = "gpuaas artifact sign ARTIFACT ENVELOPE, then gpuaas artifact verify ARTIFACT"


class ArtifactSignatureInvalid(ArtifactRefused):
    code, title = "artifact_signature_invalid", "The signature is not for this artifact"
    default_fix = "Sign an in-toto statement whose subject has the artifact's sha256, then verify it again."


class ArtifactSignerUnknown(ArtifactRefused):
    code, title = "artifact_signer_unknown", "No trusted key made the artifact's signature"
    default_fix = "Sign the artifact with a trusted key, or ask an admin to trust the key."


class ArtifactSignerRevoked(ArtifactRefused):
    code, title = "artifact_signer_revoked", "The key that made the signature was revoked"
    default_fix = "Sign the artifact with a trusted key, then verify it again."


class ConformanceRefused(ApiError):
    """`details.reason` has the code of the signature's error, or `statement` for a statement about something else."""

    code, status, retryable = "conformance_refused", 422, False
    title = "The conformance statement is not valid for this app version"
    default_fix = "gpuaas app conformance APP --sign KEY writes a statement; its key must be trusted on the platform."


class ArtifactSourceDenied(ApiError):
    code, status, title, retryable = "artifact_source_denied", 422, "This artifact source is not allowed", False
    default_fix = "`details.rule` names the rule: ask its admin, or publish from a source that the policy allows."


class ArtifactSourceUnreachable(ApiError):
    code, status, title, retryable = (
        "artifact_source_unreachable",
        422,
        "The artifact's source does not return the content",
        True,
    )
    default_fix = "Check that the source answers and that the token is valid, then try again."


class ArtifactUnverified(ApiError):
    code, status, title, retryable = "artifact_unverified", 422, "The artifact has not been verified", False
    default_fix = "Verify it first."


class ArtifactNotPromoted(ApiError):
    code, status, title, retryable = "artifact_not_promoted", 422, "The artifact is not in any channel", False
    default_fix = "Promote the artifact into a channel first: gpuaas artifact promote ARTIFACT --channel CHANNEL"


class ArtifactRetired(ApiError):
    code, status, title, retryable = "artifact_retired", 422, "The artifact is retired and can no longer be used", False
    default_fix = "Use a newer artifact."


class ArtifactRevoked(ApiError):
    code, status, title, retryable = (
        "artifact_revoked",
        422,
        "The artifact is revoked and can never be used again",
        False,
    )
    default_fix = "Stop using this digest; publish and verify another artifact."


class ArtifactUnknown(ApiError):
    code, status, title, retryable = "artifact_unknown", 422, "No artifact has this name and digest", False
    default_fix = "Publish, verify and promote the artifact in this project, or ask a platform admin to share it."


class AgentNoReleaseKey(ApiError):
    code, status, retryable = "agent_no_release_key", 409, False
    title = "The platform has no key to verify agent releases with"
    default_fix = "Start the server with the public key of your releases: --agent-release-key FILE"


class AgentSignatureInvalid(ApiError):
    code, status, retryable = "agent_signature_invalid", 422, False
    title = "No trusted release key signed these bytes and this version"
    default_fix = (
        "Sign the build offline: python -m gpuaas_agent.signer sign agent.pyz --key KEY. Then register it again."
    )


class AgentReleaseUnapproved(ApiError):
    code, status, retryable = "agent_release_unapproved", 409, False
    title = "No second person has approved this agent release"
    default_fix = "A second person checks the release and runs: gpuaas agent approve RELEASE --reason REASON"


class DeliveryExpired(ApiError):
    code, status, title, retryable = (
        "delivery_expired",
        403,
        "The delivery of the secret or artifact has expired",
        False,
    )
    default_fix = "Ask for a new delivery of the same content."


class DeliveryUnknown(ApiError):
    code, status, title, retryable = "delivery_unknown", 404, "No delivery matches this token", False
    default_fix = "Send the token that came with the delivery as bearer token."


class BodyTooLarge(ApiError):
    code, status, title, retryable = "body_too_large", 413, "The body is larger than the platform accepts", False
    default_fix = "Send a request body of at most 1 MiB."


class HeadTooLarge(ApiError):
    code, status, retryable = "head_too_large", 431, False
    title = "The request line and the headers are larger than the platform accepts"
    default_fix = "Send at most 100 headers and 32 KiB, the request line included."


class UnsupportedMediaType(ApiError):
    code, status, retryable = "unsupported_media_type", 415, False
    title = "The media type of the body is not supported"
    default_fix = "Send JSON with Content-Type: application/json."


class PreconditionFailed(ApiError):
    code, status, title, retryable = "precondition_failed", 412, "The resource has changed since you read it", False
    default_fix = "Read the resource again, apply your change to the new state, and send the new ETag as If-Match."


class PreconditionRequired(ApiError):
    code, status, title, retryable = "precondition_required", 428, "This change needs an If-Match header", False
    default_fix = "Read the resource and send its ETag as If-Match, or send If-None-Match: * if it does not exist yet."


class RateLimited(ApiError):
    code, status, title, retryable = "rate_limited", 429, "You send too many requests", True
    default_fix = "Wait for the number of seconds in Retry-After. A long poll counts as one request."


class TooManyStreams(ApiError):
    """`details` has `streams_max`."""

    code, status, title, retryable = "too_many_streams", 429, "You have too many open streams", True
    default_fix = "Close streams that you do not read. One stream of a project has the events of all its instances."


class AccountPending(Conflict):
    """The agent on the machine has not made the person's account yet. `details` has `allocation_id` and `reason`."""

    code, title, retryable = "account_pending", "The person's account is not on the machine yet", True
    default_fix = "Repeat the request in some seconds."


class AgentTooOld(Conflict):
    code, title, retryable = "agent_too_old", "The agent on the machine cannot do this; it needs an upgrade", False
    default_fix = "An operator upgrades the agent: gpuaas agent upgrade NODE --to VERSION --reason REASON"


class Sealed(ApiError):
    code, status, title, retryable = "sealed", 503, "Secrets cannot be read until the platform is unsealed", True
    default_fix = "An operator of the platform enters the passphrase: gpuaas-platform unseal"


class Unavailable(ApiError):
    code, status, title, retryable = "unavailable", 503, "The platform cannot answer right now", True
    default_fix = "Retry after the number of seconds in Retry-After."


class InsufficientStorage(ApiError):
    """The disk has too little free space. `details` has `free_bytes` and `reserve_bytes`, if they are known."""

    code, status, title, retryable = (
        "insufficient_storage",
        507,
        "The platform's disk has no room for the content",
        True,
    )
    default_fix = (
        "Ask the operator of the platform to free space on the disk of the data folder, then send the request again."
    )


def _tree(root: type[ApiError]) -> list[type[ApiError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _tree(child))]


BY_CODE: dict[str, type[ApiError]] = {kind.code: kind for kind in _tree(ApiError)}

ErrorTypes = tuple[type[ApiError], ...]
EVERYWHERE: ErrorTypes = (
    InvalidRequest,
    ValidationFailed,
    ApiError,
    Unavailable,
    MethodNotAllowed,
    RateLimited,
    HeadTooLarge,
)
"""Errors that every endpoint may answer with."""
AUTHENTICATED: ErrorTypes = (TokenMissing, TokenInvalid, TokenExpired, PermissionDenied, NotFound)
MUTATION: ErrorTypes = (BodyTooLarge, UnsupportedMediaType, Conflict)
REPEATED_BY_KEY: ErrorTypes = (IdempotencyKeyMissing, IdempotencyKeyReused, RequestInFlight)
GUARDED: ErrorTypes = (PreconditionFailed, PreconditionRequired)
