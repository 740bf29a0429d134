"""The onboarding gate: what an app must have before a catalog offers it, apart from its behaviour under faults."""

import re

from gpuaas_contract.errors import AppUnknown, NotFound, PermissionDenied
from gpuaas_contract.operations import OPERATION_GET

from gpuaas_sdk.conformance.registry import check
from gpuaas_sdk.conformance.trial import Trial
from gpuaas_sdk.conformance.verdicts import Failed

_COMMAND = re.compile(r"\bgpuaas [a-z-]+")
_URL = re.compile(r"https?://([^/\s:\"']+)")


@check(
    "permissions", "A service account with the permissions of the manifest can do everything that the controller does."
)
async def permissions(trial: Trial) -> None:
    denied = [name for name, code in (await trial.reference()).refusals if code == PermissionDenied.code]
    if denied:
        raise Failed(
            f"the platform denied {', '.join(sorted(set(denied)))}",
            "List the permission under `controller: permissions:` of the manifest.",
            "identity or permission",
        )


@check("boundaries", "The controller asks only for what belongs to its own operations and instances.")
async def boundaries(trial: Trial) -> None:
    crossed = [f"{name} ({code})" for name, code in (await trial.reference()).refusals if code in _FOREIGN]
    if crossed:
        raise Failed(
            f"the platform refused {', '.join(sorted(set(crossed)))}",
            "Use only ids that the claim contains.",
            "leaky coupling",
        )


_FOREIGN = frozenset({NotFound.code, AppUnknown.code})


@check("correlation", "Every call about an operation carries its correlation id, so that triage finds it.")
async def correlation(trial: Trial) -> None:
    reference = await trial.reference()
    ids = {operation.operation_id: operation.correlation_id for operation in reference.operations.values()}
    # A handler may look at an operation that is not its own. Such a read belongs to the operation of the handler.
    for received in (call for call in reference.received if call.name != OPERATION_GET.name):
        wanted = ids.get(received.path.get("operation_id", ""))
        if wanted is not None and received.correlation_id != wanted:
            raise Failed(
                f"{received.name} was sent with X-Correlation-ID {received.correlation_id!r} instead of {wanted!r}",
                "Send the correlation id of the claimed operation with each of its calls. The kit does.",
                "missing event",
            )


@check("artifact-sources", "No command on a machine loads content from an address that no policy governs.")
async def artifact_sources(trial: Trial) -> None:
    reference = await trial.reference()
    hosts = {host for argv in reference.arguments for word in argv for host in _URL.findall(word)}
    # Members of an instance know each other's addresses. Their machines are governed: the platform gave them.
    foreign = sorted(hosts - {"127.0.0.1", "localhost"} - reference.empty.keys())
    if foreign:
        raise Failed(
            f"commands load content from {', '.join(foreign)}",
            "Name the content under `artifacts` of the manifest and place it with op.place.",
            "leaky coupling",
        )


@check("lifecycle", "The manifest defines how instances are upgraded and rolled back.")
async def lifecycle(trial: Trial) -> None:
    missing = [kind for kind in ("upgrade", "rollback") if kind not in trial.manifest.instance_operations]
    missing += [] if trial.manifest.upgrades_from else ["upgrades_from"]
    if missing:
        raise Failed(
            f"the manifest has no {', '.join(missing)}",
            "Add upgrade and rollback to `instance_operations`, and the versions to `upgrades_from`.",
        )


@check("runbook", "The app has a page for people whose operation failed, and it begins with the correlation id.")
async def runbook(trial: Trial) -> None:
    page = trial.driver.runbook
    if page is None:
        raise Failed("the driver names no runbook", "Write one, and set Driver.runbook to its path.")
    first = _COMMAND.search(page.read_text()) if page.is_file() else None
    if first is None or first[0] != "gpuaas triage":
        raise Failed(
            f"{page.name} does not exist, or `gpuaas triage` is not the first command on it",
            "Begin with `gpuaas triage CORRELATION_ID`, then explain the app's own errors.",
        )
