"""The path of a request always names what was asked for."""

import re

import pytest
from gpuaas_contract import registry
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.errors import NotFound
from gpuaas_sdk.client import request

WITH_NAMES = [endpoint for endpoint in registry.ENDPOINTS if "{" in endpoint.path]


@pytest.mark.parametrize("dots", [".", ".."])
@pytest.mark.parametrize("endpoint", WITH_NAMES, ids=lambda endpoint: endpoint.name)
def test_no_path_is_made_of_dots_that_a_client_would_shorten(endpoint: AnyEndpoint, dots: str) -> None:
    names = re.findall(r"{(\w+)}", endpoint.path)
    for name in names:
        with pytest.raises(NotFound, match="is not a name"):
            request.path(endpoint, {**dict.fromkeys(names, "x"), name: dots})


@pytest.mark.parametrize("name", ["../x", "a/../b", "%2e%2e", "..."])
def test_other_names_with_dots_stay_in_their_place(name: str) -> None:
    endpoint = registry.BY_NAME["identity.project_binding.delete"]
    names = re.findall(r"{(\w+)}", endpoint.path)
    made = request.path(endpoint, dict.fromkeys(names, name))
    assert made.count("/") == endpoint.path.count("/")
