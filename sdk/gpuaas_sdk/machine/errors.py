"""Errors of commands on a machine. Their base class decides whether the controller kit retries."""

import shlex

from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.machine.transport import Command, Completed

OUTPUT_CHARS_MAX = 2000
COMMAND_CHARS_MAX = 200


class MachineUnreachable(Temporary):
    """The machine did not answer or the connection broke. The command may or may not have taken effect.

    try:
        await machine.run("kv", "ping")
    except MachineUnreachable as error:
        check = Check(False, error.reason)"""

    def __init__(self, machine: str, address: str, reason: str) -> None:
        super().__init__(f"machine {machine} ({address}) cannot be reached: {reason}")
        self.machine = machine
        self.address = address
        self.reason = reason


class MachineAway(Permanent):
    """The machine was unreachable for longer than the work on it could wait.

    try:
        await op.on(member, serves, patience_s=60)
    except MachineAway as error:
        raise NeedsOperator(str(error), fix="look at the machine") from error"""

    def __init__(self, name: str, address: str, waited_s: float, reason: str) -> None:
        super().__init__(
            f"machine {name} ({address}) did not answer for {waited_s:.0f} s: {reason}",
            fix=f"ping {address}; ssh {address} true",
        )


class CommandTimedOut(Temporary):
    """The command was stopped on the machine because it exceeded its time limit.

    try:
        await machine.run("kv", "compact", timeout_s=30)
    except CommandTimedOut as error:
        raise Permanent(str(error)) from error"""

    def __init__(self, machine: str, command: Command) -> None:
        super().__init__(f"on {machine}: `{shown(command)}` did not end within {command.timeout_s:g} s")
        self.machine = machine
        self.command = command


class CommandFailed(Permanent):
    """The command ended with a non-zero exit status. The message ends with the last part of its output, without the
    contents of files that it read: they can be keys.

    try:
        await machine.run("kv", "ping")
    except CommandFailed as error:
        raise Refused(error.output) from error"""

    def __init__(self, machine: str, command: Command, completed: Completed) -> None:
        reads_files = any(each.summary[:1] == ("get",) for each in (command, *command.parts))
        stdout = b"" if reads_files else completed.stdout.strip()
        output = (completed.stderr.strip() or stdout).decode(errors="replace")
        end = f"ended with status {completed.exit_status}: {output[-OUTPUT_CHARS_MAX:] or 'no output'}"
        super().__init__(f"on {machine}: `{shown(command)}` {end}")
        self.machine = machine
        self.command = command
        self.exit_status = completed.exit_status
        self.output = output


def shown(command: Command) -> str:
    """Return the command as one line for messages, cut to a readable length."""
    return shlex.join(command.summary)[:COMMAND_CHARS_MAX]
