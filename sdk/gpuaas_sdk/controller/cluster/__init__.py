"""Handlers for apps with a head and workers: a scheduler, a task system, a database with replicas. The app describes
its software on one machine as `Software`; `register` adds the handler of each operation that the manifest lists."""

from gpuaas_sdk.controller.cluster.handlers import register
from gpuaas_sdk.controller.cluster.moves import head, kept
from gpuaas_sdk.controller.cluster.software import Software

__all__ = ["Software", "head", "kept", "register"]
