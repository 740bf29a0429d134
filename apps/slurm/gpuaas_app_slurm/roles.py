"""The roles of a Slurm instance and the members that have them. Pure."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from gpuaas_sdk.failures import Permanent

CONTROLLER = "controller"
WORKER = "worker"
LOGIN = "login"


class Member(Protocol):
    """The fields of a platform's member that this module needs."""

    @property
    def component_key(self) -> str: ...
    @property
    def allocation_id(self) -> str: ...


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
    placed = tuple(members)
    for member in logins_of(placed):
        if len(roles_on(placed, member.allocation_id)) > 1:
            raise Permanent(
                f"allocation {member.allocation_id} is a login machine and also has another role",
                fix="deploy with another allocation in login_allocation_ids",
            )


def roles_on(members: Iterable[Member], allocation_id: str) -> tuple[str, ...]:
    """Return the roles on the machine of this allocation, the controller first."""
    keys = {member.component_key for member in members if member.allocation_id == allocation_id}
    return tuple(role for role in (CONTROLLER, WORKER, LOGIN) if role in keys)
