"""The contract keeps its own rules: golden document, sound lifecycles, known permissions, unique codes."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gpuaas_contract import asyncapi, errors, event_types, lifecycles, openapi, permissions, reference, registry
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody

LIFECYCLES = {
    "instance": (lifecycles.INSTANCE, "requested"),
    "member": (lifecycles.MEMBER, "requested"),
    "operation": (lifecycles.OPERATION, "accepted"),
    "allocation": (lifecycles.ALLOCATION, "requested"),
    "node_admin": (lifecycles.NODE_ADMIN, "active"),
    "node_tenancy": (lifecycles.NODE_TENANCY, "clean"),
    "artifact": (lifecycles.ARTIFACT, "published"),
    "artifact_trust": (lifecycles.ARTIFACT_TRUST, "unverified"),
    "placement": (lifecycles.PLACEMENT, "queued"),
    "entitlement_request": (lifecycles.ENTITLEMENT_REQUEST, "open"),
    "app_version": (lifecycles.APP_VERSION, "registered"),
}


def test_the_golden_document_matches_the_endpoint_table() -> None:
    golden = Path(__file__).parent.parent / "openapi" / "openapi.json"
    assert golden.read_text() == openapi.text(), "if the change is on purpose: make contract"


@pytest.mark.parametrize("name", LIFECYCLES)
def test_every_state_can_be_reached_and_leads_only_to_known_states(name: str) -> None:
    table, start = LIFECYCLES[name]
    reached, frontier = {start}, [start]
    while frontier:
        for target in table[frontier.pop()] - reached:
            reached.add(target)
            frontier.append(target)
    assert reached == set(table)


@pytest.mark.parametrize("name", LIFECYCLES)
def test_every_state_that_is_not_an_end_leads_to_one(name: str) -> None:
    table, first = LIFECYCLES[name]
    ends = {state for state, targets in table.items() if not targets} or {first}  # a cycle leads back to its start
    leading = set(ends)
    while more := {state for state, targets in table.items() if targets & leading} - leading:
        leading |= more
    assert leading == set(table)


def test_names_and_routes_are_unique() -> None:
    assert len(registry.BY_NAME) == len(registry.ENDPOINTS)
    routes = {(endpoint.method, endpoint.path) for endpoint in registry.ENDPOINTS}
    assert len(routes) == len(registry.ENDPOINTS)


def test_every_permission_an_endpoint_needs_exists_and_a_role_holds_it() -> None:
    needed = {endpoint.permission for endpoint in registry.ENDPOINTS if endpoint.permission}
    assert needed <= set(permissions.KEYS)
    assert needed <= frozenset().union(*permissions.ROLES.values())


def test_every_role_holds_known_permissions_only() -> None:
    assert frozenset().union(*permissions.ROLES.values()) <= set(permissions.KEYS)


def test_no_service_account_may_change_entitlements_or_make_identities() -> None:
    held = permissions.ROLES["service_account"]
    assert not {key for key in held if key.startswith("identity.") and not key.endswith(".read")}
    assert not {"catalog.entitlement.change", "catalog.entitlement.request"} & held


def test_project_routes_that_need_no_permission_do_not_exist() -> None:
    open_routes = {
        endpoint.name
        for endpoint in registry.ENDPOINTS
        if endpoint.audience == "caller"
        and not endpoint.permission
        and "{" in endpoint.path
        and not endpoint.path.startswith("/api/v1/me/")
    }
    assert open_routes == set()


def test_error_codes_are_stable_words_with_a_fix() -> None:
    for code, kind in errors.BY_CODE.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
        assert kind.default_fix


def test_event_names_say_domain_thing_and_what_happened() -> None:
    assert all(re.fullmatch(r"[a-z]+\.[a-z_]+\.[a-z_]+", name) for name in event_types.TYPES)


def test_examples_fit_their_request() -> None:
    document = openapi.document()
    for endpoint in registry.ENDPOINTS:
        if endpoint.request is not NoBody and endpoint.example:
            operation = document["paths"][endpoint.path][endpoint.method.lower()]
            assert operation["requestBody"]["content"]["application/json"]["example"] == endpoint.example


@pytest.mark.parametrize("document", [openapi.document(), asyncapi.document()], ids=["openapi", "asyncapi"])
def test_every_field_that_names_a_moment_has_the_format_of_one(document: dict[str, Any]) -> None:
    lacking = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, shape in schema.get("properties", {}).items()
        if field.endswith("_at") and "date-time" not in _formats(shape)
    ]
    assert lacking == []


def _formats(shape: dict[str, Any]) -> set[str]:
    return {part.get("format", "") for part in (shape, *shape.get("anyOf", ()))}


def test_a_missing_permission_is_named_in_the_fix() -> None:
    refused = errors.PermissionDenied(details={"permission": "apps.instance.stop"})
    assert refused.fix == "Ask an admin for a role that holds apps.instance.stop."
    assert errors.PermissionDenied(fix="Sign in as a person.").fix == "Sign in as a person."


@pytest.mark.parametrize("code", ["controller_bug", "members_failed", "app_failed", "targets_failed"])
def test_codes_of_failed_operations_are_on_the_page_of_errors(code: str) -> None:
    assert f"| `{code}` |" in reference.errors_page()


WITHOUT_SUBJECT = {
    "auth.login": "a sign-in writes its own row",
    "auth.service_account_token": "a sign-in writes its own row",
    "auth.oidc.exchange": "a sign-in writes its own row",
    "auth.can_i": "writes no row",
    "custody.seal.open": "about the platform's one key",
    "node.token": "writes no row",
    "node.status": "writes no row",
}
CHANGES = [endpoint for endpoint in registry.ENDPOINTS if endpoint.mutates]


def test_every_change_names_its_audit_subject_or_has_none() -> None:
    assert {endpoint.name for endpoint in CHANGES if not endpoint.subject} == set(WITHOUT_SUBJECT)


@pytest.mark.parametrize(
    "endpoint", [change for change in CHANGES if change.subject], ids=lambda endpoint: str(endpoint.name)
)
def test_an_audit_subject_is_a_path_parameter_or_a_field_of_the_answer(endpoint: Endpoint[Any, Any]) -> None:
    if endpoint.subject in re.findall(r"{(\w+)}", endpoint.path):
        return
    kind: Any = endpoint.response
    for name in endpoint.subject.split("."):
        kind = {field.name: field.type for field in msgspec.structs.fields(kind)}[name]
    assert kind is str


def test_every_operation_of_the_document_has_a_description_and_the_document_names_its_server() -> None:
    document = openapi.document()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert [operation["operationId"] for operation in operations if not operation.get("description")] == []
    assert document["servers"][0]["url"] == "/"
