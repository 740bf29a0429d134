"""Conformance cards: what the conformance kit found out about one app version, signed by the app's team.

The card is an in-toto statement about the manifest, in a DSSE envelope, as the signature of an artifact is. The keys
that are trusted for shared artifacts verify it."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.artifacts import Envelope
from gpuaas_contract.paths import APP_VERSION, PROJECT_APP
from gpuaas_contract.wire import Label, ShortText, Timestamp, Wire

PREDICATE_TYPE = "urn:gpuaas:conformance:v1"
"""The predicate type of a card. A statement of another type, such as the signature of an artifact, is no card."""
CHECKS_MAX = 200
Result = Literal["passed", "failed", "not applicable"]


class ConformanceCheck(Wire):
    """The verdict of one check."""

    name: Label
    result: Result
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Why the check failed or was not applicable, as text for people."""


class ConformanceStatement(Wire):
    """What the team of an app signs: the predicate of the in-toto statement."""

    app_slug: ShortText
    version: ShortText
    manifest_digest: ShortText
    """SHA-256 of the manifest, as `manifest_digest` makes it."""
    kit_version: ShortText
    """Version of the SDK whose conformance kit ran the checks."""
    completed_at: Timestamp
    checks: Annotated[list[ConformanceCheck], msgspec.Meta(min_length=1, max_length=CHECKS_MAX)]


class ConformanceCard(Wire):
    """The verified conformance statement of an app version."""

    conforming: bool
    """Whether no check failed and at least one passed."""
    trusted: bool
    """Whether a key that signed the statement is still trusted; false after the last one was revoked."""
    manifest_digest: str
    kit_version: str
    """Version of the SDK whose conformance kit ran the checks."""
    completed_at: Timestamp
    """When the checks were completed. Only a later run replaces the card."""
    checks: list[ConformanceCheck]
    signers: list[str]
    """Fingerprints of the trusted keys that had signed the statement when it was attached."""
    attached_by: str
    attached_at: Timestamp

    @property
    def counts(self) -> dict[Result, int]:
        """Return how many checks had each result."""
        results: tuple[Result, ...] = ("passed", "failed", "not applicable")
        return {result: sum(check.result == result for check in self.checks) for result in results}


class AttachedStatement(Wire):
    """The conformance card of an app version, and the signed statement that it was made from."""

    app_slug: str
    version: str
    card: ConformanceCard
    envelope: Envelope
    """The DSSE envelope as it was attached, so that others can verify the signature themselves."""


def conforms(checks: list[ConformanceCheck]) -> bool:
    """Return whether no check failed and at least one passed."""
    results = {check.result for check in checks}
    return "failed" not in results and "passed" in results


def manifest_digest(manifest: msgspec.Struct) -> str:
    """Return the SHA-256 of a manifest. Fields with their default value do not count, so that a release that adds a
    field to manifests computes the same digest as the release before."""
    content = msgspec.json.encode(_without_defaults(manifest), order="sorted")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _without_defaults(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        present = {field.encode_name: (field, getattr(value, field.name)) for field in fields}
        return {name: _without_defaults(given) for name, (field, given) in present.items() if given != _default(field)}
    if isinstance(value, Mapping):
        return {name: _without_defaults(item) for name, item in value.items()}
    return [_without_defaults(item) for item in value] if isinstance(value, list) else value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default


_ERRORS = (errors.ConformanceRefused,)
CARD_PUT = APP_VERSION.row(
    "/conformance",
    "catalog.conformance.attach",
    "Attach a conformance card to an app version",
    "The body is a DSSE envelope, as `gpuaas app conformance APP --sign KEY` writes it. A key that is trusted for "
    "shared artifacts must have signed it. Only the card of a later run replaces a card.",
).put(Envelope, AttachedStatement, subject="version", errors=_ERRORS)
CARD_GET = APP_VERSION.row(
    "/conformance", "catalog.conformance.get", "Get the conformance card of a registered app version"
).get(AttachedStatement, "catalog.version.register")
PROJECT_CARD_GET = PROJECT_APP.row(
    "/conformance",
    "catalog.project_conformance.get",
    "Get the conformance card of an app version this project may deploy",
).get(AttachedStatement, "catalog.app.read")
