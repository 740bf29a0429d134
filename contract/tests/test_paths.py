"""Each row of the endpoint table names the struct of its path's parameters."""

import re

import pytest
from gpuaas_contract import registry
from gpuaas_contract.endpoint import AnyEndpoint


@pytest.mark.parametrize("endpoint", registry.ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_the_path_struct_has_the_placeholders_of_the_path_in_order(endpoint: AnyEndpoint) -> None:
    assert tuple(re.findall(r"{(\w+)}", endpoint.path)) == endpoint.params.__struct_fields__
