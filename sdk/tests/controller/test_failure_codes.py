"""The codes the kit ends operations with are in the published catalogue."""

import pytest
from gpuaas_contract.errors import Conflict
from gpuaas_contract.failure_codes import FAILURE_CODES
from gpuaas_sdk.controller import rules
from gpuaas_sdk.failures import Permanent


@pytest.mark.parametrize("error", [Permanent("broken"), Conflict("refused"), KeyError("gpu")])
def test_a_failure_has_a_code_that_is_documented(error: Exception) -> None:
    code, fix = rules._code_and_fix(error)
    assert FAILURE_CODES[code].source == "controller kit"
    assert FAILURE_CODES[code].fix
    assert fix is not None
