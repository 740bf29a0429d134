"""The errors that end a task or the agent. Raised by the host and handler modules, turned into results by `tasks`."""

from __future__ import annotations


class CannotStart(Exception):
    """The agent cannot work until a person changes something; the message names what."""


class TaskFailed(Exception):
    """The task failed for a reason with a stable code; the operator reads the message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TryLater(Exception):
    """The task cannot be done yet: no result is recorded, and the platform delivers the task again."""


class Replaced(TryLater):
    """Another agent has replaced this one's file and finishes the task; this agent exits."""
