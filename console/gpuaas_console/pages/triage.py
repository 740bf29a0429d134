"""Find causes: everything under one correlation id on one time line, and why a policy or a permission denies."""

from typing import Any, NamedTuple

import msgspec
from gpuaas_cli.show import steps
from gpuaas_contract.correlations import CORRELATION_GET
from gpuaas_contract.policy import CAN_I, EXPLAIN, CanI, ExplainPolicy, Overlay, PolicyLayer
from starlette.responses import Response

from gpuaas_console import view
from gpuaas_console.changes import CHANGES
from gpuaas_console.web import Visit, or_none

LAYERS = {
    "set-platform-policy": "The platform",
    "set-org-policy": "The organisation",
    "set-policy": "This project",
}
"""Change of a layer -> the name of the layer, widest first."""
_FREE = msgspec.to_builtins(Overlay())


class Layer(NamedTuple):
    """A layer of the policy."""

    name: str
    layer: PolicyLayer
    restricts: dict[str, Any]
    change: str
    """The change that the person may make; empty: none."""


SUBJECTS = ("region", "sku", "app", "artifact_source")


async def show(visit: Visit) -> Response:
    asked = visit.query.text("correlation_id")
    if not asked:
        return visit.page("triage.html", asked="", bundle=None, entries=[])
    await visit.learn_names()
    bundle = await visit.read(CORRELATION_GET, correlation_id=asked)
    entries = steps.timeline(bundle) if bundle else []
    line = view.line("gpuaas", *view.command(["triage"], [asked], ["--project", visit.project]))
    status = 200 if bundle else 404
    return visit.page("triage.html", status=status, asked=asked, bundle=bundle, entries=entries, line=line)


async def policy(visit: Visit) -> Response:
    """Explain what the layers of the policy allow in the project, and whether the person has a permission."""
    asked = {name: visit.query.text(name) for name in SUBJECTS}
    permission = visit.query.text("permission")
    given: dict[str, Any] = {name: value for name, value in asked.items() if value}
    explanation = await visit.calls().call(EXPLAIN, ExplainPolicy(**given))
    answer = None
    if permission:
        answer = await visit.calls().call(CAN_I, CanI(permission=permission, project_id=visit.project))
    await visit.learn_names()
    options = [word for name, value in given.items() for word in view.options(f"--{name.replace('_', '-')}", value)]
    place = ["--project", visit.project]
    questions = [["policy", "explain", *options, *place]]
    questions += [view.command(["can-i"], [permission], place)] if permission else []
    return visit.page(
        "policy.html",
        lines=[view.line("gpuaas", *words) for words in questions],
        asked=asked,
        permission=permission,
        explanation=explanation,
        answer=answer,
        layers=await _layers(visit),
    )


async def _layers(visit: Visit) -> list[Layer]:
    """Return the layers that the person may read, widest first, with what each restricts."""
    result = []
    for name, label in LAYERS.items():
        change = CHANGES[name]
        if change.reads is None:
            continue
        path: dict[str, Any] = {"org_id": await visit.org()} if change.is_of_org else {}
        layer = await or_none(visit.calls().call(change.reads, **path))
        if layer is not None:
            restricts = {key: value for key, value in msgspec.to_builtins(layer.overlay).items() if value != _FREE[key]}
            result.append(Layer(label, layer, restricts, "" if await visit.why_not(change.endpoint) else name))
    return result
