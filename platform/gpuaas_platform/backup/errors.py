"""Errors of backups, for the operator: what failed, and what to do next."""


class BackupError(Exception):
    """A backup or restore cannot continue. `fix` is what the operator can do."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class NotSound(BackupError):
    """The file is damaged, incomplete or not what it claims to be. Nothing of it may be used."""


class CannotProceed(BackupError):
    """The command cannot run as it was called, for example because a file is missing or a target is not empty."""
