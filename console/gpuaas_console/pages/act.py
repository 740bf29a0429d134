"""Change an instance or its members: consequences first, then a reason and, for dangerous acts, the typed name."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from gpuaas_cli.show import steps
from gpuaas_contract import instances, meanings
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.operations import Operation
from gpuaas_contract.protocol import request as rules
from starlette.responses import Response

from gpuaas_console import commands, controls, forms, view
from gpuaas_console.controls import Act
from gpuaas_console.pages import instance as of_instance
from gpuaas_console.pages import pickers
from gpuaas_console.web import Failure, Form, Outcome, Visit

Body = (
    instances.MemberOperationRequest
    | instances.ChangeInstance
    | instances.UpgradeInstance
    | instances.ReconfigureInstance
)


@dataclass(frozen=True)
class Subject:
    """The instance that an act changes, and what people can choose."""

    act: Act
    instance: instances.Instance
    manifest: Manifest
    members: Sequence[instances.Member]
    machines: Sequence[forms.Choice]
    versions: Sequence[str]
    more: bool
    """There are members on other pages."""
    force: str
    """What force does, if the act and the person can use it."""

    def why_not(self, member: instances.Member) -> str:
        return controls.why_not_member(self.manifest, member, self.act.verb)

    @property
    def roles(self) -> list[str]:
        return [role.component_key for role in self.manifest.roles if self.act.verb in role.operations]


async def show(visit: Visit) -> Response:
    is_post = visit.request.method == "POST"
    given = visit.form if is_post else visit.query
    subject = await _subject(visit, given)
    body, errors = _body(subject, given)
    if given.text("force") and subject.act.can_be_forced:
        body = msgspec.structs.replace(body, force=True)
    is_check = given.text("step") == "check" or visit.is_fragment
    errors |= {} if is_check or not is_post else _missing(subject, given)
    outcome = Outcome[Operation](None, errors, 400 if errors and is_post else 200)
    if is_post and not errors:
        path = {"project_id": visit.project, "instance_id": subject.instance.instance_id}
        outcome = await visit.attempt(subject.act.endpoint, body, is_check=is_check, **path)
        if outcome.answer is not None and not is_check:
            return visit.go(view.link("p", visit.project, "operations", outcome.answer.operation_id))
    return _page(visit, subject, given, body, outcome)


def _page(visit: Visit, subject: Subject, given: Form, body: Body, outcome: Outcome[Operation]) -> Response:
    schema, only = subject.manifest.deploy_form, set(rules.changeable(subject.manifest))
    changed = body.inputs if isinstance(body, instances.ReconfigureInstance) else {}
    values = {**subject.instance.inputs, **changed}
    fields = forms.fields(schema, values, {}, outcome.errors, only) if subject.act.needs == "inputs" else []
    shown = msgspec.structs.replace(body, reason="REASON") if subject.act.needs_reason and not body.reason else body
    return visit.page(
        "act.html",
        status=outcome.status,
        subject=subject,
        act=subject.act,
        instance=subject.instance,
        fields=fields,
        chosen=given.every("member"),
        machines=given.every("machine"),
        role=given.text("role"),
        kept={name: given.text(name) for name in (*of_instance.FILTERS, "page") if given.text(name)},
        version=given.text("version"),
        forced=bool(given.text("force")),
        reason=given.text("reason"),
        outcome=outcome,
        names=steps.names_of(subject.members),
        key=given.text("key") or uuid.uuid4().hex,
        checks_itself=outcome.answer is None and _is_complete(subject, given, outcome.errors),
        same=commands.same(
            visit, _line(visit, subject, shown), subject.act.endpoint, shown, instance_id=subject.instance.instance_id
        ),
        back=view.link("p", visit.project, "instances", subject.instance.instance_id),
    )


async def _subject(visit: Visit, given: Form) -> Subject:
    """Read what the act is about. People choose among the members of the page from which they came."""
    verb, chosen_page = given.text("verb"), of_instance.filters(given)
    calls = visit.calls()
    act = controls.ACTS.get(verb)
    instance = await calls.call(instances.INSTANCE_GET, instance_id=visit.path("instance"))
    manifest = await visit.manifest(instance)
    if act is None or manifest is None:
        raise Failure(
            404,
            "This act is not known",
            f"{instance.app_slug} {instance.app_version} offers no such change here.",
            "Go back to the instance.",
        )
    members, following = await visit.one_page(instances.MEMBER_LIST, chosen_page, instance_id=instance.instance_id)
    machines = await pickers.allocations(visit) if "machines" in act.needs else []
    offered = await visit.versions(instance.app_slug) if act.needs == "version" else []
    versions = [item.version for item in offered if item.version != instance.app_version]
    members.sort(key=lambda item: (item.component_key, len(item.node_name), item.node_name))
    more = bool(following or given.text("page"))
    may_force = act.can_be_forced and not (await visit.may([controls.FORCE]))[controls.FORCE]
    force = meanings.of(instances.ChangeInstance)["force"] if may_force else ""
    return Subject(act, instance, manifest, members, machines, versions, more, force)


def _body(subject: Subject, given: Form) -> tuple[Body, dict[str, str]]:
    """Return the request, and an error for each field that cannot be read."""
    verb, reason = subject.act.verb, given.text("reason")
    if subject.act.of_members:
        return instances.MemberOperationRequest(
            kind=verb,  # type: ignore[arg-type]
            component_key=given.text("role") if verb == "add" else "",
            allocation_ids=given.every("machine"),
            member_ids=given.every("member"),
            reason=reason,
        ), {}
    if verb == "upgrade":
        newest = subject.versions[0] if subject.versions else ""
        return instances.UpgradeInstance(version=given.text("version") or newest, reason=reason), {}
    if verb == "reconfigure":
        inputs, errors = forms.read(subject.manifest.deploy_form, given, set(rules.changeable(subject.manifest)))
        present = {name: forms.default_of(subject.manifest.deploy_form, name) for name in inputs}
        present |= subject.instance.inputs
        changed = {name: value for name, value in inputs.items() if value != present[name]}
        emptied = forms.emptied(subject.manifest.deploy_form, given)
        changed |= {name: None for name in subject.instance.inputs if name in emptied}
        return instances.ReconfigureInstance(inputs=changed, reason=reason), errors
    return (instances.Decommission if verb == "decommission" else instances.ChangeInstance)(reason=reason), {}


def _is_complete(subject: Subject, given: Form, errors: Mapping[str, str]) -> bool:
    """Return whether the page can be checked at once: what is missing, if anything, does not change the outcome."""
    if "machines" in subject.act.needs or subject.act.needs == "inputs" or errors.keys() - {"reason", "confirm"}:
        return False
    return subject.act.needs != "members" or bool(given.every("member"))


def _missing(subject: Subject, given: Form) -> dict[str, str]:
    """Return what people must still write or choose before the request is sent."""
    errors: dict[str, str] = {}
    is_typed = subject.act.typed or given.text("force")
    if is_typed and given.text("confirm") != subject.instance.name:
        errors["confirm"] = f"Type {subject.instance.name} to confirm."
    if (is_typed or subject.act.needs_reason) and not given.text("reason"):
        errors["reason"] = "Write why you do this; it is stored with the operation."
    if "members" in subject.act.needs and not given.every("member"):
        errors["member"] = "Choose at least one member."
    if "machines" in subject.act.needs and not given.every("machine"):
        errors["machine"] = "Choose at least one machine."
    return errors


def _line(visit: Visit, subject: Subject, body: Body) -> str:
    if isinstance(body, instances.MemberOperationRequest):
        return commands.member(body, subject.instance.name, visit.project)
    return commands.whole(subject.act.verb, body, subject.instance.name, visit.project)
