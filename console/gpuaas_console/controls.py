"""Pure: what people can do with an instance and its members, and for what is not possible now, why not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuaas_contract import instances, lifecycles
from gpuaas_contract.catalog import ActionSpec, Manifest
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.errors import ApiError
from gpuaas_contract.instances import Instance, Member, Role
from gpuaas_contract.operations import Operation, OperationKind
from gpuaas_contract.protocol import request as rules


@dataclass(frozen=True)
class Act:
    """A change of an instance that people request."""

    verb: OperationKind
    label: str
    means: str
    endpoint: AnyEndpoint
    needs: str = ""
    """What people choose: `members`, `machines` (and a role), `members machines`, `version` or `inputs`."""
    typed: bool = False
    """People type the instance's name: the act ends work or removes something."""

    @property
    def needs_reason(self) -> bool:
        """A machine can stay drained for a long time, and others must be able to find out why."""
        return self.typed or self.verb == "drain"

    @property
    def can_be_forced(self) -> bool:
        return self.verb != "add"

    @property
    def of_members(self) -> bool:
        return self.endpoint is instances.MEMBER_OPERATION_CREATE


FORCE = "apps.operation.force"
_MEMBERS = instances.MEMBER_OPERATION_CREATE
ACTS: dict[str, Act] = {
    act.verb: act
    for act in (
        Act("add", "Add members", "New members join on machines that you choose.", _MEMBERS, "machines"),
        Act("drain", "Drain", "Members finish their work and get no new work until a resume.", _MEMBERS, "members"),
        Act("resume", "Resume", "The app gives drained members work again.", _MEMBERS, "members"),
        Act("repair", "Repair", "The app puts right what differs from what it set up.", _MEMBERS, "members"),
        Act("replace", "Replace", "Members move to other machines.", _MEMBERS, "members machines", typed=True),
        Act(
            "remove", "Remove", "Members leave the instance as soon as they are idle.", _MEMBERS, "members", typed=True
        ),
        Act("reconfigure", "Reconfigure", "Inputs of the running instance change.", instances.RECONFIGURE, "inputs"),
        Act("start", "Start", "The stopped app starts on every machine.", instances.START),
        Act("restart", "Restart", "The app stops and starts again. Running work ends.", instances.RESTART, typed=True),
        Act(
            "stop", "Stop", "The app stops on every machine. Running work ends; data stays.", instances.STOP, typed=True
        ),
        Act("upgrade", "Upgrade", "The instance moves to another version.", instances.UPGRADE, "version", typed=True),
        Act("rollback", "Roll back", "The instance returns to its version before.", instances.ROLLBACK, typed=True),
        Act(
            "decommission",
            "Decommission",
            "The app is removed from every machine of the instance. The machines stay allocated.",
            instances.DECOMMISSION,
            typed=True,
        ),
    )
}


@dataclass(frozen=True)
class Control:
    act: Act
    why_not: str = ""
    """Empty: it is possible now."""


def of_instance(
    manifest: Manifest, instance: Instance, active: Sequence[Operation], may_not: Mapping[str, str]
) -> list[Control]:
    """Return the controls of the whole instance: those that the app offers, and decommission."""
    offered = [*manifest.instance_operations, "decommission"]
    acts = [act for act in ACTS.values() if act.verb in offered]
    return [Control(act, _why_not(manifest, instance, active, act) or may_not[act.endpoint.permission]) for act in acts]


def of_members(
    manifest: Manifest, instance: Instance, roles: Sequence[Role], may_not: Mapping[str, str]
) -> list[Control]:
    """Return the controls of members: everything that at least one role offers. `roles` have the numbers by status."""
    verbs = {verb for role in manifest.roles for verb in role.operations}
    result = []
    for act in (act for act in ACTS.values() if act.verb in verbs):
        why = may_not[act.endpoint.permission]
        if instance.status not in rules.UP:
            why = why or f"The instance is {instance.status}; its members can be changed only while it runs."
        elif act.verb != "add" and not _can_start(manifest, roles, act.verb):
            why = why or f"No member is in a state from which {act.verb} can start."
        result.append(Control(act, why))
    return result


def of_actions(manifest: Manifest, instance: Instance, may_not: Mapping[str, str]) -> list[tuple[ActionSpec, str]]:
    """Return the actions of the app, and for those that are not possible now, why not."""
    why = "" if instance.status in rules.UP else f"The instance is {instance.status}; actions need it running."
    return [(spec, may_not[spec.permission] or why) for spec in manifest.actions]


def _can_start(manifest: Manifest, roles: Sequence[Role], verb: str) -> bool:
    """Return whether a role that offers the act has a member in a state from which it can start."""
    offering = {role.component_key for role in manifest.roles if verb in role.operations}
    starts = rules.MEMBER_STARTS.get(verb, frozenset())
    return any(not starts.isdisjoint(role.by_status) for role in roles if role.component_key in offering)


def why_not_member(manifest: Manifest, member: Member, verb: str) -> str:
    """Return why the act is not possible for a member; empty: it is."""
    role = next((role for role in manifest.roles if role.component_key == member.component_key), None)
    if role is None or verb not in role.operations:
        return f"The app offers no {verb} for {member.component_key}."
    starts = rules.MEMBER_STARTS.get(verb, frozenset())
    needed = ", ".join(status for status in lifecycles.MEMBER if status in starts)
    return "" if member.status in starts else f"{verb} needs one of: {needed}."


def permissions(manifest: Manifest) -> set[str]:
    """Return every permission that the controls of an instance need."""
    of_acts = {act.endpoint.permission for act in ACTS.values()} | {instances.BREAKER_RESET.permission}
    return of_acts | {action.permission for action in manifest.actions}


def _why_not(manifest: Manifest, instance: Instance, active: Sequence[Operation], act: Act) -> str:
    try:
        rules.check_instance_request(manifest, instance, act.verb)
        rules.check_free(active, act.verb, ())
    except ApiError as error:
        return error.message
    return ""
