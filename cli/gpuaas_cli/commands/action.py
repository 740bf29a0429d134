"""`gpuaas action`: what an app lets people do with a running instance.

gpuaas action
    Actions are declared by an app; each needs the permission the app names for it.
gpuaas action list slurm
    List the actions that the app of an instance offers, with their inputs: NAME* is required, NAME=VALUE has a default.
gpuaas action describe slurm users.limits
    Show one action: what it does, the permission that it needs, and each input with type, default and meaning.
    action ACTION
gpuaas action run slurm users.add --input names=ada,bob
    Run an action of an app instance and show its result.
    action ACTION
    --reason: Why you do this; stored with the operation.
    pairs --input KEY=VALUE: An input; repeatable.
    file --inputs-file FILE: File with the inputs, YAML or JSON; - is stdin. --input overrides it.
"""

from typing import Any

from gpuaas_contract import actions, catalog, instances

from gpuaas_cli import failures, output
from gpuaas_cli.input import files, values
from gpuaas_cli.output import table
from gpuaas_cli.runner import Call, Command, Field
from gpuaas_cli.show import inputs
from gpuaas_cli.work import versions


async def _list(call: Call) -> list[catalog.ActionSpec]:
    return (await _manifest(call)).actions


async def _describe(call: Call) -> catalog.ActionSpec:
    return _pick(await _manifest(call), call["action"], call["instance_id"])


def _show(call: Call, spec: catalog.ActionSpec) -> None:
    output.show_page(call.flags, spec, inputs.page(spec, call["instance_id"]))


async def _run(call: Call) -> Any:
    given = files.document(call["file"], dict[str, Any], "a list of inputs") if call["file"] else {}
    spec = _pick(await _manifest(call), call["action"], call["instance_id"])
    typed = values.typed(spec.name, spec.input_schema, call["pairs"] or [], "--input")
    columns = spec.result.columns if spec.result else ()
    return await call.follow(await call.send(inputs={**given, **typed}), spec.title, columns)


async def _manifest(call: Call) -> catalog.Manifest:
    instance = await call.session.call(instances.INSTANCE_GET, instance_id=call["instance_id"])
    return await versions.manifest(call.session, instance)


def _pick(manifest: catalog.Manifest, named: str, instance: str) -> catalog.ActionSpec:
    spec = next((action for action in manifest.actions if action.name == named), None)
    if spec is not None:
        return spec
    known = ", ".join(action.name for action in manifest.actions) or "none"
    raise failures.not_found(
        f"{manifest.display_name} has no action {named!r}; it has {known}", f"gpuaas action list {instance}"
    )


COMMANDS = {
    "action list": Command(
        instances.INSTANCE_GET,
        work=_list,
        table=table(
            "ACTION=name PERMISSION INPUTS EXCLUSIVE* DEADLINE_S* TITLE* MEANING",
            INPUTS=lambda action: inputs.brief(action.input_schema),
            MEANING=lambda action: action.summary or action.title,
        ),
    ),
    "action describe": Command(instances.INSTANCE_GET, work=_describe, show=_show),
    "action run": Command(actions.ACTION_INVOKE, extra={"pairs": Field(type=list[str], default=None)}, work=_run),
}
