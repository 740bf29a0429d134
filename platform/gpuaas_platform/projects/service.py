"""Delete a project that owns nothing. Imports every domain that can store resources of a project."""

from collections.abc import Awaitable, Callable, Sequence

from gpuaas_contract import errors
from gpuaas_contract.identity import Project
from gpuaas_contract.paths import ProjectPath
from gpuaas_contract.wire import NoBody

from gpuaas_platform.access.credentials import service as credentials
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.artifacts import service as artifacts
from gpuaas_platform.artifacts import trust
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.identity import orgs
from gpuaas_platform.identity.accounts import service as service_accounts
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db
from gpuaas_platform.policy import service as policy

_SHOWN_MAX, _NAMED_MAX = 20, 3
OWNERS: dict[str, Callable[[db.Reader, str], Awaitable[list[str]]]] = {
    "app instances": instances.owned_by,
    "allocations": allocations.owned_by,
    "service accounts": service_accounts.owned_by,
    "credentials": credentials.owned_by,
    "artifacts": artifacts.owned_by,
    "trust keys": trust.owned_by,
}
"""Resource that prevents the deletion of a project -> function that returns the ids of the project's resources."""


async def delete(tx: db.Tx, call: Call[ProjectPath], _: NoBody) -> Project:
    """Delete the project with its role bindings, entitlements and overlay. Events, audit rows and usage are kept."""
    project_id = call.path.project_id
    owned = {kind: ids for kind, owned_by in OWNERS.items() if (ids := await owned_by(tx, project_id))}
    if owned:
        raise errors.ProjectNotEmpty(
            f"The project still owns {'; '.join(_counted(kind, ids) for kind, ids in owned.items())}.",
            details={"owns": {kind.replace(" ", "_"): ids[:_SHOWN_MAX] for kind, ids in owned.items()}},
        )
    await catalog.forget_project(tx, project_id)
    await policy.forget_project(tx, project_id)
    return await orgs.delete_project(tx, call)


def _counted(kind: str, ids: Sequence[str]) -> str:
    named = ", ".join([*ids[:_NAMED_MAX], *(["…"] if len(ids) > _NAMED_MAX else [])])
    return f"{len(ids)} {kind if len(ids) > 1 else kind[:-1]} ({named})"
