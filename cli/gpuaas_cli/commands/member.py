"""`gpuaas member`: grow, drain, resume, shrink an instance, repair its members, and move them to other machines.

gpuaas member
    Members are the machines of an instance, each in a role.
gpuaas member add slurm --role worker --allocation gpu-4 --allocation gpu-5
    Add members.
    component_key --role: Role of the new members.
    allocation_ids --allocation ID|NODE: Machine to add, by allocation id or node name; repeatable.
gpuaas member drain slurm gpu-2 gpu-3 --reason "new memory"
    Let members finish their current work; they get no new work until they are resumed.
gpuaas member resume slurm gpu-2
    Let the app give drained members work again.
gpuaas member remove slurm gpu-3
    Remove members from an instance as soon as the app reports that they are idle.
gpuaas member repair slurm gpu-3 --reason "the daemon does not answer"
    Have the app repair members: it puts right what differs from what it set up. A drained member stays drained.
gpuaas member replace demo gpu-2 --with gpu-5 --reason "broken fan"
    Move members to other machines, if the app offers it. Each member has the same id and role as before.
    allocation_ids --with ID|NODE: New machine, by allocation id or node name; one for each member.
"""

from typing import Any

from gpuaas_contract.instances import MEMBER_OPERATION_CREATE

from gpuaas_cli import failures
from gpuaas_cli.runner import Call, Command, Field, fixed, words

_NODES = Field(type=list[str], default=...)
_MEMBERS: dict[str, Field | None] = {
    "member_ids": Field("MEMBER|NODE", "Member ids, nodes, or node/role.", type=list[str], default=...),
    "component_key": Field("--role", "Role, where a node carries several members."),
    "allocation_ids": None,
}
_ALWAYS: dict[str, Field | None] = {
    "stop_after_failures": Field("--stop-after N", "Begin no more once N have failed; 0 tries all."),
    "reason": Field(help="Why you do this; stored with the operation."),
}


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


def _command(kind: str, fields: dict[str, Field | None], **more: Any) -> Command:
    given = {"kind": fixed(kind), **fields, **_ALWAYS}
    return Command(MEMBER_OPERATION_CREATE, fields=given, work=_operate, **more)


COMMANDS = {
    "member add": _command(
        "add", {"component_key": Field(default=...), "allocation_ids": _NODES, "member_ids": None, "force": None}
    ),
    "member drain": _command("drain", _MEMBERS),
    "member resume": _command("resume", _MEMBERS),
    "member remove": _command("remove", _MEMBERS),
    "member repair": _command("repair", _MEMBERS),
    "member replace": _command("replace", {**_MEMBERS, "allocation_ids": _NODES}, check=_check_counts),
}
