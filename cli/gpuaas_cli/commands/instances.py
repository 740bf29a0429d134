"""The life of an app instance: deploy it, change it as a whole, use it.

gpuaas deploy slurm --name lab --topology split --set cluster_name=lab --set controller_allocation_id=gpu-1 \
--set worker_allocation_ids=gpu-2,gpu-3
    Deploy an app. The app's schema sets the types of the values. Write lists as a,b,c or JSON; name allocations by id
    or by node.
    app_slug APP
    --name: Name of the new instance; by default the app's name.
    --topology: One of the app's topologies.
    --version: Version of the app to deploy; by default the newest published one.
    operator_service_account_id --operator: Service account whose controller manages the instance; by default any that
    operates the app.
    sets --set KEY=VALUE: An input; repeatable.
gpuaas upgrade demo --version 1.1.0
    Move an instance to another version, if its app offers it. Inputs stay as they are, except those named with --set.
    --version: Version to move to; by default the newest that the project may deploy.
    sets --set KEY=VALUE: An input; repeatable.
gpuaas reconfigure slurm --set default_time=2-00:00:00 --dry-run
gpuaas reconfigure slurm --set default_time=2-00:00:00 --reason "long trainings"
gpuaas reconfigure slurm --previous --reason "jobs wait too long"
    Change inputs of a running instance, if its app offers it. --dry-run shows what would change and what restarts.
    previous --previous: Return to the inputs before the last reconfigure.
    sets --set KEY=VALUE: An input that the app allows to change; repeatable.
    unset --unset KEY: Return an input to its default; repeatable.
gpuaas stop demo --reason "power maintenance"
    Stop an app on every machine, if the app offers it. Running work ends; members, machines and data stay.
gpuaas start demo
    Start a stopped app.
gpuaas restart demo --dry-run
    Stop an app and start it again, if the app offers it.
gpuaas rollback demo --reason "jobs crash"
    Return an instance to its app version before the last upgrade, if the app allows it.
gpuaas decommission slurm --reason "project ends"
    Take an app off every machine of an instance. The machines stay allocated.
gpuaas role
    If too many new members of a role fail, its breaker opens: no members can be added to the role for some time.
gpuaas role reset-breaker slurm worker --reason "the image is repaired"
    Allow adding members to a role again. gpuaas get roles INSTANCE shows whether its breaker is open.
gpuaas hold
    A hold protects a member from new work or from removal. It expires; before that, only the person who placed it can
    lift it.
gpuaas hold place slurm gpu-2 --name bad-fan --kind no-work --for 3d --reason "technician on Monday"
    Place a hold on a member: for some time it is not resumed, or not removed (--kind).
    --name: What to call it.
    --kind: no-work: not resumed. no-removal: not removed, replaced or decommissioned.
    --reason
    ttl_s --for TIME: How long: 30m, 24h, 7d.
gpuaas hold list slurm
    List the holds on the members of an instance.
gpuaas hold lift slurm bad-fan
    Lift a hold that you placed.
gpuaas operator
    The operator of an instance is the service account whose controller may work on it.
gpuaas operator set slurm slurm-controller-2 --reason "the old host is gone"
gpuaas operator set slurm --any --reason "any controller of the project"
    Let another service account work on an instance and its unfinished operations.
    operator_service_account_id SERVICE_ACCOUNT: Name or id.
    any_account --any: Let any service account of the project work on the instance that operates its app.
gpuaas access slurm
    Endpoints, paths and commands of an app instance, as its controller published them.
"""

from gpuaas_contract import instances
from gpuaas_contract.capacity import ALLOCATION_GET
from gpuaas_contract.errors import NotFound
from gpuaas_contract.holds import HOLD_LIFT, HOLD_LIST, HOLD_PLACE
from gpuaas_contract.operations import Operation

from gpuaas_cli import failures, output
from gpuaas_cli.input import ask, values
from gpuaas_cli.runner import SWITCH, Call, Command, Field, nothing
from gpuaas_cli.show import story
from gpuaas_cli.work import versions

_EMPTY = Field(default="")
_SETS = {"sets": Field(type=list[str], default=None)}


async def _deploy(call: Call) -> int:
    version = await versions.find(call.session, call["app_slug"], call["version"])
    answer: instances.Deployed = await call.send(
        name=call["name"] or call["app_slug"],
        topology=values.topology(version.manifest, call["topology"]),
        inputs=values.build(version.manifest, call["sets"] or []),
    )
    if call.dry_run:
        output.show_page(call.flags, answer, _plan(answer))
        output.talk("Nothing was changed.")
        return failures.OK
    instance, operation = answer.instance, answer.operation
    output.talk(f"{instance.name} ({instance.instance_id}), correlation {operation.correlation_id}")
    return await call.follow(operation)


def _plan(answer: instances.Deployed) -> list[str]:
    instance = answer.instance
    nodes = {member.allocation_id: member.node_name for member in answer.members}
    return [
        f"would deploy {instance.name}: {instance.app_slug} {instance.app_version}, topology {instance.topology}",
        *(f"  {role}: {', '.join(nodes.get(item, item) for item in ids)}" for role, ids in instance.placement.items()),
    ]


async def _upgrade(call: Call) -> int:
    instance = await call.session.call(instances.INSTANCE_GET, instance_id=call["instance_id"])
    wanted = await versions.find(call.session, instance.app_slug, call["version"])
    given = values.build(wanted.manifest, call["sets"] or [])
    inputs = {**instance.inputs, **given} if given else None
    operation = await call.send(version=wanted.version, inputs=inputs)
    return await call.follow(operation, f"{len(operation.targets)} members, from {instance.app_version}")


async def _reconfigure(call: Call) -> int:
    instance = await call.session.call(instances.INSTANCE_GET, instance_id=call["instance_id"])
    version = await versions.find(call.session, instance.app_slug, instance.app_version)
    given: dict[str, object] = values.build(version.manifest, call["sets"] or [])
    operation = await call.send(inputs=given | dict.fromkeys(call["unset"] or []))
    return await call.follow(operation, _changes(operation))


def _changes(operation: Operation) -> str:
    """Return the inputs that the operation changes, as a line for people."""
    before, after = operation.inputs_before, operation.inputs
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return ", ".join(f"{name}: {before.get(name, 'default')} → {after.get(name, 'default')}" for name in changed)


def _check_inputs(call: Call) -> None:
    if bool(call["sets"] or call["unset"]) == call["previous"]:
        raise failures.usage("Name inputs with --set or --unset, or add --previous", "gpuaas app show APP")


async def _confirm(call: Call) -> None:
    ask.require_answer(call.flags, call.line)
    instance = await call.session.call(instances.INSTANCE_GET, instance_id=call["instance_id"])
    name, server = instance.name, call.session.target.server
    consequence = f"This takes {name} off every machine ({server}). What runs in it ends with it."
    ask.confirm(consequence, name=name, what="instance", again=f"gpuaas decommission {name}")


def _check(call: Call) -> None:
    if bool(call["operator_service_account_id"]) == call["any_account"]:
        raise failures.usage("Name a service account, or add --any", "gpuaas get service-accounts")


async def _show(call: Call) -> instances.AccessBundle:
    bundle: instances.AccessBundle = await call.send()
    nodes = {} if call.flags.structured_whole else await _nodes(call, bundle)
    output.show_page(call.flags, bundle, story.of_access(bundle, nodes))
    if not call.flags.structured_whole:
        output.talk(f"\nLog in there: gpuaas ssh {call['instance_id']}")
    return bundle


async def _nodes(call: Call, bundle: instances.AccessBundle) -> dict[str, str]:
    """Return the node name by allocation id, for the machines in the bundle's commands."""
    nodes: dict[str, str] = {}
    for allocation_id in {command.allocation_id for command in bundle.commands if command.allocation_id}:
        try:
            nodes[allocation_id] = (await call.session.call(ALLOCATION_GET, allocation_id=allocation_id)).node_name
        except NotFound:
            nodes[allocation_id] = allocation_id
    return nodes


COMMANDS = {
    "deploy": Command(
        instances.INSTANCE_CREATE,
        fields={"name": _EMPTY, "topology": _EMPTY, "operating_mode": None, "control_plane_scope": None},
        extra=_SETS,
        work=_deploy,
        follows=True,
    ),
    "upgrade": Command(instances.UPGRADE, fields={"version": _EMPTY}, extra=_SETS, work=_upgrade),
    "stop": instances.STOP,
    "start": instances.START,
    "restart": instances.RESTART,
    "rollback": instances.ROLLBACK,
    "reconfigure": Command(
        instances.RECONFIGURE,
        fields={"inputs": None},
        extra=_SETS | {"unset": Field(type=list[str], default=None)},
        check=_check_inputs,
        work=_reconfigure,
    ),
    "decommission": Command(instances.DECOMMISSION, confirm=_confirm),
    "role reset-breaker": instances.BREAKER_RESET,
    "hold place": Command(
        HOLD_PLACE, fields={"ttl_s": Field(default="24h", read=lambda _, text: values.span_s(text, "--for"))}
    ),
    "hold list": HOLD_LIST,
    "hold lift": HOLD_LIFT,
    "operator set": Command(
        instances.OPERATOR_SET,
        fields={"operator_service_account_id": _EMPTY},
        extra={"any_account": SWITCH},
        check=_check,
    ),
    "access": Command(instances.ACCESS_BUNDLE_GET, work=_show, show=nothing),
}
