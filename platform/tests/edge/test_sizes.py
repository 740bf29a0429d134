"""Values of free form have a size limit, wherever they are in a body."""

import json
from typing import Any

import pytest
from gpuaas_contract import errors, instances, runtime
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_platform.edge import decode

DETAIL = {"x": "y" * runtime.DETAIL_BYTES_MAX}
OBSERVED = {"member_id": "m", "revision": 1, "status": "ready"}


def _deploy(inputs: dict[str, str]) -> dict[str, Any]:
    return {"name": "i", "app_slug": "toy", "topology": "solo", "inputs": inputs}


def _report(*details: dict[str, str] | None) -> dict[str, Any]:
    members = [{**OBSERVED, "adapter_detail": detail} for detail in details]
    return {"holder": "h", "observed_revision": 1, "members": members}


@pytest.mark.parametrize(
    ("endpoint", "body", "field"),
    [
        (instances.INSTANCE_CREATE, _deploy({"x": "y" * 65_536}), "inputs"),
        (runtime.MEMBER_REPORT, {"epoch": 1, "status": "ready", "adapter_detail": DETAIL}, "adapter_detail"),
        (runtime.RUNTIME_REPORT, _report(None, {}, DETAIL), "adapter_detail"),
        (runtime.COMPLETE, {"epoch": 1, "result": {"x": "y" * runtime.RESULT_BYTES_MAX}}, "result"),
    ],
)
def test_a_value_over_its_limit_is_refused_with_its_field(endpoint: AnyEndpoint, body: Any, field: str) -> None:
    with pytest.raises(errors.ValidationFailed, match="the limit is") as refused:
        decode.body_reader(endpoint)(_raw(body))
    assert refused.value.details == {"field": field}


def test_many_values_below_their_limit_are_accepted_in_a_body_above_it() -> None:
    half = {"x": "y" * (runtime.DETAIL_BYTES_MAX // 2)}
    body = decode.body_reader(runtime.RUNTIME_REPORT)(_raw(_report(half, half, half, None)))
    assert isinstance(body, runtime.ReportRuntime)


def _raw(body: Any) -> bytes:
    return json.dumps(body).encode()
