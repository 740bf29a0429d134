"""A new app from templates: `gpuaas app init`. See `create`."""

from gpuaas_sdk.scaffold.scaffold import KINDS, CannotCreate, create

__all__ = ["KINDS", "CannotCreate", "create"]
