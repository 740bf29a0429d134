"""`gpuaas allocation`: claim nodes for a project, choose who is on them, give them back.

gpuaas allocation
    An allocation is a project's claim on a node.
gpuaas allocation request --count 3 --sku h100x8 --wait
    Claim nodes. With --dry-run: which ones it would be, or what keeps each node out.
    node_name --node: This node; else any free one that fits.
    --sku: Nodes sold as this.
    --region: Nodes there; else all of one request share any region.
    --count: So many, or none.
    --wait: Return when it is done.
gpuaas allocation list --free
    Allocations of the project.
    --free: Only those an app can be put on.
    --sku: Nodes sold as this.
    --region: Only there.
gpuaas allocation people gpu-3 --only ada,grace
    Whose SSH keys are on a machine; with --only, choose.
    user_ids --only USER,…: Exactly these, names or ids; "" removes all of them.
gpuaas allocation release gpu-3 gpu-4 --wait
    Give nodes back, or try again to.
    --used: Even while an app uses it, whose work there is lost; needs --reason.
    --reason: Why; kept on the audit trail.
    --wait: Return when it is done.
gpuaas allocation force-release gpu-3 --reason "the machine burnt"
    Give up allocations whose release failed. Their nodes are cordoned, because they may not be clean.
"""

from typing import Any

from gpuaas_contract import capacity, ssh_keys
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.errors import NoCapacity

from gpuaas_cli import failures, output
from gpuaas_cli.runner import SWITCH, Call, Command, Field, words
from gpuaas_cli.show import machines
from gpuaas_cli.work import waits


def _check_request(call: Call) -> None:
    if call["node_name"] and call["count"] > 1:
        message = "--node names one node, so --count cannot be more than 1"
        raise failures.usage(message, "gpuaas allocation request --help")


async def _request(call: Call) -> list[Allocation]:
    try:
        made = (await call.send()).items
    except NoCapacity as refused:
        for name, why in refused.details.get("why_not", {}).items():
            output.talk(f"{name}: {why}")
        raise
    return await _settled(call, made)


def _check_release(call: Call) -> None:
    if call["used"] and not call["reason"].strip():
        raise failures.usage("--used needs a reason", 'gpuaas allocation release NODE --used --reason "WHY"')


async def _release(call: Call) -> list[Allocation]:
    if call["used"]:
        call.endpoint, call.sent["reason"] = capacity.ALLOCATION_RELEASE_USED, call["reason"]
    return await _settled(call, await call.each())


async def _settled(call: Call, changed: list[Allocation]) -> list[Allocation]:
    if not call["wait"] or call.dry_run:
        return changed
    return [await waits.settled(call.session, item.allocation_id) for item in changed]


def _verdict(wanted: str) -> Any:
    def judge(call: Call, changed: list[Allocation]) -> int:
        waited = call["wait"] and not call.dry_run
        reached = all(item.status == wanted for item in changed)
        return failures.OK if reached or not waited else failures.FAILED

    return judge


async def _people(call: Call) -> Any:
    if call["user_ids"] is None:
        return await call.session.call(ssh_keys.ALLOCATION_KEYS_GET, **await call.path())
    return await call.send()


COMMANDS = {
    "allocation request": Command(
        capacity.ALLOCATION_CREATE,
        fields={"scheduler_type": None, "integration_metadata": None},
        extra={"wait": SWITCH},
        check=_check_request,
        work=_request,
        then=_verdict("active"),
    ),
    "allocation list": capacity.ALLOCATION_LIST,
    "allocation people": Command(
        ssh_keys.ALLOCATION_KEYS_SET,
        fields={
            "user_ids": Field(
                type=str,
                default=None,
                read=lambda _, text: None if text is None else words([text]),
                may_be_empty=True,
            )
        },
        work=_people,
        page=machines.of_people,
        also=(ssh_keys.ALLOCATION_KEYS_GET,),
    ),
    "allocation release": Command(
        capacity.ALLOCATION_RELEASE,
        many=True,
        extra={"used": SWITCH, "wait": SWITCH},
        check=_check_release,
        work=_release,
        then=_verdict("released"),
        also=(capacity.ALLOCATION_RELEASE_USED,),
    ),
    "allocation force-release": Command(capacity.ALLOCATION_FORCE_RELEASE, many=True),
}
