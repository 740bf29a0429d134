"""Find the machines whose health programs are of another release of the app. Pure; `plan` has them repaired.

They work, so no member is shown as degraded because of them."""

from collections.abc import Iterable, Mapping

from gpuaas_app_slurm.workload import programs
from gpuaas_app_slurm.workload.observed import Report

AT_ONCE = 4
"""So many machines are repaired at a time: after a release of the app, all machines of a cluster have old programs."""


def to_renew(reports: Iterable[tuple[str, str, Report | None]]) -> Mapping[str, str]:
    """Return member id -> name of its machine, of those to repair, one member of each machine. `reports` has the id,
    the machine and its report, of the members that are ready.

    A reporter that does not report its programs is of a release before this check. It is not judged: a repair that
    people request replaces it."""
    old = {
        name: member_id
        for member_id, name, report in reports
        if report is not None and report.programs not in ("", programs.digest())
    }
    return {member_id: name for name, member_id in sorted(old.items())[:AT_ONCE]}
