"""The roles of a Slurm instance and the members that have them. Pure."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from gpuaas_sdk.failures import Permanent, Refused

CONTROLLER = "controller"
WORKER = "worker"
LOGIN = "login"


class Member(Protocol):
    """The fields of a platform's member that this module needs."""

    @property
    def component_key(self) -> str: ...
    @property
    def allocation_id(self) -> str: ...
    @property
    def node_name(self) -> str: ...


AnyMember = TypeVar("AnyMember", bound=Member)


def controller_of(members: Iterable[AnyMember]) -> AnyMember:
    controller = next((member for member in members if member.component_key == CONTROLLER), None)
    if controller is None:
        raise Permanent("the instance no longer has a controller member", fix="decommission the instance")
    return controller


def workers_of(members: Iterable[AnyMember]) -> tuple[AnyMember, ...]:
    return tuple(member for member in members if member.component_key == WORKER)


def logins_of(members: Iterable[AnyMember]) -> tuple[AnyMember, ...]:
    return tuple(member for member in members if member.component_key == LOGIN)


def nodes_of(members: Iterable[AnyMember]) -> tuple[AnyMember, ...]:
    """Return the members that run slurmd: workers and login machines."""
    return tuple(member for member in members if member.component_key != CONTROLLER)


def refuse_shared_logins(members: Iterable[Member]) -> None:
    """Refuse a login machine that has another role: one machine runs one slurmd, and jobs would slow down people."""
    for member in _shared_logins(members):
        raise Permanent(
            f"allocation {member.allocation_id} is a login machine and also has another role",
            fix="deploy with another allocation in login_allocation_ids",
        )


def refuse_joining_shared_logins(joining: Iterable[Member], members: Iterable[Member], instance: str) -> None:
    """Refuse members that would make a login machine share its machine with another role. Nothing was changed yet."""
    shared = {member.allocation_id for member in _shared_logins(members)}
    for member in joining:
        if member.allocation_id in shared:
            raise Refused(
                f"{member.node_name} has another role in this cluster, and a login machine can have no other role",
                fix=f"choose another allocation, or remove the other role first: gpuaas get members {instance}",
            )


def _shared_logins(members: Iterable[Member]) -> list[Member]:
    placed = tuple(members)
    return [member for member in logins_of(placed) if len(roles_on(placed, member.allocation_id)) > 1]


def roles_on(members: Iterable[Member], allocation_id: str) -> tuple[str, ...]:
    """Return the roles on the machine of this allocation, the controller first."""
    keys = {member.component_key for member in members if member.allocation_id == allocation_id}
    return tuple(role for role in (CONTROLLER, WORKER, LOGIN) if role in keys)


def of_node(roles_here: Iterable[str]) -> str:
    """Return the role that slurmd has on a machine with these roles; empty if it runs no slurmd."""
    return next((role for role in roles_here if role != CONTROLLER), "")
