"""Pure: which nodes a release of the agent is put on, one after another, and what is said of the others."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuaas_contract.agents import AgentRelease
from gpuaas_contract.capacity import Node


@dataclass(frozen=True)
class Rollout:
    wanted: list[Node]
    current: list[Node]
    """Run these very bytes already."""
    silent: list[Node]
    """Are not heard, so they cannot take it now."""


def plan(nodes: Sequence[Node], release: AgentRelease) -> Rollout:
    others = [node for node in nodes if node.agent_sha256 != release.sha256]
    return Rollout(
        wanted=[node for node in others if node.status == "ready"],
        current=[node for node in nodes if node.agent_sha256 == release.sha256],
        silent=[node for node in others if node.status != "ready"],
    )


def left_out(rollout: Rollout, release: AgentRelease) -> list[str]:
    current = [f"{node.name} runs {release.version} already." for node in rollout.current]
    return [*current, *(f"{node.name} is not heard and was left out; ask again when it is." for node in rollout.silent)]


def names(nodes: Sequence[Node]) -> str:
    return ", ".join(node.name for node in nodes)
