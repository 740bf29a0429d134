"""Run an action that the app declares: a form from its schema, a typed table from its result."""

import uuid

from gpuaas_contract.actions import ACTION_INVOKE, InvokeAction
from gpuaas_contract.errors import ApiError
from gpuaas_contract.instances import INSTANCE_GET
from gpuaas_contract.lifecycles import ENDED_OPERATION
from starlette.responses import Response

from gpuaas_console import commands, forms, view
from gpuaas_console.pages import pickers
from gpuaas_console.web import Failure, Visit, refusal

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
    operation, checked, notes, status = None, False, "", 200
    body = InvokeAction(inputs=inputs, reason=visit.form.text("reason"))
    if visit.request.method == "POST" and not errors:
        is_check = visit.form.text("step") == "check"
        try:
            query = None if is_check else {"wait_s": WAIT_S}
            path = {"project_id": visit.project, "instance_id": instance.instance_id, "action": name}
            sent = await visit.send(ACTION_INVOKE, body, is_check=is_check, query=query, **path)
            operation, checked = (None, True) if is_check else (sent, False)
            notes = " ".join(sent.preview.notes) if sent.preview else ""
        except ApiError as error:
            errors, status = {pickers.field_of(error): refusal(error)}, error.status
        if operation is not None and operation.status not in ENDED_OPERATION:
            return visit.go(view.link("p", visit.project, "operations", operation.operation_id))
    line = commands.action(instance.name, name, body, visit.project)
    choices = await pickers.every(visit, spec.input_schema, instance.app_slug)
    return visit.page(
        "action.html",
        status=400 if errors and status == 200 else status,
        instance=instance,
        spec=spec,
        fields=forms.fields(spec.input_schema, inputs, choices, errors),
        errors=errors,
        operation=operation,
        checked=checked,
        notes=notes,
        columns=spec.result.columns if spec.result else [],
        reason=visit.form.text("reason"),
        key=uuid.uuid4().hex,
        same=commands.same(visit, line, ACTION_INVOKE, body, instance_id=instance.instance_id, action=name),
        back=view.link("p", visit.project, "instances", instance.instance_id),
    )
