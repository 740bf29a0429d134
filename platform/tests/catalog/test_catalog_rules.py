"""What a sound manifest is, which version is newer, and expressions that no text can make slow."""

import copy
import random
import re
import string
from typing import Any

import msgspec
import pytest
from gpuaas_contract import errors
from gpuaas_contract.catalog import AppVersion, Entitlement, Manifest
from gpuaas_platform.catalog import manifests, rules, schemas, versions
from platform_world import MANIFEST, FakeClock

FULL: dict[str, Any] = {
    **MANIFEST,
    "instance_operations": ["stop", "start", "restart", "upgrade", "rollback"],
    "upgrades_from": ["0.9.*"],
    "rollback_to": ["0.9.*"],
    "permissions": {"queue.job.submit": {"meaning": "submit jobs", "roles": ["project_member"]}},
    "actions": [
        {
            "name": "submit",
            "title": "Submit a job",
            "permission": "queue.job.submit",
            "input_schema": {"type": "object", "properties": {"script": {"type": "string"}}},
        }
    ],
    "secret_purposes": ["role_join"],
    "artifacts": {"daemon": {"digest": "sha256:" + "a" * 64}},
}
FORM = MANIFEST["deploy_form"]
SHORT = {"type": "object"}


def manifest(**changes: Any) -> Manifest:
    return msgspec.convert({**copy.deepcopy(FULL), **changes}, Manifest)


def flaws(**changes: Any) -> dict[str, str]:
    return dict(manifests.flaws_of(manifest(**changes)))


def field(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {**FORM, "properties": {**FORM["properties"], name: schema}}


def test_a_manifest_that_uses_everything_is_sound() -> None:
    assert flaws() == {}


ROLES = MANIFEST["roles"]
ACTION = FULL["actions"][0]
UNSOUND: dict[str, tuple[dict[str, Any], str, str]] = {
    "a permission of no service account": (
        {"controller": {"permissions": ["apps.operation.execute", "policy.overlay.change_org"]}},
        "controller.permissions[1]",
        "there is no permission of a service account",
    ),
    "an own key that is not for service accounts": (
        {"controller": {"permissions": ["apps.operation.execute", "queue.job.submit"]}},
        "controller.permissions[1]",
        "there is no permission of a service account",
    ),
    "a controller that can claim nothing": (
        {"controller": {"permissions": ["apps.instance.read"]}},
        "controller.permissions",
        "needs apps.operation.execute",
    ),
    "no role": ({"roles": [], "topologies": {"none": {}}}, "roles", "at least one"),
    "a role twice": ({"roles": [*ROLES, ROLES[0]]}, "roles[2].component_key", "`head` is listed twice"),
    "min below 0": ({"roles": [{**ROLES[0], "min": -1}, ROLES[1]]}, "roles[0].min", "0 or more"),
    "max below min": ({"roles": [ROLES[0], {**ROLES[1], "min": 4}]}, "roles[1].max", "not below min"),
    "a role without members": ({"roles": [{**ROLES[0], "min": 0, "max": 0}, ROLES[1]]}, "roles[0].max", "at least 1"),
    "an operation twice": (
        {"roles": [ROLES[0], {**ROLES[1], "operations": ["add", "add"]}]},
        "roles[1].operations[1]",
        "`add` is listed twice",
    ),
    "no topology": ({"topologies": {}}, "topologies", "at least one"),
    "a topology of an unknown role": (
        {"topologies": {"pair": {**MANIFEST["topologies"]["pair"], "hands": "hand_allocations"}}},
        "topologies.pair.hands",
        "did you mean `hand`?",
    ),
    "a topology of an unknown field": (
        {"topologies": {"pair": {"head": "head_alocation", "hand": "hand_allocations"}}},
        "topologies.pair.head",
        "did you mean `head_allocation`?",
    ),
    "a topology of a field without ids": (
        {"topologies": {"pair": {"head": "color", "hand": "hand_allocations"}}},
        "topologies.pair.head",
        "type is string",
    ),
    "a topology that leaves out a role that must be there": (
        {"topologies": {"pair": {"head": "head_allocation"}}},
        "topologies.pair",
        "hand has at least 1 members",
    ),
    "a form that is no schema": ({"deploy_form": {"type": "objekt"}}, "deploy_form.type", "not a JSON Schema"),
    "a form of another dialect": (
        {"deploy_form": {**FORM, "$schema": "http://json-schema.org/draft-07/schema#"}},
        "deploy_form.$schema",
        "2020-12",
    ),
    "a form that is no object": ({"deploy_form": {**FORM, "type": "array"}}, "deploy_form.type", "object"),
    "an unknown picker": (
        {"deploy_form": field("where", {"x-gpuaas-picker": "alocation"})},
        "deploy_form.properties.where.x-gpuaas-picker",
        "did you mean `allocation`?",
    ),
    "a reference to elsewhere": (
        {"deploy_form": field("x", {"items": {"$ref": "http://169.254.169.254/"}})},
        "deploy_form.properties.x.items.$ref",
        "written out whole",
    ),
    "a pattern that needs going back": (
        {"deploy_form": field("x", {"allOf": [{"pattern": r"(a)\1"}]})},
        "deploy_form.properties.x.allOf[0].pattern",
        "is not a",
    ),
    "a broken pattern": (
        {"deploy_form": field("x", {"pattern": "("})},
        "deploy_form.properties.x.pattern",
        "is not a",
    ),
    "a permission of the platform's": (
        {"permissions": {"apps.queue.read": {"meaning": "x", "roles": ["viewer"]}}, "actions": []},
        "permissions.apps.queue.read",
        "an area of the platform",
    ),
    "an action of no permission": (
        {"actions": [{**ACTION, "permission": "queue.job.sumbit"}]},
        "actions[0].permission",
        "did you mean `queue.job.submit`?",
    ),
    "an action twice": ({"actions": [ACTION, ACTION]}, "actions[1].name", "`submit` is listed twice"),
    "an action without a title": ({"actions": [{**ACTION, "title": " "}]}, "actions[0].title", "not empty"),
    "an action whose schema is none": (
        {"actions": [{**ACTION, "input_schema": {"type": 7}}]},
        "actions[0].input_schema.type",
        "not a JSON Schema",
    ),
    "a reading action that needs inputs": (
        {"actions": [{**ACTION, "reading": True, "input_schema": {"type": "object", "required": ["x"]}}]},
        "actions[0].reading",
        "needs no inputs",
    ),
    "an action with too long a deadline": (
        {"actions": [{**ACTION, "deadline_s": 604_801}]},
        "actions[0].deadline_s",
        "a week",
    ),
    "a deadline of no operation": ({"deadlines_s": {"dploy": 60}}, "deadlines_s.dploy", "did you mean `deploy`?"),
    "a deadline of nothing": ({"deadlines_s": {"deploy": 0}}, "deadlines_s.deploy", "1 to"),
    "a purpose twice": (
        {"secret_purposes": ["role_join", "role_join"]},
        "secret_purposes[1]",
        "`role_join` is listed twice",
    ),
    "an order of a replace that the role does not have": (
        {"roles": [{"component_key": "head", "max": 1, "replace_order": "new_first"}]},
        "roles[0].replace_order",
        "replace is not in operations",
    ),
    "an exclusive operation that the role does not have": (
        {"roles": [{"component_key": "head", "max": 1, "exclusive": ["replace"]}]},
        "roles[0].exclusive[0]",
        "replace is not in operations",
    ),
    "a controller that replaces without consent": (
        {"steward": {"requests": ["replace"]}},
        "steward.replace_input",
        "by which people allow",
    ),
    "consent by an unknown input": (
        {"steward": {"requests": ["replace"], "replace_input": "nothing"}},
        "steward.replace_input",
        "there is no field of the deploy form `nothing`",
    ),
    "too much of it": ({"summary": "a" * manifests.SIZE_MAX_BYTES}, "$", "256 KiB"),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_a_flaw_is_reported_with_the_path_of_its_field(case: str) -> None:
    changes, path, words = UNSOUND[case]
    reported = flaws(**changes)
    assert words in reported.get(path, f"nothing at {path}, but {reported}")


def test_all_flaws_are_reported_at_once() -> None:
    with pytest.raises(errors.ValidationFailed) as refused:
        manifests.check(manifest(deadlines_s={"deploy": 0}, roles=[*ROLES, ROLES[0]]))
    fields = [problem["field"] for problem in refused.value.details["problems"]]
    assert fields == ["roles[2].component_key", "deadlines_s.deploy"]
    assert refused.value.details["field"] == fields[0]


def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20):
        deep = {"items": deep}
    assert any("deep" in message for message in flaws(deploy_form=field("x", deep)).values())


def _nested(word: str, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"anyOf": [schema], word: False}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"const": number} for number in range(10_000)]},
        {"allOf": [{"pattern": f"x{number}"} for number in range(10_000)]},
        _nested("unevaluatedProperties", 12),
        _nested("unevaluatedItems", 12),
    ],
    ids=["alternatives", "patterns", "unevaluated properties", "unevaluated items"],
)
def test_a_schema_that_takes_too_many_steps_is_refused(schema: dict[str, Any]) -> None:
    assert any("steps for one value" in message for message in flaws(deploy_form=field("x", schema)).values())


def _only(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}}


NUMBERS = _only({"type": "array", "items": {"anyOf": [{"const": number} for number in range(1000)]}})


def test_a_document_that_takes_too_many_steps_is_refused_before_its_check() -> None:
    """The check runs in the transaction that writes: it would stop the platform, and its errors need 2 KiB a step."""
    reported = schemas.misfits(NUMBERS, {"x": ["no"] * 10_000})
    assert "give fewer or shorter values" in reported["$"]


def test_a_large_document_that_does_not_fit_is_refused_without_the_errors_of_all_alternatives() -> None:
    document = {"x": ["no"] * 500}
    assert schemas.misfits(NUMBERS, document) == {"x": "it does not fit the app's schema"}
    assert schemas.misfits(NUMBERS, {"x": [999] * 500}) == {}
    names = _only({"type": "array", "items": {"type": "string"}})
    assert schemas.misfits(names, {"x": [*["a"] * 10_000, 1]}) == {"x[10000]": '1 is not of type "string"'}


def test_what_is_nested_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    assert "cannot be checked" in schemas.misfits(_only({"type": "string"}), {"x": deep})["$"]
    assert any("cannot be read" in message for message in flaws(deploy_form=field("x", {"default": deep})).values())


WRONG_FORM: dict[str, tuple[dict[str, Any], str]] = {
    "a slug with capitals": ({"slug": "Toy"}, "$.slug"),
    "a slug with a slash": ({"slug": "a/b"}, "$.slug"),
    "a version with a space": ({"version": "1 0"}, "$.version"),
    "a version with an at": ({"version": "1@0"}, "$.version"),
    "no backend": ({"runtime_backend": ""}, "$.runtime_backend"),
    "no mode": ({"operating_modes": []}, "$.operating_modes"),
    "no scope": ({"control_plane_scopes": []}, "$.control_plane_scopes"),
    "a star in the middle": ({"upgrades_from": ["1.*.0"]}, "$.upgrades_from[0]"),
    "a key of two words": ({"permissions": {"queue.submit": {"meaning": "", "roles": ["viewer"]}}}, "$.permissions"),
    "a key without roles": ({"permissions": {"a.b.c": {"meaning": "", "roles": []}}}, "$.permissions[...].roles"),
    "a key for an unknown role": ({"permissions": {"a.b.c": {"meaning": "", "roles": ["x"]}}}, "roles[0]"),
    "a short digest": ({"artifacts": {"a": {"digest": "sha256:abc"}}}, "$.artifacts[...].digest"),
    "another digest": ({"artifacts": {"a": {"digest": "md5:" + "a" * 64}}}, "$.artifacts[...].digest"),
    "an unknown purpose": ({"secret_purposes": ["fun"]}, "$.secret_purposes[0]"),
    "an unknown operation": ({"instance_operations": ["pause"]}, "$.instance_operations[0]"),
    "a breaker that never opens": (
        {"roles": [{"component_key": "a", "max": 1, "breaker": {"failures": 0}}]},
        "$.roles[0].breaker.failures",
    ),
    "a negative budget": ({"roles": [{"component_key": "a", "max": 1, "unavailable_max": -1}]}, "unavailable_max"),
}


@pytest.mark.parametrize("case", WRONG_FORM)
def test_the_contract_itself_refuses_a_field_of_the_wrong_form(case: str) -> None:
    changes, path = WRONG_FORM[case]
    with pytest.raises(msgspec.ValidationError, match=re.escape(path)):
        manifest(**changes)


ORDERED = [
    "0.9",
    "1.0-alpha",
    "1.0-rc1",
    "1.0-rc2",
    "1.0-rc10",
    "1.0",
    "1.0b",
    "1.0.0",
    "1.0.1",
    "1.9",
    "1.10",
    "2.0",
    "24.05.1",
]


def test_versions_sort_as_people_read_them() -> None:
    shuffled = random.Random(1).sample(ORDERED, len(ORDERED))
    assert sorted(shuffled, key=versions.order) == ORDERED
    assert all(set(versions.order(version)) <= set(string.digits + string.ascii_lowercase) for version in ORDERED)


def test_an_entitlement_admits_by_pattern_and_by_channel() -> None:
    def admits(version: str, published_in: list[str], **bounds: Any) -> bool:
        entitlement = Entitlement(
            project_id="p", app_slug="toy", **{"enabled": True, **bounds}, changed_by="u", changed_at=FakeClock()()
        )
        return rules.admits(entitlement, _version(version, published_in))

    assert admits("1.4.2", ["stable"])
    assert admits("1.4.2", ["stable"], versions=["2.*", "1.4.*"], channels=["beta", "stable"])
    assert not admits("1.40", ["stable"], versions=["1.4.*"])
    assert not admits("1.4.2", ["beta"], channels=["stable"])
    assert not admits("1.4.2", ["stable"], enabled=False)


def _version(version: str, channels: list[str]) -> AppVersion:
    return AppVersion(
        app_slug="toy",
        version=version,
        display_name="Toy",
        summary="",
        state="published",
        manifest=manifest(version=version),
        created_at=FakeClock()(),
        channels=channels,
    )


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "^(a*)*b", "a*a*a*a*a*a*b", "(.*)*x", "(a?){30}a{30}$"])
def test_a_pattern_that_backtracks_without_end_in_other_engines_is_matched(pattern: str) -> None:
    form = field("word", {"type": "string", "pattern": pattern})
    inputs = {"head_allocation": "a", "hand_allocations": ["b"], "word": "a" * 30_000 + "!"}
    with pytest.raises(errors.ValidationFailed) as refused:
        rules.check_inputs(manifest(deploy_form=form), "pair", inputs)
    assert set(refused.value.details["fields"]) == {"word"}


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?=a)b", r"(?<!a)b", "(", "[z-a]", "((a{100}){100}){100}"])
def test_a_pattern_that_cannot_be_matched_in_one_pass_is_refused(pattern: str) -> None:
    form = field("word", {"type": "string", "pattern": pattern})
    with pytest.raises(errors.ValidationFailed) as refused:
        manifests.check(manifest(deploy_form=form))
    assert refused.value.details["field"] == "deploy_form.properties.word.pattern"


def test_a_dollar_is_the_end_and_nothing_else() -> None:
    form = field("word", {"type": "string", "pattern": "^a$"})
    inputs = {"head_allocation": "a", "hand_allocations": ["b"], "word": "a\n"}
    with pytest.raises(errors.ValidationFailed):
        rules.check_inputs(manifest(deploy_form=form), "pair", inputs)


def test_inputs_are_held_against_the_form_by_path() -> None:
    form = field("names", {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}})
    inputs = {"head_allocation": "a", "hand_allocations": ["b"], "names": ["ok", "NO"]}
    with pytest.raises(errors.ValidationFailed) as refused:
        rules.check_inputs(manifest(deploy_form=form), "pair", inputs)
    assert refused.value.details["fields"] == {"names[1]": '"NO" does not match "^[a-z]+$"'}


def test_an_input_under_not_is_refused_with_the_title_of_what_is_not_allowed() -> None:
    form = field("user", {"type": "string", "not": {"enum": ["root"], "title": "Accounts of the system"}})
    inputs = {"head_allocation": "a", "hand_allocations": ["b"], "user": "root"}
    with pytest.raises(errors.ValidationFailed, match="'root' is not allowed: Accounts of the system"):
        rules.check_inputs(manifest(deploy_form=form), "pair", inputs)


def test_inputs_of_an_unknown_topology_or_of_too_many_bytes_are_refused() -> None:
    with pytest.raises(errors.ValidationFailed, match="did you mean `pair`"):
        rules.check_inputs(manifest(), "pairs", {})
    with pytest.raises(errors.ValidationFailed, match="64 KiB"):
        rules.check_inputs(manifest(), "pair", {"head_allocation": "a" * 70_000})


def test_of_a_thousand_invalid_inputs_the_first_twenty_are_reported() -> None:
    with pytest.raises(errors.ValidationFailed) as refused:
        rules.check_inputs(manifest(), "pair", {"head_allocation": "a", "hand_allocations": [1] * 1_000})
    assert list(refused.value.details["fields"]) == [f"hand_allocations[{place}]" for place in range(20)]


def test_an_action_is_found_by_name_and_its_inputs_are_checked() -> None:
    action = rules.action_of(manifest(), "submit")
    rules.check_action_inputs(action, {"script": "true"})
    with pytest.raises(errors.ValidationFailed, match="script"):
        rules.check_action_inputs(action, {"script": 7})
    with pytest.raises(errors.NotFound, match="did you mean `submit`"):
        rules.action_of(manifest(), "sumbit")


def test_machines_in_a_field_that_the_topology_does_not_use_are_refused() -> None:
    both = {"alone": {"head": "head_allocation", "hand": "head_allocation"}, **MANIFEST["topologies"]}
    form = {"type": "object"}
    rules.check_inputs(manifest(topologies=both, deploy_form=form), "alone", {"hand_allocations": []})
    with pytest.raises(errors.ValidationFailed) as refused:
        rules.check_inputs(manifest(topologies=both, deploy_form=form), "alone", {"hand_allocations": ["b"]})
    assert refused.value.message == "The topology alone does not use hand_allocations."
    assert refused.value.fix == "Leave hand_allocations out, or choose the topology pair."


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [(1, 1, "takes exactly 1 member of"), (2, 2, "takes exactly 2 members of"), (1, 9, "takes 1 to 9 members of")],
)
def test_a_wrong_number_of_machines_is_refused_with_the_field_that_has_them(least: int, most: int, words: str) -> None:
    role = {"component_key": "head", "min": least, "max": most}
    listed = manifest(roles=[role], topologies={"plain": {"head": "head_allocations"}})
    with pytest.raises(errors.ValidationFailed, match=words) as refused:
        rules.check_counts(listed, "plain", {"head": 10})
    assert "head_allocations" in str(refused.value)
    assert refused.value.details["field"] == "head_allocations"
