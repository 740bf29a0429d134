"""Policy overlays: what the platform, an organisation and a project restrict, and why a value is allowed or denied. An
overlay only restricts: a value is allowed when every layer's list allows it and no layer denies it."""

from typing import Literal

import msgspec

from gpuaas_contract.paths import ADMIN, API, ORG, PROJECT
from gpuaas_contract.wire import Id, LongText, Request, ShortText, Timestamp, Wire

Layer = Literal["global", "org", "project"]
Subject = Literal["region", "sku", "artifact_source", "app"]
Limit = Literal["allocations_max", "instances_max", "members_per_instance_max", "artifact_bytes_max"]

SUBJECTS: dict[Subject, str] = {
    "region": "regions",
    "sku": "skus",
    "artifact_source": "artifact_sources",
    "app": "apps",
}
"""Field of a question -> the field of an overlay that decides it."""
LIMITS: tuple[Limit, ...] = ("allocations_max", "instances_max", "members_per_instance_max", "artifact_bytes_max")

ENTRIES_MAX = 1000
ENTRY_LENGTH_MAX = 200
REASON_LENGTH_MAX = 500


class Choice(Request):
    """Allowed and denied values. An entry that ends in `*` matches all values that start so: `registry/team/*`.
    Case-sensitive."""

    allow: list[str] | None = None
    """Allowed values. None: all values are allowed; an empty list: no value is."""
    deny: list[str] = []
    """Denied values, even if a layer allows them."""


class Overlay(Request):
    """What one layer restricts. Fields that are left out restrict nothing."""

    regions: Choice = Choice()
    """Regions in which nodes may be claimed."""
    skus: Choice = Choice()
    """SKUs of nodes that may be claimed."""
    artifact_sources: Choice = Choice()
    """Sources of artifacts: `local`, an address or a registry."""
    apps: Choice = Choice()
    """Apps that may be deployed, by slug."""
    allocations_max: int | None = None
    """Largest number of allocations of one project; none: no limit."""
    instances_max: int | None = None
    """Largest number of app instances of one project; none: no limit."""
    members_per_instance_max: int | None = None
    """Largest number of members of one app instance, over all roles; none: no limit."""
    artifact_bytes_max: int | None = None
    """Largest size of one project's artifacts, including published ones that are not uploaded yet; none: no limit."""
    conformance_required: bool | msgspec.UnsetType = msgspec.UNSET
    """True: only app versions with a trusted conformance card without failed checks may be deployed."""
    # Left out unless it is true, so that servers of the release before can read all overlays that do not use it.
    reason: str = ""
    """Why the policy has these restrictions; shown to callers whom it refuses."""


class Ineffective(Wire):
    """An entry that allows more than the layers above it. It is stored but has no effect, or only a partial effect."""

    layer: Layer
    """The policy layer that contains the entry."""
    field: str
    """Name of the entry without effect, such as `regions.allow` or `instances_max`."""
    entry: str
    """The entry itself."""
    extent: Literal["whole", "part"]
    narrowed_by: Layer
    """No effect: the layer after which nothing of it is left. Partial effect: the first layer that restricts it."""
    rule: str
    """The rule that restricts the entry, as a sentence."""


class PolicyLayer(Wire):
    """An overlay of the platform, an organisation or a project."""

    layer: Layer
    scope: str
    """Where it applies: `platform`, an organisation's id or a project's id."""
    overlay: Overlay
    revision: int
    """Number of the overlay's version; it grows with every change. 0: never set."""
    changed_by: str
    changed_at: Timestamp | None


class ChangedPolicyLayer(PolicyLayer):
    """A policy layer after a change, with the entries that have no effect."""

    ineffective: list[Ineffective] = []
    """Entries that allow more than the layers above. They change with those layers; later, `explain` shows them."""


class ExplainPolicy(Request):
    """Asks what the layers allow; an empty field is not asked about."""

    region: ShortText = ""
    sku: ShortText = ""
    artifact_source: LongText = ""
    app: ShortText = ""


class PolicyVerdict(Wire):
    """Whether a policy allows a value, such as a region, and which policy layer decides."""

    subject: Subject
    value: str
    allowed: bool
    layer: Layer | None
    """Refused: the first layer that refuses, from global to project. Allowed: the narrowest layer with a list that
    names it, or None when no layer has such a list."""
    rule: str
    """The policy entry that decides, as a sentence."""


class PolicyLimit(Wire):
    """A limit of a project, and the layer that sets it."""

    limit: Limit
    max: int
    layer: Layer
    """The policy layer that sets the limit: the first with the smallest number."""
    rule: str
    """The same as a sentence, with the layer's reason."""


class PolicyRequirement(Wire):
    """What an app version must have, and the first layer that requires it."""

    requirement: Literal["conformance_required"]
    layer: Layer
    rule: str
    """The same as a sentence, with the layer's reason."""


class PolicyExplanation(Wire):
    """What all layers together allow in a project, and why."""

    verdicts: list[PolicyVerdict]
    """One answer for each value that the request asked about."""
    limits: list[PolicyLimit]
    """Limits on numbers and sizes that a policy layer sets for the project."""
    effective: Overlay
    """What all layers together allow."""
    ineffective: list[Ineffective]
    """Entries of any layer that have no effect because of the layers above."""
    requirements: list[PolicyRequirement] = []
    """What an app version must have before the project may deploy it."""


class CanI(Request):
    """Asks whether you have a permission somewhere. Send at most one of `project_id` and `org_id`; without both: the
    platform as a whole."""

    permission: ShortText
    """The permission to check: a key of the platform or of an app."""
    project_id: Id = ""
    org_id: Id = ""
    region: ShortText = ""
    """Also check this region; empty: not checked."""
    sku: ShortText = ""
    """Also check this SKU; empty: not checked."""
    artifact_source: LongText = ""
    """Also check this artifact source; empty: not checked."""
    app: ShortText = ""
    """Also check this app, by slug; empty: not checked. Without project and organisation, roles for the app count."""


class DecidedByBinding(Wire, tag_field="kind", tag="binding"):
    """One of your roles has the permission."""

    role: str
    scope: str
    """Where you have the role: `platform`, an org id or a project id."""


class DecidedByOverlay(Wire, tag_field="kind", tag="overlay"):
    """You have the permission, but a policy refuses the value."""

    layer: Layer
    rule: str
    """The entry that refuses, as a sentence."""


class DecidedByNone(Wire, tag_field="kind", tag="none"):
    """None of your roles has the permission."""


class CanIAnswer(Wire):
    """Whether the caller has a permission, and what decides it."""

    allowed: bool
    decided_by: DecidedByBinding | DecidedByOverlay | DecidedByNone
    explanation: str
    """The answer as a sentence for people."""


_EXAMPLE = {"regions": {"deny": ["test-*"]}, "allocations_max": 100, "reason": "test sites are not for tenants"}

GLOBAL_GET = ADMIN.row("/policy", "policy.global.get", "Get the overlay of the platform").get(
    PolicyLayer, "policy.overlay.read"
)
GLOBAL_SET = ADMIN.row(
    "/policy",
    "policy.global.set",
    "Replace the overlay of the platform",
    "The policy overlay restricts every organisation. The answer lists entries that have no effect.",
).put(Overlay, ChangedPolicyLayer, "policy.overlay.change_global", subject="scope", guarded=True, example=_EXAMPLE)
ORG_GET = ORG.row("/policy", "policy.org.get", "Get the policy overlay of an organisation").get(
    PolicyLayer, "policy.overlay.read"
)
ORG_SET = ORG.row(
    "/policy",
    "policy.org.set",
    "Replace the policy overlay of an organisation",
    "The policy overlay restricts the organisation's projects. The answer lists entries that have no effect.",
).put(Overlay, ChangedPolicyLayer, "policy.overlay.change_org", subject="org_id", guarded=True, example=_EXAMPLE)
PROJECT_GET = PROJECT.row("/policy", "policy.project.get", "Get the policy overlay of a project").get(
    PolicyLayer, "policy.overlay.read"
)
PROJECT_SET = PROJECT.row(
    "/policy",
    "policy.project.set",
    "Replace the policy overlay of a project",
    "The policy overlay restricts the project. The answer lists entries that have no effect.",
).put(
    Overlay, ChangedPolicyLayer, "policy.overlay.change_project", subject="project_id", guarded=True, example=_EXAMPLE
)
EXPLAIN = PROJECT.row(
    "/policy/explain",
    "policy.explain",
    "Explain what the policy layers allow in a project",
    "For each value: whether it is allowed, and the layer that decides. Changes nothing.",
).post(
    ExplainPolicy,
    PolicyExplanation,
    "policy.overlay.read",
    subject="project_id",
    repeat="natural",
    audited=False,
    example={"region": "local", "sku": "standard"},
)
CAN_I = API.row("/auth/can-i", "auth.can_i", "Check whether you may do something, and why", "Changes nothing.").post(
    CanI,
    CanIAnswer,
    permission="",
    subject="",
    repeat="natural",
    audited=False,
    example={"permission": "capacity.node.read"},
)
