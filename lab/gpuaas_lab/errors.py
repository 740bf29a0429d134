"""Errors of the lab. `main.py` alone prints them and turns them into exit codes."""


class LabError(Exception):
    """An error for the user: what failed, and the next step."""

    exit_code = 1

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.what}\n  next: {self.next_step}" if self.next_step else self.what


class CommandFailed(LabError):
    """A host command failed."""


class UsageError(LabError):
    """The arguments are wrong or contradict each other."""

    exit_code = 64


class HostNotUsable(LabError):
    """The host cannot run a lab: no root, no apt, or a missing kernel feature."""

    exit_code = 3


class NotFound(LabError):
    """The lab has no machine with this name."""

    exit_code = 4
