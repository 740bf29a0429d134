"""Run an action that the app declares: a form from its schema, a typed table from its result."""

import uuid

from gpuaas_contract.actions import ACTION_INVOKE, InvokeAction
from gpuaas_contract.instances import INSTANCE_GET
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import Operation
from starlette.responses import Response

from gpuaas_console import commands, forms, view
from gpuaas_console.pages import pickers
from gpuaas_console.web import Failure, Outcome, Visit

WAIT_S = 20.0


async def show(visit: Visit) -> Response:
    instance = await visit.calls().call(INSTANCE_GET, instance_id=visit.path("instance"))
    manifest, name = await visit.manifest(instance), visit.path("action")
    spec = next((item for item in manifest.actions if item.name == name), None) if manifest else None
    if spec is None:
        raise Failure(
            404,
            "The app has no such action",
            f"{instance.app_slug} {instance.app_version} does not declare {name}.",
            "Go back to the instance; its page lists the actions.",
        )
    inputs, errors = forms.read(spec.input_schema, visit.form)
    body = InvokeAction(inputs=inputs, reason=visit.form.text("reason"))
    outcome, is_check = Outcome[Operation](None, errors, 400 if errors else 200), visit.form.text("step") == "check"
    if visit.request.method == "POST" and not errors:
        query = None if is_check else {"wait_s": WAIT_S}
        path = {"project_id": visit.project, "instance_id": instance.instance_id, "action": name}
        outcome = await visit.attempt(ACTION_INVOKE, body, is_check=is_check, query=query, **path)
    checked, operation = (outcome.answer, None) if is_check else (None, outcome.answer)
    if operation is not None and operation.status not in ENDED_OPERATION:
        return visit.go(view.link("p", visit.project, "operations", operation.operation_id))
    line = commands.action(instance.name, name, body, visit.project)
    choices = await pickers.every(visit, spec.input_schema, instance.app_slug)
    return visit.page(
        "action.html",
        status=outcome.status,
        instance=instance,
        spec=spec,
        fields=forms.fields(spec.input_schema, inputs, choices, outcome.errors),
        errors=outcome.errors,
        operation=operation,
        checked=checked,
        notes=" ".join(checked.preview.notes) if checked and checked.preview else "",
        columns=spec.result.columns if spec.result else [],
        reason=visit.form.text("reason"),
        key=uuid.uuid4().hex,
        same=commands.same(visit, line, ACTION_INVOKE, body, instance_id=instance.instance_id, action=name),
        back=view.link("p", visit.project, "instances", instance.instance_id),
    )
