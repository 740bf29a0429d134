"""What is allowed: permissions, policy, emergency access.

gpuaas can-i apps.instance.create --app slurm
    Show whether you have a permission in this project, and what decides it. Exit status 0: yes; 1: no.
    permission PERMISSION: area.thing.verb
    --region: Also check whether this region is allowed.
    --sku: Also check whether this SKU is allowed.
    --app: Also check whether this app is allowed.
    --artifact-source: Also check whether artifacts from this source are allowed.
    --platform: Act on the platform as a whole instead of on one project.
    --org: Act on this organisation instead of on one project.
gpuaas policy
    A policy overlay restricts what projects may use. Something is allowed if every layer allows it and none denies it.
gpuaas policy show --org acme > acme.yaml
    Print the policy overlay of one layer, in the form that gpuaas policy set reads.
gpuaas policy set acme.yaml --org acme
    Replace the policy overlay of a layer. Refused if someone else changed it since you read it.
    body FILE: File with the whole overlay, YAML or JSON; - is stdin.
    --revision: Replace the overlay only if it still has this revision; by default the current one.
gpuaas policy explain --region eu-1 --app slurm
    Show what all policy layers together allow in the project, and which layer decides.
    --region: May this region be used?
    --sku: May this SKU be used?
    --app: May this app be deployed?
    --artifact-source: May artifacts from this source be used?
gpuaas break-glass proj_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "ticket 4711: the head node hangs"
gpuaas break-glass proj_01k9z0c5p3v2m8q7r6t5w4x3y2 --end
    Take temporary access to a project. Its organisation can see who has access, why and until when.
    Scripts must add --yes.
    project_id PROJECT: The project's id, or its name if you may see the project.
    --reason: Why you need access; stored in the audit trail. Not needed with --end.
    --minutes: Minutes until the access ends.
    --end: End your temporary access before it expires.
"""

import contextlib
from typing import Any

from gpuaas_contract import policy as contract
from gpuaas_contract.bindings import BREAK_GLASS_CREATE, BREAK_GLASS_END, PROJECT_BINDING_LIST, RoleBinding
from gpuaas_contract.entitlement_requests import OFFER_LIST
from gpuaas_contract.errors import NotFound, PermissionDenied
from gpuaas_contract.identity import ME
from gpuaas_contract.instances import INSTANCE_CREATE
from gpuaas_contract.permissions import BREAK_GLASS, KEYS

from gpuaas_cli import failures, output
from gpuaas_cli.input import ask
from gpuaas_cli.output import aligned, clock_time
from gpuaas_cli.runner import SWITCH, Call, Command, Field, Levels
from gpuaas_cli.show.story import section


def _check_permission(call: Call) -> None:
    """Refuse a permission that the platform does not have. Apps have areas of their own, which only servers know."""
    asked, areas = call["permission"], {key.partition(".")[0] for key in KEYS}
    if asked not in KEYS and ("." not in asked or asked.partition(".")[0] in areas):
        raise failures.usage(f"There is no permission {asked!r}{failures.hint(asked, KEYS)}", "gpuaas can-i --help")


async def _ask(call: Call) -> contract.CanIAnswer:
    scope = {"project": "project_id", "org": "org_id", "platform": ""}[call.level]
    where: dict[str, Any] = {scope: call["org"] or await call.session.project()} if scope else {}
    answer: contract.CanIAnswer = await call.send(**where)
    if not call.flags.structured_whole:
        output.talk(answer.explanation)
        if answer.allowed and call.level == "project" and call["permission"] == INSTANCE_CREATE.permission:
            await _warn_if_not_entitled(call)
    return answer


async def _warn_if_not_entitled(call: Call) -> None:
    """Permissions and policy allow the app, but a project deploys it only with an entitlement."""
    with contextlib.suppress(NotFound, PermissionDenied):
        offers = await call.session.every(OFFER_LIST) if call["app"] else []
        if any(offer.app_slug == call["app"] and not offer.entitled for offer in offers):
            output.talk(f"The project has no entitlement for {call['app']} yet, so a deploy is refused.")
            output.talk(f"  next: gpuaas entitlement request {call['app']}")


_GET = Levels(contract.PROJECT_GET, contract.GLOBAL_GET, contract.ORG_GET)
_SET = Levels(contract.PROJECT_SET, contract.GLOBAL_SET, contract.ORG_SET)


async def _set(call: Call) -> contract.ChangedPolicyLayer:
    """Replace the overlay. Without --revision or --if-match, replace the current revision."""
    path = await call.path()
    etag = call["if_match"] or (f'"{call["revision"]}"' if call["revision"] is not None else "")
    if not etag:
        etag = (await call.session.read(getattr(_GET, call.level), **path)).etag
    return await call.session.call(call.endpoint, call.sent["body"], if_match=etag, dry_run=call.dry_run, **path)


def _origin(layer: contract.PolicyLayer) -> str:
    where = f"{layer.layer} layer of {layer.scope}"
    if layer.changed_at is None:
        return f"{where}: never set"
    return f"{where}: revision {layer.revision}, {clock_time(layer.changed_at)} by {layer.changed_by}"


def _show_origin(call: Call, layer: contract.PolicyLayer) -> None:
    if not call.flags.structured_whole:
        output.talk(_origin(layer))


def _changed(layer: contract.ChangedPolicyLayer) -> list[str]:
    return [_origin(layer), *section("Without effect", _ineffective(layer.ineffective))]


def _explanation(result: contract.PolicyExplanation) -> list[str]:
    words = {True: "allowed", False: "refused"}
    verdicts = [
        [item.subject, item.value, words[item.allowed], item.layer or "-", item.rule] for item in result.verdicts
    ]
    limits = [[item.limit, str(item.max), item.layer, item.rule] for item in result.limits]
    return [
        *section("Verdicts", aligned(verdicts)),
        *section("Limits", aligned(limits)),
        *section("Required", [item.rule for item in result.requirements]),
        *section("All layers together", _text(result.effective).splitlines()),
        *section("Without effect", _ineffective(result.ineffective)),
    ]


def _text(overlay: contract.Overlay) -> str:
    """Return the overlay as YAML, without fields that restrict nothing."""
    empty = output.plain(contract.Overlay())
    narrowed = {name: value for name, value in output.plain(overlay).items() if value != empty.get(name)}
    return output.encoded("yaml", narrowed) if narrowed else "{}  # narrows nothing"


def _ineffective(entries: list[contract.Ineffective]) -> list[str]:
    """Return one line per overlay entry that has no full effect, because a layer restricts it."""
    return [
        f"{item.layer} {item.field} {item.entry}: {item.extent}, by {item.narrowed_by}: {item.rule}" for item in entries
    ]


def _check(call: Call) -> None:
    if not call["end"] and not call["reason"]:
        project = call["project_id"]
        raise failures.usage("Missing option '--reason'", f'gpuaas break-glass {project} --reason "WHY"')


async def _confirm(call: Call) -> None:
    """Ask for confirmation."""
    if call["end"]:
        return
    project, again = call["project_id"], f'gpuaas break-glass {call["project_id"]} --reason "WHY"'
    ask.require_answer(call.flags, again)
    consequence = (
        f"This opens {project} to you for {call['minutes']} minutes. Its organisation reads your name and your reason."
    )
    ask.confirm(consequence, name=project, what="project", again=again)


async def _work(call: Call) -> RoleBinding:
    if not call["end"]:
        made: RoleBinding = await call.send()
        return made
    me = await call.session.call(ME)
    bindings = await call.session.every(PROJECT_BINDING_LIST, project_id=call["project_id"])
    mine = [item.binding_id for item in bindings if item.role == BREAK_GLASS and item.user_id == me.actor_id]
    if not mine:
        raise failures.not_found(f"You have no temporary access to {call['project_id']}", "gpuaas whoami")
    return await call.session.call(BREAK_GLASS_END, binding_id=mine[0], dry_run=call.dry_run)


def _tell(call: Call, binding: RoleBinding) -> None:
    if call.dry_run:
        return
    if call["end"]:
        output.talk(f"Your access to {call['project_id']} has ended; its organisation can see that.")
    elif binding.expires_at:
        output.talk(f"The temporary access ends at {output.clock_time(binding.expires_at)}.")
        output.talk(f"  work in it: gpuaas get instances --project {binding.scope}")
        output.talk(f"  when you are done: gpuaas break-glass {binding.scope} --end")


COMMANDS = {
    "can-i": Command(
        contract.CAN_I,
        fields={"project_id": None, "org_id": None},
        extra={"platform": SWITCH},
        check=_check_permission,
        also=(OFFER_LIST,),
        work=_ask,
        page=lambda answer: ["yes" if answer.allowed else "no"],
        then=lambda _, answer: failures.OK if answer.allowed else failures.FAILED,
        asks=True,
    ),
    "policy show": Command(_GET, page=lambda layer: _text(layer.overlay).splitlines(), then=_show_origin),
    "policy set": Command(_SET, extra={"revision": Field(type=int, default=None)}, work=_set, page=_changed),
    "policy explain": Command(contract.EXPLAIN, page=_explanation, asks=True),
    "break-glass": Command(
        BREAK_GLASS_CREATE,
        fields={"reason": Field(default="")},
        extra={"end": SWITCH},
        check=_check,
        confirm=_confirm,
        work=_work,
        then=_tell,
        also=(BREAK_GLASS_END,),
    ),
}
