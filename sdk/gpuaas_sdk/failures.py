"""Errors that the work of an app controller may raise. The type decides whether the kit retries."""

from typing import ClassVar

from gpuaas_contract.operations import FailureClass


class Temporary(Exception):
    """A retry can help: the kit repeats the step after `after_s` until the operation's deadline."""

    def __init__(self, text: str, after_s: float = 5.0) -> None:
        super().__init__(text)
        self.after_s = after_s


class Permanent(Exception):
    """A retry cannot help: the operation fails. `fix` is the next command a person should run."""

    failure_class: ClassVar[FailureClass] = "repairable"

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.fix = fix


class NeedsOperator(Permanent):
    """A person has to decide what happens next."""

    failure_class: ClassVar[FailureClass] = "needs_operator"


class Drift(Permanent):
    """The machines are not as recorded. The app's reconcile handler repairs that; then a retry succeeds."""

    failure_class: ClassVar[FailureClass] = "drift"


class Lost(Permanent):
    """What the operation concerns no longer exists: a destroyed machine, or data without any copy."""

    failure_class: ClassVar[FailureClass] = "lost"
