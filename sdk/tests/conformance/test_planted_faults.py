"""Each planted fault fails the check that is made for it, for the right reason."""

import re
from collections.abc import Callable

import pytest
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Driver, SimulatedMachine, Subject

FAULTS = {
    "early_success": ("operations", "deploy", "is ready, but the app does not work there"),
    "non_idempotent_step": (
        "kill-at-every-step",
        "deploy",
        r"work-hello/log = 'installed\\ninstalled\\n' instead of",
    ),
    "dishonest_drain": ("drain-honesty", "drain", "is drained while 1 piece of work runs"),
    "stale_evidence": ("evidence-honesty", "remove", "interrupted work on n2 that began after command 1"),
    "ignored_cancel": ("cancel-at-every-step", "deploy", r"began 1 more steps \(start\) and succeeded"),
    "residue": ("residue", "decommission", "has /etc/systemd/system/gpuaas-work-hello.service"),
    "old_epoch_write": ("pause-past-the-lease", "drain", "with the access of a claim that another controller had"),
    "wrong_version": ("version-reporting", "deploy", "shows version '1.1.0', and '1.0.0' runs there"),
    "unbounded_wait": ("machine-silent", "drain", "neither ended nor showed what it waits for"),
    "unreported_failure": ("failures-are-reported", "remove", "failed, and add server succeeded, but n2 has no"),
    "unreported_removal": ("failures-are-reported", "remove", r"of remove server failed, and .* succeeded, but n2 has"),
    "impatient_drain": ("drain-honesty", "drain", "is drained while 1 piece of work runs"),
    "uncounted_failure": ("breaker", "add", "breaker of server counts 0: the operation .*, and its member is removed"),
    "removed_unseen": ("node-lost", "remove", "is shown as removed although n2 did not answer"),
    "lying_preview": ("preview-honesty", "drain", "lists 0 pieces of work, and 1 run"),
    "lost_secret": ("restart-between-operations", "deploy", "after deploy n1 has /opt/gpuaas-work-hello/config.json"),
    "double_effect": ("lost-heartbeats", "deploy", "has /var/lib/gpuaas-work-hello/start-2"),
    "health_never_reported": ("health-promises", "deploy", "Serving was not reported"),
    "undo_does_nothing": ("cancel-at-every-step", "deploy", "was cancelled in step 'start' n1 has /etc/systemd"),
}
WAITING = ("unbounded_wait", "health_never_reported")
"""Faults that are found because the app shows nothing for some time. It never does, so the time can be short."""


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_fails_its_check_for_the_right_reason(
    fault: str, planted: Callable[..., Subject]
) -> None:
    check, kind, reason = FAULTS[fault]
    kinds = {"deploy", "add", kind} if kind != "deploy" else {"deploy"}
    subject = planted(fault, silent_s=4) if fault in WAITING else planted(fault)
    card = await conformance.run(subject, only=[check], kinds=kinds)
    verdict = card.verdicts[0]
    assert (verdict.check, verdict.result) == (check, "failed")
    assert re.search(reason, verdict.reason), verdict.reason
    assert verdict.fix
    assert verdict.gap


@pytest.mark.parametrize(("fault", "result"), [("lying_preview", "failed"), ("", "passed")])
async def test_a_preview_is_judged_on_the_member_that_takes_work_if_the_newest_takes_none(
    fault: str, result: str, planted: Callable[..., Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = planted(fault)
    begin_work = subject.driver.begin_work

    def only_on_the_first(driver: Driver, machine: SimulatedMachine) -> bool | None:
        return machine.name == "n1" and begin_work(machine)

    monkeypatch.setattr(type(subject.driver), "begin_work", only_on_the_first)
    monkeypatch.setattr(type(subject.driver), "counts", {"server": 2})
    card = await conformance.run(subject, only=["preview-honesty"], kinds={"deploy", "drain"})
    assert (card.verdicts[0].result, "lists 0 pieces of work, and 1 run" in card.verdicts[0].reason) == (
        result,
        result == "failed",
    )
