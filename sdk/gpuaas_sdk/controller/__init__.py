"""The controller kit: everything that an app's controller imports.

`App` declares handlers. Operation handlers get an `Operation`, the health handler gets a `Reconciliation`. The kit
claims operations, renews leases, records steps, retries, and undoes what was cancelled."""

from gpuaas_contract.catalog import Manifest
from gpuaas_contract.deliveries import Delivery
from gpuaas_contract.errors import PermissionDenied
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import AccessBundle, Command, Connection, Instance, Member
from gpuaas_contract.operations import Evidence, Leftover, OperationKind, PlannedChange, Preview, Work
from gpuaas_contract.posix import PosixPerson
from gpuaas_contract.runtime import ObservedMember, RefusedObservation, ReportedCondition
from gpuaas_contract.usage import ReportedUsage, UsageReceipt

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import cluster, members, package_sources
from gpuaas_sdk.controller.app import App
from gpuaas_sdk.controller.command import AppCommand
from gpuaas_sdk.controller.gauges import Gauge, Gauges
from gpuaas_sdk.controller.handlers import ActionHandler, Handler, PreviewHandler
from gpuaas_sdk.controller.health import HEALTH_CHECK_WORKS, HealthSettings
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.projects import ProjectRunners
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
    "AppCommand",
    "Check",
    "Command",
    "Connection",
    "Delivery",
    "Drift",
    "Evidence",
    "Gauge",
    "Gauges",
    "Handler",
    "Health",
    "HealthSettings",
    "Hold",
    "Instance",
    "Leftover",
    "Lost",
    "MachineAway",
    "Manifest",
    "Member",
    "MembersFailed",
    "NeedsOperator",
    "ObservedMember",
    "Operation",
    "OperationKind",
    "Permanent",
    "PermissionDenied",
    "PlannedChange",
    "PosixPerson",
    "Preview",
    "PreviewHandler",
    "ProjectRunners",
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
    "UsageReceipt",
    "Work",
    "cluster",
    "members",
    "package_sources",
]
