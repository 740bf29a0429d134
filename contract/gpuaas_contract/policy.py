"""Policy overlays: what the platform, an organisation and a project narrow, and why a verdict is as it is.

An overlay narrows and never broadens: a value is allowed when every layer's list allows it and no layer denies it.
"""

from typing import Literal

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Request, Timestamp, Wire

Layer = Literal["global", "org", "project"]
Subject = Literal["region", "sku", "artifact_source", "app"]
Limit = Literal["allocations_max", "instances_max", "members_per_instance_max", "artifact_bytes_max"]

SUBJECTS: dict[Subject, str] = {
    "region": "regions",
    "sku": "skus",
    "artifact_source": "artifact_sources",
    "app": "apps",
}
"""What is asked about -> the field of an overlay that decides it."""
LIMITS: tuple[Limit, ...] = ("allocations_max", "instances_max", "members_per_instance_max", "artifact_bytes_max")

ENTRIES_MAX = 1000
ENTRY_LENGTH_MAX = 200
REASON_LENGTH_MAX = 500


class Choice(Request):
    """Entries are exact, or end in `*` and then name everything that starts so: `registry/team/*`. Case counts."""

    allow: list[str] | None = None
    """None allows everything, an empty list nothing."""
    deny: list[str] = []
    """Stronger than every allow of every layer."""


class Overlay(Request):
    """What one layer narrows; what it leaves out it does not touch."""

    regions: Choice = Choice()
    """Where nodes may be claimed."""
    skus: Choice = Choice()
    """What nodes may be claimed as."""
    artifact_sources: Choice = Choice()
    """Where artifacts may come from: `local`, an address or a registry."""
    apps: Choice = Choice()
    """What may be deployed, by slug."""
    allocations_max: int | None = None
    """Allocations of one project that are not released; None sets no limit."""
    instances_max: int | None = None
    """App instances of one project that are not deleted; None sets no limit."""
    members_per_instance_max: int | None = None
    """Live members of one app instance, all roles together; None sets no limit."""
    artifact_bytes_max: int | None = None
    """Bytes of one project's artifacts, those published and not yet uploaded included; None sets no limit."""
    reason: str = ""
    """Why it is so, for whoever is refused."""


class Ineffective(Wire):
    """An entry wider than the layers above it. It is kept and has no effect, or effect on a part only."""

    layer: Layer
    """The layer that holds the entry."""
    field: str
    """Where it stands: `regions.allow`, `instances_max`."""
    entry: str
    """The entry itself."""
    extent: Literal["whole", "part"]
    narrowed_by: Layer
    """Whole: the layer after which nothing of it is left. Part: the first layer that takes some of it."""
    rule: str
    """What narrows it, as a sentence."""


class PolicyLayer(Wire):
    """An overlay and where it holds: for all, for an organisation or for a project."""

    layer: Layer
    scope: str
    """`platform`, an org id or a project id."""
    overlay: Overlay
    revision: int
    """Grows with every change; 0: never set."""
    changed_by: str
    changed_at: Timestamp | None


class ChangedPolicyLayer(PolicyLayer):
    """A layer as it is now, and what of it has no effect."""

    ineffective: list[Ineffective] = []
    """Entries wider than the layers above leave; they change when those do, so only `explain` shows them later."""


class ExplainPolicy(Request):
    """What the layers say about these values; an empty one is not asked about."""

    region: str = ""
    sku: str = ""
    artifact_source: str = ""
    app: str = ""


class PolicyVerdict(Wire):
    """Whether a value is allowed here, and which layer says so."""

    subject: Subject
    value: str
    allowed: bool
    layer: Layer | None
    """Refused: the first layer that refuses, from global to project. Allowed: the narrowest layer with a list that
    names it, or None when no layer has such a list."""
    rule: str
    """The entry that decides, as a sentence."""


class PolicyLimit(Wire):
    """How much a project may have, and which layer says so."""

    limit: Limit
    max: int
    layer: Layer
    """The first layer with the smallest number."""
    rule: str
    """The same as a sentence, with the layer's reason."""


class PolicyExplanation(Wire):
    """What all layers together allow in a project, and why."""

    verdicts: list[PolicyVerdict]
    """One per value that was asked about."""
    limits: list[PolicyLimit]
    """Those that some layer sets."""
    effective: Overlay
    """What all layers together leave."""
    ineffective: list[Ineffective]
    """Entries, of every layer, that the layers above make void."""


class CanI(Request):
    """May I do this, there? At most one of `project_id` and `org_id`; neither asks about the platform as a whole."""

    permission: str
    """A permission key, the platform's or an app's."""
    project_id: str = ""
    org_id: str = ""
    region: str = ""
    """Ask about this region too; empty: do not."""
    sku: str = ""
    """Ask about this SKU too; empty: do not."""
    artifact_source: str = ""
    """Ask about this source too; empty: do not."""
    app: str = ""
    """Ask about this app too, by slug; empty: do not."""


class DecidedByBinding(Wire, tag_field="kind", tag="binding"):
    """A role of yours gives it."""

    role: str
    scope: str
    """Where you hold the role: `platform`, an org id or a project id."""


class DecidedByOverlay(Wire, tag_field="kind", tag="overlay"):
    """You hold the permission, and a policy refuses the value."""

    layer: Layer
    rule: str
    """The entry that refuses, as a sentence."""


class DecidedByNone(Wire, tag_field="kind", tag="none"):
    """Nothing gives it to you."""


class CanIAnswer(Wire):
    """Whether you may, and what decides it."""

    allowed: bool
    decided_by: DecidedByBinding | DecidedByOverlay | DecidedByNone
    explanation: str
    """The same as a sentence."""


_EXAMPLE = {"regions": {"deny": ["test-*"]}, "allocations_max": 100, "reason": "test sites are not for tenants"}

GLOBAL_GET = Endpoint(
    "policy.global.get",
    "GET",
    "/api/v1/admin/policy",
    "The overlay of the whole platform",
    permission="policy.overlay.read",
    request=NoBody,
    response=PolicyLayer,
)
GLOBAL_SET = Endpoint(
    "policy.global.set",
    "PUT",
    "/api/v1/admin/policy",
    "Replace the platform's overlay: narrow what every organisation may have",
    permission="policy.overlay.change_global",
    request=Overlay,
    response=ChangedPolicyLayer,
    subject="scope",
    repeat="natural",
    guarded=True,
    example=_EXAMPLE,
)
ORG_GET = Endpoint(
    "policy.org.get",
    "GET",
    "/api/v1/orgs/{org_id}/policy",
    "The overlay of an organisation",
    permission="policy.overlay.read",
    request=NoBody,
    response=PolicyLayer,
)
ORG_SET = Endpoint(
    "policy.org.set",
    "PUT",
    "/api/v1/orgs/{org_id}/policy",
    "Replace an organisation's overlay: narrow what its projects may have",
    permission="policy.overlay.change_org",
    request=Overlay,
    response=ChangedPolicyLayer,
    subject="org_id",
    repeat="natural",
    guarded=True,
    example=_EXAMPLE,
)
PROJECT_GET = Endpoint(
    "policy.project.get",
    "GET",
    "/api/v1/projects/{project_id}/policy",
    "The overlay of a project",
    permission="policy.overlay.read",
    request=NoBody,
    response=PolicyLayer,
)
PROJECT_SET = Endpoint(
    "policy.project.set",
    "PUT",
    "/api/v1/projects/{project_id}/policy",
    "Replace a project's overlay: narrow what it may have",
    permission="policy.overlay.change_project",
    request=Overlay,
    response=ChangedPolicyLayer,
    subject="project_id",
    repeat="natural",
    guarded=True,
    example=_EXAMPLE,
)
EXPLAIN = Endpoint(
    "policy.explain",
    "POST",
    "/api/v1/projects/{project_id}/policy/explain",
    "What the layers together allow here, and which of them decides; changes nothing",
    permission="policy.overlay.read",
    request=ExplainPolicy,
    response=PolicyExplanation,
    subject="project_id",
    repeat="natural",
    audited=False,
    example={"region": "local", "sku": "standard"},
)
CAN_I = Endpoint(
    "auth.can_i",
    "POST",
    "/api/v1/auth/can-i",
    "May I do this, and what decides it; changes nothing",
    request=CanI,
    response=CanIAnswer,
    repeat="natural",
    audited=False,
    example={"permission": "capacity.node.read"},
)
ENDPOINTS = (GLOBAL_GET, GLOBAL_SET, ORG_GET, ORG_SET, PROJECT_GET, PROJECT_SET, EXPLAIN, CAN_I)
