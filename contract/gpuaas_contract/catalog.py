"""The app catalog: apps, immutable versions with a manifest, and what a project may deploy."""

import datetime
from typing import Any, Literal

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Wire

MemberVerb = Literal["add", "drain", "resume", "remove"]


class RoleSpec(Request):
    component_key: str
    """A word of the app's own; the platform carries it and never interprets it."""
    max: int
    min: int = 0
    operations: list[MemberVerb] = []


class Manifest(Request):
    """All the platform knows of an app version."""

    slug: str
    display_name: str
    version: str
    runtime_backend: str
    operating_modes: list[str]
    control_plane_scopes: list[str]
    roles: list[RoleSpec]
    topologies: dict[str, dict[str, str]]
    """Topology -> component_key -> the deploy-form field whose allocation id(s) become members of that role."""
    deploy_form: dict[str, Any]
    """JSON Schema of the inputs; `x-gpuaas-picker` hints tell a form what to offer."""
    summary: str = ""
    deadlines_s: dict[str, int] = {}
    health: list[str] = []
    versions_reported: list[str] = []


class AppVersion(Wire):
    app_slug: str
    version: str
    display_name: str
    summary: str
    state: Literal["registered", "published"]
    manifest: Manifest
    created_at: datetime.datetime

    @property
    def app_version_id(self) -> str:
        return f"{self.app_slug}@{self.version}"


class Entitlement(Wire):
    project_id: str
    app_slug: str
    enabled: bool
    changed_by: str
    changed_at: datetime.datetime


class SetEntitlement(Request):
    enabled: bool


VERSION_REGISTER = Endpoint(
    "catalog.version.register",
    "POST",
    "/api/v1/admin/app-versions",
    "Register an app version by its manifest",
    permission="catalog.version.register",
    request=Manifest,
    response=AppVersion,
    status=201,
)
VERSION_PUBLISH = Endpoint(
    "catalog.version.publish",
    "POST",
    "/api/v1/admin/apps/{app_slug}/versions/{version}/publish",
    "Publish a registered version",
    permission="catalog.version.publish",
    request=NoBody,
    response=AppVersion,
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
PROJECT_APP_LIST = Endpoint(
    "catalog.project_app.list",
    "GET",
    "/api/v1/projects/{project_id}/apps",
    "Published versions this project may deploy",
    permission="catalog.app.read",
    request=NoBody,
    query=PageQuery,
    response=Page[AppVersion],
)
ENTITLEMENT_SET = Endpoint(
    "catalog.entitlement.set",
    "PUT",
    "/api/v1/projects/{project_id}/entitlements/{app_slug}",
    "Let a project deploy an app, or stop it from deploying more",
    permission="catalog.entitlement.change",
    request=SetEntitlement,
    response=Entitlement,
    repeat="natural",
    errors=(errors.NotFound,),
    example={"enabled": True},
)
ENDPOINTS = (VERSION_REGISTER, VERSION_PUBLISH, VERSION_LIST, PROJECT_APP_LIST, ENTITLEMENT_SET)
