"""The errors that end a task or the agent. Raised by the host and handler modules, turned into results by `tasks`."""

from __future__ import annotations


class CannotStart(Exception):
    """The agent cannot start until an operator changes what the message names."""


class TaskFailed(Exception):
    """The task failed. Programs read the stable code, operators the message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TryLater(Exception):
    """The task cannot be done yet: no result is recorded, and the platform delivers the task again."""


class Replaced(TryLater):
    """The file of this agent was replaced by a new agent, which finishes the task; this agent exits."""
