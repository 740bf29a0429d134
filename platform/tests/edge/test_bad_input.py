"""Input that cannot be read is refused with the name of the field, and nothing is written."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from gpuaas_contract import access, capacity, catalog, errors, events, identity, instances, operations, runtime
from gpuaas_contract.endpoint import Endpoint
from gpuaas_platform.edge import decode as decoding
from gpuaas_platform.edge import exchange
from gpuaas_platform.kit import tables
from platform_world import MANIFEST, World

ORGS = "/api/v1/orgs"
PROJECTS = f"{ORGS}/acme/projects"


async def _post(world: World, content: bytes, **headers: str) -> httpx.Response:
    sent = {"Authorization": f"Bearer {world.token}", "X-Idempotency-Key": "k", **headers}
    return await world.http.post(PROJECTS, content=content, headers=sent)


async def _get(world: World, target: str) -> httpx.Response:
    """Send the target as it is, because a client library would correct it."""
    url = httpx.URL("http://test", raw_path=target.encode("latin-1"))
    return await world.http.get(url, headers={"Authorization": f"Bearer {world.token}"})


async def _count(world: World) -> tuple[int, ...]:
    counted = []
    for table in ("orgs", "projects", "audit", "idempotency", "app_versions"):
        row = await world.site.database.reader.one(f"SELECT count(*) FROM {table}")
        assert row is not None
        counted.append(row[0])
    return tuple(counted)


BODIES: dict[str, tuple[bytes, int, str, str]] = {
    "broken JSON with its position": (b'{"name": tru}', 400, "invalid_request", "line 1, column 10"),
    "a body cut short": (b'{"name": "a', 400, "invalid_request", "line 1"),
    "no body at all": (b"", 400, "invalid_request", "empty"),
    "a comma too many": (b'{"name": "a",}', 400, "invalid_request", "line 1, column"),
    "a second document": (b'{"name": "a"} {}', 400, "invalid_request", "column 15"),
    "a list": (b'["name"]', 400, "validation_error", "Expected `object`, got `array`"),
    "null": (b"null", 400, "validation_error", "Expected `object`, got `null`"),
    "a typo gets a suggestion": (
        b'{"nmae": "a"}',
        400,
        "validation_error",
        "unknown field `nmae`; did you mean `name`?",
    ),
    "an unknown field": (b'{"name": "a", "zzz": 1}', 400, "validation_error", "unknown field `zzz`; known: name"),
    "a wrong type": (b'{"name": 5}', 400, "validation_error", "`name`: Expected `str`, got `int`"),
    "a missing field": (b"{}", 400, "validation_error", "The field `name` is missing"),
    "not UTF-8": (b'{"name": "\xff\xfe"}', 400, "invalid_request", "not UTF-8"),
    "half a surrogate pair": (b'{"name": "\\ud800"}', 400, "invalid_request", "not JSON"),
    "NUL in a string": (b'{"name": "a\\u0000b"}', 400, "validation_error", "name"),
    "a raw NUL": (b'{"name": "a\x00b"}', 400, "invalid_request", "not JSON"),
    "a newline in a name": (b'{"name": "a\\nb"}', 400, "validation_error", "name"),
    "a newline after a name": (b'{"name": "a\\n"}', 400, "validation_error", "name"),
    "65 levels": (b'{"name": ' + b"[" * 65 + b"]" * 65 + b"}", 400, "invalid_request", "deeper than 64"),
    "100,000 levels": (b"[" * 100_000, 400, "invalid_request", "deeper than 64"),
    "more than 1 MiB": (b'{"name": "' + b"a" * 1_048_576 + b'"}', 413, "body_too_large", "larger"),
}


async def test_a_body_that_cannot_be_read_names_what_is_wrong_and_writes_nothing(world: World) -> None:
    before = await _count(world)
    for case, (content, status, code, words) in BODIES.items():
        answer = await _post(world, content)
        problem = msgspec.json.decode(answer.content, type=errors.Problem)
        assert (case, answer.status_code, problem.code) == (case, status, code)
        assert words in problem.message, case
    assert await _count(world) == before


async def test_a_field_deep_inside_is_named_by_its_path(world: World) -> None:
    roles = [*MANIFEST["roles"], {"component_key": "x", "max": 1, "oprations": []}]
    answer = await world.send(catalog.VERSION_REGISTER, {**MANIFEST, "roles": roles})
    assert answer.json()["details"]["field"] == "roles[2].oprations"
    assert "did you mean `operations`?" in answer.json()["message"]
    answer = await world.send(catalog.VERSION_REGISTER, {**MANIFEST, "roles": [{"component_key": 1, "max": 1}]})
    assert answer.json()["details"]["field"] == "roles[0].component_key"


async def test_nul_is_refused_in_any_text_of_any_depth(world: World) -> None:
    for document, field in [
        ({**MANIFEST, "summary": "a\0b"}, "summary"),
        ({**MANIFEST, "deploy_form": {"type": "object", "x": [{"y": "\0"}]}}, "deploy_form.x[0].y"),
    ]:
        answer = await world.send(catalog.VERSION_REGISTER, document)
        assert (answer.status_code, answer.json()["details"]["field"]) == (400, field)
    answer = await world.send(catalog.VERSION_REGISTER, {**MANIFEST, "deploy_form": {"a\0": 1}})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "deploy_form.a�")


async def test_an_integer_beyond_64_bits_is_refused(world: World) -> None:
    document = msgspec.json.encode({**MANIFEST, "roles": [{"component_key": "x", "max": 7}]})
    sent = {"Authorization": f"Bearer {world.token}", "X-Idempotency-Key": "k"}
    for text in (str(2**63), str(-(2**63) - 1), "9" * 400, "9" * 5000):
        content = document.replace(b"7", text.encode())
        answer = await world.http.post(catalog.VERSION_REGISTER.path, content=content, headers=sent)
        assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
        assert answer.json()["details"]["field"] == "roles[0].max"


async def test_a_body_is_json_or_is_refused_by_its_type(world: World) -> None:
    for taken in ("application/json", "application/json; charset=utf-8", "application/vnd.gpuaas+json", ""):
        answer = await _post(world, b'{"name": "typed"}', **({"Content-Type": taken} if taken else {}))
        assert (taken, answer.status_code) == (taken, 201)
    for refused in ("text/plain", "application/x-www-form-urlencoded", "application/yaml", "json"):
        answer = await _post(world, b'{"name": "other"}', **{"Content-Type": refused})
        assert (refused, answer.json()["code"]) == (refused, "unsupported_media_type")


async def test_a_body_in_parts_is_limited_in_size_and_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def parts(*sent: bytes, then_wait: bool = False) -> AsyncIterator[bytes]:
        for part in sent:
            yield part
        if then_wait:
            await asyncio.Event().wait()

    sent = {"Authorization": f"Bearer {world.token}", "X-Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = await world.http.post(PROJECTS, content=parts(b'{"name": ', b'"parts"', b"}"), headers=sent)
    assert answer.status_code == 201
    answer = await world.http.post(PROJECTS, content=parts(*[b" " * 600_000] * 3), headers=sent)
    assert answer.status_code == 413
    monkeypatch.setattr(exchange, "BODY_S_MAX", 0.05)
    answer = await world.http.post(PROJECTS, content=parts(b"{", then_wait=True), headers=sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


async def test_a_body_on_a_get_is_ignored(world: World) -> None:
    answer = await world.http.request(
        "GET", ORGS, content=b"\xff" * 2_000_000, headers={"Authorization": f"Bearer {world.token}"}
    )
    assert answer.status_code == 200


def _claim(**more: object) -> dict[str, Any]:
    return {"app_slug": "toy", "holder": "test", "claim_id": "c1", **more}


QUERIES: dict[str, tuple[str, str, str]] = {
    "a page of no items": ("page_size=0", "validation_error", "page_size"),
    "a page of fewer than none": ("page_size=-1", "validation_error", "page_size"),
    "a page larger than the largest": ("page_size=501", "validation_error", "A number from 1 to 500."),
    "a page of words": ("page_size=many", "validation_error", "page_size"),
    "a page beyond 64 bits": ("page_size=99999999999999999999999", "validation_error", "page_size"),
    "a token that is none": ("page_token=garbage", "validation_error", "page_token"),
    "a token with NUL": ("page_token=%00", "validation_error", "page_token"),
    "a parameter twice": ("page_size=1&page_size=2", "validation_error", "page_size"),
    "a typo": ("page_sise=1", "validation_error", "did you mean `page_size`?"),
    "a broken escape": ("page_token=%zz", "invalid_request", "page_token"),
    "a cut escape": ("page_token=a%2", "invalid_request", "page_token"),
    "not UTF-8": ("page_token=%ff", "invalid_request", "page_token"),
    "a dry run of a read": ("dry_run=true", "validation_error", "dry_run"),
}


@pytest.mark.parametrize("case", QUERIES)
async def test_a_query_that_cannot_be_read_names_the_parameter(world: World, case: str) -> None:
    query, code, words = QUERIES[case]
    answer = await _get(world, f"{ORGS}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert words in answer.json()["message"]


@pytest.mark.parametrize("size", [1, 500])
async def test_the_smallest_and_the_largest_page_are_answered(world: World, size: int) -> None:
    assert (await _get(world, f"{ORGS}?page_size={size}")).status_code == 200


FILTERS: dict[str, tuple[str, str]] = {
    "a result of the audit trail": ("/api/v1/admin/audit?result=denied", "Allowed: failure, success."),
    "a node's status": ("/api/v1/admin/nodes?status=red", "did you mean `ready`? Allowed: lost, ready."),
    "a node's state": ("/api/v1/admin/nodes?admin_state=on", "Allowed: active, cordoned, draining, retired."),
}


@pytest.mark.parametrize("case", FILTERS)
async def test_a_filter_refuses_a_word_it_does_not_take_and_lists_the_allowed_ones(world: World, case: str) -> None:
    path, words = FILTERS[case]
    answer = await _get(world, path)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert answer.json()["message"].endswith(words)
    assert words.endswith(f"{', '.join(answer.json()['details']['known'])}.")


BOUNDS: dict[str, tuple[Endpoint[Any, Any], dict[str, Any], str, str]] = {
    "a lease of ten minutes": (runtime.CLAIM, _claim(lease_s=600), "lease_s", "From 1 to 60 seconds."),
    "no lease": (runtime.CLAIM, _claim(lease_s=0), "lease_s", "From 1 to 60 seconds."),
    "a renewal of ten minutes": (runtime.HEARTBEAT, {"epoch": 1, "lease_s": 600}, "lease_s", "From 1 to 60 seconds."),
    "a claim that waits an hour": (runtime.CLAIM, _claim(wait_s=3600), "wait_s", "From 0 to 30 seconds."),
    "an hour of machine access": (
        access.MACHINE_ACCESS,
        {"public_key": "ssh-ed25519 AAAA", "ttl_s": 3600},
        "ttl_s",
        "From 1 to 600 seconds.",
    ),
    "a token for a week": (
        capacity.ENROLMENT_CREATE,
        {"name": "n1", "ttl_s": 604_800},
        "ttl_s",
        "From 60 to 86400 seconds.",
    ),
    "an old key for a week": (
        identity.SERVICE_ACCOUNT_KEY_ROTATE,
        {"grace_s": 604_800},
        "grace_s",
        "From 0 to 86400 seconds.",
    ),
}


@pytest.mark.parametrize("case", BOUNDS)
async def test_a_number_out_of_range_is_refused_with_the_range_and_not_changed(world: World, case: str) -> None:
    endpoint, body, field, words = BOUNDS[case]
    ids: dict[str, Any] = {name: "x_1" for name in re.findall(r"{(\w+)}", endpoint.path) if name != "project_id"}
    answer = await world.send(endpoint, body, token=await _token_for(world, endpoint), **ids)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert (answer.json()["details"]["field"], words) == (field, answer.json()["message"].partition(": ")[2])


@pytest.mark.parametrize("wait", ["30.1", "3600"])
async def test_a_wait_longer_than_the_longest_is_refused(world: World, wait: str) -> None:
    followed = events.EVENT_LIST.path.format(project_id=world.project_id)
    answer = await _get(world, f"{followed}?wait_s={wait}")
    assert answer.json()["message"] == "The query parameter `wait_s`: From 0 to 30 seconds."


async def _token_for(world: World, endpoint: Endpoint[Any, Any]) -> str:
    if endpoint.permission != "apps.operation.execute":
        return world.token
    await world.entitled_app()
    return await world.service_account()


async def test_numbers_in_a_query_are_finite_and_fit(world: World) -> None:
    operation = operations.OPERATION_GET.path.format(project_id=world.project_id, operation_id="op_x")
    for wait in ("nan", "inf", "-inf", "1e999", "-1", "soon", "0x10", ""):
        answer = await _get(world, f"{operation}?wait_s={wait}")
        assert (wait, answer.status_code, answer.json()["details"]["field"]) == (wait, 400, "wait_s")
    followed = events.EVENT_LIST.path.format(project_id=world.project_id)
    for after in ("-1", str(2**63), "1.5", "NaN"):
        answer = await _get(world, f"{followed}?after={after}")
        assert (after, answer.status_code, answer.json()["details"]["field"]) == (after, 400, "after")


async def test_a_page_token_that_a_caller_made_with_a_nul_is_refused(world: World) -> None:
    token = tables.write_token("orgs", "org_\0")
    answer = await world.send(identity.ORG_LIST, query={"page_token": token})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "page_token")


async def test_a_page_token_of_another_list_is_refused(world: World) -> None:
    for number in range(3):
        await world.call(identity.ORG_CREATE, {"name": f"org-{number}"})
    token = (await world.call(identity.ORG_LIST, query={"page_size": 1})).next_page_token
    answer = await world.send(identity.PROJECT_LIST, query={"page_token": token})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "page_token")


PATHS: dict[str, tuple[str, int, str]] = {
    "NUL": ("a%00b", 400, "instance_id"),
    "not UTF-8": ("%ff", 400, "instance_id"),
    "a broken escape": ("%zz", 400, "instance_id"),
    "too long": ("a" * 256, 400, "instance_id"),
    "far too long": ("a" * 60_000, 400, "instance_id"),
    "as long as may be": ("a" * 255, 404, "There is no"),
    "an escaped slash": ("a%2Fb", 404, "There is no"),
    "escaped dots": ("%2E%2E", 404, "There is no"),
    "quotes": ("';--", 404, "There is no"),
    "another alphabet": ("%C3%A9", 404, "There is no"),
    "nothing": ("", 404, "Not found"),
}


async def test_a_strange_path_is_refused_or_leads_nowhere(world: World) -> None:
    for case, (segment, status, words) in PATHS.items():
        path = instances.INSTANCE_GET.path.format(project_id=world.project_id, instance_id=segment)
        answer = await _get(world, path)
        assert (case, answer.status_code) == (case, status)
        assert words in answer.json()["message"], case


async def test_an_idempotency_key_is_short_and_printable(world: World) -> None:
    for key in ("k" * 256, "k\xe9", "a\tb"):
        headers = [(b"authorization", f"Bearer {world.token}".encode()), (b"x-idempotency-key", key.encode("latin-1"))]
        answer = await world.http.post(PROJECTS, content=b'{"name": "x"}', headers=headers)
        assert (answer.status_code, answer.json()["details"]["field"]) == (400, "X-Idempotency-Key")


async def test_a_dry_run_is_true_or_false(world: World) -> None:
    answer = await world.send(identity.ORG_CREATE, {"name": "x"}, query={"dry_run": "yes"})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "dry_run")


async def test_a_method_a_path_does_not_take_is_answered_with_those_it_takes(world: World) -> None:
    project = f"/api/v1/projects/{world.project_id}"
    asked = {
        ORGS: "GET, HEAD, POST",
        f"{project}/operations/claim": "POST",
        f"{project}/operations/op_x": "GET, HEAD",
        "/livez": "GET, HEAD",
    }
    for path, allowed in asked.items():
        for method in ("PATCH", "OPTIONS", "DELETE", "TRACE"):
            answer = await world.http.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_head_answers_like_get_without_a_body(world: World) -> None:
    headers = {"Authorization": f"Bearer {world.token}"}
    get, head = await world.http.get(ORGS, headers=headers), await world.http.head(ORGS, headers=headers)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


def test_depth_is_counted_outside_strings_only() -> None:
    read = decoding.body_reader(catalog.VERSION_REGISTER)
    document: dict[str, Any] = {**MANIFEST, "summary": "[" * 500 + '\\"{'}
    body = read(msgspec.json.encode(document))
    assert isinstance(body, catalog.Manifest)
    assert body.summary == document["summary"]


def test_a_damaged_body_is_never_anything_but_refused() -> None:
    read = decoding.body_reader(catalog.VERSION_REGISTER)
    whole = msgspec.json.encode(MANIFEST)
    for at in range(len(whole)):
        for damage in (b"\x00", b"[" * 70, b'"', b"\\", b"\xff", b"9" * 40, b"\\u0000"):
            with contextlib.suppress(errors.InvalidRequest, errors.ValidationFailed):
                read(whole[:at] + damage + whole[at:])
        with pytest.raises(errors.InvalidRequest):
            read(whole[:at])
