"""The circuit breakers of roles in the fake platform. Its rules are those of the real platform, from
`gpuaas_contract.protocol`."""

import datetime

from gpuaas_contract.catalog import RoleSpec
from gpuaas_contract.instances import BreakerState, Member
from gpuaas_contract.operations import Operation
from gpuaas_contract.protocol import report, request

from gpuaas_sdk.testing.platform.records import Records

BEGUN = frozenset({"provisioning", "joining"})
"""Statuses in which the controller had started to add the member, so its failure counts."""


class Breakers:
    """The failed joins of each role. A role has a breaker if its manifest was added with `FakePlatform.add_version`."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._failed_at: dict[tuple[str, str], list[datetime.datetime]] = {}

    def count(self, operation: Operation, member: Member) -> None:
        """Count the failure of a member, if it failed to join."""
        if report.counts_as_failed_join(operation, member.status):
            key = (operation.instance_id, operation.component_key)
            self._failed_at.setdefault(key, []).append(self._records.clock())

    def state(self, instance_id: str, component_key: str) -> BreakerState:
        """Return whether the breaker of the role is open, and how many members failed to join recently."""
        role = self._role(instance_id, component_key)
        failed_at = self._failed_at.get((instance_id, component_key), [])
        return request.breaker_state(role, failed_at, self._records.clock()) if role else BreakerState()

    def check(self, instance_id: str, component_key: str) -> None:
        """Raise `CircuitOpen` if the breaker of the role is open."""
        role = self._role(instance_id, component_key)
        if role is not None:
            request.check_breaker(role, self.state(instance_id, component_key))

    def reset(self, instance_id: str, component_key: str) -> None:
        """Close the breaker of the role."""
        self._failed_at.pop((instance_id, component_key), None)

    def _role(self, instance_id: str, component_key: str) -> RoleSpec | None:
        manifest = self._records.manifests.get(self._records.instance(instance_id).app_version)
        roles = manifest.roles if manifest else []
        return next((role for role in roles if role.component_key == component_key), None)
