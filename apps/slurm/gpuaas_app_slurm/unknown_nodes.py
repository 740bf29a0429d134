"""Decide which nodes of Slurm belong to no member of the instance, and what a person does about them. Pure.

slurmd registers by itself on each machine that has the key of the cluster. A machine that was given up while it was
dead has it still, so its node returns with its power. `nodes.give_up` keeps jobs off it; `plan` reports it,
and `repair` keeps jobs off those that Slurm has forgotten or could not be asked about."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from gpuaas_app_slurm import details, roles
from gpuaas_app_slurm.workload import state
from gpuaas_app_slurm.workload.observed import ObservedNode

CODE = "UnknownNode"
JOINING: tuple[Literal["add"], Literal["replace"]] = ("add", "replace")
"""Operations during which Slurm can have a node that no member has yet. During a deploy there are no looks."""
GONE = ("removed", "tombstoned")
NAMED_MAX = 10
"""So many nodes are named; the others are counted."""


class Member(Protocol):
    """What is needed of a member."""

    @property
    def status(self) -> str: ...
    @property
    def component_key(self) -> str: ...
    @property
    def node_name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def adapter_detail(self) -> dict[str, Any]: ...
    @property
    def updated_at(self) -> datetime.datetime: ...


def of(members: Iterable[Member], nodes: Iterable[ObservedNode]) -> tuple[ObservedNode, ...]:
    """Return the nodes that no live member has. A node that was given up counts only while its slurmd answers."""
    present = _present(members)
    names = {name for member in present for name in _names(member)}
    addresses = {member.address for member in present} - {""}
    return tuple(
        node
        for node in sorted(nodes, key=lambda node: node.name)
        if node.name not in names and node.address not in addresses and not _is_away(node)
    )


def given_up(members: Iterable[Member]) -> frozenset[str]:
    """Return the nodes whose machines were given up, as the platform recorded: something was left there when the member
    went, or was replaced. Of several members with the same node, the one that went last counts."""
    listed = tuple(members)
    replaced = [member.adapter_detail.get(details.REPLACED) or {} for member in _present(listed)]
    left = {str(before["node_name"]): True for before in replaced if before.get("left_behind")}
    for member in sorted(listed, key=lambda member: member.updated_at):
        if member.status in GONE and member.component_key != roles.CONTROLLER:
            name = str(member.adapter_detail.get("node_name") or member.node_name)
            left[name] = member.status == "tombstoned" or bool(member.adapter_detail.get("left_behind"))
    return frozenset(name for name, is_left in left.items() if is_left)


def to_close(members: Iterable[Member], nodes: Iterable[state.Node]) -> tuple[str, ...]:
    """Return the nodes of machines that were given up, that no live member has, and that can get jobs."""
    listed = tuple(members)
    names = given_up(listed) - {name for member in _present(listed) for name in _names(member)}
    return tuple(sorted(node.name for node in nodes if node.name in names and "DRAIN" not in node.flags))


def text(instance: str, head: str, unknown: Sequence[ObservedNode], gone: frozenset[str] = frozenset()) -> str:
    """Return which nodes they are and what to do; empty if there are none. Of several, the first is described: when it
    is gone, the next one is. The text ends with a command. `gone`: nodes whose machines were given up."""
    if not unknown:
        return ""
    return _listed(unknown) + _described(instance, head, unknown[0], unknown[0].name in gone)


def _listed(unknown: Sequence[ObservedNode]) -> str:
    if len(unknown) == 1:
        return ""
    more = f" and {len(unknown) - NAMED_MAX} more" if len(unknown) > NAMED_MAX else ""
    named = ", ".join(node.name for node in unknown[:NAMED_MAX])
    return f"{len(unknown)} nodes of Slurm belong to no member: {named}{more}. "


def _described(instance: str, head: str, node: ObservedNode, is_gone: bool) -> str:
    if state.is_given_up(node.as_node()):
        return (
            f"The machine of node {node.name} was given up by force, and its slurmd has returned. No job starts there. "
            f"Fix: use the machine again (gpuaas member add {instance} --role worker --allocation {node.name}), or "
            f"stop its slurmd: gpuaas ssh {node.name} --root -- sudo systemctl disable --now slurmd"
        )
    as_root = f"gpuaas ssh {head} --root -- sudo scontrol"
    if "DRAIN" in node.flags:
        return (
            f"Node {node.name} belongs to no member. No job starts there. Fix: stop slurmd on its machine "
            f"({node.address or 'address unknown'}), then: {as_root} delete nodename={node.name}"
        )
    if is_gone:
        return (
            f"The machine of node {node.name} was given up, and Slurm can start jobs there. The app keeps jobs off it "
            f"by itself. Fix by hand: {as_root} update nodename={node.name} state=drain reason=unknown"
        )
    return (
        f"Node {node.name} belongs to no member, and takes jobs. Fix: find out who started slurmd on its machine "
        f"({node.address or 'address unknown'}); to keep jobs off it: "
        f"{as_root} update nodename={node.name} state=drain reason=unknown"
    )


def _present(members: Iterable[Member]) -> list[Member]:
    """Return the live members that have a node."""
    return [member for member in members if member.component_key != roles.CONTROLLER and member.status not in GONE]


def _names(member: Member) -> set[str]:
    recorded = (member.adapter_detail.get("node_name"), member.adapter_detail.get(details.NEW_MACHINE))
    return {member.node_name, *(str(name) for name in recorded if name)}


def _is_away(node: ObservedNode) -> bool:
    return state.is_given_up(node.as_node()) and node.slurmd_port != "open"
