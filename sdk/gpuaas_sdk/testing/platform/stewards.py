"""Stewardships in the fake platform: which controller looks after an instance, and the operations that it requests.

The rules are those of the real platform, from `gpuaas_contract.protocol.steward`."""

import datetime

from gpuaas_contract.catalog import StewardSpec
from gpuaas_contract.errors import Conflict
from gpuaas_contract.instances import AccessBundle, Condition, Instance, Member, Steward
from gpuaas_contract.lifecycles import GONE_MEMBER
from gpuaas_contract.operations import DEADLINES_S, Operation
from gpuaas_contract.protocol import request
from gpuaas_contract.protocol import steward as rules
from gpuaas_contract.protocol.status import OBSERVED
from gpuaas_contract.runtime import PublishAccess
from gpuaas_contract.stewardships import RenewStewardships, StewardOperationRequest, Stewardship, Stewardships
from msgspec.structs import replace

from gpuaas_sdk.testing.platform import rows
from gpuaas_sdk.testing.platform.breakers import Breakers
from gpuaas_sdk.testing.platform.edge import Account
from gpuaas_sdk.testing.platform.records import Records


class Stewards:
    """The stewardships of all instances."""

    def __init__(self, records: Records, account: Account, spec: StewardSpec, breakers: Breakers) -> None:
        self.by_instance: dict[str, Steward] = {}
        self.renewals = 0
        """How many renewals were served."""
        self._records = records
        self._account = account
        self._spec = spec
        self._breakers = breakers
        self._requested_at: dict[tuple[str, str], list[datetime.datetime]] = {}

    def renew(self, body: RenewStewardships) -> Stewardships:
        """Renew the stewardships that the caller holds, and take free ones."""
        now, self.renewals = self._records.clock(), self.renewals + 1
        taker = rules.Taker(body.holder, self._account.actor_id, now + datetime.timedelta(seconds=body.lease_s))
        deployed = {instance.instance_id: instance for instance in self._deployed(body.app_slug)}
        present = {instance_id: self.by_instance.get(instance_id) for instance_id in deployed}
        held = {entry.instance_id: entry for entry in body.held}
        renewals = rules.renewals(present, held, taker, now, take_max=body.take_max)
        for instance_id, steward in renewals.items():
            self._store(deployed[instance_id], steward)
        return Stewardships(
            held=[self._held(instance_id, steward) for instance_id, steward in renewals.items()],
            lost=[instance_id for instance_id in held if instance_id not in renewals],
        )

    def withdraw_all(self) -> None:
        """End every stewardship: the epoch of its holder is old from now on."""
        now = self._records.clock()
        self.by_instance = {
            instance_id: rules.withdrawn(steward, 1, now) for instance_id, steward in self.by_instance.items()
        }

    def check(self, instance_id: str, epoch: int) -> Instance:
        """Return the instance; refuse a caller that does not hold its stewardship with this epoch."""
        instance = self._records.instance(instance_id)
        rules.check(instance, self.by_instance.get(instance_id), epoch, self._account, self._records.clock())
        return instance

    def check_reporter(self, instance_id: str, epoch: int) -> Instance:
        """Return the instance; refuse an observation of another controller than the steward."""
        instance, steward = self._records.instance(instance_id), self.by_instance.get(instance_id)
        rules.check_reporter(instance, steward, epoch, self._account, self._records.clock())
        return instance

    def note_look(self, instance: Instance) -> list[Condition]:
        """Store that a controller looked now. Return the condition that changes with it, if one does."""
        steward, now = self.by_instance.get(instance.instance_id), self._records.clock()
        if steward is None:
            return []
        self.by_instance[instance.instance_id] = looked = rules.observed(steward, now, now)
        if not _is_unobserved(instance):
            return []
        return [rules.observed_condition(instance, looked, now, is_observed=True)]

    def publish_access(self, instance_id: str, body: PublishAccess) -> AccessBundle:
        """Replace the access bundle of the instance."""
        self.check(instance_id, body.epoch)
        bundle = AccessBundle(endpoints=body.endpoints, paths=body.paths, commands=body.commands, notes=body.notes)
        self._records.access_bundles[instance_id] = bundle
        return bundle

    def request(self, instance_id: str, body: StewardOperationRequest) -> Operation:
        """Accept an operation that the steward requests."""
        instance, now = self.check(instance_id, body.epoch), self._records.clock()
        rules.check_kind(self._spec, body.kind)
        rules.check_allowed(self._spec, body.kind, body.member_ids, instance.inputs)
        members = [self._records.member(instance_id, member_id) for member_id in body.member_ids]
        for member in members:
            if member.status not in request.MEMBER_STARTS[body.kind]:
                raise Conflict(f"Member {member.member_id} is {member.status}; {body.kind} is not possible.")
        request.check_free(self._records.open_operations(instance_id), body.kind, body.member_ids)
        known = [member for member in members if member.last_operation_id in self._records.operations]
        last = {member.member_id: self._records.operations[member.last_operation_id] for member in known}
        rules.check_cancelled(body.kind, last, now)
        self._breakers.check(instance_id, members[0].component_key)
        moves = self._spares(instance_id, members) if body.kind == "replace" else {}
        before = {member_id: self._requested_at.get((member_id, body.kind), []) for member_id in body.member_ids}
        rules.check_requests(self._spec, body.kind, before, now)
        for member_id in body.member_ids:
            self._requested_at[member_id, body.kind] = [*before[member_id], now]
        asked = rows.OperationRequest(
            targets=tuple(members),
            component_key=members[0].component_key,
            reason=body.reason,
            force=bool(moves),
            by_steward=True,
            replacements=moves,
            deadline_s=DEADLINES_S[body.kind],
        )
        return self._records.add_operation(instance, body.kind, asked)

    def _spares(self, instance_id: str, members: list[Member]) -> dict[str, str]:
        """Return the node of the spare to which the member moves, by its id. All machines of the fake have one shape
        unless the test gave a spare another one."""
        [member] = members
        request.check_holds("replace", [member.member_id], self._records.active_holds(instance_id))
        rules.check_lost(member.node_name, is_ready=member.node_name not in self._records.lost)
        used = {other.node_name for other in self._records.members.values() if other.status not in GONE_MEMBER}
        left_out = used | self._records.lost | self._given_up(instance_id)
        free = {name: shape for name, shape in reversed(self._records.spares.items()) if name not in left_out}
        return {member.member_id: rules.choose_spare(rules.Shape("", "", 0), free)}

    def _given_up(self, instance_id: str) -> set[str]:
        """Return the nodes from which a replace moved a member of the instance away."""
        replaces = [
            operation
            for operation in self._records.operations.values()
            if operation.instance_id == instance_id and operation.kind == "replace"
        ]
        left = {target.previous_allocation_id for operation in replaces for target in operation.targets}
        return {name for name in self._records.spares if rows.allocation_id(name) in left}

    def shown(self, instance: Instance) -> Instance:
        """Return the instance as people read it: with its steward, and whether a controller still looks after it."""
        steward, now = self.by_instance.get(instance.instance_id), self._records.clock()
        if steward is not None and rules.is_unobserved(steward, now) and not _is_unobserved(instance):
            condition = rules.observed_condition(instance, steward, now, is_observed=False)
            instance = self._records.update_status(instance, [condition])
        return replace(instance, steward=steward)

    def _deployed(self, app_slug: str) -> list[Instance]:
        present = [self._records.instances[instance_id] for instance_id in sorted(self._records.instances)]
        return [
            instance
            for instance in present
            if instance.app_slug == app_slug
            and instance.status not in rules.NOT_DEPLOYED
            and instance.operator_service_account_id in ("", self._account.actor_id)
        ]

    def _store(self, instance: Instance, steward: Steward) -> None:
        before = self.by_instance.get(instance.instance_id)
        self.by_instance[instance.instance_id] = steward
        looked = before is not None and steward.observed_at != before.observed_at
        if looked and _is_unobserved(instance):
            condition = rules.observed_condition(instance, steward, self._records.clock(), is_observed=True)
            self._records.update_status(instance, [condition])

    def _held(self, instance_id: str, steward: Steward) -> Stewardship:
        return Stewardship(
            instance_id=instance_id,
            epoch=steward.epoch,
            expires_at=steward.expires_at,
            revision=self._records.instances[instance_id].revision,
        )


def _is_unobserved(instance: Instance) -> bool:
    return any(condition.type == OBSERVED and condition.status == "false" for condition in instance.conditions)
