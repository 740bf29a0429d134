"""A fake platform in memory. Tests use `FakePlatform`; the other modules are its parts."""

from gpuaas_sdk.testing.platform.platform import FakePlatform

__all__ = ["FakePlatform"]
