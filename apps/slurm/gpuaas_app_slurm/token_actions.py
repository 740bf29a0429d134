"""The action `token.issue`: a token with which a person uses the REST API of the cluster as themselves.

All who can see the project's operations can read the result of an action, so the token is not in it. It is in a file of
the person's home, and the result names the file."""

from typing import Any

import msgspec
from gpuaas_sdk.controller import Member, Operation, Refused

from gpuaas_app_slurm import job_actions, reports, roles
from gpuaas_app_slurm.workload import config, rest


class IssueToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `token.issue`."""

    minutes: int = 60


async def issue(op: Operation) -> dict[str, Any]:
    """Make a token and write it. If this runs again, another token replaces it in the file."""
    asked, inputs = op.inputs_as(IssueToken), config.parse_inputs(op.instance.inputs)
    if not inputs.rest_api:
        raise Refused(
            "this cluster was deployed without a REST API, which cannot be added later",
            fix=f"gpuaas deploy slurm --set rest_api=true makes one that has it; jobs can be submitted without it: "
            f"gpuaas action run {op.instance.name} queue.submit",
        )
    head, login = await reports.head(op), await job_actions.login_of(op)
    place = await op.machine(_entry(op))
    made = await rest.token(head, login, asked.minutes * 60)
    path = await rest.write(place, login, f".slurm-token-{inputs.cluster_name}", made)
    row = {
        "login": login,
        "machine": place.hostname,
        "path": path,
        "url": config.rest_url(head.address),
        "ends_at": made.ends_at.isoformat(),
    }
    return {"rows": [row], "note": f"On {place.hostname}: curl -H @{path} {row['url']}/openapi/v3"}


def _entry(op: Operation) -> Member:
    """Return the member where people log in."""
    ready = [member for member in roles.logins_of(op.members) if member.status == "ready"]
    return ready[0] if ready else roles.controller_of(op.members)
