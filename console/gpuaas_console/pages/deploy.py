"""Deploy an app: a form from the manifest's schema, checked by the platform before it is sent."""

import uuid
from typing import Any

from gpuaas_contract.catalog import PROJECT_APP_GET, AppVersion
from gpuaas_contract.instances import INSTANCE_CREATE, Deployed, DeployInstance
from starlette.responses import Response

from gpuaas_console import commands, forms, needs, view
from gpuaas_console.pages import pickers
from gpuaas_console.web import Outcome, Visit


async def show(visit: Visit) -> Response:
    chosen = await visit.calls().call(PROJECT_APP_GET, app_slug=visit.path("app"), version=visit.path("version"))
    form = visit.form
    inputs, errors = forms.read(chosen.manifest.deploy_form, form)
    body = _body(chosen, visit, inputs)
    outcome, is_check = Outcome[Deployed](None, errors, 400 if errors else 200), form.text("step") == "check"
    if visit.request.method == "POST" and not errors:
        outcome = await visit.attempt(INSTANCE_CREATE, body, is_check=is_check, project_id=visit.project)
        if outcome.answer is not None and not is_check:
            return visit.go(view.link("p", visit.project, "operations", outcome.answer.operation.operation_id))
    return await _page(visit, chosen, body, outcome)


async def _page(visit: Visit, chosen: AppVersion, body: DeployInstance, outcome: Outcome[Deployed]) -> Response:
    schema: dict[str, Any] = chosen.manifest.deploy_form
    choices = await pickers.every(visit, schema, chosen.app_slug)
    return visit.page(
        "deploy.html",
        status=outcome.status,
        app=chosen,
        manifest=chosen.manifest,
        body=body,
        fields=forms.fields(schema, body.inputs, choices, outcome.errors),
        accounts=await pickers.service_accounts(visit, chosen.app_slug),
        errors=outcome.errors,
        checked=outcome.answer,
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
