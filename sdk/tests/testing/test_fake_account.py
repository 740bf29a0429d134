"""The service account of the fake platform: one app, and the permissions that the app's manifest lists."""

import pytest
from gpuaas_contract.errors import PermissionDenied
from gpuaas_contract.instances import INSTANCE_LIST
from gpuaas_contract.permissions import EXECUTE
from gpuaas_contract.runtime import CLAIM, ClaimOperation
from gpuaas_sdk.testing import FakePlatform


async def test_a_permission_that_the_manifest_does_not_list_is_denied() -> None:
    platform = FakePlatform("toy", permissions=[EXECUTE])
    async with platform.serve() as client:
        with pytest.raises(PermissionDenied, match=r"apps\.instance\.read"):
            await client.call(INSTANCE_LIST, project_id=platform.project_id)
        claim = ClaimOperation(app_slug="toy", holder="test", claim_id="c1")
        assert (await client.call(CLAIM, claim, project_id=platform.project_id)).operation is None
