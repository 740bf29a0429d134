"""Errors that an app's handlers raise. Their type decides whether the controller kit retries."""

from typing import ClassVar

from gpuaas_contract.operations import FailureClass


class Temporary(Exception):
    """A retry can help: the kit repeats the step after `after_s` until the operation's deadline.

    raise Temporary("the server on gpu-1 does not answer yet", after_s=2)"""

    def __init__(self, text: str, after_s: float = 5.0) -> None:
        super().__init__(text)
        self.after_s = after_s
        """Seconds until the next attempt."""


class Permanent(Exception):
    """A retry cannot help: the operation fails. `fix` is the next command a person should run.

    raise Permanent("/data of gpu-1 is full", fix="free space on gpu-1, then: gpuaas op retry ID")"""

    failure_class: ClassVar[FailureClass] = "repairable"
    """Who can help, as the platform shows it; each subclass has its own."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.fix = fix
        """The next command or act of a person; empty: none is known."""


class Refused(Permanent):
    """A condition is not met, and nothing was changed: the members and the instance stay as they were.

    Raise it before the first change, such as `raise Refused("2 jobs run", fix="wait for them, or use force")`. Inside
    `Operation.each` it concerns only that member.

    raise Refused("2 jobs run", fix="wait for them, or use force")"""

    failure_class: ClassVar[FailureClass] = "refused"


class NeedsOperator(Permanent):
    """The operation fails, and a person must decide how to continue.

    raise NeedsOperator("two copies of the data differ", fix="choose one: gpuaas action run INSTANCE copy.choose")"""

    failure_class: ClassVar[FailureClass] = "needs_operator"


class Drift(Permanent):
    """The machines are not in the recorded state. A retry can help after the reconcile handler has repaired them.

    raise Drift("the configuration on gpu-2 is not the one that was written")"""

    failure_class: ClassVar[FailureClass] = "drift"


class Lost(Permanent):
    """A machine or data that the operation needs no longer exists and cannot be restored.

    raise Lost("the disk with the data of gpu-2 is gone", fix="restore a backup")"""

    failure_class: ClassVar[FailureClass] = "lost"
