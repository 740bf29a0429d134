"""What a handler works with: `Operation`. The other modules are its parts."""

from gpuaas_sdk.controller.operation.operation import Operation

__all__ = ["Operation"]
