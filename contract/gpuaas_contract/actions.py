"""Actions: what an app lets people do with a running instance. The platform authorises, records and routes them."""

from gpuaas_contract import errors
from gpuaas_contract.operations import Operation, OptionalReason
from gpuaas_contract.paths import ACTION
from gpuaas_contract.wire import Inputs, Query, Request, WaitSeconds


class InvokeAction(Request):
    """Runs one of the actions that an app offers."""

    inputs: Inputs = {}
    """Checked against the action's schema in the app's manifest."""
    reason: OptionalReason = ""
    """Why the caller wants this change, as text for people; stored with the operation."""


class ActionQuery(Query):
    wait_s: WaitSeconds = 0
    """How many seconds to wait for the action to end; the answer then has its state at that time."""


ACTION_INVOKE = ACTION.row(
    "",
    "apps.action.invoke",
    "Run an action of the app",
    "The app's controller runs the action as an operation. It also needs the permission that the app's "
    "manifest names for the action. `wait_s` waits for the end. A dry run checks the permission, the inputs and the "
    "state of the instance, and does not ask the app.",
).post(
    InvokeAction, Operation, "apps.instance.read", query=ActionQuery, status=202, errors=(errors.OperationInProgress,)
)
