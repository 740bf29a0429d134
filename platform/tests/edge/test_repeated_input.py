"""A header or a key that is sent twice has no clear meaning: the request is refused."""

import json
from typing import Any

import pytest
from gpuaas_contract import catalog, identity
from gpuaas_platform.edge import json_keys
from hypothesis import given
from hypothesis import strategies as st
from platform_world import MANIFEST, World

ORGS = identity.ORG_CREATE.path


@pytest.mark.parametrize("order", [1, -1])
async def test_two_tokens_are_refused_in_any_order(world: World, order: int) -> None:
    sent = [("Authorization", f"Bearer {world.token}"), ("Authorization", "Bearer other")][::order]
    answer = await world.http.get(identity.ME.path, headers=sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert answer.json()["details"] == {"field": "authorization"}


async def test_two_equal_tokens_are_refused_on_every_route(world: World) -> None:
    sent = [("Authorization", f"Bearer {world.token}")] * 2
    for path in (identity.ME.path, "/livez", "/metrics", identity.LOGIN.path):
        assert (await world.http.request("GET", path, headers=sent)).status_code == 400


async def test_two_keys_of_a_change_are_refused(world: World) -> None:
    sent = [("Authorization", f"Bearer {world.token}"), ("X-Idempotency-Key", "a"), ("X-Idempotency-Key", "b")]
    answer = await world.http.post(ORGS, content=b'{"name": "twice"}', headers=sent)
    assert (answer.status_code, answer.json()["details"]) == (400, {"field": "x-idempotency-key"})


@pytest.mark.parametrize("name", ["Host", "Transfer-Encoding"])
async def test_a_header_that_a_proxy_and_the_platform_could_read_differently_is_refused(
    world: World, name: str
) -> None:
    sent = [("Authorization", f"Bearer {world.token}"), (name, "a"), (name, "b")]
    answer = await world.http.get(identity.ME.path, headers=sent)
    assert (answer.status_code, answer.json()["details"]) == (400, {"field": name.lower()})


async def test_other_headers_may_be_repeated(world: World) -> None:
    sent = [("Authorization", f"Bearer {world.token}"), ("Accept", "a/b"), ("Accept", "application/json")]
    assert (await world.http.get(identity.ME.path, headers=sent)).status_code == 200


async def test_a_key_that_an_object_of_the_body_has_twice_is_refused(world: World) -> None:
    sent = {"Authorization": f"Bearer {world.token}", "X-Idempotency-Key": "k"}
    manifest = json.dumps({**MANIFEST, "deploy_form": {"type": "object", "x": {"y": 1}}})
    bodies = {
        (ORGS, "name"): '{"first_admin": "admin", "name": "first", "name": "second"}',
        (ORGS, "name "): '{"first_admin": "admin", "name": "first", "\\u006eame": "second"}',
        (catalog.VERSION_REGISTER.path, "y"): manifest.replace('"y": 1', '"y": 1, "y": 2'),
    }
    for (path, key), body in bodies.items():
        answer = await world.http.post(path, content=body.encode(), headers=sent)
        assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
        assert answer.json()["details"] == {"field": key.strip()}
    assert [org.name for org in (await world.call(identity.ORG_LIST)).items] == ["acme"]


def test_the_same_key_in_different_objects_is_no_repetition() -> None:
    assert json_keys.repeated(b'{"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": null}}') is None
    assert json_keys.repeated(b" [] ") is None
    assert json_keys.repeated(b'{"a": [{"b": 1, "c": {}, "b": 1}]}') == "b"


KEYS = st.sampled_from(["a", "b", "é", '"', "\\", "\n", "a b", "\\u0061", "😀"])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(KEYS, inner), max_size=3).map(tuple),
    max_leaves=10,
)
"""JSON, with an object as a tuple of its pairs, so that it can have a key twice."""


@given(VALUES, st.booleans())
def test_a_repeated_key_is_found_in_any_document(value: Any, ascii_only: bool) -> None:
    raw = _written(value, ascii_only).encode()
    assert (json_keys.repeated(raw) is not None) == _has_repeated_key(value)


def _written(value: Any, ascii_only: bool) -> str:
    if isinstance(value, tuple):
        pairs = (f"{_written(key, ascii_only)} : {_written(inner, ascii_only)}" for key, inner in value)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(inner, ascii_only) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def _has_repeated_key(value: Any) -> bool:
    if isinstance(value, tuple):
        is_repeated = len({key for key, _ in value}) < len(value)
        return is_repeated or any(_has_repeated_key(inner) for _, inner in value)
    return isinstance(value, list) and any(map(_has_repeated_key, value))
