"""Give and take roles at the platform, an organisation or a project. `break_glass` has the temporary ones."""

from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.bindings import BindRole, RoleBinding
from gpuaas_contract.paths import BindingPath, OrgBindingPath, OrgPath, Path, ProjectBindingPath
from gpuaas_contract.permissions import BREAK_GLASS, GRANTABLE
from gpuaas_contract.wire import NoBody, Page, PageQuery

from gpuaas_platform.call import Call
from gpuaas_platform.identity import rules, store
from gpuaas_platform.identity.bindings import break_glass
from gpuaas_platform.identity.users import service as users
from gpuaas_platform.kit import db, paging


@dataclass(frozen=True)
class Place:
    """Where a role is bound: the level, and the scopes from the platform down to it."""

    level: rules.Level
    scopes: tuple[str, ...]

    @property
    def scope(self) -> str:
        return self.scopes[-1]


def place_of(call: Call) -> Place:
    if call.project is not None:
        return Place("project", ("platform", call.project.org_id, call.project.project_id))
    if isinstance(call.path, OrgPath):
        return Place("org", ("platform", call.path.org_id))
    return Place("platform", ("platform",))


async def create(tx: db.Tx, call: Call, body: BindRole) -> RoleBinding:
    place, caller = place_of(call), call.caller
    user_id = await users.id_of(tx, call, body.user_id)
    if user_id is None:
        raise errors.ValidationFailed("There is no user with this id.", details={"field": "user_id"})
    refusal = rules.why_not_grant(
        caller.bindings, body.role, place.level, place.scopes, to_self=user_id == caller.actor_id
    )
    if refusal and body.role not in GRANTABLE[place.level]:
        raise errors.ValidationFailed(refusal, details={"field": "role"})
    if refusal:
        raise errors.PermissionDenied(refusal, details={"role": body.role})
    if await store.holds(tx, user_id, body.role, place.scope):
        name = (await users.named(tx, user_id)).name
        raise errors.Conflict(f"{name} already has the role {body.role} here.")
    binding_id = await store.bind(tx, user_id, body.role, place.scope, created_by=caller.actor_id, now=call.now)
    call.details.update(user_id=user_id, role=body.role)
    return await _get(tx, call, binding_id, place.scope)


async def list_bindings(reader: db.Reader, call: Call[Path, PageQuery]) -> Page[RoleBinding]:
    async def read(after: str, limit: int) -> list[RoleBinding]:
        return await store.bindings_at(reader, place_of(call).scope, call.now, after=after, limit=limit)

    return await paging.page("bindings", call.query, read, lambda binding: binding.binding_id)


async def delete(
    tx: db.Tx, call: Call[BindingPath] | Call[OrgBindingPath] | Call[ProjectBindingPath], _: NoBody
) -> RoleBinding:
    place, binding_id = place_of(call), call.path.binding_id
    binding = await _get(tx, call, binding_id, place.scope)
    if binding.role in rules.ALWAYS_HELD and not await store.others_holding(
        tx, binding.role, place.scope, apart_from=binding.user_id
    ):
        raise errors.Conflict(f"This is the last {binding.role} here.", fix="Give another user the role first.")
    await store.unbind(tx, binding_id)
    if binding.role == BREAK_GLASS:
        await break_glass.announce_end(tx, call, call.in_project(), binding)
    call.details.update(user_id=binding.user_id, role=binding.role)
    return binding


async def _get(reader: db.Reader, call: Call, binding_id: str, scope: str) -> RoleBinding:
    binding = await store.binding(reader, binding_id, scope, call.now)
    if binding is None:
        raise errors.NotFound("There is no such binding here.")
    return binding
