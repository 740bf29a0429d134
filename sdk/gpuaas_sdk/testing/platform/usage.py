"""Usage in the fake platform: records that count once, with the rules of the real platform."""

from gpuaas_contract.protocol import usage as rules
from gpuaas_contract.usage import ReportedUsage, ReportUsage, UsageReceipt

from gpuaas_sdk.testing.platform.records import Records
from gpuaas_sdk.testing.platform.runtime import Runtime
from gpuaas_sdk.testing.platform.stewards import Stewards


class Usage:
    """The usage records of all instances."""

    def __init__(self, records: Records, runtime: Runtime, stewards: Stewards) -> None:
        self.by_instance: dict[str, dict[str, ReportedUsage]] = {}
        """Instance id -> record id -> record."""
        self._records = records
        self._runtime = runtime
        self._stewards = stewards

    def report(self, instance_id: str, body: ReportUsage) -> UsageReceipt:
        """Store the records that are new."""
        if body.operation_id:
            rules.check_operation(self._runtime.claimed(body.operation_id, body.epoch), instance_id)
        else:
            self._stewards.check_reporter(instance_id, body.epoch)
        members = {item.member_id for item in self._records.members.values() if item.instance_id == instance_id}
        rules.check(body.records, members, self._records.clock())
        known = self.by_instance.setdefault(instance_id, {})
        reported = rules.sort(body.records, known)
        known |= {record.record_id: record for record in reported.new}
        return UsageReceipt(accepted=len(reported.new), repeated=reported.repeated, conflicting=reported.conflicting)
