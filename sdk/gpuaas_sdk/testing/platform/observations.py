"""The reports of controllers between operations, in the fake platform: presence, conditions, members."""

from gpuaas_contract.controllers import Controller, ControllerLogLine, ControllerReport
from gpuaas_contract.errors import AppUnknown, NotFound, ValidationFailed
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.protocol import controllers, observation, request
from gpuaas_contract.runtime import (
    ObservedMember,
    RefusedObservation,
    ReportRuntime,
    RuntimeReported,
)
from msgspec.structs import replace

from gpuaas_sdk.testing.platform.edge import Account
from gpuaas_sdk.testing.platform.records import Records
from gpuaas_sdk.testing.platform.stewards import Stewards


class Observations:
    """The controllers that sent a request, and their observations of instances."""

    def __init__(self, records: Records, stewards: Stewards, app_slug: str, account: Account) -> None:
        self.controllers: dict[str, Controller] = {}
        """By holder."""
        self._logs: dict[str, list[ControllerLogLine]] = {}
        self._records = records
        self._stewards = stewards
        self._app_slug = app_slug
        self._account = account
        self.other_apps: set[str] = set()
        """Apps that are registered, but that the account does not operate."""

    def check_app(self, app_slug: str) -> None:
        """Refuse every app except the one of this fake platform."""
        if app_slug not in {self._app_slug, *self.other_apps}:
            raise AppUnknown(f"No app is registered as {app_slug}.", details={"field": "app_slug"})
        request.check_app(app_slug, self._account)

    def seen(self, holder: str, version: str = "") -> None:
        """Store that this controller sent a request now."""
        known = self.controllers.get(holder)
        self.controllers[holder] = Controller(
            controller_id=f"{self._records.project_id}/{self._app_slug}/{holder}",
            project_id=self._records.project_id,
            app_slug=self._app_slug,
            holder=holder,
            actor_id=self._account.actor_id,
            version=version or (known.version if known else ""),
            last_seen_at=self._records.clock(),
            state=known.state if known else None,
        )

    def note_report(self, holder: str, report: ControllerReport) -> None:
        """Store what the controller reports of itself, unless a later report is stored."""
        known, now = self.controllers[holder], self._records.clock()
        if controllers.replaces(known.state, report, now):
            self.controllers[holder] = replace(known, state=controllers.state(report, now))
            self._logs[known.controller_id] = report.log

    def log(self, controller_id: str) -> list[ControllerLogLine]:
        """Return the stored lines of the controller's log."""
        controllers.check_log_query(controller_id)
        if all(known.controller_id != controller_id for known in self.controllers.values()):
            raise NotFound(f"There is no controller {controller_id}.")
        return self._logs.get(controller_id, [])

    def report(self, instance_id: str, report: ReportRuntime) -> RuntimeReported:
        """Store the observations that are accepted, and return those that are refused."""
        instance = self._stewards.check_reporter(instance_id, report.epoch)
        if report.observed_revision > instance.revision:
            raise ValidationFailed(
                f"The report is about another revision: the instance is at revision {instance.revision}.",
                details={"field": "observed_revision"},
            )
        results = [self._observe(instance, observed) for observed in report.members]
        conditions = observation.conditions(report, self._records.clock()) + self._stewards.note_look(instance)
        updated = self._records.update_status(instance, conditions)
        self.seen(report.holder)
        return RuntimeReported(
            instance=updated,
            members=[member for member in results if isinstance(member, Member)],
            refused=[refused for refused in results if isinstance(refused, RefusedObservation)],
        )

    def _observe(self, instance: Instance, observed: ObservedMember) -> Member | RefusedObservation:
        member = self._records.members.get(observed.member_id)
        if member is None or member.instance_id != instance.instance_id:
            return observation.unknown_member(observed)
        refused = observation.refusal(member, observed, busy=self._is_busy(instance, observed.member_id))
        return refused or self._changed(member, observed)

    def _is_busy(self, instance: Instance, member_id: str) -> bool:
        operations = self._records.open_operations(instance.instance_id)
        return any(target.member_id == member_id for operation in operations for target in operation.targets)

    def _changed(self, member: Member, observed: ObservedMember) -> Member:
        fields = {
            "status": observed.status,
            "status_reason": observed.status_reason,
            "adapter_detail": observed.adapter_detail,
            "observed_version": observed.observed_version,
        }
        changes = {
            name: value for name, value in fields.items() if value is not None and getattr(member, name) != value
        }
        return self._records.change_member(member, **changes) if changes else member
