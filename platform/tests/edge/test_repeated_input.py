"""A header or a key that is sent twice has no clear meaning: the request is refused."""

import json

import pytest
from gpuaas_contract import catalog, identity
from gpuaas_platform.edge import json_keys
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


async def test_other_headers_may_be_repeated(world: World) -> None:
    sent = [("Authorization", f"Bearer {world.token}"), ("Accept", "a/b"), ("Accept", "application/json")]
    assert (await world.http.get(identity.ME.path, headers=sent)).status_code == 200


async def test_a_key_that_an_object_of_the_body_has_twice_is_refused(world: World) -> None:
    sent = {"Authorization": f"Bearer {world.token}", "X-Idempotency-Key": "k"}
    manifest = json.dumps({**MANIFEST, "deploy_form": {"type": "object", "x": {"y": 1}}})
    bodies = {
        (ORGS, "name"): '{"name": "first", "name": "second"}',
        (ORGS, "name "): '{"name": "first", "\\u006eame": "second"}',
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
