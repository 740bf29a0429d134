"""`gpuaas agent`: releases of the node agent, and which nodes run them.

gpuaas agent
    The agent is one file on every node; a node runs exactly the bytes of a signed release, or keeps what it has.
gpuaas agent register agent.pyz
    Register a signed build of the agent; the same bytes again change nothing.
    content FILE: The build of the agent, made by python -m gpuaas_agent.build FILE.
    --signature FILE: Signature of the build, made by python -m gpuaas_agent.signer sign; by default FILE.sig.
gpuaas agent approve 0.2.0 --reason "built it from the same source: the same SHA-256"
    Approve a release that another person registered, so that it can be installed.
gpuaas agent list
    List all registered releases of the agent.
gpuaas agent upgrade gpu-1 --to 0.2.0 --reason "try the new agent"
gpuaas agent upgrade --all --to 0.2.0 --reason "fixes host keys"
    Install a release of the agent on nodes, one after another. The first failure stops it; that node continues with its
    old agent.

    To continue, run the same command again: nodes that already run the release are skipped.
    --to RELEASE: The release to install, by version or SHA-256.
    nodes NODE: Names or ids.
    every_node --all -a: Upgrade every node that sends heartbeats.
    --sku: Upgrade every node with this SKU (product name).
    --region: Every node there.
"""

import asyncio

from gpuaas_contract import agents, capacity

from gpuaas_cli import failures, output
from gpuaas_cli.input import files
from gpuaas_cli.runner import SWITCH, Call, Command, Field, nothing, words
from gpuaas_cli.show import machines
from gpuaas_cli.work import follow, rollout, waits


def _signature(call: Call) -> files.AgentSignature:
    return files.agent_signature(call["signature"] or f"{call['content']}.sig", call["content"])


def _after_registration(release: agents.AgentRelease) -> str:
    if release.status == "approved":
        return f"gpuaas agent upgrade NODE --to {release.version} --reason REASON"
    return f"another person checks it and runs: gpuaas agent approve {release.version} --reason REASON"


async def _approve(call: Call) -> agents.AgentRelease:
    release, body = await _release(call, call["sha256"]), agents.ApproveAgentRelease(reason=call["reason"])
    return await call.session.call(agents.AGENT_RELEASE_APPROVE, body, dry_run=call.dry_run, sha256=release.sha256)


def _check_nodes(call: Call) -> None:
    if bool(call["nodes"]) == bool(call["every_node"] or call["sku"] or call["region"]):
        raise failures.usage("Name nodes, or choose them with --all, --sku or --region", "gpuaas agent upgrade --help")


async def _upgrade(call: Call) -> int:
    release = await _release(call, call["to"])
    planned = rollout.plan(await _chosen(call), release)
    if call["nodes"] and planned.silent:
        silent, fix = rollout.names(planned.silent), f"gpuaas node get {planned.silent[0].name}"
        raise failures.Failure(
            f"These nodes send no heartbeat, so no upgrade was requested: {silent}", fix, code="node_lost"
        )
    for line in rollout.left_out(planned, release):
        output.talk(line)
    return await _roll(call, planned.wanted, release)


async def _release(call: Call, named: str) -> agents.AgentRelease:
    """Find a release by its version, its digest or the first digits of it."""
    known = await call.session.every(agents.AGENT_RELEASE_LIST)
    matching = rollout.releases(known, named)
    if len(matching) != 1:
        what = "Several agent releases match" if matching else "There is no agent release"
        raise failures.not_found(f"{what} {named}", "gpuaas agent list")
    return matching[0]


async def _chosen(call: Call) -> list[capacity.Node]:
    """Return the chosen nodes. All names are resolved before the first node changes, so that a typo changes nothing."""
    if call["nodes"]:
        return [await call.session.call(capacity.NODE_GET, node_id=name) for name in words(call["nodes"])]
    nodes = await call.session.every(capacity.NODE_LIST, query={"sku": call["sku"], "region": call["region"]})
    if not nodes:
        raise failures.not_found("No node matches; nothing was changed", "gpuaas node list -o wide")
    return sorted(nodes, key=lambda node: (len(node.name), node.name))


async def _roll(call: Call, nodes: list[capacity.Node], release: agents.AgentRelease) -> int:
    body = agents.UpgradeAgent(sha256=release.sha256, reason=call["reason"])
    tasks: list[agents.NodeTask] = []
    for place, node in enumerate(nodes):
        task = await call.session.call(agents.NODE_UPGRADE_AGENT, body, dry_run=call.dry_run, node_id=node.node_id)
        if not call.dry_run:
            where = f"{node.name} ({place + 1} of {len(nodes)})"
            with follow.waiting(f"{where}: agent {node.agent_version or 'unknown'} -> {release.version}"):
                task = await _watched(call, task, nodes[place + 1 :])
        tasks.append(task)
        if not call.dry_run and task.state != "succeeded":
            break
    if tasks or call.flags.structured:
        output.show(call.flags, tasks, machines.tasks({node.node_id: node.name for node in nodes}))
    return failures.OK if call.dry_run else _verdict(tasks, nodes)


def _verdict(tasks: list[agents.NodeTask], nodes: list[capacity.Node]) -> int:
    """Return the exit code. Only the last task can have failed, because a failure ends the rollout."""
    if not tasks or tasks[-1].state == "succeeded":
        return failures.OK
    if rest := nodes[len(tasks) :]:
        output.talk(f"Not asked: {rollout.names(rest)}.")
    raise waits.failure(tasks[-1], nodes[len(tasks) - 1])


async def _watched(call: Call, task: agents.NodeTask, rest: list[capacity.Node]) -> agents.NodeTask:
    try:
        return await waits.ended(call.session, task)
    except asyncio.CancelledError:
        output.talk(f"\nDetached. {task.task_id} continues on its node; not asked: {rollout.names(rest) or 'none'}.")
        raise


COMMANDS = {
    "agent register": Command(
        agents.AGENT_RELEASE_REGISTER,
        fields={
            "content": Field(read=lambda _, path: files.agent_build(path)),
            "signature": Field(default="", read=lambda call, _: _signature(call).signature),
            "version": Field(typed=False, read=lambda call, _: _signature(call).version),
        },
        next=_after_registration,
    ),
    "agent approve": Command(
        agents.AGENT_RELEASE_APPROVE, work=_approve, next="gpuaas agent upgrade NODE --to {version} --reason REASON"
    ),
    "agent list": agents.AGENT_RELEASE_LIST,
    "agent upgrade": Command(
        agents.NODE_UPGRADE_AGENT,
        fields={"node_id": None, "sha256": None},
        extra={"to": Field(default=...), "nodes": Field(type=list[str], default=None), "every_node": SWITCH},
        check=_check_nodes,
        work=_upgrade,
        show=nothing,
    ),
}
