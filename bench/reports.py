"""Compare the time per report of an operation with 3 members and of one with 1,024. `operations` runs it per store.

The members are written directly into the tables; the operation is requested, claimed and reported through the API. Each
step and each member is reported once before the measurement, so that the large operation already has 1,024 steps.
"""

import itertools
import statistics
import time
import uuid
from collections.abc import Callable

from bench import records
from bench.platform_parts import INSTANCE_ROWS, MEMBER_ROWS
from bench.sides import Side

FEW, MANY = 3, 1_024
REPORTS = 300
"""The number of measured reports, for each kind of report and each size."""
_APP = "bench-reports"
_FIRST_INSTANCE, _FIRST_MEMBER = 10**6, 10**8
"""Numbers that the other records do not use."""


def run(side: Side) -> None:
    side.register_app(_APP)
    few, many = (ClaimedOperation(side, position, size) for position, size in enumerate((FEW, MANY)))
    print(f"{'time per report, ms':34}{FEW:>9,}{MANY:>9,} members{'ratio':>13}{'of the fastest quarter':>26}")
    for name, report in REPORTS_BY_NAME.items():
        (few_quick, few_ms), (many_quick, many_ms) = _compare(report, few, many)
        ratios = f"{many_ms / few_ms:21.2f}{many_quick / few_quick:26.2f}"
        print(f"{name:34}{few_ms:9.2f}{many_ms:9.2f}{ratios}", flush=True)


class ClaimedOperation:
    """A drain of `size` members that this controller has claimed and reported on."""

    def __init__(self, side: Side, position: int, size: int) -> None:
        self._side, self._sent = side, itertools.count()
        number, first = _FIRST_INSTANCE + position, _FIRST_MEMBER + position * 10 * MANY
        self.member_ids = [records.member_id(first + index) for index in range(size)]
        self._steps, self._members = itertools.cycle(self.member_ids), itertools.cycle(self.member_ids)
        of_project = (side.org_id, side.project_id)
        side.insert(INSTANCE_ROWS, lambda: [records.instance(*of_project, number, _APP)])
        numbers = range(first, first + size)
        side.insert(MEMBER_ROWS, lambda: [records.member(*of_project, each, number) for each in numbers])
        self._request(number)
        claim = {"app_slug": _APP, "holder": "bench", "claim_id": uuid.uuid4().hex, "lease_s": 60}
        claimed = side.send("POST", "/operations/claim", claim)
        self._path, self._epoch = f"/operations/{claimed['operation']['operation_id']}", claimed["epoch"]
        for _ in range(size):
            self.report_member()
            self.report_step()

    def report_step(self) -> None:
        body = {"epoch": self._epoch, "name": "wait", "state": "running", "message": f"report {next(self._sent)}"}
        self._side.send("PUT", f"{self._path}/steps", body | {"member_id": next(self._steps)})

    def report_member(self) -> None:
        detail = {"state": "busy", "report": next(self._sent)}
        body = {"epoch": self._epoch, "status": "draining", "adapter_detail": detail}
        self._side.send("PUT", f"{self._path}/members/{next(self._members)}", body)

    def heartbeat(self) -> None:
        self._side.send("PUT", f"{self._path}/lease", {"epoch": self._epoch, "lease_s": 60})

    def _request(self, number: int) -> None:
        path = f"/projects/{self._side.project_id}/app-instances/{records.instance_id(number)}/member-operations"
        body = {"kind": "drain", "component_key": records.ROLE, "member_ids": self.member_ids}
        self._side.administer("POST", path, body)


REPORTS_BY_NAME: dict[str, Callable[[ClaimedOperation], None]] = {
    "step": ClaimedOperation.report_step,
    "member": ClaimedOperation.report_member,
    "heartbeat": ClaimedOperation.heartbeat,
}


def _compare(
    report: Callable[[ClaimedOperation], None], few: ClaimedOperation, many: ClaimedOperation
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Report to both in turns, so that other work on the machine affects both; return quartile and median in ms."""
    taken_s: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPORTS):
        for operation, taken in zip((few, many), taken_s, strict=True):
            started_s = time.perf_counter()
            report(operation)
            taken.append(time.perf_counter() - started_s)
    first, second = (statistics.quantiles(taken, n=4) for taken in taken_s)
    return (first[0] * 1000, first[1] * 1000), (second[0] * 1000, second[1] * 1000)
