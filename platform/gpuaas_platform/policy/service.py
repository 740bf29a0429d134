"""Read, change and explain overlays. Other domains read `of_project` and decide with `rules`."""

from collections.abc import Collection, Sequence

import msgspec
from gpuaas_contract import errors
from gpuaas_contract import policy as contract
from gpuaas_contract.event_types import OverlayChanged
from gpuaas_contract.identity import Project
from gpuaas_contract.paths import ProjectPath
from gpuaas_contract.policy import CanI, CanIAnswer, ExplainPolicy, Layer, Overlay, PolicyLayer, PolicyVerdict

from gpuaas_platform.call import Call
from gpuaas_platform.identity import authority, orgs
from gpuaas_platform.kit import db, structs
from gpuaas_platform.policy import ineffective, rules, store
from gpuaas_platform.record import service as record

_LAYERS: tuple[Layer, ...] = ("global", "org", "project")
"""The layer of each scope in `authority.Scopes`, in the same order."""


async def of_project(reader: db.Reader, project: Project) -> rules.Layers:
    """Return the overlays that apply in a project. They are read again for every decision."""
    return _overlays(await _stack(reader, authority.scopes_at(project)))


async def of_platform(reader: db.Reader) -> rules.Layers:
    """Return the overlay that applies to resources that the platform shares with every project."""
    return _overlays(await _stack(reader, authority.PLATFORM))


async def present(reader: db.Reader, call: Call) -> PolicyLayer:
    return (await _stack(reader, authority.scopes_at(call.owner)))[-1]


async def change(tx: db.Tx, call: Call, wanted: Overlay) -> contract.ChangedPolicyLayer:
    """Change an overlay. For users only: service accounts lack the permission, but this check does not rely on it."""
    if call.caller.actor_type != "user":
        raise errors.PermissionDenied("Only a person can change a policy.", fix="Sign in as a person.")
    overlay = rules.sound(wanted)
    stack = await _stack(tx, authority.scopes_at(call.owner))
    before = stack[-1]
    if before.revision and before.overlay == overlay:
        return _with_ineffective(stack)
    after = msgspec.structs.replace(
        before, overlay=overlay, revision=before.revision + 1, changed_by=call.caller.actor_id, changed_at=call.now
    )
    if before.revision:
        await store.OVERLAYS.save(tx, after)
    else:
        await store.OVERLAYS.insert(tx, after)
    old, new = msgspec.structs.asdict(before.overlay), msgspec.structs.asdict(overlay)
    changed = [field for field in new if new[field] != old[field]]
    payload = structs.pick(OverlayChanged, after, changed=changed, reason=overlay.reason)
    await record.emit(tx, call.origin, "policy.overlay.changed", payload, call.owner)
    return _with_ineffective([*stack[:-1], after])


async def forget_project(tx: db.Tx, project_id: str) -> None:
    """Delete the overlay of a deleted project."""
    await store.OVERLAYS.delete(tx, project_id)


async def explain(call: Call[ProjectPath], body: ExplainPolicy) -> contract.PolicyExplanation:
    layers = await of_project(call.site.database.reader, call.in_project())
    return contract.PolicyExplanation(
        verdicts=_verdicts(layers, body),
        limits=[limit for name in contract.LIMITS if (limit := rules.limit(layers, name)) is not None],
        effective=rules.merged(layers),
        ineffective=ineffective.of_every_layer(layers),
        requirements=[required] if (required := rules.requirement(layers)) else [],
    )


async def can_i(reader: db.Reader, call: Call, asked: CanI, holders: Collection[str]) -> CanIAnswer:
    """Answer whether the caller may use a permission. `holders` are the roles that include it at the target."""
    if asked.project_id and asked.org_id:
        raise errors.ValidationFailed("Name a project or an organisation, not both.", details={"field": "org_id"})
    scopes = await _asked_scopes(reader, call, asked)
    caller = await authority.with_all_roles(reader, call.caller, call.now)
    verdict = authority.can(caller, asked.permission, scopes, holders=holders)
    if not scopes or (verdict == "hidden" and (asked.project_id or asked.org_id)):
        return _no("The project or organisation was not found, or you have no access to it.")
    binding = authority.deciding_role(caller, holders, scopes)
    if binding is None:
        known = f"None of your roles here holds {asked.permission}."
        return _no(
            known if holders else f"There is no permission {asked.permission} here: no app of the project has it."
        )
    if verdict != "allowed":
        return _no(f"This service account was not given {asked.permission}.")
    held = f"{binding.role} at {binding.scope} holds {asked.permission}"
    layers = _overlays(await _stack(reader, [scope for scope in scopes if not scope.startswith("app:")]))
    refused = next((verdict for verdict in _verdicts(layers, asked) if not verdict.allowed), None)
    if refused is not None and refused.layer is not None:
        return CanIAnswer(
            allowed=False,
            decided_by=contract.DecidedByOverlay(layer=refused.layer, rule=refused.rule),
            explanation=f"{held}, but {refused.subject} {refused.value} is refused: {refused.rule}.",
        )
    return CanIAnswer(
        allowed=True,
        decided_by=contract.DecidedByBinding(role=binding.role, scope=binding.scope),
        explanation=f"{held}.",
    )


def _no(explanation: str) -> CanIAnswer:
    return CanIAnswer(allowed=False, decided_by=contract.DecidedByNone(), explanation=explanation)


async def _asked_scopes(reader: db.Reader, call: Call, asked: CanI) -> authority.Scopes:
    """Return the scopes of the requested project or organisation; empty if it was not found."""
    if asked.project_id:
        project = await orgs.find_project(reader, call, asked.project_id)
        return authority.scopes_at(project) if project else ()
    if asked.org_id:
        org = await orgs.find_org(reader, call, asked.org_id)
        return authority.scopes_of(org.org_id) if org else ()
    return authority.scopes_of(app_slug=asked.app)


async def _stack(reader: db.Reader, scopes: Sequence[str]) -> list[PolicyLayer]:
    kept = await store.of_scopes(reader, scopes)
    return [
        kept.get(scope)
        or PolicyLayer(layer=layer, scope=scope, overlay=Overlay(), revision=0, changed_by="", changed_at=None)
        for layer, scope in zip(_LAYERS, scopes, strict=False)
    ]


def _overlays(stack: Sequence[PolicyLayer]) -> rules.Layers:
    return [(layer.layer, layer.overlay) for layer in stack]


def _with_ineffective(stack: Sequence[PolicyLayer]) -> contract.ChangedPolicyLayer:
    wider = ineffective.of_last_layer(_overlays(stack))
    return contract.ChangedPolicyLayer(**msgspec.structs.asdict(stack[-1]), ineffective=wider)


def _verdicts(layers: rules.Layers, asked: ExplainPolicy | CanI) -> list[PolicyVerdict]:
    values = {subject: str(getattr(asked, subject)) for subject in contract.SUBJECTS}
    return [rules.verdict(layers, subject, value) for subject, value in values.items() if value]
