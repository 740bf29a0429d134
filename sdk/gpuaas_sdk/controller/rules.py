"""Decisions of the controller kit, without effects: how an error ends an operation, how long a pause lasts."""

import random
from typing import Literal

from gpuaas_contract.errors import ApiError
from gpuaas_contract.instances import Member
from gpuaas_contract.runtime import FailOperation

from gpuaas_sdk.failures import NeedsOperator, Permanent

MESSAGE_CHARS_MAX = 2000
TEMPORARY_PAUSE_S_MAX = 60.0


class MembersFailed(Permanent):
    """Some members of one `each` failed; the others ended well."""

    def __init__(self, failures: tuple[tuple[Member, Permanent], ...], count: int) -> None:
        listed = "; ".join(f"{member.node_name or member.member_id}: {error}" for member, error in failures)
        fixes = [error.fix for _, error in failures if error.fix]
        super().__init__(f"{len(failures)} of {count} members failed: {listed}", fix=fixes[0] if fixes else "")
        self.failures = failures


class NotSupported(Permanent):
    """The app has no handler for this kind of operation."""


def failure_of(error: Exception, epoch: int) -> FailOperation:
    code, fix = _code_and_fix(error)
    message = str(error) if isinstance(error, Permanent) else f"{type(error).__name__}: {error}"
    return FailOperation(
        epoch=epoch,
        code=code,
        message=clipped(message),
        failure_class=_failure_class(error),
        fix=fix,
    )


def pause_s(after_s: float) -> float:
    return min(after_s, TEMPORARY_PAUSE_S_MAX) * random.uniform(0.8, 1.2)


def clipped(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARS_MAX else message[: MESSAGE_CHARS_MAX - 1] + "…"


def _code_and_fix(error: Exception) -> tuple[str, str]:
    match error:
        case NotSupported():
            return "not_supported", error.fix
        case MembersFailed():
            return "members_failed", error.fix
        case Permanent():
            return "app_failed", error.fix
        case ApiError():
            return "controller_bug", error.fix
        case _:
            return "controller_bug", "Look for the traceback in the controller's log, then try the operation again."


def _failure_class(error: Exception) -> Literal["retryable", "repairable", "needs_operator"]:
    causes = [cause for _, cause in error.failures] if isinstance(error, MembersFailed) else [error]
    if any(isinstance(cause, NeedsOperator) for cause in causes):
        return "needs_operator"
    return "repairable" if isinstance(error, Permanent) else "retryable"
