"""Deploy an app: a form from the manifest's schema, checked by the platform before it is sent."""

import uuid
from typing import Any

from gpuaas_contract.catalog import PROJECT_APP_GET, AppVersion
from gpuaas_contract.errors import ApiError
from gpuaas_contract.instances import INSTANCE_CREATE, Deployed, DeployInstance
from starlette.responses import Response

from gpuaas_console import commands, forms, needs, view
from gpuaas_console.pages import pickers
from gpuaas_console.web import Visit, refusal


async def show(visit: Visit) -> Response:
    chosen = await visit.calls().call(PROJECT_APP_GET, app_slug=visit.path("app"), version=visit.path("version"))
    form = visit.form
    inputs, errors = forms.read(chosen.manifest.deploy_form, form)
    body = _body(chosen, visit, inputs)
    checked, status = None, 200
    if visit.request.method == "POST" and not errors:
        is_check = form.text("step") == "check"
        try:
            sent = await visit.send(INSTANCE_CREATE, body, is_check=is_check, project_id=visit.project)
        except ApiError as error:
            errors, status = {_field(error): refusal(error)}, error.status
        else:
            if not is_check:
                return visit.go(view.link("p", visit.project, "operations", sent.operation.operation_id))
            checked = sent
    return await _page(visit, chosen, body, errors, checked, 400 if errors and status == 200 else status)


async def _page(
    visit: Visit,
    chosen: AppVersion,
    body: DeployInstance,
    errors: dict[str, str],
    checked: Deployed | None,
    code: int,
) -> Response:
    schema: dict[str, Any] = chosen.manifest.deploy_form
    choices = await pickers.every(visit, schema, chosen.app_slug)
    return visit.page(
        "deploy.html",
        status=code,
        app=chosen,
        manifest=chosen.manifest,
        body=body,
        fields=forms.fields(schema, body.inputs, choices, errors),
        accounts=await pickers.service_accounts(visit, chosen.app_slug),
        errors=errors,
        checked=checked,
        key=visit.form.text("key") or uuid.uuid4().hex,
        same=commands.same(visit, commands.deploy(body, visit.project), INSTANCE_CREATE, body),
        topologies=needs.topologies(chosen.manifest),
        back=view.link("p", visit.project, "catalog", chosen.app_slug, chosen.version),
    )


def _body(chosen: AppVersion, visit: Visit, inputs: dict[str, Any]) -> DeployInstance:
    form, topologies = visit.form, list(chosen.manifest.topologies)
    return DeployInstance(
        name=form.text("name") or chosen.app_slug,
        app_slug=chosen.app_slug,
        topology=form.text("topology") or (topologies[0] if topologies else ""),
        version=chosen.version,
        inputs=inputs,
        operator_service_account_id=form.text("operator_service_account_id"),
    )


def _field(error: ApiError) -> str:
    path = str(error.details.get("field", ""))
    return pickers.field_of(error) if path.startswith("inputs") else path
