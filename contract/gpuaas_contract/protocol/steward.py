"""Decide who looks after an instance between operations, which of its reports count, and what it may request."""

import datetime
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpuaas_contract import errors
from gpuaas_contract.catalog import StewardSpec
from gpuaas_contract.instances import Condition, Instance, Steward
from gpuaas_contract.operations import OperationHead
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol.request import Operator
from gpuaas_contract.protocol.status import OBSERVED
from gpuaas_contract.stewardships import HeldStewardship

NOT_DEPLOYED = frozenset({"requested", "deploying", "deleted"})
"""Statuses of an instance that no controller looks after: there is nothing to observe."""
UNOBSERVED_AFTER_S = 60
"""An instance counts as not observed when its last stewardship has been expired for this long."""
ALONE = frozenset({"replace"})
"""Kinds that a steward requests for one member at a time."""
REQUESTS_WINDOW = datetime.timedelta(hours=1)


class Taker(NamedTuple):
    """A controller process that takes or renews stewardships."""

    holder: str
    actor_id: str
    expires_at: datetime.datetime
    """When the lease ends that it gets now."""


class Shape(NamedTuple):
    """What a spare must have in common with the machine whose place it takes."""

    sku: str
    region: str
    gpus: int


def is_held(steward: Steward | None, now: datetime.datetime) -> bool:
    """Return whether a controller holds the stewardship now."""
    return steward is not None and steward.expires_at > now


def taken(steward: Steward | None, taker: Taker) -> Steward:
    """Return the stewardship after it was taken. The higher epoch ends what the previous holder may do."""
    return Steward(
        holder=taker.holder,
        actor_id=taker.actor_id,
        epoch=steward.epoch + 1 if steward else 1,
        expires_at=taker.expires_at,
        observed_at=steward.observed_at if steward else None,
    )


def renewed(steward: Steward | None, held: HeldStewardship, taker: Taker, now: datetime.datetime) -> Steward | None:
    """Return the stewardship after a renewal; None if the caller has lost it.

    An expired stewardship that no process took can be renewed: no other controller has acted under it."""
    if steward is None or (steward.epoch, steward.holder, steward.actor_id) != (
        held.epoch,
        taker.holder,
        taker.actor_id,
    ):
        return None
    extended = replace(steward, expires_at=taker.expires_at)
    return observed(extended, held.observed_at, now) if held.observed_at else extended


def renewals(
    present: Mapping[str, Steward | None],
    held: Mapping[str, HeldStewardship],
    taker: Taker,
    now: datetime.datetime,
    *,
    take_max: int,
) -> dict[str, Steward]:
    """Return instance id -> stewardship that the caller has after its request: those it renews and free ones it takes.

    `present`: those of the instances that it may look after, in the order in which free ones are taken."""
    after, taken_count = dict[str, Steward](), 0
    for instance_id, steward in present.items():
        own = held.get(instance_id)
        changed = renewed(steward, own, taker, now) if own else None
        if changed is None and not is_held(steward, now) and taken_count < take_max:
            changed, taken_count = taken(steward, taker), taken_count + 1
        if changed is not None:
            after[instance_id] = changed
    return after


def observed(steward: Steward, at: datetime.datetime, now: datetime.datetime) -> Steward:
    """Return the stewardship after a look. The time of the look is never in the future and never goes back."""
    times = [time for time in (steward.observed_at, min(at, now)) if time is not None]
    return replace(steward, observed_at=max(times))


def withdrawn(steward: Steward, epochs: int, now: datetime.datetime) -> Steward:
    """Return the stewardship after the platform ended it: the epoch of its holder is old, and it is free."""
    ended_at = min(steward.expires_at, now)
    return replace(steward, holder="", actor_id="", epoch=steward.epoch + epochs, expires_at=ended_at)


def check(instance: Instance, steward: Steward | None, epoch: int, operator: Operator, now: datetime.datetime) -> None:
    """Refuse a caller that does not hold the stewardship: another account, another epoch, or an expired lease."""
    request_rules.check_operator(instance, operator)
    if steward is None or epoch != steward.epoch:
        now_held = f"its epoch is {steward.epoch}" if steward else "no controller has taken it"
        raise errors.LeaseLost(
            f"The stewardship of {instance.name} is not yours: {now_held}, not {epoch}.",
            details={"instance_id": instance.instance_id, "epoch": steward.epoch if steward else 0},
        )
    if steward.expires_at <= now:
        raise errors.LeaseLost(
            f"The stewardship of {instance.name} expired at {steward.expires_at:%H:%M:%S} UTC; renew it first.",
            details={"instance_id": instance.instance_id, "epoch": steward.epoch},
        )
    if steward.actor_id != operator.actor_id:
        raise errors.PermissionDenied(
            "Another service account holds the stewardship of this instance.",
            details={"holder": steward.holder},
            fix="Report as the service account that took the stewardship, or take it after its lease has expired.",
        )


def check_reporter(
    instance: Instance, steward: Steward | None, epoch: int, operator: Operator, now: datetime.datetime
) -> None:
    """Refuse an observation of a controller without the stewardship. Epoch 0 is from a controller of the release before
    stewardships: it is accepted while no controller holds the stewardship."""
    request_rules.check_operator(instance, operator)
    if epoch != 0 or is_held(steward, now):
        check(instance, steward, epoch, operator, now)


def is_unobserved(steward: Steward, now: datetime.datetime) -> bool:
    """Return whether no controller has looked after the instance for so long that people should know."""
    last = max(steward.expires_at, steward.observed_at or steward.expires_at)
    return now - last > datetime.timedelta(seconds=UNOBSERVED_AFTER_S)


def observed_condition(instance: Instance, steward: Steward, now: datetime.datetime, *, is_observed: bool) -> Condition:
    """Return the platform's own condition about who looks after the instance."""
    since = f"{steward.observed_at or steward.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    message = "" if is_observed else f"No controller has looked at the instance since {since}."
    return Condition(
        type=OBSERVED,
        status="true" if is_observed else "false",
        reason="observed" if is_observed else "no_steward",
        message=message,
        observed_revision=instance.revision,
        changed_at=now,
    )


def check_kind(spec: StewardSpec, kind: str) -> None:
    """Refuse a kind of operation that the app's controller may not request by itself."""
    if kind not in spec.requests:
        raise errors.Conflict(
            f"The app's manifest does not let its controller request {kind}.",
            details={"requests": list(spec.requests)},
            fix="List the kind in `steward.requests` of the app's manifest, or have a person request it.",
        )


def check_allowed(spec: StewardSpec, kind: str, member_ids: Sequence[str], inputs: Mapping[str, object]) -> None:
    """Refuse a replace that people have not allowed by an input of the instance, or of several members at once."""
    if kind not in ALONE:
        return
    if len(member_ids) != 1:
        raise errors.ValidationFailed(
            f"A controller requests {kind} for one member at a time.", details={"field": "member_ids"}
        )
    if not inputs.get(spec.replace_input):
        raise errors.Conflict(
            f"The instance does not allow its controller to request {kind}: it has no input {spec.replace_input}.",
            details={"input": spec.replace_input},
            fix=f"gpuaas reconfigure INSTANCE --set {spec.replace_input}=VALUE, or have a person request it.",
        )


def check_lost(node_name: str, *, is_ready: bool) -> None:
    """Refuse a replace of a member whose machine is not lost.

    `is_ready`: the platform receives heartbeats of its node."""
    if is_ready:
        raise errors.Conflict(
            f"The platform receives heartbeats of {node_name}, so its controller cannot request replace.",
            details={"node_name": node_name},
            fix="Repair the member, or have a person request the replace.",
        )


def choose_spare(shape: Shape, free: Mapping[str, Shape]) -> str:
    """Return the allocation to which a member of this shape moves: the first of the free ones that is the same.

    `free`: allocation id -> shape of the active allocations of the project on ready nodes that no instance uses and no
    one is logged in to, without those that a replace of this instance gave up."""
    chosen = next((allocation_id for allocation_id, other in free.items() if other == shape), None)
    if chosen is None:
        raise errors.NoSpare(
            f"The project has no free machine with SKU {shape.sku}, {shape.gpus} GPUs in region {shape.region}.",
            details={"sku": shape.sku, "region": shape.region, "gpus": shape.gpus, "free": len(free)},
        )
    return chosen


def check_cancelled(kind: str, last: Mapping[str, OperationHead], now: datetime.datetime) -> None:
    """Refuse a request within an hour after people cancelled the same one. What people do with the member later, such
    as a repair, ends this.

    `last`: member id -> the last operation of the member."""
    for member_id, operation in last.items():
        is_cancelled = operation.status == "cancelled" and operation.by_steward
        if operation.kind != kind or not is_cancelled or not operation.exits_taken:
            continue
        cancelled_at = operation.exits_taken[-1].taken_at
        if now - cancelled_at < REQUESTS_WINDOW:
            next_at = (cancelled_at + REQUESTS_WINDOW).isoformat()
            raise errors.StewardBudgetUsed(
                f"A person cancelled the last {kind} of {member_id}; the controller can request it again at {next_at}.",
                details={"member_id": member_id, "kind": kind, "next_at": next_at},
                fix=f"Request it again after `details.next_at`, or have a person request the {kind}.",
            )


def check_requests(
    spec: StewardSpec, kind: str, requested_at: Mapping[str, Sequence[datetime.datetime]], now: datetime.datetime
) -> None:
    """Refuse a request if one of the members has had as many of this kind within an hour as the manifest allows.

    `requested_at`: member id -> when the controller requested this kind of operation for it."""
    limit = spec.requests_per_hour
    for member_id, moments in requested_at.items():
        recent = sorted(moment for moment in moments if now - moment < REQUESTS_WINDOW)
        if len(recent) < limit:
            continue
        next_at = (recent[-limit] + REQUESTS_WINDOW).isoformat() if limit else ""
        when = f"the next is possible at {next_at}" if limit else "the manifest allows none"
        raise errors.StewardBudgetUsed(
            f"The controller has requested {kind} of {member_id} {len(recent)} times within an hour; {when}.",
            details={"member_id": member_id, "kind": kind, "requests_per_hour": limit, "next_at": next_at},
        )
