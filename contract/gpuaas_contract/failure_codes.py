"""Codes in `error.code` of a failed operation. The platform and the SDK's controller kit use these; an app may send
codes of its own."""

from typing import Literal, NamedTuple


class FailureCode(NamedTuple):
    source: Literal["platform", "controller kit"]
    meaning: str
    fix: str


_CHECK_CONTROLLER = "Check that the app's controller runs, then retry; or take another of the operation's exits."
_EACH_TARGET = "Read the error of each target, repair it, then retry; or remove the failed members."

FAILURE_CODES: dict[str, FailureCode] = {
    "targets_failed": FailureCode("platform", "Some members failed or were skipped.", _EACH_TARGET),
    "deadline_passed": FailureCode("platform", "The operation was not done before its deadline.", _CHECK_CONTROLLER),
    "never_claimed": FailureCode(
        "platform", "No app controller claimed the operation before its deadline.", _CHECK_CONTROLLER
    ),
    "controller_lost": FailureCode(
        "platform",
        "The controller stopped renewing its lease, and no other claimed the operation before its deadline.",
        _CHECK_CONTROLLER,
    ),
    "members_failed": FailureCode("controller kit", "The app's code failed for some members.", _EACH_TARGET),
    "app_failed": FailureCode(
        "controller kit",
        "The app's code stopped with an error that trying again does not repair.",
        "Do what the error's `fix` and `message` say, then retry.",
    ),
    "controller_bug": FailureCode(
        "controller kit",
        "The app's code raised an error it does not handle, or the platform refused one of its reports.",
        "Find the traceback in the controller's log under the correlation id, then retry.",
    ),
    "refused": FailureCode(
        "controller kit",
        "A condition was not met, and nothing was changed: the members and the instance are as they were before.",
        "Do what the error's `fix` and `message` say, then retry; or leave everything as it is.",
    ),
    "not_supported": FailureCode(
        "controller kit",
        "The app has no code for this kind of operation.",
        "Cancel the operation, or run a version of the app's controller that supports it.",
    ),
}
