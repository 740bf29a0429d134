"""What controllers say between operations, as the platform in memory takes it: presence, conditions, members."""

from gpuaas_contract.errors import AppUnknown, ValidationFailed
from gpuaas_contract.instances import Condition, Instance, Member
from gpuaas_contract.lifecycles import SERVING_MEMBER
from gpuaas_contract.runtime import (
    Controller,
    ObservedMember,
    RefusedObservation,
    ReportRuntime,
    RuntimeReported,
)

from gpuaas_sdk.testing import rules
from gpuaas_sdk.testing.records import Records


class Observations:
    def __init__(self, records: Records, app_slug: str, actor_id: str) -> None:
        self.controllers: dict[str, Controller] = {}
        """By holder."""
        self._records = records
        self._app_slug = app_slug
        self._actor_id = actor_id

    def check_app(self, app_slug: str) -> None:
        if app_slug != self._app_slug:
            raise AppUnknown(f"No app is registered as {app_slug}.", details={"field": "app_slug"})

    def seen(self, holder: str, version: str = "") -> None:
        known = self.controllers.get(holder)
        self.controllers[holder] = Controller(
            controller_id=f"{self._records.project_id}/{self._app_slug}/{holder}",
            project_id=self._records.project_id,
            app_slug=self._app_slug,
            holder=holder,
            actor_id=self._actor_id,
            version=version or (known.version if known else ""),
            last_seen_at=self._records.clock(),
        )

    def report(self, instance_id: str, report: ReportRuntime) -> RuntimeReported:
        instance = self._records.instance(instance_id)
        if report.observed_revision > instance.revision:
            raise ValidationFailed(
                f"The instance is at revision {instance.revision}.", details={"field": "observed_revision"}
            )
        found = [self._observe(instance, observed) for observed in report.members]
        settled = self._records.settle(instance, self._conditions(report))
        self.seen(report.holder)
        return RuntimeReported(
            instance=settled,
            members=[member for member in found if isinstance(member, Member)],
            refused=[refused for refused in found if isinstance(refused, RefusedObservation)],
        )

    def _observe(self, instance: Instance, observed: ObservedMember) -> Member | RefusedObservation:
        member = self._records.members.get(observed.member_id)
        if member is None or member.instance_id != instance.instance_id:
            return _refused(observed, "not_found", "There is no such member in this instance.")
        if self._is_busy(member):
            return _refused(observed, "operation_in_progress", "An operation works on it; its holder reports.")
        if observed.revision != member.revision:
            return _refused(observed, "stale", f"It is at revision {member.revision} by now.")
        if not rules.may_be_seen(member, observed):
            return _refused(
                observed, "illegal_move", f"It does not go from {member.status} to {observed.status} by itself."
            )
        return self._changed(member, observed)

    def _is_busy(self, member: Member) -> bool:
        working = self._records.open_operations(member.instance_id)
        return any(rules.target_of(operation, member.member_id) for operation in working)

    def _changed(self, member: Member, observed: ObservedMember) -> Member:
        said = {
            "status": observed.status,
            "status_reason": observed.status_reason,
            "was_ready": member.was_ready or observed.status in SERVING_MEMBER,
        }
        if observed.adapter_detail is not None:
            said["adapter_detail"] = observed.adapter_detail
        if observed.observed_version is not None:
            said["observed_version"] = observed.observed_version
        news = {name: value for name, value in said.items() if getattr(member, name) != value}
        return self._records.change_member(member, **news) if news else member

    def _conditions(self, report: ReportRuntime) -> list[Condition]:
        for reported in report.conditions:
            if reported.type == rules.LAST_OPERATION:
                raise ValidationFailed(f"{reported.type} is said by the platform.", details={"field": "conditions"})
        return [
            Condition(
                type=reported.type,
                status=reported.status,
                reason=reported.reason,
                message=reported.message,
                observed_revision=report.observed_revision,
                changed_at=self._records.clock(),
            )
            for reported in report.conditions
        ]


def _refused(observed: ObservedMember, code: rules.RefusalCode, message: str) -> RefusedObservation:
    return RefusedObservation(member_id=observed.member_id, code=code, message=message)
