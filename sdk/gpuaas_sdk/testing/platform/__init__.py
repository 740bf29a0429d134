"""A fake platform in memory. Tests use `FakePlatform` and `FakeOrganisation`; the other modules are their parts."""

from gpuaas_sdk.testing.platform.organisation import FakeOrganisation
from gpuaas_sdk.testing.platform.platform import FakePlatform

__all__ = ["FakeOrganisation", "FakePlatform"]
