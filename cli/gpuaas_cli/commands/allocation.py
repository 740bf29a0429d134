"""`gpuaas allocation`: claim nodes for a project, choose who is on them, give them back.

gpuaas allocation
    An allocation is a project's claim on a node.
gpuaas allocation request --count 3 --sku h100x8 --wait
    Claim nodes for the project. With --dry-run: show which nodes would be claimed, or why each node cannot be.
    node_name --node: Claim this node; by default any free node that fits.
    --sku: Only nodes with this SKU (product name).
    --region: Claim nodes in this region; by default in any region, the same for all nodes of one request.
    --count: Number of nodes to claim; if fewer are free, none is claimed.
    --wait: Wait until the command's work is done.
gpuaas allocation list --free
    Allocations of the project.
    --free: Only allocations that no app uses.
    --sku: Only nodes with this SKU (product name).
    --region: Only there.
gpuaas allocation people gpu-3 --only ada,grace
    Show the people whose SSH keys are on an allocation's machine, or set them with --only.
    user_ids --only USER,…: Install the keys of exactly these people, by name or id; "" removes all keys.
gpuaas allocation release gpu-3 gpu-4 --wait
    Release allocations: their nodes are cleaned and given back. Also retries a failed release.
    --used: Release the allocation even while an app uses it; the app's work there is lost. Needs --reason.
    --reason: Why you do this; stored in the audit trail.
    --wait: Wait until the command's work is done.
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
