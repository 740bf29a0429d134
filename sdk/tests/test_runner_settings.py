"""Settings the platform would refuse are refused where they are written."""

import pytest
from gpuaas_sdk.controller.runner import RunnerSettings


@pytest.mark.parametrize(
    ("settings", "bound"),
    [
        ({"lease_s": 0}, "1 to 60"),
        ({"lease_s": 600}, "1 to 60"),
        ({"claim_wait_s": -1}, "0 to 30"),
        ({"claim_wait_s": 60}, "0 to 30"),
    ],
)
def test_a_lease_or_wait_the_platform_refuses_is_refused_at_once(settings: dict[str, int], bound: str) -> None:
    with pytest.raises(ValueError, match=bound):
        RunnerSettings(**settings)
