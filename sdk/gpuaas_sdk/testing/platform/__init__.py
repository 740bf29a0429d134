"""The platform in memory. `FakePlatform` is what tests use; the other modules are its parts."""

from gpuaas_sdk.testing.platform.platform import FakePlatform

__all__ = ["FakePlatform"]
