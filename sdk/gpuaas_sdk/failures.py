"""What a piece of an app controller's work may raise.  The type alone tells the kit whether to try again."""

from typing import ClassVar

from gpuaas_contract.operations import FailureClass


class Temporary(Exception):
    """Worth trying again by itself: the kit repeats the step after `after_s` until the operation's deadline."""

    def __init__(self, text: str, after_s: float = 5.0) -> None:
        super().__init__(text)
        self.after_s = after_s


class Permanent(Exception):
    """Trying again changes nothing: the operation fails. `fix` is the next command a person would run."""

    failure_class: ClassVar[FailureClass] = "repairable"

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.fix = fix


class NeedsOperator(Permanent):
    """Permanent, and only a person can decide what happens next."""

    failure_class: ClassVar[FailureClass] = "needs_operator"


class Drift(Permanent):
    """The machines are not as recorded; the app's reconcile handler puts that right, then a retry succeeds."""

    failure_class: ClassVar[FailureClass] = "drift"


class Lost(Permanent):
    """What the operation was about is gone: a machine that burnt down, data that no copy is left of."""

    failure_class: ClassVar[FailureClass] = "lost"
