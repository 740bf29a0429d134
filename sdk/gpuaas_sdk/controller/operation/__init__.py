"""`Operation`, the object that a handler works with. The other modules are its parts."""

from gpuaas_sdk.controller.operation.operation import Operation

__all__ = ["Operation"]
