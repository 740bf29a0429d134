"""A fake platform and fake machines for the tests of an app. Install the SDK with the extra `testing`."""

from gpuaas_sdk.testing.machines import FakeHost, FakeMachines
from gpuaas_sdk.testing.platform import FakeOrganisation, FakePlatform
from gpuaas_sdk.testing.server import free_port, serving

__all__ = ["FakeHost", "FakeMachines", "FakeOrganisation", "FakePlatform", "free_port", "serving"]
