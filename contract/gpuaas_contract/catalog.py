"""The app catalog: apps, immutable versions with a manifest, and what a project may deploy."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import AppVersionState
from gpuaas_contract.wire import Label, Name, NoBody, Page, PageQuery, Request, Timestamp, Wire

Slug = Annotated[
    str,
    msgspec.Meta(
        max_length=63,
        pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*(?!\n)$",
        description="A slug has 1 to 63 lower-case letters and digits, a letter first, with single hyphens between.",
    ),
]
VersionName = Annotated[
    str,
    msgspec.Meta(
        max_length=63,
        pattern=r"^[0-9A-Za-z]+([.+-][0-9A-Za-z]+)*(?!\n)$",
        description="A version has 1 to 63 letters and digits, with single dots, hyphens or pluses between: 1.4.0-rc1.",
    ),
]
VersionPattern = Annotated[
    str,
    msgspec.Meta(
        max_length=64,
        pattern=r"^[0-9A-Za-z.+-]*[0-9A-Za-z*](?!\n)$",
        description="A version, or its beginning and a `*` for everything that starts so: 1.4.*",
    ),
]
PermissionKey = Annotated[
    str,
    msgspec.Meta(
        max_length=100,
        pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){2}(?!\n)$",
        description="A permission key is `area.thing.verb`, in lower-case letters, digits and underscores.",
    ),
]
Digest = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^sha256:[0-9a-f]{64}(?!\n)$", description="A digest is `sha256:` and 64 hexadecimal digits."
    ),
]
Reason = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=500, description="A reason has 1 to 500 characters."),
]
Labels = Annotated[list[Label], msgspec.Meta(min_length=1, description="There must be at least one.")]
Channels = Annotated[
    list[Label], msgspec.Meta(min_length=1, max_length=16, description="There must be 1 to 16 channels.")
]
Count = Annotated[int, msgspec.Meta(ge=0)]
MemberVerb = Literal["add", "drain", "resume", "remove", "replace"]
InstanceVerb = Literal["stop", "start", "restart", "upgrade", "rollback"]
SecretPurpose = Literal["artifact_pull", "cluster_bootstrap", "role_join", "operator_access"]
Picker = Literal["allocation", "service_account", "access_credential"]
"""What a form can offer for a field marked with `x-gpuaas-picker`."""
PermissionRole = Literal["viewer", "project_member", "project_admin", "tenant_admin", "service_account"]

BREAKER_WINDOW_S_MAX = 604_800


class Breaker(Request):
    """When a role fails too often, the platform stops accepting operations that would risk more of it."""

    failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    """So many failed joins inside the window stop further adds and replacements."""
    window_s: Annotated[int, msgspec.Meta(ge=1, le=BREAKER_WINDOW_S_MAX)] = 600


class RoleSpec(Request):
    """A part members play in an app, and what may be asked of them."""

    component_key: Label
    """A word of the app's own; the platform carries it and never interprets it."""
    max: int
    """How many members of it an instance has at the most."""
    min: int = 0
    """How many it has at the least."""
    operations: list[MemberVerb] = []
    """What people can ask for its members."""
    unavailable_max: Count | None = None
    """Disruption budget: how many members of the role operations may have out of service at once; none: no bound."""
    breaker: Breaker = Breaker()


class PermissionSpec(Request):
    """A permission key of the app's own, and who holds it through the roles they have anyway."""

    meaning: str
    roles: Annotated[list[PermissionRole], msgspec.Meta(min_length=1, description="Some role must hold the key.")]
    """A role given here gives the key to the roles above it as well; `service_account` counts only when listed."""


class ActionSpec(Request):
    """Something people can ask of a running instance; the app's controller does it as an operation."""

    name: Name
    title: str
    permission: PermissionKey
    """A key of `permissions`, or one of the platform's."""
    input_schema: dict[str, Any]
    """JSON Schema of what the action takes."""
    summary: str = ""
    """What it does, in a sentence, for people."""
    exclusive: bool = False
    """Nothing else runs on the instance meanwhile."""
    deadline_s: int = 300


class ArtifactRef(Request):
    """An artifact a version needs, pinned by its digest."""

    digest: Digest
    media_type: str = ""
    """When given, the artifact must be of this type."""


class Manifest(Request):
    """All the platform knows of an app version."""

    slug: Slug
    display_name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    version: VersionName
    runtime_backend: Label
    """A word of the app's own; carried, never interpreted."""
    operating_modes: Labels
    """Words of the app's own; a deploy chooses one, the first if it says nothing."""
    control_plane_scopes: Labels
    """Words of the app's own; a deploy chooses one, the first if it says nothing."""
    roles: list[RoleSpec]
    topologies: dict[Label, dict[str, str]]
    """Topology -> component_key -> the deploy-form field whose allocation id(s) become members of that role."""
    deploy_form: dict[str, Any]
    """JSON Schema of the inputs; `x-gpuaas-picker` hints tell a form what to offer."""
    summary: str = ""
    instance_operations: list[InstanceVerb] = []
    """What can be asked of a whole instance, beside deploy and decommission."""
    upgrades_from: list[VersionPattern] = []
    """Patterns of versions from which an instance may be upgraded to this one."""
    rollback_to: list[VersionPattern] = []
    """Patterns of versions to which an instance of this one may go back."""
    permissions: dict[PermissionKey, PermissionSpec] = {}
    """Keys of the app's own, `area.thing.verb`, in an area the platform does not use."""
    actions: list[ActionSpec] = []
    secret_purposes: list[SecretPurpose] = []
    """What the app's controller may ask runtime secrets for."""
    artifacts: dict[Label, ArtifactRef] = {}
    """What the app needs on its machines, by a name of its own."""
    deadlines_s: dict[str, int] = {}
    """Operation kind -> how long one may take, in seconds; the platform has a value for each kind."""
    health: list[str] = []
    """Condition types the app promises to report."""
    versions_reported: list[str] = []
    """What the app promises to report versions of."""


class AppVersion(Wire):
    """An app in the catalog at one version, with its manifest."""

    app_slug: str
    version: str
    display_name: str
    summary: str
    state: AppVersionState
    """New deploys take published versions; a deprecated one when it is named."""
    manifest: Manifest
    """Never changes; another manifest is another version."""
    created_at: Timestamp
    channels: list[str] = []
    """Where it was published; entitlements can be limited to some."""
    state_reason: str = ""
    """Why it was deprecated or withdrawn."""

    @property
    def app_version_id(self) -> str:
        return f"{self.app_slug}@{self.version}"


class PublishVersion(Request):
    """Offers a version to the projects that are entitled to the app."""

    channels: Channels = msgspec.field(default_factory=lambda: ["stable"])


class RetireVersion(Request):
    """Deprecated: still deployed when named. Withdrawn: never deployed again. What runs goes on in both cases."""

    reason: Reason
    """Said to whoever wants to deploy it."""


class Entitlement(Wire):
    """Whether a project may deploy an app, and how much of it."""

    project_id: str
    app_slug: str
    enabled: bool
    """False: no new deploys and upgrades; what runs can still be managed."""
    changed_by: str
    changed_at: Timestamp
    versions: list[str] = []
    """Versions that may be deployed; none listed: all."""
    channels: list[str] = []
    """Channels whose versions may be deployed; none listed: all."""
    instances_max: int | None = None
    """Instances of the app in the project that are not deleted; none: no bound of its own."""
    members_max: int | None = None
    """Live members of the app in the project, all its instances together; none: no bound of its own."""

    @property
    def entitlement_id(self) -> str:
        return f"{self.project_id}/{self.app_slug}"


class SetEntitlement(Request):
    """Lets a project deploy an app, or stops it from deploying more."""

    enabled: bool
    """False refuses new deploys and upgrades; what runs can still be managed."""
    versions: list[VersionPattern] = []
    """Versions that may be deployed; none listed: all."""
    channels: list[Label] = []
    """Channels whose versions may be deployed; none listed: all."""
    instances_max: Count | None = None
    """Instances of the app in the project that are not deleted; none: no bound of its own."""
    members_max: Count | None = None
    """Live members of the app in the project, all its instances together; none: no bound of its own."""


_VERSION = "/api/v1/admin/apps/{app_slug}/versions/{version}"

VERSION_REGISTER = Endpoint(
    "catalog.version.register",
    "POST",
    "/api/v1/admin/app-versions",
    "Register an app version by its manifest; the same manifest again answers with the same version",
    permission="catalog.version.register",
    request=Manifest,
    response=AppVersion,
    subject="app_slug",
    status=201,
)
VERSION_PUBLISH = Endpoint(
    "catalog.version.publish",
    "POST",
    f"{_VERSION}/publish",
    "Offer a registered or deprecated version to entitled projects, in these channels",
    permission="catalog.version.publish",
    request=PublishVersion,
    response=AppVersion,
    subject="version",
    example={"channels": ["stable"]},
)
VERSION_DEPRECATE = Endpoint(
    "catalog.version.deprecate",
    "POST",
    f"{_VERSION}/deprecate",
    "Advise against a version: it is deployed only when it is named",
    permission="catalog.version.retire",
    request=RetireVersion,
    response=AppVersion,
    subject="version",
    example={"reason": "1.1.0 is faster"},
)
VERSION_WITHDRAW = Endpoint(
    "catalog.version.withdraw",
    "POST",
    f"{_VERSION}/withdraw",
    "Take a version out of the catalog for good; what runs goes on",
    permission="catalog.version.retire",
    request=RetireVersion,
    response=AppVersion,
    subject="version",
    example={"reason": "loses data on restart"},
)
VERSION_LIST = Endpoint(
    "catalog.version.list",
    "GET",
    "/api/v1/admin/app-versions",
    "Every registered version",
    permission="catalog.version.register",
    request=NoBody,
    query=PageQuery,
    response=Page[AppVersion],
)
VERSION_GET = Endpoint(
    "catalog.version.get",
    "GET",
    _VERSION,
    "One registered version",
    permission="catalog.version.register",
    request=NoBody,
    response=AppVersion,
)
PROJECT_APP_LIST = Endpoint(
    "catalog.project_app.list",
    "GET",
    "/api/v1/projects/{project_id}/apps",
    "Published and deprecated versions this project may deploy",
    permission="catalog.app.read",
    request=NoBody,
    query=PageQuery,
    response=Page[AppVersion],
)
PROJECT_APP_GET = Endpoint(
    "catalog.project_app.get",
    "GET",
    "/api/v1/projects/{project_id}/apps/{app_slug}/versions/{version}",
    "One version this project may deploy",
    permission="catalog.app.read",
    request=NoBody,
    response=AppVersion,
)
ENTITLEMENT_SET = Endpoint(
    "catalog.entitlement.set",
    "PUT",
    "/api/v1/projects/{project_id}/entitlements/{app_slug}",
    "Let a project deploy an app, within bounds, or stop it from deploying more",
    permission="catalog.entitlement.change",
    request=SetEntitlement,
    response=Entitlement,
    subject="app_slug",
    repeat="natural",
    example={"enabled": True},
)
ENTITLEMENT_LIST = Endpoint(
    "catalog.entitlement.list",
    "GET",
    "/api/v1/projects/{project_id}/entitlements",
    "What was decided about apps in this project",
    permission="catalog.app.read",
    request=NoBody,
    query=PageQuery,
    response=Page[Entitlement],
)
ENTITLEMENT_GET = Endpoint(
    "catalog.entitlement.get",
    "GET",
    "/api/v1/projects/{project_id}/entitlements/{app_slug}",
    "What was decided about one app in this project",
    permission="catalog.app.read",
    request=NoBody,
    response=Entitlement,
)
ENDPOINTS = (
    VERSION_REGISTER,
    VERSION_PUBLISH,
    VERSION_DEPRECATE,
    VERSION_WITHDRAW,
    VERSION_LIST,
    VERSION_GET,
    PROJECT_APP_LIST,
    PROJECT_APP_GET,
    ENTITLEMENT_SET,
    ENTITLEMENT_LIST,
    ENTITLEMENT_GET,
)
