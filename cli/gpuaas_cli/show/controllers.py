"""Format what a controller reports of itself, for `gpuaas get controllers` and `gpuaas describe controller`."""

import re
from collections.abc import Sequence

from gpuaas_contract.controllers import Controller, ControllerFailure, ControllerLogLine

from gpuaas_cli.output import Lines, age, aligned, clock_time, facts, flat, listing, quoted_command, table
from gpuaas_cli.show import steps
from gpuaas_cli.show.story import section

_INSTANCE_ID = re.compile(r"inst_[0-9a-z]{1,40}", re.ASCII)
UNREPORTED = "not reported"
"""A controller of an earlier release, or one without the kit, reports no failures: that is not the same as none."""


def failing(controller: Controller) -> str:
    """Return how many failures the controller reports, and the newest one."""
    state = controller.state
    if state is None:
        return UNREPORTED
    if not state.failures:
        return "none"
    newest = state.failures[0]
    return f"{state.failures_total}, last {age(newest.observed_at)} ago: {newest.task} {newest.code}"


def page(controller: Controller, lines: Sequence[ControllerLogLine]) -> Lines:
    state = controller.state
    failures = listing(state.failures, _FAILURES) if state and state.failures else [failing(controller)]
    if state and state.failures_total > len(state.failures):
        failures.append(f"and {state.failures_total - len(state.failures)} more")
    log = [[clock_time(line.logged_at), line.level, flat(line.event), steps.log_detail(line)] for line in lines]
    return [
        *facts(controller, _CONTROLLER),
        *section("Failures", failures),
        *section("Log, the newest lines that belong to no operation", aligned(log) if log else ["no lines"]),
        *section("Next", [quoted_command("describe", "instance", item) for item in _instances(controller)]),
    ]


def _instances(controller: Controller) -> list[str]:
    # A controller chooses the text, and a person may copy the command: only what the platform can have named is shown.
    failures = controller.state.failures if controller.state else []
    return list(dict.fromkeys(item.instance_id for item in failures if _INSTANCE_ID.fullmatch(item.instance_id)))


def _observed(failure: ControllerFailure) -> str:
    return f"{age(failure.observed_at)} ago"


_CONTROLLER = table(
    "Controller=holder App=app_slug Version Account=actor_id Id=controller_id Seen Started Reported",
    Seen=lambda controller: f"{age(controller.last_seen_at)} ago",
    Started=lambda controller: clock_time(controller.state.started_at) if controller.state else "",
    Reported=lambda controller: f"{age(controller.state.reported_at)} ago" if controller.state else "",
)
_FAILURES = table(
    "TASK CODE INSTANCE=instance_id OBSERVED SINCE=failed_since TIMES=count MESSAGE",
    OBSERVED=_observed,
)
