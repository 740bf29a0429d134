"""The server hands out its own OpenAPI document."""

from gpuaas_contract import openapi
from gpuaas_contract.documents import OPENAPI_GET
from platform_world import World


async def test_the_document_is_public_and_the_one_of_the_contract(world: World) -> None:
    answer = await world.http.get(OPENAPI_GET.path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == openapi.document()


async def test_a_document_that_did_not_change_is_not_sent_again(world: World) -> None:
    first = await world.http.get(OPENAPI_GET.path)
    again = await world.http.get(OPENAPI_GET.path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
