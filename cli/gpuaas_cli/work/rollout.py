"""Pure: decide which nodes get a release of the agent, one after another, and why the others are left out."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuaas_contract.agents import AgentRelease
from gpuaas_contract.capacity import Node

DIGEST_DIGITS_MIN = 8


@dataclass(frozen=True)
class Rollout:
    wanted: list[Node]
    current: list[Node]
    """Nodes that already run this release."""
    silent: list[Node]
    """Nodes without a recent heartbeat, which cannot be upgraded now."""


def releases(known: Sequence[AgentRelease], named: str) -> list[AgentRelease]:
    """Return the releases with this version, else those whose digest starts with `named`."""
    by_version = [release for release in known if release.version == named]
    by_digest = [release for release in known if release.sha256.startswith(named)]
    return by_version or (by_digest if len(named) >= DIGEST_DIGITS_MIN else [])


def plan(nodes: Sequence[Node], release: AgentRelease) -> Rollout:
    others = [node for node in nodes if node.agent_sha256 != release.sha256]
    return Rollout(
        wanted=[node for node in others if node.status == "ready"],
        current=[node for node in nodes if node.agent_sha256 == release.sha256],
        silent=[node for node in others if node.status != "ready"],
    )


def left_out(rollout: Rollout, release: AgentRelease) -> list[str]:
    current = [f"{node.name} runs {release.version} already." for node in rollout.current]
    silent = [f"{node.name} sends no heartbeat and was left out; try again when it does." for node in rollout.silent]
    return current + silent


def names(nodes: Sequence[Node]) -> str:
    return ", ".join(node.name for node in nodes)
