"""Settings the platform would refuse are refused where they are written."""

from collections.abc import Callable

import pytest
from gpuaas_sdk.controller.runner import RunnerSettings


@pytest.mark.parametrize(
    ("make", "bound"),
    [
        (lambda: RunnerSettings(lease_s=0), "1 to 60"),
        (lambda: RunnerSettings(lease_s=600), "1 to 60"),
        (lambda: RunnerSettings(claim_wait_s=-1), "0 to 30"),
        (lambda: RunnerSettings(claim_wait_s=60), "0 to 30"),
    ],
)
def test_a_lease_or_wait_the_platform_refuses_is_refused_at_once(
    make: Callable[[], RunnerSettings], bound: str
) -> None:
    with pytest.raises(ValueError, match=bound):
        make()
