"""The controller kit: everything an app's controller imports.

`App` declares handlers, `Operation` is what they get; the kit claims, keeps the lease, records steps and retries."""

from gpuaas_contract.catalog import Manifest
from gpuaas_contract.instances import AccessBundle, Command, Connection, Instance, Member
from gpuaas_contract.operations import Evidence

from gpuaas_sdk.controller.app import App
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.rules import MembersFailed
from gpuaas_sdk.controller.runner import Handler, Runner, RunnerSettings
from gpuaas_sdk.failures import NeedsOperator, Permanent, Temporary

__all__ = [
    "AccessBundle",
    "App",
    "Command",
    "Connection",
    "Evidence",
    "Handler",
    "Instance",
    "Manifest",
    "Member",
    "MembersFailed",
    "NeedsOperator",
    "Operation",
    "Permanent",
    "Runner",
    "RunnerSettings",
    "Temporary",
]
