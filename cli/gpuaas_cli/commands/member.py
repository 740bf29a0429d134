"""`gpuaas member`: grow, drain, resume, shrink an instance, and move its members to other machines."""

from typing import Any

from gpuaas_contract.instances import MEMBER_OPERATION_CREATE

from gpuaas_cli import failures
from gpuaas_cli.runner import Call, Command, Field, run, words

_MEMBERS = Field("MEMBER|NODE", "Member ids, nodes, or node/role.", type=list[str], default=...)
_ROLE = Field("--role", "Role, where a node carries several members.")
_STOP_AFTER = Field("--stop-after N", "Begin no more once N have failed; 0 tries all.")
_REASON = Field(help="Why, for those who look later.")


async def _operate(call: Call) -> Any:
    about = ", ".join(words(call["member_ids"] or call["allocation_ids"]))
    return await call.follow(await call.send(), about)


def _check_counts(call: Call) -> None:
    members, allocations = words(call["member_ids"]), words(call["allocation_ids"])
    if len(members) != len(allocations):
        raise failures.usage(
            f"{len(members)} members need as many allocations, not {len(allocations)}",
            f"gpuaas member replace {call['instance_id']} MEMBER --with ALLOCATION",
        )


def _command(kind: str, help_text: str, example: str, fields: dict[str, Field | None], **more: Any) -> Command:
    given: dict[str, Field | None] = {
        "kind": Field(typed=False, read=lambda *_: kind),
        **fields,
        "stop_after_failures": _STOP_AFTER,
        "reason": _REASON,
    }
    return Command(MEMBER_OPERATION_CREATE, f"{kind} {example}", help_text, fields=given, work=_operate, **more)


def _changing(kind: str, help_text: str, example: str) -> Command:
    fields: dict[str, Field | None] = {"member_ids": _MEMBERS, "component_key": _ROLE, "allocation_ids": None}
    return _command(kind, help_text, example, fields)


app = run.group(
    "member",
    "Members are the machines of an instance, each in a role.",
    _command(
        "add",
        "Add members.",
        "slurm --role worker --allocation gpu-4 --allocation gpu-5",
        {
            "component_key": Field("--role", "Role of the new members.", default=...),
            "allocation_ids": Field(
                "--allocation ID|NODE", "Allocation id or node name; repeatable.", type=list[str], default=...
            ),
            "member_ids": None,
            "force": None,
        },
    ),
    _changing("drain", "Let members finish their work and take no more.", 'slurm gpu-2 gpu-3 --reason "new memory"'),
    _changing("resume", "Let drained members take work again.", "slurm gpu-2"),
    _changing("remove", "Take members away once they are seen to be idle.", "slurm gpu-3"),
    _command(
        "replace",
        "Move members to other machines; each keeps its id and place in the app.",
        'slurm gpu-2 --with gpu-5 --reason "broken fan"',
        {
            "member_ids": _MEMBERS,
            "allocation_ids": Field(
                "--with ID|NODE", "Allocation id or node name; one for each member.", type=list[str], default=...
            ),
            "component_key": _ROLE,
        },
        check=_check_counts,
    ),
)
