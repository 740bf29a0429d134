"""`gpuaas agent`: releases of the node agent, and which nodes run them."""

import asyncio
from typing import Annotated

import typer
from gpuaas_contract.agents import (
    AGENT_RELEASE_REGISTER,
    NODE_UPGRADE_AGENT,
    AgentRelease,
    NodeTask,
    RegisterAgentRelease,
    UpgradeAgent,
)
from gpuaas_contract.capacity import NODE_LIST, Node

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import archives
from gpuaas_cli.runner import options, run
from gpuaas_cli.runner.options import DryRun, NeededReason
from gpuaas_cli.work import node_tasks, rollout, spinner

app = run.command_group()


@app.callback()
def agent() -> None:
    """The agent is one file on every node; a node runs exactly the bytes of a release, or keeps what it has."""


@run.command(app)
def register(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Made by python -m gpuaas_agent.build FILE.")],
    version: Annotated[str, typer.Option(help="What to call it; else what the file says.")] = "",
    dry_run: DryRun = False,
) -> int:
    """Make a build of the agent known; the same bytes again change nothing.

    Example: gpuaas agent register agent.pyz
    """
    flags = run.flags_of(context)
    content = archives.content(file)
    body = RegisterAgentRelease(version=version or archives.version(file, content), content=content)
    made = session.run(flags, lambda opened: opened.call(AGENT_RELEASE_REGISTER, body, dry_run=dry_run))
    kinds.show_one(flags, "agent-releases", made)
    if version and made.version != version:
        output.talk(f"These bytes are known already, as {made.version}.")
    if not dry_run:
        output.talk(f"  next: gpuaas agent upgrade NODE --to {made.version} --reason REASON")
    return failures.OK


@run.command(app, "list")
def list_releases(context: typer.Context) -> int:
    """Every release there is.

    Example: gpuaas agent list
    """
    kinds.list_all(run.flags_of(context), "agent-releases")
    return failures.OK


@run.command(app)
def upgrade(
    context: typer.Context,
    reason: NeededReason,
    to: Annotated[str, typer.Option("--to", metavar="RELEASE", help="Its version or SHA-256.")],
    nodes: Annotated[list[str] | None, typer.Argument(metavar="NODE", help="Names or ids.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Every node that is heard.")] = False,
    sku: Annotated[str, typer.Option(help="Every node sold as this.")] = "",
    region: Annotated[str, typer.Option(help="Every node that stands there.")] = "",
    dry_run: DryRun = False,
) -> int:
    """Put a release on nodes, one after another; the first that fails ends it, and the agent it had stays.

    Asked again, it goes on where it ended: nodes that run the release are left alone.

    Example: gpuaas agent upgrade gpu-1 --to 0.2.0 --reason "try the new agent"

    Example: gpuaas agent upgrade --all --to 0.2.0 --reason "fixes host keys"
    """
    named = options.words(nodes or [])
    if bool(named) == bool(everything or sku or region):
        raise failures.usage(
            "Say which nodes: by name, or with --all, --sku or --region", "gpuaas agent upgrade --help"
        )

    async def work(opened: session.Session) -> int:
        release = await lookup.agent_release(opened, to)
        chosen = await _chosen(opened, named, sku=sku, region=region)
        planned = rollout.plan(chosen, release)
        if named and planned.silent:
            raise failures.Failure(
                f"Not heard, so nothing was asked: {rollout.names(planned.silent)}",
                fix=f"gpuaas node get {planned.silent[0].name}",
                code="node_lost",
            )
        for line in rollout.left_out(planned, release):
            output.talk(line)
        return await _roll(opened, planned.wanted, release, reason, dry_run=dry_run)

    return session.run(run.flags_of(context), work)


async def _chosen(opened: session.Session, named: list[str], *, sku: str, region: str) -> list[Node]:
    """All names are found before the first node changes, so that a typo changes nothing."""
    if named:
        return [await lookup.node(opened, name) for name in named]
    found = await opened.every(NODE_LIST, query={"sku": sku, "region": region})
    return sorted(found, key=lambda node: (len(node.name), node.name))


async def _roll(
    opened: session.Session, nodes: list[Node], release: AgentRelease, reason: str, *, dry_run: bool
) -> int:
    body = UpgradeAgent(sha256=release.sha256, reason=reason)
    tasks: list[NodeTask] = []
    for node in nodes:
        task = await opened.call(NODE_UPGRADE_AGENT, body, dry_run=dry_run, node_id=node.node_id)
        if not dry_run:
            place = f"{len(tasks) + 1} of {len(nodes)}"
            with spinner.shown(f"{node.name} ({place}): agent {node.agent_version} -> {release.version}"):
                task = await _watched(opened, task, nodes[len(tasks) + 1 :])
        tasks.append(task)
        if not dry_run and task.state != "succeeded":
            break
    if tasks or opened.flags.structured:
        kinds.show_tasks(opened.flags, tasks, {node.node_id: node.name for node in nodes})
    if dry_run:
        output.talk("Nothing was changed.")
        return failures.OK
    return _verdict(tasks, nodes)


def _verdict(tasks: list[NodeTask], nodes: list[Node]) -> int:
    """Only the last task can have failed."""
    if not tasks or tasks[-1].state == "succeeded":
        return failures.OK
    if rest := nodes[len(tasks) :]:
        output.talk(f"Not asked: {rollout.names(rest)}.")
    raise node_tasks.failure(tasks[-1], nodes[len(tasks) - 1])


async def _watched(opened: session.Session, task: NodeTask, rest: list[Node]) -> NodeTask:
    try:
        return await node_tasks.ended(opened, task)
    except asyncio.CancelledError:
        output.talk(f"\nDetached. {task.task_id} goes on; not asked: {rollout.names(rest) or 'none'}.")
        raise
