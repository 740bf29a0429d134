"""The app catalog: apps, immutable versions with a manifest, and what a project may deploy."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract.conformance import ConformanceCard
from gpuaas_contract.lifecycles import AppVersionState
from gpuaas_contract.paths import ADMIN, APP, APP_VERSION, ENTITLEMENT, PROJECT, PROJECT_APP
from gpuaas_contract.posix import Login
from gpuaas_contract.wire import Label, Name, Request, Timestamp, Wire

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
        description="A version, or its beginning and a `*` for all versions that start so: 1.4.*",
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
        max_length=71,
        pattern=r"^sha256:[0-9a-f]{64}(?!\n)$",
        description="A digest is `sha256:` and 64 hexadecimal digits.",
    ),
]
Reason = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=500, pattern=r"\S", description="A reason has 1 to 500 characters, not only blanks."
    ),
]
Labels = Annotated[list[Label], msgspec.Meta(min_length=1, description="There must be at least one label.")]
Channels = Annotated[
    list[Label], msgspec.Meta(min_length=1, max_length=16, description="There must be 1 to 16 channels.")
]
Count = Annotated[int, msgspec.Meta(ge=0)]
MemberVerb = Literal["add", "drain", "resume", "remove", "replace", "repair"]
StewardVerb = Literal["repair", "drain", "resume", "remove", "replace"]
"""Operations that a controller can request for members between operations."""
InstanceVerb = Literal["stop", "start", "restart", "upgrade", "rollback", "reconfigure"]
SecretPurpose = Literal["artifact_pull", "cluster_bootstrap", "role_join", "operator_access"]
Picker = Literal["allocation", "service_account", "access_credential"]
"""What a form can offer for a field marked with `x-gpuaas-picker`."""
CHANGEABLE = "x-gpuaas-changeable"
"""Keyword of a deploy-form field: `true` if people may change the input of a running instance."""
ActionName = Annotated[
    str,
    msgspec.Meta(
        max_length=63,
        pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(?!\n)$",
        description="1 to 63 letters, digits, hyphens or underscores, with single dots between: users.sync.",
    ),
]
ColumnKind = Literal["text", "integer", "number", "boolean", "timestamp"]
ColumnTitle = Annotated[str, msgspec.Meta(min_length=1, max_length=60)]
ColumnUnit = Annotated[str, msgspec.Meta(max_length=20)]
PermissionRole = Literal["viewer", "project_member", "project_admin", "tenant_admin", "service_account"]

BREAKER_WINDOW_S_MAX = 604_800


class Breaker(Request):
    """When too many members of a role fail to join, the platform refuses to add more."""

    failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    """This many failed joins within the window stop further adds and replacements."""
    window_s: Annotated[int, msgspec.Meta(ge=1, le=BREAKER_WINDOW_S_MAX)] = 600


ReplaceOrder = Literal["new_first", "old_first"]
"""In which order the two machines of a replace change places."""


class RoleSpec(Request):
    """A role of members in an app, and the operations it supports."""

    component_key: Label
    """Name of the role, chosen by the app; the platform never interprets it."""
    max: int
    """Largest number of members of this role in an instance."""
    min: int = 0
    """Smallest number of members of this role in an instance."""
    operations: list[MemberVerb] = []
    """Operations that people can request for members of this role."""
    exclusive: list[MemberVerb] = []
    """Those of `operations` during which no other operation of the instance runs, such as a move of what all members
    depend on."""
    unavailable_max: Count | None = None
    """Disruption budget: how many members of the role may be out of service at once; none: no limit."""
    replace_order: ReplaceOrder | None = None
    """For `replace`. `new_first`: the new machine serves before the old one leaves, so the role is never short of a
    member. `old_first`: the old one stops serving before the new one takes its place. None: the app does not declare
    it. The kit compares it with the handlers, and each preview of a replace shows it."""
    breaker: Breaker = Breaker()


class PermissionSpec(Request):
    """A permission key that the app defines, and the roles that hold it."""

    meaning: str
    roles: Annotated[
        list[PermissionRole], msgspec.Meta(min_length=1, description="At least one role must have the permission.")
    ]
    """Roles above a listed role hold the key too; `service_account` only when listed."""


class ResultColumn(Request):
    """A column of the table that an action returns."""

    name: Name
    """Key of the value in each row."""
    title: ColumnTitle
    """Heading for people."""
    kind: ColumnKind = "text"
    """Type of the values; a row has null where there is no value. A `timestamp` is text as in RFC 3339."""
    unit: ColumnUnit = ""
    """Unit of numbers, such as `s`, `GiB` or `GPU hours`; empty: a count, or no number."""


class ResultSpec(Request):
    """The table that an action returns. The platform refuses a result that does not fit."""

    columns: Annotated[list[ResultColumn], msgspec.Meta(min_length=1, max_length=40)]


class ActionSpec(Request):
    """An action on a running instance; the app's controller runs it."""

    name: ActionName
    title: str
    permission: PermissionKey
    """Permission that a caller needs for the action: a key from `permissions`, or one of the platform's."""
    input_schema: dict[str, Any]
    """JSON Schema of the action's inputs."""
    summary: str = ""
    """What the action does, in one sentence."""
    exclusive: bool = False
    """True: no other operation runs on the instance while the action runs, except previews and readings."""
    reading: bool = False
    """True: the action only reads and needs no inputs. Clients can show its table and read it again by themselves."""
    deadline_s: int = 300
    result: ResultSpec | None = None
    """Columns of the result, which then is `{"rows": [{COLUMN: VALUE}], "note": TEXT}`; none: the app returns any
    object."""


class DetailSpec(Request):
    """How people see one field of a member's `adapter_detail`."""

    title: ColumnTitle
    unit: ColumnUnit = ""
    """Unit of the value, such as `MiB`; empty: a count, or no number."""


class ControllerSpec(Request):
    """What the app's controller needs from the platform."""

    permissions: Annotated[list[PermissionKey], msgspec.Meta(max_length=200)] = []
    """Permission keys that its service account gets, `apps.operation.execute` among them; empty: the usual ones,
    docs/reference/permissions.md, and the app's own keys that list `service_account`."""


class StewardSpec(Request):
    """What the app's controller may request for its instances by itself, between operations."""

    requests: Annotated[list[StewardVerb], msgspec.Meta(max_length=5)] = msgspec.field(
        default_factory=lambda: ["repair"]
    )
    """Kinds of operations that the controller may request. The role of the member must list the kind too."""
    requests_per_hour: Annotated[int, msgspec.Meta(ge=0, le=60)] = 3
    """How many operations of one kind the controller may request for one member in an hour."""
    replace_input: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """Field of the deploy form by which people allow `replace`: the controller may request it only while the instance
    has a value there other than null, false or 0."""


class ArtifactRef(Request):
    """An artifact that a version needs, by digest."""

    digest: Digest
    media_type: str = ""
    """If set, the artifact must have this media type."""


class Manifest(Request):
    """The description of an app version."""

    slug: Slug
    display_name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    version: VersionName
    runtime_backend: Label
    """Text that the app chooses; the platform stores it and never interprets it."""
    operating_modes: Labels
    """Names that the app defines and the platform never interprets. A deploy selects one, by default the first."""
    control_plane_scopes: Labels
    """Names that the app defines and the platform never interprets. A deploy selects one, by default the first."""
    roles: list[RoleSpec]
    topologies: dict[Label, dict[str, str]]
    """Topology -> component_key -> the deploy-form field whose allocation ids become members of that role."""
    deploy_form: dict[str, Any]
    """JSON Schema of the inputs; `x-gpuaas-picker` hints define what a form offers, and `x-gpuaas-changeable`
    marks the fields that a `reconfigure` may change. The platform stores inputs as they were sent. The app's controller
    adds the `default` of each absent field from its own manifest, so it also has those that a later version added."""
    summary: str = ""
    instance_operations: list[InstanceVerb] = []
    """Operations on a whole instance, beside deploy and decommission."""
    upgrades_from: list[VersionPattern] = []
    """Patterns of versions from which an instance may be upgraded to this one."""
    rollback_to: list[VersionPattern] = []
    """Patterns of versions to which an instance of this version may be rolled back."""
    permissions: dict[PermissionKey, PermissionSpec] = {}
    """Permission keys of the app, `area.thing.verb`, in an area the platform does not use."""
    actions: list[ActionSpec] = []
    controller: ControllerSpec = ControllerSpec()
    steward: StewardSpec = StewardSpec()
    secret_purposes: list[SecretPurpose] = []
    """Purposes for which the app's controller may issue runtime secrets."""
    artifacts: dict[Label, ArtifactRef] = {}
    """Artifacts that the app needs on its machines, by the name they were published under."""
    deadlines_s: dict[str, int] = {}
    """Operation kind -> deadline in seconds; the platform has a default for each kind."""
    health: list[str] = []
    """Types of the health conditions that the app's controller reports."""
    details: Annotated[dict[Name, DetailSpec], msgspec.Meta(max_length=60)] = {}
    """Fields of `adapter_detail` with title and unit, in the order in which people see them; others follow by name."""
    versions_reported: list[str] = []
    """Software whose versions the app reports."""
    system_users: Annotated[list[Login], msgspec.Meta(max_length=50)] = []
    """Unix users that the app's software needs on machines. No person gets one of these login names."""


class AppVersion(Wire):
    """One version of an app in the catalog, with its manifest."""

    app_slug: str
    version: str
    display_name: str
    summary: str
    state: AppVersionState
    """Whether the version can be deployed: if published, always; if deprecated, only if the request names it."""
    manifest: Manifest
    """Never changes; another manifest needs another version."""
    created_at: Timestamp
    channels: list[str] = []
    """Channels that the version was published in; an entitlement can be limited to some channels."""
    state_reason: str = ""
    """Why the version was deprecated or withdrawn, as text for people."""
    conformance: ConformanceCard | None = None
    """The conformance card that a publisher of the app attached; none: there is none."""

    @property
    def app_version_id(self) -> str:
        return f"{self.app_slug}@{self.version}"


class CheckedVersion(AppVersion):
    """A version after it was registered or published, with what would prevent a deploy."""

    warnings: list[str] = []
    """Artifacts that the manifest names and that no project can use yet, each with a fix, as sentences for people."""


class PublishVersion(Request):
    """Publishes a version for the projects that are entitled to the app."""

    channels: Channels = msgspec.field(default_factory=lambda: ["stable"])


class RetireVersion(Request):
    """Deprecates or withdraws a version. Running instances continue in both cases."""

    reason: Reason
    """Why the version is retired; shown to people who want to deploy it."""


class Entitlement(Wire):
    """Whether a project may deploy an app, and within which limits."""

    project_id: str
    app_slug: str
    enabled: bool
    """False: no new deploys and upgrades; existing instances can still be managed."""
    changed_by: str
    changed_at: Timestamp
    versions: list[str] = []
    """Versions that may be deployed; empty: all."""
    channels: list[str] = []
    """Channels whose versions may be deployed; empty: all."""
    instances_max: int | None = None
    """Largest number of instances of the app in the project; none: no limit here."""
    members_max: int | None = None
    """Largest number of members of the app in the project, over all instances; none: no limit here."""

    @property
    def entitlement_id(self) -> str:
        return f"{self.project_id}/{self.app_slug}"


class SetEntitlement(Request):
    """Lets a project deploy an app, or stops further deploys."""

    enabled: bool
    """False: no new deploys and upgrades; existing instances can still be managed."""
    versions: Annotated[list[VersionPattern], msgspec.Meta(max_length=100)] = []
    """Versions that may be deployed; empty: all."""
    channels: Annotated[list[Label], msgspec.Meta(max_length=100)] = []
    """Channels whose versions may be deployed; empty: all."""
    instances_max: Count | None = None
    """Largest number of instances of the app in the project; none: no limit here."""
    members_max: Count | None = None
    """Largest number of members of the app in the project, over all instances; none: no limit here."""


VERSION_REGISTER = ADMIN.row(
    "/app-versions",
    "catalog.version.register",
    "Register an app version by its manifest",
    "The same manifest again answers with the same version. A version never changes.",
).post(Manifest, CheckedVersion, subject="app_slug", status=201)
APP_VERSION_REGISTER = APP.row(
    "/versions",
    "catalog.app_version.register",
    "Register a version of this app by its manifest",
    "The same manifest again answers with the same version. A version never changes. The manifest must have the "
    "slug of the path.",
).post(Manifest, CheckedVersion, "catalog.version.register", subject="app_slug", status=201)
APP_VERSION_LIST = APP.row("/versions", "catalog.app_version.list", "List every registered version of one app").list(
    AppVersion, "catalog.version.register"
)
VERSION_PUBLISH = APP_VERSION.row(
    "/publish",
    "catalog.version.publish",
    "Publish an app version in channels",
    "Entitled projects can then deploy a registered or deprecated version.",
).post(PublishVersion, CheckedVersion, subject="version", example={"channels": ["stable"]})
VERSION_DEPRECATE = APP_VERSION.row(
    "/deprecate",
    "catalog.version.deprecate",
    "Deprecate an app version",
    "A deprecated version is deployed only when a request names it. Running instances continue.",
).post(RetireVersion, AppVersion, "catalog.version.retire", subject="version", example={"reason": "1.1.0 is faster"})
VERSION_WITHDRAW = APP_VERSION.row(
    "/withdraw",
    "catalog.version.withdraw",
    "Withdraw an app version permanently",
    "A withdrawn version is never deployed again. Running instances continue.",
).post(
    RetireVersion, AppVersion, "catalog.version.retire", subject="version", example={"reason": "loses data on restart"}
)
VERSION_LIST = ADMIN.row("/app-versions", "catalog.version.list", "List every registered app version").list(
    AppVersion, "catalog.version.register"
)
VERSION_GET = APP_VERSION.row("", "catalog.version.get", "Get one registered app version").get(
    AppVersion, "catalog.version.register"
)
PROJECT_APP_LIST = PROJECT.row(
    "/apps",
    "catalog.project_app.list",
    "List the app versions this project may deploy",
    "Published and deprecated versions that the project is entitled to.",
).list(AppVersion, "catalog.app.read")
PROJECT_APP_GET = PROJECT_APP.row("", "catalog.project_app.get", "Get one app version this project may deploy").get(
    AppVersion, "catalog.app.read"
)
ENTITLEMENT_SET = ENTITLEMENT.row(
    "",
    "catalog.entitlement.set",
    "Set whether and how much a project may deploy an app",
    "`enabled: false` refuses new deploys and upgrades; existing instances can still be managed. It also ends the "
    "acceptances of the organisation's service accounts for the app: instances that only such an account operated "
    "continue to run without a controller, until an account of the project operates the app.",
).put(SetEntitlement, Entitlement, "catalog.entitlement.change", subject="app_slug", example={"enabled": True})
ENTITLEMENT_LIST = PROJECT.row("/entitlements", "catalog.entitlement.list", "List the entitlements of a project").list(
    Entitlement, "catalog.app.read"
)
ENTITLEMENT_GET = ENTITLEMENT.row("", "catalog.entitlement.get", "Get the entitlement of a project for one app").get(
    Entitlement, "catalog.app.read"
)
