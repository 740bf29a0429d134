"""Find causes: everything under one correlation id on one time line, and why a policy or a permission denies."""

from typing import Any

from gpuaas_cli.show import steps
from gpuaas_contract.correlations import CORRELATION_GET
from gpuaas_contract.policy import CAN_I, EXPLAIN, PROJECT_SET, CanI, ExplainPolicy
from starlette.responses import Response

from gpuaas_console.web import Visit

SUBJECTS = ("region", "sku", "app", "artifact_source")


async def show(visit: Visit) -> Response:
    asked = visit.query.text("correlation_id")
    if not asked:
        return visit.page("triage.html", asked="", bundle=None, entries=[])
    bundle = await visit.calls().call(CORRELATION_GET, correlation_id=asked)
    return visit.page("triage.html", asked=asked, bundle=bundle, entries=steps.timeline(bundle))


async def policy(visit: Visit) -> Response:
    """Explain what the layers of the policy allow in the project, and whether the person has a permission."""
    asked = {name: visit.query.text(name) for name in SUBJECTS}
    permission = visit.query.text("permission")
    given: dict[str, Any] = {name: value for name, value in asked.items() if value}
    explanation = await visit.calls().call(EXPLAIN, ExplainPolicy(**given))
    answer = None
    if permission:
        answer = await visit.calls().call(CAN_I, CanI(permission=permission, project_id=visit.project))
    return visit.page(
        "policy.html",
        asked=asked,
        permission=permission,
        explanation=explanation,
        answer=answer,
        why_not=await visit.why_not(PROJECT_SET),
    )
