"""The controller kit: everything that an app's controller imports.

`App` declares handlers. Operation handlers get an `Operation`, the health handler gets a `Reconciliation`. The kit
claims operations, renews leases, records steps, retries, and undoes what was cancelled."""

from gpuaas_contract.catalog import Manifest
from gpuaas_contract.deliveries import Delivery
from gpuaas_contract.errors import PermissionDenied
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import AccessBundle, Command, Connection, Instance, Member
from gpuaas_contract.operations import Evidence, Preview, Work
from gpuaas_contract.posix import PosixPerson
from gpuaas_contract.runtime import ObservedMember, RefusedObservation, ReportedCondition
from gpuaas_contract.usage import ReportedUsage

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller.app import App
from gpuaas_sdk.controller.handlers import ActionHandler, Handler, PreviewHandler
from gpuaas_sdk.controller.health import HEALTH_CHECK_WORKS, HealthSettings
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.reconciliation import Health, Reconciliation, Requested
from gpuaas_sdk.controller.rules import MembersFailed, Results
from gpuaas_sdk.controller.runner import Runner, RunnerSettings
from gpuaas_sdk.failures import Drift, Lost, NeedsOperator, Permanent, Refused, Temporary
from gpuaas_sdk.machine import MachineAway

__all__ = [
    "HEALTH_CHECK_WORKS",
    "AccessBundle",
    "ActionHandler",
    "App",
    "Check",
    "Command",
    "Connection",
    "Delivery",
    "Drift",
    "Evidence",
    "Handler",
    "Health",
    "HealthSettings",
    "Hold",
    "Instance",
    "Lost",
    "MachineAway",
    "Manifest",
    "Member",
    "MembersFailed",
    "NeedsOperator",
    "ObservedMember",
    "Operation",
    "Permanent",
    "PermissionDenied",
    "PosixPerson",
    "Preview",
    "PreviewHandler",
    "Reconciliation",
    "Refused",
    "RefusedObservation",
    "ReportedCondition",
    "ReportedUsage",
    "Requested",
    "Results",
    "Runner",
    "RunnerSettings",
    "Temporary",
    "Work",
]
